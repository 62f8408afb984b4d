"""Who keeps a cluster: clients for as long as they are heard, and programs that hold it without one."""

import asyncio
import time

import pytest
from distributed import client as client_module
from distributed import Client, Scheduler, get_client
from distributed.core import rpc

from gpudask.preload import clients as its

from .cluster import in_time, until


def said(cluster):
    return cluster.preload.answer()["clients"]


@pytest.fixture
async def deserted(start):
    """A cluster to which a client was connected, and none is."""
    cluster = await start()
    await cluster.client.close()
    await until(lambda: said(cluster)["connected"] == 0)
    return cluster


async def test_a_connected_client_is_no_absence(start):
    cluster = await start()
    await cluster.add("cpu-0")

    assert said(cluster) == {"connected": 1, "absent_seconds": 0.0, "ever": True}


async def test_without_any_it_counts_from_the_start():
    async with Scheduler(port=0, dashboard_address=":0") as scheduler:
        before = time.monotonic()
        part = its.Clients(scheduler)
        now = time.monotonic()

        assert 5 <= part.answer(now + 5)["absent_seconds"] <= now + 5 - before
        assert not part.answer(now + 5)["ever"], "what the scheduler keeps for nobody is no client"


async def test_the_time_begins_when_the_last_one_goes(start):
    cluster = await start()
    await asyncio.sleep(0.1)  # the time that must not count
    began = time.monotonic()
    await cluster.client.close()
    await until(lambda: said(cluster)["connected"] == 0)
    before = said(cluster)["absent_seconds"]

    assert before <= time.monotonic() - began
    await until(lambda: said(cluster)["absent_seconds"] > before)
    async with Client(cluster.scheduler.address, asynchronous=True):
        assert said(cluster)["absent_seconds"] == 0


async def test_the_poll_hears_at_once_that_the_last_one_went_and_that_one_came(start):
    cluster = await start()
    answer = await cluster.demand()
    await cluster.client.close()
    answer = await cluster.demand(seen=answer["version"], wait=30)
    assert answer["clients"]["connected"] == 0

    async with Client(cluster.scheduler.address, asynchronous=True):
        answer = await cluster.demand(seen=answer["version"], wait=30)
        assert answer["clients"]["connected"] == 1


async def test_one_that_came_and_went_between_two_answers_was_there(deserted):
    await until(lambda: said(deserted)["absent_seconds"] > 0.3)
    began = time.monotonic()
    async with Client(deserted.scheduler.address, asynchronous=True):
        pass
    await until(lambda: len(deserted.scheduler.clients) == 1, "it has gone")

    assert said(deserted)["absent_seconds"] <= time.monotonic() - began


async def test_a_connection_over_which_nothing_comes_keeps_nothing(start, monkeypatch):
    """The program was killed, and a child that it forked holds its sockets; or a laptop was closed."""
    monkeypatch.setattr(its, "_SILENT_SECONDS", 0.3)
    cluster = await start()
    cluster.client._periodic_callbacks["heartbeat"].stop()
    await until(lambda: said(cluster)["connected"] == 0, "it is taken for gone")
    assert cluster.client.status == "running"
    await until(lambda: said(cluster)["absent_seconds"] > 0.1, "the time counts")

    def is_heard():
        cluster.client._heartbeat()  # each time: it is taken for gone again before a late look
        return said(cluster)["connected"] == 1

    await until(is_heard, "it is heard again")


async def test_that_its_connection_ends_at_last_is_no_sign_of_life(start, monkeypatch):
    monkeypatch.setattr(its, "_SILENT_SECONDS", 0.3)
    cluster = await start()
    cluster.client._periodic_callbacks["heartbeat"].stop()
    await until(lambda: said(cluster)["absent_seconds"] > 0.3)
    await cluster.client.close()
    await until(lambda: len(cluster.scheduler.clients) == 1)

    assert said(cluster)["absent_seconds"] > 0.3


async def test_a_task_that_got_itself_a_client_keeps_nothing(start, monkeypatch):
    def nobody():
        raise ValueError

    cluster = await start()
    await cluster.add("cpu-0")
    monkeypatch.setattr(client_module, "default_client", nobody)  # as in a worker's own process
    await in_time(cluster.client.submit(lambda: get_client().id, pure=False).result(), "the task has a client")
    assert len(cluster.scheduler.clients) == 3, "the task's stays as long as its worker"
    await cluster.client.close()

    await until(lambda: said(cluster)["connected"] == 0)


async def test_a_program_that_holds_it_without_a_client_is_seen_each_time_that_it_writes(deserted):
    async with rpc(deserted.scheduler.address) as asked:
        for _ in range(2):  # the same again is news, too
            await until(lambda: said(deserted)["absent_seconds"] > 0.2)
            began = time.monotonic()
            await asked.set_metadata(keys=["cluster-manager-info"], value={"by": "demo"})
            assert said(deserted)["absent_seconds"] <= time.monotonic() - began
    assert said(deserted)["connected"] == 0


async def test_what_queues_and_published_data_hold_is_no_client(deserted):
    deserted.scheduler.client_desires_keys(keys=[], client="queue-demo")
    assert "queue-demo" in deserted.scheduler.clients
    assert said(deserted)["connected"] == 0


async def test_without_the_schedulers_clients_nothing_is_said(start, monkeypatch):
    monkeypatch.setattr(its.Clients, "attributes", ("no_such_attribute",))
    cluster = await start()
    answer = await cluster.demand()

    assert answer["clients"] is None
    assert answer["features"]["clients"] == "Scheduler.no_such_attribute is missing"


def test_a_program_may_call_its_client_a_worker():
    assert its._counts("Client-worker-host1-00000000-0000-0000-0000-000000000000")
    assert not its._counts("Client-worker-00000000-0000-0000-0000-000000000000")
