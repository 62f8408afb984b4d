"""The tests' schedulers find a place beside other programs, and wait for one that has them all."""

from __future__ import annotations

import asyncio
import socket

import pytest

from local.host.ports import free_ports
from tests.reconcile import fake_dask
from tests.reconcile.fake_dask import FakeScheduler


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Theirs here: the real one belongs to tests that run now."""
    (port,) = free_ports(1, host="")
    monkeypatch.setattr(fake_dask, "PORT", port)
    return port


async def test_one_whose_address_is_taken_has_another(port: int):
    scheduler = FakeScheduler()
    with socket.create_server((scheduler.address, port)):
        taken = scheduler.address
        await scheduler.start()
        assert scheduler.address != taken
        await scheduler.stop()


async def test_one_waits_while_the_port_is_taken_everywhere_and_uses_up_no_addresses(port: int):
    scheduler = FakeScheduler()
    before = next(fake_dask._addresses)
    with socket.create_server(("", port)):
        starting = asyncio.create_task(scheduler.start())
        await asyncio.sleep(3 * fake_dask._LOOK_SECONDS)
        assert not starting.done()
    await starting
    assert next(fake_dask._addresses) <= before + 2
    await scheduler.stop()


async def test_where_it_stays_taken_the_error_says_how_to_find_who_has_it(port: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fake_dask, "_TAKEN_SECONDS", 0.1)
    scheduler = FakeScheduler()
    with socket.create_server(("", port)), pytest.raises(TimeoutError, match=rf"port {port} .*`ss -ltnp"):
        await scheduler.start()
    await scheduler.stop()
