"""Probes: answered from the first second on, true about work, and no reason to restart where that does not help."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf
import pytest

from gpudask.handlers import Health, register
from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings
from local.host.ports import free_ports


class Election:
    def __init__(self) -> None:
        self.silent = 0.0
        self.leading = False

    def unanswered_seconds(self) -> float:
        return self.silent

    def leads(self) -> bool:
        return self.leading


class Probed:
    """An operator whose parts the test moves, and its probes."""

    def __init__(self) -> None:
        self.operator = Operator(Settings(watch_namespaces=("a", "b")))
        self.health = Health(self.operator)
        self.known = {"a", "b"}
        self.election = Election()

    def fill(self) -> None:
        """Its caches are full."""
        context: Any = SimpleNamespace(knows=lambda namespace: namespace in self.known)
        election: Any = self.election
        self.operator._context, self.operator._election = context, election

    async def ask(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.health.address}{path}") as got:
            return got.status, (await got.text()).strip()


@pytest.fixture
async def probed() -> AsyncIterator[Probed]:
    probed = Probed()
    await probed.health.start(0)
    yield probed
    await probed.health.stop()


async def test_while_the_caches_fill_it_lives_and_is_not_ready(probed: Probed):
    assert await probed.ask("/livez") == (200, "it runs")
    assert await probed.ask("/healthz") == (503, "the caches are being filled")


async def test_a_leader_and_a_standby_are_ready(probed: Probed):
    probed.fill()
    assert await probed.ask("/healthz") == (200, "it stands by")
    probed.election.leading = True
    assert await probed.ask("/healthz") == (200, "it leads")


async def test_an_api_server_that_is_away_for_minutes_is_no_reason_to_restart(probed: Probed):
    probed.fill()
    probed.election.silent = 59.0
    assert await probed.ask("/healthz") == (200, "it stands by")
    probed.election.silent = 600.0
    assert await probed.ask("/healthz") == (503, "the API server has not answered for 600 s")
    assert await probed.ask("/livez") == (200, "it runs")


async def test_one_of_two_namespaces_is_enough_to_work(probed: Probed):
    probed.fill()
    probed.known = {"b"}
    assert (await probed.ask("/healthz"))[0] == 200
    probed.known = set()
    status, text = await probed.ask("/healthz")
    assert (status, "refuses to list what is in a, b" in text) == (503, True)


async def test_a_task_that_ended_is_a_reason_to_restart(probed: Probed):
    probed.fill()
    ended = asyncio.create_task(asyncio.sleep(0), name="election")
    lasting = asyncio.create_task(asyncio.Event().wait(), name="watch /pods")
    probed.operator._tasks = [ended, lasting]  # type: ignore[list-item]
    await ended
    assert await probed.ask("/livez") == (503, "ended, though they never should: election")
    lasting.cancel()


async def test_started_again_it_goes_on(probed: Probed):
    address = probed.health.address
    await probed.health.start(0)
    assert probed.health.address == address


async def test_where_its_port_is_taken_it_says_so_and_tries_again_until_it_is_free(monkeypatch: pytest.MonkeyPatch):
    (port,) = free_ports(1, host="")
    with socket.create_server(("", port)):
        operator = Operator(Settings(health_port=port))
        monkeypatch.setattr(operator, "start", lambda: asyncio.sleep(0))
        handlers = {handler.id: handler.fn for handler in register(operator)._activities.get_all_handlers()}
        start, stop = (handlers[f"register.<locals>.{name}"] for name in ("start", "stop"))
        for _ in range(2):
            with pytest.raises(
                kopf.TemporaryError, match=rf"cannot listen for probes at port {port}: .*Tried again in 3"
            ):
                await start(settings=kopf.OperatorSettings())
    await start(settings=kopf.OperatorSettings())
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/livez") as answer:
            assert answer.status == 200
    finally:
        await stop()
