"""A program that waits hears why, in each of the cases in which it would wait for ever, with what to write instead.

What the operator says is the planner's own, for a cluster in that state; the API server is a small one, the scheduler
a real one.
"""

from __future__ import annotations

from gpudask.api import Json

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from typing import Any

import pytest
from distributed import Client

from gpudask import KubeCluster, KubeClusterError
from gpudask.api.status import Status
from gpudask.clients.errors import ApiError
from gpudask.kubecluster.conditions import Conditions, too_few_allowed
from gpudask.kubecluster.overrides import hint_of_size
from gpudask.kubecluster.timing import Clock, Timing
from gpudask.planning import conditions as planned
from gpudask.planning.observed.observation import PoolMemory
from gpudask.planning.observed.parser import parse_pod
from gpudask.planning.observed.pods import Ended
from gpudask.reconcile.loop_memory import Memory
from tests.eventually import eventually, steadily
from tests.kubecluster import fake_server as fake
from tests.planning.builders import NOW, cluster, demand, gpu_pool, pod, scaled, scheduler_pod, seen, tasks, worker
from tests.planning.test_status import status_of

SOON = Timing(
    conditions_tick_seconds=0.02,
    conditions_warn_seconds=0.5,
    conditions_ask_seconds=0.1,
    conditions_poll_seconds=0.1,
    outage_warn_seconds=0.3,
    outage_look_seconds=0.1,
    outage_idle_seconds=0.1,
    retry_seconds=0.1,
)
MIXED = cluster(scaled(least=1), gpu_pool())
HEAD, CPU = scheduler_pod(MIXED), pod(MIXED, "cpu")
WELL = seen(MIXED, HEAD, CPU, says=demand(workers=(worker(CPU),)))
NO_NODE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
QUOTA = 'pods "demo-gpu-worker-0" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 2'
NOT_FOUND = (
    'failed to pull and unpack image "docker.io/gpudask/dask:0.1.0": failed to resolve reference'
    ' "docker.io/gpudask/dask:0.1.0": docker.io/gpudask/dask:0.1.0: not found'
)


def wants(**resources: float) -> Any:
    return demand(tasks(1, **resources), workers=(worker(CPU),))


def refused() -> dict[str, PoolMemory]:
    memory = Memory()
    memory.record_refusal("gpu", ApiError(403, "Forbidden", QUOTA, "POST"), NOW)
    return memory.pools


def pulls() -> Any:
    state = {"waiting": {"reason": "ErrImagePull", "message": NOT_FOUND}}
    body = {
        "metadata": {"name": "demo-gpu-worker-0", "namespace": "lab", "uid": "u", "resourceVersion": "1"},
        "status": {"containerStatuses": [{"name": "dask", "image": "gpudask/dask:0.1.0", "state": state}]},
    }
    return pod(MIXED, "gpu", running=False, waiting=parse_pod(body).waiting)


def idle_with_results() -> Status:
    """The only GPU is held by an idle pod of another pool of this cluster."""
    of = cluster(scaled(least=1), gpu_pool("old"), gpu_pool("gpu"))
    cpu, old = pod(of, "cpu"), pod(of, "old", gpus=1)
    stuck = pod(of, "gpu", running=False, unschedulable=NO_NODE)
    rows = (worker(cpu), worker(old, held_keys=7, blockers=("data",)))
    return status_of(seen(of, scheduler_pod(of), cpu, old, stuck, says=demand(tasks(1, GPU=1), workers=rows)))


def suspended() -> Status:
    of = cluster(scaled(least=1), gpu_pool(), suspend=True)
    return status_of(seen(of, scheduler_pod(of), pod(of, "cpu"), says=demand(tasks(1))))


def invalid() -> Status:
    healthy = status_of(WELL)
    return planned.invalid("spec.pools[1].gpu: no such field cuont", generation=1, before=healthy, now=NOW)


CRASH = pod(
    MIXED, "gpu", started=0.0, waiting="CrashLoopBackOff: back-off 40s restarting", restarts=4,
    ended=Ended("Error", 1, "Traceback\nModuleNotFoundError: No module named 'cupy'\n"),
)  # fmt: skip

