"""A scheduler that stays away: within Dask's own patience the user holds an error that names the cause."""

import asyncio
import contextlib
import logging
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dask
import pytest
from distributed import Client, SpecCluster
from distributed.client import FutureCancelledError, default_client

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.timing import Clock, Timing
from tests.eventually import eventually, steadily
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import add_scheduler, until

CAUSE = "scheduler: no node can take it: 0/3 nodes are available"
READY = fake.scheduler_pod("demo-scheduler-11111")
TIMING = Timing(  # everything is as it is in 30 s, in three
    outage_warn_seconds=0.2,
    outage_look_seconds=0.1,
    outage_idle_seconds=0.1,
    outage_tick_seconds=0.05,
    outage_answer_seconds=1.0,
    cause_seconds=30.0,  # a busy machine takes its time
    retry_seconds=0.1,
)
AWAY = rf"the scheduler of cluster 'demo' is away for \d+ s: {CAUSE}. See kubectl describe gdc demo -n lab"


@pytest.fixture
def give_up_seconds() -> float:
    return 3.0


@pytest.fixture(autouse=True)
def impatient(give_up_seconds: float) -> Iterator[None]:
    """Dask's clients give up soon, too."""
    with dask.config.set({"distributed.comm.timeouts.connect": f"{give_up_seconds}s"}):
        yield


def unplaced(name: str) -> fake.Json:
    """A scheduler pod for which there is no node."""
    pod = fake.scheduler_pod(name, ready=False)
    placed = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    return pod | {"status": {"phase": "Pending", "conditions": [placed]}}


def lose_scheduler(server: fake.FakeServer, *successors: fake.Json) -> None:
    server.clusters["demo"]["status"] = {"observedGeneration": 1, "conditions": []}
    server.pods[:] = successors
    server.cut_connections()


def minutes_pass(server: fake.FakeServer, asked: list[int]) -> Timing:
    """Ten with each request after the first so many that are `asked`, once that is known."""

    def monotonic() -> float:
        return time.monotonic() + (600.0 * (len(server.requests) - asked[0]) if asked else 0.0)

    return replace(TIMING, clock=Clock(monotonic=monotonic))


@pytest.mark.parametrize("give_up_seconds", [3600.0])
def test_a_new_client_is_refused_with_the_cause_and_works_when_the_scheduler_is_back(
    demo: fake.FakeServer, dask: SpecCluster
):
    asked: list[int] = []
    with KubeCluster.from_name("demo", quiet=True, timing=minutes_pass(demo, asked)) as cluster:
        lose_scheduler(demo, unplaced("demo-scheduler-11111"))
        asked.append(len(demo.requests))
        with pytest.raises(KubeClusterError, match=AWAY) as raised:  # Dask's own error would name no cause
            Client(cluster)
        assert "Dask's clients close after 3600 s without it" in raised.value.next_step
        with pytest.raises(ValueError, match="No client"):
            default_client()  # what was refused is closed, and left to nobody
        with pytest.raises(KubeClusterError, match=CAUSE):
            Client(cluster)
        assert cluster.scheduler_address.startswith("tcp://"), "no other reader of the address is refused"

        add_scheduler(demo, dask, "demo-scheduler-22222")
        eventually(lambda: cluster._reconnector.outage is None, "the scheduler is found again")
        with Client(cluster) as client:
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3


@pytest.mark.parametrize("give_up_seconds", [120.0])
def test_a_new_client_waits_for_a_scheduler_that_comes_back(demo: fake.FakeServer, dask: SpecCluster):
    with KubeCluster.from_name("demo", quiet=True, timing=TIMING) as cluster:
        lose_scheduler(demo)
        looks = demo.requests.count(f"GET {fake.PODS}")

        def come_back() -> None:
            eventually(lambda: demo.requests.count(f"GET {fake.PODS}") > looks + 3, "it is looked for")
            add_scheduler(demo, dask, "demo-scheduler-22222")

        coming = threading.Thread(target=come_back)
        coming.start()
        with Client(cluster) as client:
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        coming.join()


