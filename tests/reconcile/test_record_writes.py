"""Who writes records, how often and when, on an API server in memory: many clusters, and refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpudask.api.resource import Identity
from gpudask.api.status import Status
from gpudask.clients.errors import ApiError
from gpudask.planning.ledger.counting import Ledger
from gpudask.reconcile.records import store
from gpudask.reconcile.records.keeper import RecordKeeper
from gpudask.reconcile.records.store import Records
from gpudask.reconcile.records.writer import ClusterRecord
from gpudask.settings import HistorySettings
from tests.clients.fake_api_server import Answer, FakeApiServer, refusal
from tests.planning.builders import NOW, cluster, demand
from tests.reconcile.in_memory import Operated

EMPTY = {"metadata": {}, "items": []}  # a list


@asynccontextmanager
async def recording(**context: Any) -> AsyncIterator[Operated]:
    """Clusters whose records are written."""
    server = FakeApiServer()
    operated = Operated(server, records=Records(server, HistorySettings(), lambda: NOW), **context)
    try:
        yield operated
    finally:
        await operated.stop()


def records_of(operated: Operated) -> Records:
    found = operated.context.records
    assert found is not None
    return found


def a_record(operated: Operated, name: str, namespace: str = "default") -> ClusterRecord:
    """The record of a cluster that nothing was written of yet."""
    return ClusterRecord(operated.context, Identity(name, namespace, f"uid-of-{name}"), "")


def failing(record: ClusterRecord, erred: int = 1) -> ClusterRecord:
    """A record whose cluster's scheduler says that so many tasks failed."""
    record.note_status(cluster(), Status(), demand(erred=erred), Ledger(NOW), {})
    return record


async def write(record: ClusterRecord) -> float:
    """Make the write that is due; the time at which it was made."""
    (work,) = record.work().values()
    await work()
    return time.monotonic()


async def test_a_namespace_of_many_clusters_whose_tasks_fail_writes_so_often_and_holds_back_no_other(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(store, "_URGENT_PER_SECOND", 20.0, raising=False)
    monkeypatch.setattr(store, "_URGENT_BURST", 5.0, raising=False)
    async with recording() as operated:
        began = time.monotonic()
        writes = [asyncio.create_task(write(failing(a_record(operated, f"demo-{n}")))) for n in range(45)]
        await asyncio.sleep(0.1)
        other = await write(failing(a_record(operated, "other", namespace="other")))
        times = sorted(await asyncio.gather(*writes))
    assert other - began < 1.5
    assert times[4] - began < 1.5, "a few are written at once"
    assert times[-1] - times[4] > 1.9, "40 more take as long as they have to"


async def test_the_last_writes_of_many_clusters_are_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "_URGENT_PER_SECOND", 20.0, raising=False)
    monkeypatch.setattr(store, "_URGENT_BURST", 5.0, raising=False)
    async with recording() as operated:
        began = time.monotonic()
        await asyncio.gather(*(a_record(operated, f"demo-{n}").close() for n in range(45)))
        assert time.monotonic() - began > 1.9
        assert len(operated.server.names("gpudaskrecords")) == 45


async def test_a_namespace_that_refuses_records_switches_off_its_own_alone():
    async with recording() as operated:
        server, records = operated.server, records_of(operated)
        fault = server.fail("POST", "namespaces/default/gpudaskrecords", refusal(403, "no role", "Forbidden"))
        refused, written = failing(a_record(operated, "demo")), failing(a_record(operated, "demo", namespace="other"))
        with pytest.raises(ApiError):
            await write(refused)
        assert not refused.work()
        assert refused.requeue_after() is None
        assert "namespace default" in records.problem
        await write(written)
        assert server.names("gpudaskrecords") == ["demo-uid-of-d"]
        server.mend(fault)
        server.fail("GET", "/default/gpudaskrecords", Answer(200, EMPTY), name="gpudaskrecords")
        await RecordKeeper(server, records, lambda _: True, lambda: True, ("default",)).sweep("default")
        assert not records.problem
        await write(failing(refused, 2))


async def test_without_the_definition_none_is_written_anywhere():
    async with recording() as operated:
        fault = operated.server.fail("GET", "namespaces/default/gpudaskrecords", Answer(404, "404 page not found"))
        with pytest.raises(ApiError):
            await write(failing(a_record(operated, "demo")))
        assert not failing(a_record(operated, "demo", namespace="other")).work()
        assert "gpudaskrecords" in records_of(operated).problem
        operated.server.mend(fault)
        records_of(operated).set_on("other")
        assert failing(a_record(operated, "demo")).work(), "the definition is there"
