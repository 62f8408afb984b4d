"""The status tells the truth of a pass, and says when it is worth writing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.api.reasons import ConditionType, Reason
from gpudask.api.status import Condition, Phase, Status, iso
from gpudask.clients.errors import ApiError
from gpudask.desired.workers import worker_pod
from gpudask.planning.events import events
from gpudask.planning.conditions import defect, invalid
from gpudask.planning.observed.observation import Failure, Observation, PoolMemory
from gpudask.planning.observed.pods import Ended, Retirement
from gpudask.planning.plan import plan
from gpudask.planning.status import report
from gpudask.planning.status import without_counters, without_progress, without_live_values
from gpudask.reconcile.loop_memory import Memory
from tests.builders import a_pool
from tests.planning.builders import (
    NOW,
    busy,
    cluster,
    demand,
    gpu_pool,
    pod,
    scaled,
    scheduler_pod,
    seen,
    tasks,
    worker,
)

C = cluster(a_pool(replicas=1), gpu_pool())
SCHEDULER, CPU0, GPU0 = scheduler_pod(C), pod(C, "cpu"), pod(C, "gpu")
CALM = demand(workers=(worker(CPU0),))


def status_of(observation: Observation, before: Status | None = None) -> Status:
    return report(observation, plan(observation), before or Status())


def condition(status: Status, kind: str) -> tuple[str, str, str]:
    found: Condition = next(item for item in status.conditions if item.type == kind)
    return found.status, found.reason, found.message


SINCE = "; since 2027-01-15T08:00:00Z, next try at 2027-01-15T08:00:01Z"


def refused(pool: str, status: int, message: str) -> dict[str, PoolMemory]:
    memory = Memory()
    memory.record_refusal(pool, ApiError(status, "", message, ""), NOW)
    return memory.pools


FAILURE = Failure("Service demo-scheduler", Reason.FORBIDDEN, "denied", NOW, NOW + 1)


@pytest.mark.parametrize(
    ("network", "peers", "expected"),
    [
        (None, [], ("False", Reason.NETWORK_POLICY_OFF, "networkPolicies is false")),
        ("Forbidden", [], ("False", Reason.NETWORK_POLICY_FAILED, "no NetworkPolicy as wanted: Forbidden")),
        ("", [], ("True", Reason.NETWORK_POLICY_APPLIED, "own pods and the operator may connect, nobody else")),
        ("", [{}], ("True", Reason.NETWORK_POLICY_APPLIED, "and the peer of spec.network.allowFrom may connect")),
        ("", [{}, {}], ("True", Reason.NETWORK_POLICY_APPLIED, "the 2 peers of spec.network.allowFrom may connect")),
    ],
)
def test_who_may_connect_is_told(network: str | None, peers: list[Any], expected: tuple[str, Reason, str]):
    of = cluster(a_pool(replicas=1), network={"allowFrom": [{"podSelector": peer} for peer in peers]})
    observation = replace(seen(of, scheduler_pod(of), pod(of, "cpu")), network=network)
    status, reason, message = condition(status_of(observation), ConditionType.ISOLATED)
    assert (status, reason) == expected[:2]
    assert expected[2] in message


OUTDATED = scheduler_pod(C, spec_hash="old")
EDITED = cluster(a_pool(replicas=1), gpu_pool(), image="dask:2", protocol="tls")
KEPT = "workers meanwhile keep the image registry.example/dask:1 and the protocol tcp"
SILENT = "does not say what it holds: delete the pod to replace it all the same"
WAITS_FOR_IMAGE = seen(EDITED, SCHEDULER, CPU0, says=demand(workers=(worker(CPU0),), tasks=4))
UNSERVED = demand(tasks(3, GPU=2), workers=(worker(CPU0),))
STUCK = pod(C, "gpu", running=False, unschedulable="0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
NO_IMAGE = pod(C, "cpu", running=False, waiting="ImagePullBackOff: Back-off pulling image")
CRASHES = pod(
    C,
    "cpu",
    started=0.0,
    waiting="CrashLoopBackOff: back-off 10s",
    restarts=3,
    ended=Ended("Error", 1, "Traceback\nModuleNotFoundError: cupy\n"),
)
HELD_CURE = "; the pool holds 1 GPU: let go of the futures, or write heldData: {releaseAfter: 10m} in the pool"
FAILED = "RuntimeError: Worker failed to start."
NEEDS_UCXX = "; with the protocol ucxx its image needs distributed-ucxx, for its CUDA version"
UCXX = cluster(a_pool(replicas=1), protocol="ucxx")
FAILS_TO_START = pod(
    UCXX,
    "cpu",
    started=0.0,
    waiting="CrashLoopBackOff: back-off 10s",
    restarts=3,
    ended=Ended("Error", 1, f"{FAILED}\n"),
)
HEAD_FAILS = scheduler_pod(
    UCXX,
    started=0.0,
    ready=False,
    waiting="CrashLoopBackOff: back-off 20s",
    restarts=2,
    ended=Ended("Error", 1, "RuntimeError: Scheduler failed to start.\n"),
)
HEAD_FAILS_WORDS = (
    f"{HEAD_FAILS.name}: {HEAD_FAILS.waiting}; it said: RuntimeError: Scheduler failed to start.{NEEDS_UCXX}"
)
BLOCKED = pod(C, "gpu", retirement=Retirement("idle"))
SUSPENDED = cluster(a_pool(replicas=1), gpu_pool(), suspend=True)
TWO = cluster(gpu_pool(count=2, least=1, most=2))
TWO_GPUS, OLDER = pod(TWO, "gpu", gpus=2), pod(TWO, "gpu", gpus=1, spec_hash="old")
BAD_OVERRIDE = cluster(a_pool(replicas=1), overrides=[{"pool": "no", "replicas": 1}])

CONDITIONS: dict[str, tuple[Observation, str, tuple[str, str, str], str]] = {
    "all is well": (seen(C, SCHEDULER, CPU0, says=CALM), "Ready", ("True", "AllReady", ""), "Running"),
    "nothing is there yet": (seen(C), "Ready", ("False", "SchedulerPending", "no scheduler pod yet"), "Pending"),
    "a pod is missing": (
        seen(C, SCHEDULER, says=demand()),
        "Ready",
        ("False", "PodsMissing", "pool cpu has 0 of 1 pods"),
        "Pending",
    ),
    "a pod runs, and its worker is not there": (
        seen(C, SCHEDULER, CPU0, says=demand()),
        "Ready",
        ("False", "PodsMissing", "pool cpu has 0 of 1 pods (1 run, but not all of their workers are registered)"),
        "Pending",
    ),
    "a pod runs, and not all of its workers are there": (
        seen(TWO, scheduler_pod(TWO), TWO_GPUS, says=demand(workers=(worker(TWO_GPUS, 0),))),
        "Ready",
        ("False", "PodsMissing", "pool gpu has 0 of 1 pods (1 run, but not all of their workers are registered)"),
        "Pending",
    ),
    "a pod runs with all of its workers": (
        seen(TWO, scheduler_pod(TWO), TWO_GPUS, says=demand(workers=(worker(TWO_GPUS, 0), worker(TWO_GPUS, 1)))),
        "Ready",
        ("True", "AllReady", ""),
        "Running",
    ),
    "a pod of an older spec runs, with another number of workers": (
        seen(TWO, scheduler_pod(TWO), OLDER, says=demand(workers=(worker(OLDER, 0),))),
        "Ready",
        ("True", "AllReady", ""),
        "Running",
    ),
    "the scheduler fails": (
        seen(UCXX, HEAD_FAILS),
        "SchedulerReady",
        ("False", "SchedulerPending", HEAD_FAILS_WORDS),
        "Degraded",
    ),
    "the scheduler fails, and that is a trouble": (
        seen(UCXX, HEAD_FAILS),
        "Degraded",
        ("True", "PodsFail", f"scheduler: {HEAD_FAILS_WORDS}"),
        "Degraded",
    ),
    "workers of ucx end, and start again, after their new scheduler has started": (
        seen(UCXX, scheduler_pod(UCXX, started=NOW - 30), FAILS_TO_START, says=demand()),
        "Degraded",
        ("False", "Healthy", ""),
        "Pending",
    ),
    "a pod runs, and the scheduler was never heard": (
        seen(C, SCHEDULER, CPU0, demand_problem="the scheduler does not answer: refused"),
        "Ready",
        ("False", "SchedulerPending", "the scheduler does not answer: refused"),
        "Degraded",
    ),
    "a pod runs, and the scheduler's preload is not up yet": (
        seen(C, scheduler_pod(C, started=NOW - 2), CPU0, demand_problem="no preload", preload_unavailable=True),
        "Ready",
        ("False", "SchedulerPending", "no preload"),
        "Degraded",
    ),
    "a pod runs, and the scheduler was not heard yet": (
        seen(C, SCHEDULER, CPU0),
        "Ready",
        ("False", "SchedulerPending", "the scheduler has not been heard yet"),
        "Pending",
    ),
    "a pod runs, and nobody will ever say who is there": (
        seen(C, SCHEDULER, CPU0, demand_problem="no preload", preload_unavailable=True),
        "Ready",
        ("True", "AllReady", ""),
        "Degraded",
    ),
    "the scheduler starts": (
        seen(C, scheduler_pod(C, running=False, unschedulable="0/1 nodes"), CPU0),
        "SchedulerReady",
        ("False", "SchedulerPending", f"{SCHEDULER.name}: 0/1 nodes"),
        "Pending",
    ),
    "an outdated scheduler waits": (
        seen(C, OUTDATED, CPU0, says=demand(workers=(worker(CPU0),), tasks=4)),
        "SchedulerReady",
        ("True", "SchedulerWaitsForRollout", f"{SCHEDULER.name} keeps its older spec while it holds tasks or results"),
        "Running",
    ),
    "workers wait with an outdated scheduler": (
        WAITS_FOR_IMAGE,
        "SchedulerReady",
        (
            "True",
            "SchedulerWaitsForRollout",
            f"{SCHEDULER.name} keeps its older spec while it holds tasks or results; {KEPT}",
        ),
        "Running",
    ),
    "workers wait with an outdated scheduler that says nothing": (
        replace(WAITS_FOR_IMAGE, demand=None),
        "SchedulerReady",
        (
            "True",
            "SchedulerWaitsForRollout",
            f"{SCHEDULER.name} keeps its older spec while it {SILENT}; {KEPT}",
        ),
        "Pending",
    ),
    "a feature of the preload is off": (
        seen(C, SCHEDULER, CPU0, says=demand(workers=(worker(CPU0),), features={"demand": "no hook"})),
        "SchedulerReady",
        ("True", "PreloadFailed", "demand is off: no hook"),
        "Running",
    ),
    "the demand is not known yet": (
        seen(C, SCHEDULER, CPU0),
        "DemandServable",
        ("Unknown", "DemandUnknown", "the scheduler has not been heard yet"),
        "Pending",
    ),
    "the scheduler is silent": (
        seen(C, SCHEDULER, CPU0, demand_problem="the scheduler does not answer: refused"),
        "Degraded",
        ("True", "SchedulerUnreachable", "the scheduler does not answer: refused; sizes stay"),
        "Degraded",
    ),
    "nobody serves a demand": (
        seen(C, SCHEDULER, CPU0, says=UNSERVED),
        "DemandServable",
        (
            "False",
            "NoPoolServes",
            (
                "3 tasks want GPU: 2; pool cpu offers no resources a worker, pool gpu offers GPU: 1 a worker: write"
                " `GPU: 1`, or a pool whose workers offer 2 GPU: gpu: {count: 2, launcher: dask}"
            ),
        ),
        "Running",
    ),
    "a pod finds no node": (
        seen(C, SCHEDULER, CPU0, STUCK, says=demand(tasks(1, GPU=1), workers=(worker(CPU0),))),
        "Degraded",
        ("True", "Unschedulable", f"pool gpu: {STUCK.name}: {STUCK.unschedulable[:-1]}; since 2027-01-15T07:58:20Z"),
        "Degraded",
    ),
    "an image cannot be pulled": (
        seen(C, SCHEDULER, NO_IMAGE, says=demand()),
        "Degraded",
        ("True", "ImageNotPulled", f"pool cpu: {NO_IMAGE.name}: {NO_IMAGE.waiting}"),
        "Degraded",
    ),
    "a worker crashes": (
        seen(C, SCHEDULER, CRASHES, says=demand()),
        "Degraded",
        ("True", "PodsFail", f"pool cpu: {CRASHES.name}: {CRASHES.waiting}; it said: ModuleNotFoundError: cupy"),
        "Degraded",
    ),
    "a worker lacks what its protocol needs": (
        seen(UCXX, scheduler_pod(UCXX), FAILS_TO_START, says=demand()),
        "Degraded",
        (
            "True",
            "PodsFail",
            f"pool cpu: {FAILS_TO_START.name}: {FAILS_TO_START.waiting}; it said: {FAILED}{NEEDS_UCXX}",
        ),
        "Degraded",
    ),
    "a drain is blocked": (
        seen(
            C,
            SCHEDULER,
            CPU0,
            BLOCKED,
            says=demand(
                workers=(worker(CPU0), worker(BLOCKED, retiring="blocked", blockers=("data",), detail="8 MB of fit"))
            ),
        ),
        "Degraded",
        ("True", "DrainBlocked", f"pool gpu: {BLOCKED.name}: data: 8 MB of fit{HELD_CURE}"),
        "Degraded",
    ),
    "a drain is blocked by an actor": (
        seen(
            C,
            SCHEDULER,
            CPU0,
            BLOCKED,
            says=demand(
                workers=(worker(CPU0), worker(BLOCKED, retiring="blocked", blockers=("actor",), detail="actor Model-1"))
            ),
        ),
        "Degraded",
        (
            "True",
            "DrainBlocked",
            f"pool gpu: {BLOCKED.name}: actor: actor Model-1; the pool holds 1 GPU: let go of the futures",
        ),
        "Degraded",
    ),
    "a quota refuses": (
        seen(C, SCHEDULER, CPU0, says=CALM, memory=refused("gpu", 403, "exceeded quota: q, requested: pods=1")),
        "Degraded",
        ("True", "QuotaExceeded", f"pool gpu: exceeded quota: q, requested: pods=1{SINCE}"),
        "Degraded",
    ),
    "a permission is missing": (
        seen(C, SCHEDULER, CPU0, says=CALM, memory=refused("gpu", 403, "may not create pods")),
        "Degraded",
        ("True", "Forbidden", f"pool gpu: may not create pods{SINCE}"),
        "Degraded",
    ),
    "a Service is refused": (
        seen(C, SCHEDULER, CPU0, says=CALM, failures=(FAILURE, replace(FAILURE, what="Secret demo-token"))),
        "Degraded",
        (
            "True",
            "Forbidden",
            f"Service demo-scheduler: denied{SINCE}; Secret demo-token: denied{SINCE}",
        ),
        "Degraded",
    ),
    "a template is refused": (
        seen(C, SCHEDULER, CPU0, says=CALM, memory=refused("gpu", 400, 'unknown field "spec.nodeSelecter"')),
        "Accepted",
        ("False", "TemplateRefused", 'pool gpu: unknown field "spec.nodeSelecter"'),
        "Invalid",
    ),
    "the scheduler's template is refused": (
        seen(C, CPU0, memory=refused("", 422, "spec.containers: bad")),
        "Accepted",
        ("False", "TemplateRefused", "scheduler: spec.containers: bad"),
        "Invalid",
    ),
    "an override names no pool": (
        seen(BAD_OVERRIDE, scheduler_pod(BAD_OVERRIDE), CPU0, says=CALM),
        "Accepted",
        ("True", "OverrideIgnored", "overrides of pools that do not exist: no: remove them"),
        "Running",
    ),
    "it suspends": (
        seen(SUSPENDED, SCHEDULER, CPU0, says=CALM),
        "Ready",
        ("False", "Suspending", "2 pods still finish"),
        "Suspending",
    ),
    "it is suspended": (seen(SUSPENDED), "Ready", ("False", "Suspended", "suspended by spec.suspend"), "Suspended"),
}


@pytest.mark.parametrize(
    ("observation", "kind", "expected", "phase"), CONDITIONS.values(), ids=lambda value: str(value)[:0] or None
)
def test_condition(observation: Observation, kind: str, expected: tuple[str, str, str], phase: str):
    status = status_of(observation)
    assert (condition(status, kind), status.phase) == (expected, phase)


def test_keys_that_were_left_out_are_named_with_their_fields():
    forged = {"metadata": {"labels": {"gpudask.dev/pool": "zz", "team": "a"}}}
    of = cluster(a_pool(replicas=1, template=forged), scheduler={"service": {"annotations": {"dask.org/x": ""}}})
    accepted, reason, said = condition(status_of(seen(of, scheduler_pod(of))), "Accepted")
    assert (accepted, reason) == ("True", "Valid")
    assert said == (
        "left out, because they belong to the operator: spec.scheduler.service.annotations: dask.org/x,"
        " spec.pools[0].template.metadata.labels: gpudask.dev/pool: remove them"
    )


def test_the_pools_figures_count_pods_workers_and_gpus():
    of = cluster(gpu_pool(count=2, most=8))
    working, leaving, starting = pod(of, "gpu", 0), pod(of, "gpu", 1, retirement=Retirement("idle")), STUCK
    starting = pod(of, "gpu", 2, running=False, unschedulable="no room")
    going, ended = (
        pod(of, "gpu", 3, delete_by=NOW + 9),
        pod(of, "gpu", 4, phase="Failed", ended=Ended("Evicted", 0, "x")),
    )
    workers = (busy(working, 0), worker(working, 1), worker(leaving, 0), worker(leaving, 1))
    says = demand(tasks(2, running=1, GPU=1), workers=workers)
    found = status_of(seen(of, scheduler_pod(of), working, leaving, starting, going, ended, says=says))
    figures = found.pools[0].model_dump(
        include={"pods", "ready", "pending", "unschedulable", "retiring", "workers", "gpus_held", "gpus_busy"}
    )
    assert figures == {
        "pods": 4,
        "ready": 2,
        "pending": 1,
        "unschedulable": 1,
        "retiring": 2,
        "workers": 4,
        "gpus_held": 6,
        "gpus_busy": 1,
    }
    assert found.pools[0].demand.model_dump() == {
        "waiting": 2,
        "running": 1,
        "pods": 1.5,
        "pods_unknown": 1.5,
        "pod_seconds": 0.0,
        "next_seconds": None,
    }
    assert found.pools[0].last_termination is not None
    assert found.pools[0].last_termination.reason == "Evicted"
    assert found.summary.gpu == f"2/{found.pools[0].desired}"


def test_gpu_seconds_add_up_from_one_operator_to_the_next():
    """What vanished in between has held its GPU for half of the time."""
    says = demand(tasks(running=1, GPU=1), workers=(worker(CPU0), busy(GPU0)))
    first = status_of(seen(C, SCHEDULER, CPU0, GPU0, says=says), Status(counted_at=iso(NOW)))
    second = status_of(seen(C, SCHEDULER, CPU0, GPU0, says=says, now=NOW + 10), first)
    idle = demand(workers=(worker(CPU0), worker(GPU0)))
    third = status_of(seen(C, SCHEDULER, CPU0, GPU0, says=idle, now=NOW + 14), second)
    fourth = status_of(seen(C, SCHEDULER, CPU0, says=idle, now=NOW + 20), third)
    counted = [(s.pools[1].gpu_seconds_held, s.pools[1].gpu_seconds_used) for s in (first, second, third, fourth)]
    assert counted == [(0, 0), (10, 10), (14, 14), (17, 14)]


def test_a_clock_that_goes_back_takes_no_gpu_seconds_away():
    says = demand(workers=(worker(GPU0),))
    first = status_of(seen(C, SCHEDULER, GPU0, says=says), Status(counted_at=iso(NOW)))
    assert status_of(seen(C, SCHEDULER, GPU0, says=says, now=NOW - 50), first).pools[1].gpu_seconds_held == 0


@pytest.mark.parametrize("text", ["garbage", "9999-99-99T00:00:00Z", "9" * 5000])
def test_a_status_that_somebody_else_wrote_nonsense_into_is_written_anew(text: str):
    of = cluster(a_pool(), idle={"deleteAfter": "1h"})
    before = Status(counted_at=text, scheduler={"idle_since": text})  # type: ignore[arg-type]
    now = seen(of, scheduler_pod(of), says=demand(idle_seconds=100.0))
    after = report(now, plan(now), before)
    assert text not in (after.counted_at, after.scheduler.idle_since)


def test_a_scheduler_that_is_silent_for_a_moment_changes_no_readiness():
    ready = status_of(seen(C, SCHEDULER, CPU0, says=CALM))
    assert condition(status_of(seen(C, SCHEDULER, CPU0), ready), "Ready")[0] == "True"
    starting = status_of(seen(C, SCHEDULER, CPU0))
    assert condition(status_of(seen(C, SCHEDULER, CPU0), starting), "Ready")[0] == "False"


def test_a_transition_time_moves_with_the_conditions_status_only():
    first = status_of(seen(C, SCHEDULER, says=demand()))
    later = status_of(seen(C, SCHEDULER, says=demand(), now=NOW + 60), first)
    ready = status_of(seen(C, SCHEDULER, CPU0, says=CALM, now=NOW + 120), later)
    times = [
        next(c for c in s.conditions if c.type == ConditionType.READY).last_transition_time
        for s in (first, later, ready)
    ]
    assert times[0] == times[1] != times[2]


def pair(first: dict[str, Any], second: dict[str, Any]) -> tuple[Status, Status]:
    before = status_of(seen(C, SCHEDULER, CPU0, GPU0, **first))
    return before, status_of(seen(C, SCHEDULER, CPU0, GPU0, **second), before)


def working(count: int) -> dict[str, Any]:
    return {
        "says": demand(
            tasks(count, running=1, GPU=1),
            workers=(
                worker(CPU0),
                busy(GPU0),
            ),
        )
    }


def test_counts_of_tasks_are_lively_but_not_significant():
    most = cluster(a_pool(replicas=1), gpu_pool(most=1))
    before, after = (
        status_of(seen(most, scheduler_pod(most), CPU0, pod(most, "gpu"), **working(count))) for count in (3, 50)
    )
    assert without_live_values(before) == without_live_values(after)
    assert without_counters(before) != without_counters(after)


def test_unserved_demand_that_changes_in_number_is_not_significant():
    before, after = pair({"says": demand(tasks(3, GPU=2))}, {"says": demand(tasks(4, GPU=2))})
    assert condition(before, "DemandServable") != condition(after, "DemandServable")
    assert without_live_values(before) == without_live_values(after)
    assert without_counters(before) != without_counters(after)


def test_time_alone_is_nothing_to_write():
    before, after = pair({"says": CALM}, {"says": CALM, "now": NOW + 10})
    assert before != after
    assert without_counters(before) == without_counters(after)


def test_a_size_is_significant():
    before, after = pair({"says": CALM}, {"says": demand(tasks(9, seconds=900, GPU=1), workers=(busy(GPU0),))})
    assert without_live_values(before) != without_live_values(after)


def test_how_far_pods_are_is_significant_and_not_pressing():
    two = cluster(a_pool(replicas=2))
    pods = [pod(two, "cpu", number, running=False) for number in range(2)]
    before, after = (
        status_of(seen(two, scheduler_pod(two), *pods[: 2 - ready], *(pod(two, "cpu", n) for n in range(2 - ready, 2))))
        for ready in (0, 1)
    )
    assert (before.pools[0].ready, after.pools[0].ready) == (0, 1)
    assert without_live_values(before) != without_live_values(after)
    assert without_progress(before) == without_progress(after)
    ready = status_of(seen(two, scheduler_pod(two), pod(two, "cpu", 0), pod(two, "cpu", 1), says=CALM))
    assert without_progress(after) != without_progress(ready), "conditions changed"


def test_a_new_cluster_is_announced_when_it_is_ready_and_not_before():
    def said(before: Status, after: Status) -> list[str]:
        return [item.reason for item in events(before, after) if item.reason in ("AllReady", "SchedulerPending")]

    one = cluster(a_pool(replicas=1))
    starting = status_of(seen(one, scheduler_pod(one, running=False)))
    ready = status_of(seen(one, scheduler_pod(one), pod(one, "cpu", 0), says=CALM), starting)
    assert said(Status(), starting) == []
    assert said(starting, ready) == ["AllReady"]
    assert said(ready, starting) != []


def test_scaling_is_announced_with_its_reason():
    before, after = pair({"says": CALM}, {"says": demand(tasks(4, seconds=900, GPU=1), workers=(busy(GPU0),))})
    said = [item for item in events(before, after) if item.reason == Reason.SCALED_UP]
    assert [item.message for item in said] == [
        "pool gpu: 0 -> 4 pods (autoscale): 4 tasks wait, 0 assigned"
        if before.pools[1].desired == 0
        else f"pool gpu: {before.pools[1].desired} -> 4 pods (autoscale): 4 tasks wait, 0 assigned"
    ]
    assert events(after, after) == []


@pytest.mark.parametrize("silence", [True, False])
def test_a_scheduler_that_began_anew_is_told_with_what_it_knew(silence: bool):
    before = status_of(seen(C, SCHEDULER, CPU0, says=demand(tasks(3, GPU=1), workers=(worker(CPU0),))))
    if silence:
        before = status_of(seen(C, SCHEDULER, CPU0), before)
    after = status_of(seen(C, SCHEDULER, CPU0, says=replace(CALM, scheduler_id="another"), now=NOW + 9), before)
    [told] = [item for item in events(before, after) if item.reason == Reason.SCHEDULER_RESTARTED]
    assert told.warning
    assert "3 tasks" in told.message
    assert after.scheduler.lost.endswith("3 tasks")
    again = status_of(seen(C, SCHEDULER, CPU0, says=replace(CALM, scheduler_id="another"), now=NOW + 20), after)
    assert (again.scheduler.lost, again.scheduler.tasks) == (after.scheduler.lost, 0)
    assert events(after, again) == []


def test_a_scheduler_that_knew_nothing_loses_nothing():
    before = status_of(seen(C, SCHEDULER, CPU0, says=CALM))
    after = status_of(seen(C, SCHEDULER, CPU0, says=replace(CALM, scheduler_id="another")), before)
    assert after.scheduler.lost == ""
    assert events(before, after) == []


def test_trouble_is_announced_once_as_a_warning():
    before, after = pair({"says": CALM}, {"says": demand(tasks(3, GPU=2), workers=(worker(CPU0),))})
    warned = [item for item in events(before, after) if item.warning]
    assert [item.reason for item in warned] == [Reason.UNSERVABLE]
    assert "3 tasks want GPU: 2" in warned[0].message
    assert not [item for item in events(after, after) if item.warning]


def test_a_drain_whose_data_cannot_be_moved_is_shown_in_the_pool_and_announced_once():
    def says(state: str, words: str, *blockers: str) -> Observation:
        row = worker(BLOCKED, retiring=state, blockers=blockers, detail=words)
        return seen(C, SCHEDULER, CPU0, BLOCKED, says=demand(workers=(worker(CPU0), row)))

    moving = status_of(says("draining", "3 results (9 bytes) are moving"))
    stuck = status_of(says("blocked", "3 results (9 bytes) cannot be moved: x: TypeError: no", "data"), moving)
    later = status_of(says("blocked", "2 results (6 bytes) cannot be moved: y: TypeError: no", "data"), stuck)
    assert stuck.pools[1].held == f"{BLOCKED.name}: data: 3 results (9 bytes) cannot be moved: x: TypeError: no"
    (warned,) = [item for item in events(moving, stuck) if item.warning]
    assert (warned.reason, warned.message) == (Reason.DRAIN_BLOCKED, f"pool gpu: {stuck.pools[1].held}{HELD_CURE}")
    assert events(stuck, later) == []


def test_a_refused_spec_is_announced_once_for_each_thing_that_is_wrong():
    fine = status_of(seen(C, SCHEDULER, CPU0, says=CALM))
    first = invalid("spec.pools[0]: no", generation=2, before=fine, now=NOW)
    again = invalid("spec.pools[0]: no", generation=3, before=first, now=NOW)
    other = invalid("spec.pools[1]: no", generation=3, before=again, now=NOW)
    (told,) = events(fine, first)
    assert (told.reason, told.message, told.warning) == (Reason.INVALID, "spec.pools[0]: no", True)
    assert events(first, again) == []
    (another,) = events(again, other)
    assert another.message == "spec.pools[1]: no"
    assert another.series != told.series
    assert [item.message for item in events(other, fine)] == ["the cluster is ready"]


def test_pods_of_a_removed_pool_have_a_row_that_stays_with_their_gpu_seconds():
    of = cluster(a_pool(replicas=1))
    one = pod(of, "old", 0, gpus=2, retirement=Retirement("its pool was removed"))
    two = pod(of, "old", 1, gpus=2, delete_by=NOW + 9)
    ended = pod(of, "old", 2, gpus=2, phase="Failed")
    workers = (worker(pod(of, "cpu")), busy(one, 0), worker(one, 1, retiring="draining"))
    says = demand(workers=workers)
    before = status_of(seen(of, scheduler_pod(of), pod(of, "cpu"), says=demand(workers=workers[:1])))
    earlier = before.pools[0].model_copy(update={"name": "old", "desired": 2, "gpus_held": 4, "gpu_seconds_held": 100})
    before = before.model_copy(update={"pools": [*before.pools, earlier]})
    status = status_of(seen(of, scheduler_pod(of), pod(of, "cpu"), one, two, ended, says=says, now=NOW + 10), before)
    row = status.pools[1]
    assert [(p.name, p.removed) for p in status.pools] == [("cpu", False), ("old", True)]
    assert (row.desired, row.pods, row.ready, row.retiring, row.workers) == (0, 2, 1, 2, 2)
    assert (row.gpus_held, row.gpus_busy, row.gpu_seconds_held) == (4, 1, 140)
    assert (status.summary.cpu, status.summary.gpu, status.phase) == ("1/1", "1/0", "Running")
    assert [item.message for item in events(before, status)] == [
        "pool old: 2 -> 0 pods (spec): the spec has no such pool any more"
    ]
    last = status_of(seen(of, scheduler_pod(of), pod(of, "cpu"), ended, says=says, now=NOW + 20), status)
    assert [(p.name, p.pods, p.gpus_held, p.gpu_seconds_held) for p in last.pools] == [
        ("cpu", 1, 0, 0),
        ("old", 0, 0, 160),  # the last seconds of its pods
    ]
    gone = status_of(seen(of, scheduler_pod(of), pod(of, "cpu"), ended, says=says, now=NOW + 21), last)
    assert gone.pools[1:] == last.pools[1:]
    assert events(status, last) == events(last, gone) == []


def test_a_blocked_drain_of_a_removed_pool_is_told():
    of = cluster(a_pool(replicas=1))
    old = pod(of, "old", gpus=1, retirement=Retirement("its pool was removed"))
    row = worker(old, retiring="blocked", blockers=("data",), detail="8 MB of fit")
    cpu = pod(of, "cpu")
    status = status_of(seen(of, scheduler_pod(of), cpu, old, says=demand(workers=(row, worker(cpu)))))
    assert condition(status, "Degraded") == (
        "True",
        "DrainBlocked",
        f"removed pool old: {old.name}: data: 8 MB of fit; the pool holds 1 GPU: let go of the futures",
    )
    assert condition(status, "Ready")[0] == "True"


def test_a_pod_holds_the_gpus_that_it_was_made_with():
    of = cluster(gpu_pool(count=4))
    older, current = pod(of, "gpu", 0, gpus=1), pod(of, "gpu", 1, gpus=4)
    status = status_of(seen(of, scheduler_pod(of), older, current, says=demand(workers=(worker(older),))))
    assert status.pools[0].gpus_held == 5


def test_slices_of_a_device_that_is_shared_in_time_count_one_by_one():
    of = cluster(a_pool("gpu", gpu={"count": 4, "resourceName": "nvidia.com/gpu.shared"}))
    made = worker_pod(of, of.spec.pools[0], 0, "abcde")
    assert made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu.shared"] == "4"
    held = pod(of, "gpu", 0, gpus=int(made["metadata"]["annotations"]["gpudask.dev/gpus"]))
    status = status_of(seen(of, scheduler_pod(of), held, says=demand()))
    assert status.pools[0].gpus_held == 4


def test_readiness_is_announced_when_it_comes_and_goes():
    before, after = status_of(seen(C, SCHEDULER, says=demand())), None
    after = status_of(seen(C, SCHEDULER, CPU0, says=CALM), before)
    assert [item.message for item in events(before, after)] == ["the cluster is ready"]
    assert [item.reason for item in events(after, before)] == [Reason.PODS_MISSING]


def test_an_override_of_zero_is_named_as_the_reason_that_demand_is_not_served():
    of = cluster(scaled(least=1), gpu_pool(), overrides=[{"pool": "gpu", "replicas": 0}])
    status = status_of(seen(of, scheduler_pod(of), pod(of, "cpu"), says=demand(tasks(1, GPU=1))))
    assert "pool gpu offers GPU: 1 a worker but is set to 0 pods" in condition(status, "DemandServable")[2]


def test_tasks_that_ask_for_what_is_no_number_are_named_with_what_to_write():
    says = demand(ignored=("2 tasks ask for {'GPU': '1'}: a quantity is no finite number of zero or more",))
    status = status_of(seen(C, SCHEDULER, CPU0, says=says))
    assert condition(status, "DemandServable")[0] == "False"
    assert "2 tasks ask for {'GPU': '1'}" in condition(status, "DemandServable")[2]
    assert condition(status, "DemandServable")[2].endswith("write a name and a number, as in resources={'GPU': 1}")
    assert condition(status, "SchedulerReady")[0] == "True"


def test_limits_that_somebody_set_are_named_with_autoscaling():
    of = cluster(scaled(least=1), gpu_pool(), overrides=[{"pool": "cpu", "min": 2, "max": 3, "by": "alice"}])
    pools = {pool.name: pool for pool in status_of(seen(of, scheduler_pod(of), says=demand())).pools}
    assert (pools["cpu"].desired, pools["cpu"].size_set_by) == (2, "autoscale, limits by alice")
    assert pools["gpu"].size_set_by == "autoscale"


def test_a_defect_of_the_operator_is_told_and_what_was_said_stays():
    before = status_of(seen(C, SCHEDULER, CPU0, says=CALM))
    after = defect("the operator fails", before=before, now=NOW + 60)
    told = {condition.type: condition for condition in after.conditions}
    degraded = told[ConditionType.DEGRADED]
    assert (degraded.status, degraded.reason, degraded.message) == (
        "True",
        Reason.OPERATOR_FAILED,
        "the operator fails",
    )
    for other in before.conditions:
        if other.type != ConditionType.DEGRADED:
            assert told[other.type] == other
    assert (after.pools, after.phase) == (before.pools, Phase.DEGRADED)


def test_a_new_cluster_on_which_the_operator_fails_says_so():
    after = defect("the operator fails", before=Status(), now=NOW)
    assert {condition.reason for condition in after.conditions} == {Reason.OPERATOR_FAILED}
    assert {condition.status for condition in after.conditions} == {"True", "Unknown"}


def test_workers_that_wait_with_the_scheduler_are_out_of_date_and_the_address_is_the_one_that_answers():
    status = status_of(WAITS_FOR_IMAGE)

    assert [pool.outdated for pool in status.pools] == [1, 0]
    assert status.scheduler.address.startswith("tcp://")