def test_what_waits_in_a_client_that_will_close_ends_with_the_cause(demo: fake.FakeServer):
    asked: list[int] = []
    with (
        KubeCluster.from_name("demo", quiet=True, timing=minutes_pass(demo, asked)) as cluster,
        Client(cluster, timeout="1 hour") as client,
    ):
        lose_scheduler(demo, unplaced("demo-scheduler-11111"))
        eventually(lambda: client.status == "connecting", "the client has noticed")
        future = client.submit(sum, [1, 2], pure=False)
        asked.append(len(demo.requests))
        with pytest.raises(FutureCancelledError, match=AWAY):
            future.result(timeout=120)


def test_a_client_with_more_patience_is_not_told_before_it_ends(demo: fake.FakeServer):
    with (
        KubeCluster.from_name("demo", quiet=True, timing=TIMING) as cluster,
        Client(cluster, timeout="1 minute") as client,
    ):
        lose_scheduler(demo, unplaced("demo-scheduler-11111"))
        eventually(lambda: client.status == "connecting", "the client has noticed")
        future = client.submit(sum, [1, 2], pure=False)
        eventually(
            lambda: cluster._reconnector.outage is not None and cluster._reconnector.outage.seconds > 4,
            "others would be told",
        )
        assert future.status == "pending"


def test_an_error_of_dask_that_leaves_the_block_bears_the_cause(demo: fake.FakeServer):
    with pytest.raises(FutureCancelledError) as raised:  # noqa: PT012, SIM117
        with KubeCluster.from_name("demo", quiet=True, timing=TIMING) as cluster, Client(cluster) as client:
            future = client.submit(time.sleep, 60)
            lose_scheduler(demo, unplaced("demo-scheduler-11111"))
            eventually(lambda: cluster._reconnector.outage is not None, "the connection is lost")
            future.result(timeout=60)

    assert raised.value.reason == "scheduler-connection-lost"
    assert re.search(AWAY, "".join(raised.value.__notes__))


async def test_an_asynchronous_one_too(demo: fake.FakeServer):
    with pytest.raises(ZeroDivisionError) as raised:  # noqa: PT012
        async with KubeCluster.from_name("demo", quiet=True, timing=TIMING, asynchronous=True) as cluster:
            lose_scheduler(demo, unplaced("demo-scheduler-11111"))
            with pytest.raises(KubeClusterError, match=CAUSE):
                await Client(cluster, asynchronous=True)
            with pytest.raises(KubeClusterError, match=CAUSE):
                await cluster
            raise ZeroDivisionError

    assert re.search(AWAY, "".join(raised.value.__notes__))


def test_waiting_for_workers_ends_with_the_cause(demo: fake.FakeServer):
    with KubeCluster.from_name("demo", quiet=True, timing=TIMING) as cluster:
        lose_scheduler(demo, unplaced("demo-scheduler-11111"))
        with pytest.raises(KubeClusterError, match=f"2 workers did not come .* the scheduler is not reached .*{CAUSE}"):
            cluster.wait_for_workers(2, timeout=2)