# What is wrong, as the operator says it -> what a program hears: of what, and the cure.
REPORTED: dict[str, tuple[Callable[[], Status], str, str]] = {
    "unservable kinds": (
        lambda: status_of(seen(MIXED, HEAD, CPU, says=wants(GPU=3))),
        "1 task wants GPU: 3",
        "write `GPU: 1`, or a pool whose workers offer 3 GPU: gpu: {count: 3, launcher: dask}.",
    ),
    "wrong case": (
        lambda: status_of(seen(MIXED, HEAD, CPU, says=wants(gpu=1))),
        "1 task wants gpu: 1",
        "gpu: did you mean `GPU`?",
    ),
    "quota": (
        lambda: status_of(seen(MIXED, HEAD, CPU, says=wants(GPU=1), memory=refused())),
        "exceeded quota: gpus",
        "next try at 2027-01-15T08:00:01Z. Have the quota raised (kubectl describe quota -n lab), or give pods back",
    ),
    "no node": (
        lambda: status_of(
            seen(MIXED, HEAD, CPU, pod(MIXED, "gpu", running=False, unschedulable=NO_NODE), says=wants(GPU=1))
        ),
        "3 Insufficient nvidia.com/gpu; since 2027-01-15T07:58:20Z",
        "Ask for less (resources=, gpu.count), or have a node added that fits",
    ),
    "image": (
        lambda: status_of(seen(MIXED, HEAD, CPU, pulls(), says=wants(GPU=1))),
        "ErrImagePull: image gpudask/dask:0.1.0: not found.",
        "Write image= with one that the nodes can pull, or set DASK_GPUDASK__IMAGE",
    ),
    "crash loop": (
        lambda: status_of(seen(MIXED, HEAD, CPU, CRASH, says=wants(GPU=1))),
        "it said: ModuleNotFoundError: No module named 'cupy'",
        "Read what it wrote: gpudask logs demo -n lab, or get_logs()",
    ),
    "suspended": (suspended, "pods still finish", "Resume it: resume(), or gpudask resume demo -n lab"),
    "invalid manifest": (invalid, "no such field cuont", "Correct what is named: kubectl edit gdc demo -n lab"),
    "held GPU": (
        idle_with_results,
        "meanwhile idle pods hold GPUs for their results: demo-old-worker-0 (1 GPU, 7 results)",
        "let go of the futures, or write heldData: {releaseAfter: 10m} in their pool",
    ),
}


def reported(status: Status) -> Json:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def tell(server: fake.FakeServer, status: Json, **metadata: Any) -> None:
    """The operator writes this status."""
    eventually(lambda: bool(server.watchers), "the program watches its cluster")
    body = server.clusters["demo"]
    body["metadata"] |= {"generation": 1, **metadata}
    body["status"] = status
    server.tell("MODIFIED", body)


@pytest.fixture(autouse=True)
def well(demo: fake.FakeServer) -> None:
    """The operator has seen the cluster, and nothing is wrong."""
    demo.clusters["demo"]["metadata"]["generation"] = 1
    demo.clusters["demo"]["status"] = reported(status_of(WELL))


@contextmanager
def blocked(server: fake.FakeServer, timing: Timing = SOON, **options: Any) -> Iterator[tuple[KubeCluster, Any]]:
    """A program whose task nobody runs."""
    with KubeCluster.from_name("demo", quiet=True, timing=timing, **options) as cluster, Client(cluster) as client:
        future = client.submit(sum, [1, 2], resources={"NOBODY": 1})  # which is let go of at the end of the block
        yield cluster, future


def of_clusters(server: fake.FakeServer) -> list[str]:
    """What was asked about the cluster, its watch included."""
    return [each for each in server.requests if "/gpudaskclusters" in each]


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.name.startswith("gpudask")]


