"""A program waits no longer than it has to, and asks no more often than it should."""

import asyncio
import threading
from dataclasses import replace

import anyio
import pytest
from distributed import SpecCluster, Worker

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.scheduler import readiness
from gpudask.kubecluster.timing import Timing, end_task
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import PATIENT, clock_until, until


@pytest.fixture
def unready(demo: fake.FakeServer) -> fake.FakeServer:
    """The scheduler runs, and the kubelet has not looked at it again."""
    name = demo.pods.pop()["metadata"]["name"]
    demo.pods.append(fake.scheduler_pod(name, ready=False))
    return demo


def test_a_scheduler_that_answers_is_not_waited_for_until_its_pod_is_ready(unready: fake.FakeServer):
    unready.healthy.add("demo-scheduler-00000")

    with KubeCluster.from_name("demo", timeout=60) as cluster:
        assert len(cluster.scheduler_info["workers"]) == 2


def test_one_that_runs_and_does_not_answer_is_waited_for(unready: fake.FakeServer):
    asked_again = clock_until(lambda: len(unready.forwards) > 2, "it is asked again", at_most_seconds=1.5)

    with pytest.raises(KubeClusterError, match="was not ready within 3 s"):
        KubeCluster.from_name("demo", timeout=3, quiet=True, timing=replace(PATIENT, clock=asked_again))


def test_one_on_its_way_out_is_not_asked(unready: fake.FakeServer):
    unready.healthy.add("demo-scheduler-00000")
    unready.pods[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    with pytest.raises(KubeClusterError, match="was not ready"):
        KubeCluster.from_name("demo", timeout=0.5, quiet=True)

    assert unready.forwards == []


def test_of_two_the_younger_one_is_asked(unready: fake.FakeServer):
    unready.healthy.add("demo-scheduler-00000")
    unready.pods.append(fake.scheduler_pod("demo-scheduler-11111", ready=False, created="2026-01-01T00:00:09Z"))

    asked = clock_until(lambda: bool(unready.forwards), "one is asked", at_most_seconds=0.25)

    with pytest.raises(KubeClusterError, match="was not ready"):
        KubeCluster.from_name("demo", timeout=0.5, quiet=True, timing=replace(PATIENT, clock=asked))

    assert set(unready.forwards) == {"demo-scheduler-11111"}


def test_a_program_that_may_forward_no_port_learns_so_when_the_pod_is_ready(unready: fake.FakeServer):
    unready.forbidden.add("GET portforward")

    def become_ready() -> None:
        eventually(lambda: any("portforward" in asked for asked in unready.requests), "it was refused a port")
        unready.pods[0] = fake.scheduler_pod("demo-scheduler-00000")

    thread = threading.Thread(target=become_ready)
    thread.start()
    with pytest.raises(KubeClusterError, match=r'resources: \["pods/portforward"\]'):
        KubeCluster.from_name("demo", timeout=120, quiet=True)
    thread.join()


@pytest.mark.parametrize(("asked_for", "pause"), [(0.0, 0.5), (1.0, 0.3), (5.0, 0.5), (600.0, 1.0)])
def test_who_has_just_started_or_was_asked_for_long_is_asked_less_often(asked_for: float, pause: float):
    assert readiness._pause(asked_for, Timing()) == pytest.approx(pause)


def test_a_worker_that_comes_ends_the_wait_though_it_is_not_yet_time_to_ask(demo: fake.FakeServer, dask: SpecCluster):
    options = {"cls": Worker, "options": {"nthreads": 1, "dashboard": False}}

    def add() -> None:
        dask.worker_spec["demo-cpu-worker-1-ccccc"] = options
        dask.sync(dask._correct_state)

    with KubeCluster.from_name("demo", timing=Timing(workers_poll_seconds=3600.0)) as cluster:
        later = threading.Timer(0.5, add)
        later.start()
        cluster.wait_for_workers(2, pool="cpu", timeout=120)
        later.join()


async def test_a_task_is_ended_also_while_its_library_cancels_a_part_of_it():
    """As anyio does with the addresses of an API server that were not needed: the task counts as being cancelled."""
    is_inside, may_go_on = asyncio.Event(), asyncio.Event()

    async def say_goodbye() -> None:
        with anyio.CancelScope(shield=True):
            is_inside.set()
            await may_go_on.wait()

    async def follow() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(say_goodbye)
            await is_inside.wait()
            group.cancel_scope.cancel()
        await asyncio.Event().wait()

    following = asyncio.create_task(follow())
    await until(lambda: following.cancelling() > 0, "a part of it is cancelled")
    ending = asyncio.create_task(end_task(following))
    await asyncio.sleep(0)
    may_go_on.set()
    await asyncio.wait([ending], timeout=120)
    assert following.cancelled()