def test_an_outage_is_told_of_twice_and_a_moment_not_at_all(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name.startswith("gpudask")]

    caplog.set_level(logging.WARNING)
    patient = replace(TIMING, outage_warn_seconds=60.0)
    with KubeCluster.from_name("demo", quiet=True, timing=patient) as cluster:
        before = len(demo.forwards)
        demo.cut_connections()
        eventually(lambda: len(demo.forwards) > before and cluster._reconnector.outage is None, "a new connection")
    assert told() == []

    with KubeCluster.from_name("demo", quiet=True, timing=TIMING):
        lose_scheduler(demo, unplaced("demo-scheduler-11111"))
        eventually(lambda: len(told()) >= 2, "it is told twice")
        steadily(lambda: len(told()) == 2, "and no more", seconds=1)
    assert all(re.search(AWAY, line) for line in told())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda server: server.clusters.clear(), "there is no such cluster any more in namespace 'lab'. Create it"),
        (lambda server: setattr(server, "broken", 503), "the API server does not tell why: the server is restarting"),
        (lambda server: server.forbidden.add("GET pods"), "SchedulerReady is False, NoQuota: pods: 3"),
        (lambda _: None, "scheduler: no pod yet: SchedulerReady is False, NoQuota: pods: 3"),
        (
            lambda server: (server.pods.append(READY), server.forbidden.add("GET portforward")),
            "its pod demo-scheduler-11111 is ready, but is not reached: the API server answers 403. See its log",
        ),
    ],
    ids=["deleted", "no API server", "no right", "no pod", "no way"],
)
def test_the_cause_is_said_in_the_words_of_who_knows_it(demo: fake.FakeServer, change: Any, said: str):
    with KubeCluster.from_name("demo", quiet=True, timing=TIMING) as cluster:
        condition = {"type": "SchedulerReady", "status": "False", "reason": "NoQuota", "message": "pods: 3"}
        demo.clusters["demo"]["status"] = {"observedGeneration": 1, "conditions": [condition]}
        demo.pods.clear()
        change(demo)
        demo.cut_connections()  # last: from now on it looks for the cause, and the one that it found last is said
        with pytest.raises(KubeClusterError, match=said):
            Client(cluster)
        demo.broken = None


async def test_an_outage_that_begins_while_the_cluster_is_closed_is_not_followed(
    demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
):
    before = asyncio.all_tasks()
    cluster = await KubeCluster.from_name("demo", quiet=True, timing=TIMING, asynchronous=True)
    end = cluster._conditions.end

    async def end_after_the_loss() -> None:
        lose_scheduler(demo, READY)
        is_followed = lambda: cluster._reconnector.outage is not None  # noqa: E731
        await until(lambda: cluster._watch_worker_status_task is None or is_followed(), "it is noticed, if it can be")
        await end()

    monkeypatch.setattr(cluster._conditions, "end", end_after_the_loss)
    await cluster.close()
    await until(lambda: asyncio.all_tasks() <= before, "nothing of it goes on")


@pytest.mark.parametrize("seed", range(12))
async def test_closing_ends_all_whatever_happens_just_then(demo: fake.FakeServer, seed: int):
    """Starts and ends that are cancelled, a server that fails, connections that are cut: six programs side by side."""
    draws, before = random.Random(seed), asyncio.all_tasks()  # noqa: S311

    async def connect_and_close() -> None:
        cluster = KubeCluster.from_name("demo", quiet=True, timing=TIMING, asynchronous=True)
        with contextlib.suppress(TimeoutError, KubeClusterError):
            try:
                async with asyncio.timeout(draws.choice([0.5, 1.0, 60.0])):
                    await cluster
                    await asyncio.sleep(draws.random() / 2)
                    demo.broken = draws.choice([None, 503])
                    demo.cut_connections()
                    await asyncio.sleep(draws.random() * 3)
                    demo.broken = None
            finally:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(draws.choice([0.0, 0.01, 0.1, 60.0])):
                        await cluster.close()
                await cluster.close()

    await asyncio.gather(*(connect_and_close() for _ in range(6)))
    demo.broken = None
    await until(lambda: asyncio.all_tasks() <= before, "nothing of them goes on")


async def test_a_client_of_a_cluster_that_is_there_is_not_kept_waiting(demo: fake.FakeServer):
    timing = replace(TIMING, outage_pause_seconds=3600.0, outage_warn_seconds=3600.0)
    async with KubeCluster.from_name("demo", quiet=True, timing=timing, asynchronous=True) as cluster:
        assert await asyncio.wait_for(cluster, 120) is cluster  # type: ignore[arg-type]