def of_operator(log: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of what the operator reports: on a busy machine the scheduler is late to answer, too, which is told."""
    return [text for text in warnings(log) if "the scheduler has not answered for" not in text]


@pytest.mark.parametrize(("status", "what", "cure"), REPORTED.values(), ids=REPORTED)
def test_who_waits_for_a_result_hears_once_what_is_wrong_and_the_cure(
    demo: fake.FakeServer, caplog: pytest.LogCaptureFixture, status: Callable[[], Status], what: str, cure: str
):
    caplog.set_level(logging.WARNING, "gpudask")
    with blocked(demo) as (cluster, _):
        tell(demo, reported(status()))
        eventually(lambda: bool(of_operator(caplog)), "a warning")
        steadily(lambda: len(of_operator(caplog)) == 1, "it is told once", seconds=0.7, show=lambda: warnings(caplog))
        (said,) = of_operator(caplog)
        assert said.startswith("gpudask: cluster 'demo': ")
        assert what in said
        assert cure in said
        assert cure in repr(cluster)
        assert escape(what) in cluster._repr_html_()


def test_who_waits_for_a_scheduler_that_is_paused_hears_that_it_does_not_answer(
    demo: fake.FakeServer, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "gpudask")
    with blocked(demo):
        demo.is_mute = True
        demo.silence_connections()
        eventually(lambda: bool(warnings(caplog)), "a warning")
        assert "the scheduler has not answered for 0.5 s" in warnings(caplog)[0]
        assert "gpudask logs demo -n lab; it is stopped, or busy with one long call" in warnings(caplog)[0]


def test_who_waits_for_a_scheduler_that_is_lost_hears_why(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "gpudask")
    lost = fake.scheduler_pod("demo-scheduler-11111", ready=False)
    lost["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": NO_NODE}],
    }
    with blocked(demo):
        demo.clusters["demo"]["status"] = {"observedGeneration": 1, "conditions": []}
        demo.pods[:] = [lost]
        demo.cut_connections()
        eventually(lambda: bool(of_operator(caplog)), "a warning")
        assert f"scheduler: no node can take it: {NO_NODE}" in of_operator(caplog)[0]


def test_who_waits_for_more_workers_than_limits_allow_hears_so_at_once_and_at_the_end(
    demo: fake.FakeServer, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "gpudask")
    demo.clusters["demo"]["spec"]["pools"] = [{"name": "cpu", "autoscale": {"max": 3}}]
    an_hour_passes = Clock(monotonic=lambda: time.monotonic() + (3600.0 if of_operator(caplog) else 0.0))
    with KubeCluster.from_name("demo", quiet=True, timing=replace(SOON, clock=an_hour_passes)) as cluster:
        tell(demo, reported(status_of(WELL)))
        with pytest.raises(KubeClusterError, match="there can be 3 workers at most, and 5 are waited for") as raised:
            cluster.wait_for_workers(5, timeout=3600)
        cure = "Raise that, with scale() or adapt(): scale(5, pool='cpu'), or wait for 3"
        assert raised.value.next_step == cure
        assert [cure in said for said in of_operator(caplog)] == [True]


_TIMING = Timing()  # what programs have


def test_within_ten_seconds_all_of_it():
    timing = _TIMING
    operator_seconds = 2.0
    assert timing.conditions_warn_seconds + timing.conditions_tick_seconds + operator_seconds < 10
    asked = timing.conditions_ask_seconds + timing.conditions_warn_seconds + timing.conditions_tick_seconds
    assert asked < 10, "a scheduler that is paused"
    assert timing.outage_warn_seconds + timing.outage_look_seconds < 10, "one that is lost"


@pytest.mark.parametrize(
    ("is_paused", "most_looks"),
    [(False, 1 + _TIMING.conditions_warn_seconds / _TIMING.conditions_tick_seconds), (True, 1)],
    ids=["a condition", "a scheduler that is paused"],
)
def test_with_the_intervals_that_programs_have_a_warning_needs_no_more_looks_than_that(
    demo: fake.FakeServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_paused: bool,
    most_looks: float,
):
    """Looks at which something is wrong, a second apart: what was asked for in vain is told at the first."""
    caplog.set_level(logging.WARNING, "gpudask")
    looks: list[str] = []
    look = Conditions._look

    def noted(self: Conditions) -> None:
        if not warnings(caplog):
            looks.extend(str(each) for each in self._found()[:1])
        look(self)

    monkeypatch.setattr(Conditions, "_look", noted)
    with blocked(demo, _TIMING):
        eventually(lambda: bool(demo.watchers), "the program watches its cluster")
        assert looks == []
        if is_paused:
            demo.is_mute = True
            demo.silence_connections()
        else:
            tell(demo, reported(REPORTED["wrong case"][0]()))
        eventually(lambda: bool(warnings(caplog)), "a warning")
        assert 1 <= len(looks) <= most_looks, looks


@pytest.mark.parametrize(
    ("pool", "pools", "overrides", "n", "said"),
    [
        (
            "cpu",
            [{"name": "cpu", "replicas": 2}],
            [],
            3,
            "2 workers at most, and 3 are waited for: pool cpu has 2 pods",
        ),
        (
            "cpu",
            [{"name": "cpu"}],
            [{"pool": "cpu", "replicas": 1, "by": "ann"}],
            2,
            "pool cpu is set to 1 pods by ann",
        ),
        ("gpu", [{"name": "gpu", "gpu": {"count": 4}, "replicas": 2}], [], 9, "8 workers at most"),
        ("gpu", [{"name": "gpu", "gpu": {"count": 4, "launcher": "dask"}, "replicas": 2}], [], 3, "2 workers at most"),
        (
            None,
            [{"name": "a", "autoscale": {"max": 2}}, {"name": "b"}],
            [],
            4,
            "pool a may have 2 pods, pool b has 1 pods",
        ),
        (None, [{"name": "a", "autoscale": {"max": 2}}, {"name": "b"}], [], 3, ""),
        ("a", [{"name": "a", "autoscale": {"max": 2}}], [{"pool": "a", "max": 9}], 9, ""),
    ],
)
def test_what_limits_forbid(pool: str | None, pools: list[Json], overrides: list[Json], n: int, said: str):
    body = {"metadata": {"name": "demo", "namespace": "lab"}, "spec": {"pools": pools, "overrides": overrides}}
    found = too_few_allowed(body, pool, n)
    assert (found is None) == (not said)
    assert said in str(found or "")


def test_a_size_that_waits_already_or_is_above_the_manifests_gets_a_hint():
    waits = {"name": "gpu", "ready": 1, "desired": 2, "message": QUOTA}
    body = fake.cluster("demo", "gpu", pools=[waits])
    assert hint_of_size(body, "gpu", 9) == f"pool gpu already waits, 1 of 2 pods are ready: {QUOTA}"
    assert hint_of_size(body, "gpu", 1) == ""
    body = fake.cluster("demo", pools=[])
    body["spec"]["pools"] = [{"name": "gpu", "autoscale": {"max": 4}}]
    assert "autoscale.max of 4" in hint_of_size(body, "gpu", 9)
    assert hint_of_size(body, "gpu", 4) == ""


# ---------------------------------------------------------------------- what is not told, and what is told again


def test_what_passes_at_once_and_counts_that_move_are_not_told(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "gpudask")
    well = reported(status_of(WELL))
    stood, moves = time.monotonic(), threading.Event()
    clock = Clock(monotonic=lambda: time.monotonic() if moves.is_set() else stood)
    with blocked(demo, replace(SOON, clock=clock)) as (cluster, _):
        tell(demo, reported(REPORTED["wrong case"][0]()))
        tell(demo, well, resourceVersion="9")
        eventually(lambda: cluster._resource.body["metadata"]["resourceVersion"] == "9", "it has heard of both")
        moves.set()
        steadily(lambda: of_operator(caplog) == [], "nothing is told", seconds=0.8, show=lambda: warnings(caplog))
        for count in range(1, 4):
            says = demand(tasks(count, gpu=1), workers=(worker(CPU),))
            tell(demo, reported(status_of(seen(MIXED, HEAD, CPU, says=says))))
            eventually(lambda: f"{count} task" in repr(cluster), "the present count is shown")  # noqa: B023
        assert len(of_operator(caplog)) == 1
        says = demand(tasks(2, gpus=1), workers=(worker(CPU),))
        tell(demo, reported(status_of(seen(MIXED, HEAD, CPU, says=says))))
        eventually(lambda: len(of_operator(caplog)) == 2, "another kind is other news")
        tell(demo, well)
        eventually(lambda: "did you mean" not in repr(cluster), "it is well again")


def test_who_suspends_and_waits_for_nothing_is_told_nothing(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "gpudask")
    with KubeCluster.from_name("demo", quiet=True, timing=SOON):
        tell(demo, reported(suspended()))
        steadily(lambda: warnings(caplog) == [], "nothing is told", seconds=0.8, show=lambda: warnings(caplog))


def test_a_status_in_no_known_shape_ends_nothing(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "gpudask")
    with blocked(demo):
        for nonsense in ({"conditions": [{"type": 1}]}, {"conditions": [{}]}, {"conditions": "no"}):
            tell(demo, {"observedGeneration": 1} | nonsense)
        tell(demo, reported(REPORTED["wrong case"][0]()))
        eventually(lambda: any("did you mean" in said for said in warnings(caplog)), "it follows on")


def test_a_result_that_times_out_leaves_the_block_with_the_reason(demo: fake.FakeServer):
    def run() -> None:
        with blocked(demo) as (cluster, future):
            tell(demo, reported(REPORTED["wrong case"][0]()))
            eventually(lambda: "did you mean" in repr(cluster), "it is known")
            future.result(timeout=0.1)

    with pytest.raises(TimeoutError) as raised:
        run()
    assert any("gpu: did you mean `GPU`?" in note for note in raised.value.__notes__)


# ---------------------------------------------------------------------- what it costs


def test_an_idle_program_asks_for_one_watch(demo: fake.FakeServer):
    with KubeCluster.from_name("demo", quiet=True, timing=SOON):
        eventually(lambda: bool(demo.watchers), "the program watches its cluster")
        asked = of_clusters(demo)
        steadily(lambda: of_clusters(demo) == asked, "nothing more is asked", seconds=1.0, show=lambda: demo.requests)


def test_a_watch_that_is_lost_is_opened_again(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "gpudask")
    with blocked(demo):
        eventually(lambda: bool(demo.watchers), "the program watches its cluster")
        demo.clusters["demo"]["status"] = reported(REPORTED["wrong case"][0]())
        demo.cut_connections()
        eventually(lambda: any("did you mean" in said for said in warnings(caplog)), "what came meanwhile is read")


def test_who_may_not_watch_reads_while_waiting(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "gpudask")
    demo.forbidden.add("GET gpudaskclusters")
    with blocked(demo):
        demo.clusters["demo"]["status"] = reported(REPORTED["wrong case"][0]())
        eventually(lambda: any("did you mean" in said for said in warnings(caplog)), "it was read")


def test_credentials_that_ended_are_not_renewed_by_what_nobody_waits_for(
    demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
):
    reads: list[object] = []
    with KubeCluster.from_name("demo", quiet=True, timing=SOON) as cluster:
        eventually(lambda: bool(demo.watchers), "the program watches its cluster")
        session = cluster._resource.require_server().session
        original = session.login.read
        monkeypatch.setattr(session.login, "read", lambda **options: (reads.append(1), original(**options))[1])
        monkeypatch.setattr(type(session.login), "starts_plugin", True)
        for forward in cluster._connection.forwards.values():  # which looks for its pod by itself
            assert forward._watching is not None
            cluster.loop.add_callback(forward._watching.cancel)
        demo.token = "another"
        asked = len(of_clusters(demo))
        demo.end_watches()
        eventually(lambda: len(of_clusters(demo)) > asked, "it tried")
        steadily(lambda: reads == [], "no credentials are read", seconds=1.0)
        assert len(of_clusters(demo)) - asked <= 2
        demo.token = ""


def test_a_fork_ends_at_once_and_leaves_the_clusters_to_its_parent(demo: fake.FakeServer):
    program = """
import os, sys, time
from distributed import Client
from gpudask import KubeCluster
with KubeCluster.from_name("demo", quiet=True) as cluster, Client(cluster) as client:
    child = os.fork()
    if child == 0:
        sys.exit(7)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.05)
    else:
        os.kill(child, 9)
        sys.exit("the fork hangs")
    assert os.waitstatus_to_exitcode(status) == 7, status
    assert client.submit(sum, [1, 2], workers=list(client.scheduler_info()["workers"])[:1]).result(timeout=60) == 3
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
