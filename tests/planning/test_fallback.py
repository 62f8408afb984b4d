"""Fallback on other pools: what is lent when, and what the status and the events say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudask.api.reasons import Reason
from gpudask.api.status import Status
from gpudask.planning.events import events
from gpudask.planning.observed.observation import Observation, PoolMemory
from gpudask.planning.plan import plan
from gpudask.planning.status import report
from gpudask.scaling.demand import Requirement
from tests.builders import a_pool
from tests.planning.builders import busy, cluster, demand, gpu_pool, pod, scaled, scheduler_pod, seen, worker

FEATURES = {"demand": "", "fence": "", "retire": "", "offers": ""}
OF = cluster(scaled("cpu", least=1), gpu_pool(fallback={"to": ["cpu"], "after": "60s"}))
LENT = {"cpu": {"GPU": 1.0}}


def waiting(seconds: float, *, unrunnable: int = 3, running: int = 0, lent: int = 0, **resources: float) -> Requirement:
    return Requirement(
        tuple((resources or {"GPU": 1.0}).items()),
        unrunnable=unrunnable,
        processing=running,
        unknown=unrunnable + running,
        since_seconds=seconds,
        lent=lent,
    )


def seeing(*requirements: Requirement, gpu_ready: bool = False, **says: object) -> Observation:
    cpu, gpu = pod(OF, "cpu"), pod(OF, "gpu", running=gpu_ready)
    workers = (worker(cpu), busy(gpu, 0)) if gpu_ready else (worker(cpu),)
    says.setdefault("features", FEATURES)
    return seen(OF, scheduler_pod(OF), cpu, gpu, says=demand(*requirements, workers=workers, **says))


def test_tasks_that_waited_long_enough_are_lent_workers_of_the_other_pool() -> None:
    assert plan(seeing(waiting(60))).offers == LENT


def test_before_that_nothing_is_lent_and_the_pass_comes_back_in_time() -> None:
    planned = plan(seeing(waiting(45)))
    assert planned.offers == {}
    assert planned.requeue_after is not None
    assert planned.requeue_after <= 15


def test_what_is_lent_stays_lent_while_they_run_there_also_for_an_operator_that_has_just_started() -> None:
    assert plan(seeing(waiting(0, unrunnable=0, running=3), offers=LENT)).offers == LENT


def test_it_is_taken_back_when_a_worker_of_the_pool_is_ready() -> None:
    assert plan(seeing(waiting(0, unrunnable=0, running=3), offers=LENT, gpu_ready=True)).offers == {}


def test_it_is_taken_back_when_there_are_no_such_tasks() -> None:
    assert plan(seeing(offers=LENT)).offers == {}


def test_a_worker_that_leaves_is_none_that_is_ready() -> None:
    observation = seeing(waiting(60), gpu_ready=True)
    closing = tuple(
        w if w.pool == "cpu" else busy(pod(OF, "gpu"), 0, status="closing_gracefully")
        for w in observation.demand.workers  # type: ignore[union-attr]
    )
    again = seen(OF, *observation.pods, says=demand(waiting(60), workers=closing, features=FEATURES))
    assert plan(again).offers == LENT


def test_the_gpu_pool_is_still_wanted_and_the_other_one_grows_for_its_guests() -> None:
    planned = plan(seeing(waiting(60)))
    assert planned.pools["gpu"].size.pods >= 1
    assert planned.pools["cpu"].size.pods == 2  # doubling: their durations are not known
    assert plan(seeing(waiting(10))).pools["cpu"].size.pods == 1


def test_what_has_begun_elsewhere_ends_there_and_wants_no_gpu() -> None:
    assert plan(seeing(waiting(0, unrunnable=0, running=3, lent=2), offers=LENT)).pools["gpu"].size.pods == 1
    decided = {"gpu": PoolMemory(size=1)}
    planned = plan(replace(seeing(waiting(0, unrunnable=0, running=3, lent=3), offers=LENT), memory=decided))
    assert planned.pools["gpu"].size.pods == 0, "the pending pod is cancelled: no task would run there"
    assert planned.offers == LENT
    assert planned.pools["cpu"].size.pods == 2


def test_a_gpu_that_comes_for_tasks_that_all_began_elsewhere_is_idle() -> None:
    cpu, gpu = pod(OF, "cpu"), pod(OF, "gpu")
    says = demand(waiting(0, unrunnable=0, running=1, lent=1), workers=(worker(cpu), worker(gpu)), features=FEATURES)
    planned = plan(seen(OF, scheduler_pod(OF), cpu, gpu, says=says, memory={"gpu": PoolMemory(size=1)}))
    assert planned.pools["gpu"].size.pods == 0


TWO = cluster(
    scaled("cpu", least=1),
    gpu_pool(fallback={"to": ["cpu"], "after": "60s"}),
    gpu_pool("other", offers={"GPU": 1}, fallback={"to": ["cpu"], "after": "60s"}),
)


def test_tasks_that_fall_back_from_two_pools_count_once() -> None:
    cpu = pod(TWO, "cpu")
    known = Requirement((("GPU", 1.0),), unrunnable=3, seconds=60.0, since_seconds=60.0)
    planned = plan(seen(TWO, scheduler_pod(TWO), cpu, says=demand(known, workers=(worker(cpu),), features=FEATURES)))
    assert planned.offers == LENT
    assert planned.pools["cpu"].size.pods == 2  # 60 s of work in 30 s


def test_one_ready_worker_of_any_pool_that_serves_them_is_enough() -> None:
    cpu, other = pod(TWO, "cpu"), pod(TWO, "other")
    says = demand(waiting(0, unrunnable=0, running=3), workers=(worker(cpu), busy(other)), features=FEATURES)
    assert plan(seen(TWO, scheduler_pod(TWO), cpu, other, says=replace(says, offers=LENT))).offers == {}


def test_a_ready_worker_that_cannot_run_them_is_none() -> None:
    of = cluster(
        scaled("cpu", least=1),
        gpu_pool(),
        gpu_pool("big", offers={"GPU": 2}, fallback={"to": ["cpu"], "after": "60s"}),
    )
    cpu, gpu = pod(of, "cpu"), pod(of, "gpu")
    says = demand(waiting(60, GPU=2.0), workers=(worker(cpu), worker(gpu)), features=FEATURES)
    assert plan(seen(of, scheduler_pod(of), cpu, gpu, says=says)).offers == {"cpu": {"GPU": 2.0}}


def test_a_pool_that_offers_the_same_by_itself_lends_nothing() -> None:
    of = cluster(
        scaled("cpu"),
        gpu_pool("small"),
        gpu_pool("big", offers={"GPU": 2}, fallback={"to": ["small", "cpu"], "after": "60s"}),
    )
    planned = plan(seen(of, scheduler_pod(of), says=demand(waiting(60, GPU=2.0), features=FEATURES)))
    assert planned.offers == {"cpu": {"GPU": 2.0}}
    assert (planned.pools["small"].size.pods, planned.pools["cpu"].size.pods) == (0, 1)


def test_a_gpu_pool_held_at_zero_falls_back_and_its_demand_is_served() -> None:
    of = cluster(scaled("cpu"), a_pool("gpu", gpu={}, replicas=0, fallback={"to": ["cpu"], "after": "60s"}))
    before, now = (
        seen(of, scheduler_pod(of), says=demand(waiting(seconds), features=FEATURES)) for seconds in (10, 60)
    )
    servable = [
        next(c.status for c in report(s, plan(s), Status()).conditions if c.type == "DemandServable")
        for s in (before, now)
    ]
    assert servable == ["False", "True"]


@pytest.mark.parametrize("features", [{"demand": "", "fence": "", "retire": ""}, FEATURES | {"offers": "is off"}])
def test_a_preload_that_cannot_lend_is_asked_for_nothing(features: dict[str, str]) -> None:
    assert plan(seeing(waiting(60), features=features)).offers == {}


def test_a_suspended_cluster_lends_nothing() -> None:
    of = cluster(scaled("cpu"), gpu_pool(fallback={"to": ["cpu"], "after": "60s"}), suspend=True)
    assert plan(seen(of, scheduler_pod(of), says=demand(waiting(60), features=FEATURES))).offers == {}


def test_the_status_and_the_events_say_so() -> None:
    history: list[Status] = [Status()]
    told: list[str] = []
    for observation in (
        seeing(waiting(10)),
        seeing(waiting(60)),
        seeing(waiting(0, unrunnable=0, running=3), offers=LENT),
        seeing(waiting(0, unrunnable=0, running=3), offers=LENT, gpu_ready=True),
    ):
        status = report(observation, plan(observation), history[-1])
        told += [a.reason for a in events(history[-1], status) if "Fallback" in a.reason]
        history.append(status)
    assert [s.pools[1].fallback for s in history[1:]] == ["", "cpu", "cpu", ""]
    assert told == [Reason.FALLBACK_STARTED, Reason.FALLBACK_ENDED]


def test_a_scheduler_that_says_nothing_for_a_while_ends_no_fallback() -> None:
    lending = seeing(waiting(60))
    before = report(lending, plan(lending), Status())
    silent = seen(OF, *lending.pods)
    assert report(silent, plan(silent), before).pools[1].fallback == "cpu"
