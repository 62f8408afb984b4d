"""A cluster that nobody uses: when it is deleted, and when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.planning.idle import idle_seconds
from gpudask.planning.observed.observation import Observation
from gpudask.planning.plan import plan
from gpudask.planning.status import report
from gpudask.scaling.demand import Demand
from tests.builders import a_pool
from tests.planning.builders import NOW, cluster, demand, pod, scheduler_pod, seen, tasks, worker

IDLE = demand(idle_seconds=600.0)


def observed(says: Demand | None, *, after: str | None = "10m", now: float = NOW, **spec: Any) -> Observation:
    of = cluster(a_pool(), **({"idle": {"deleteAfter": after}} if after else {}), **spec)
    found = seen(of, scheduler_pod(of), pod(of, "cpu"), says=says)
    return Observation(found.cluster, found.pods, now, demand=says, demand_at=NOW)


def test_one_that_was_idle_for_long_enough_is_deleted_with_the_reason():
    assert plan(observed(IDLE)).deletion.why == (
        "its scheduler has had nothing to do for 600 s, and spec.idle.deleteAfter is 10m"
    )


def test_held_results_keep_nothing():
    assert plan(observed(demand(idle_seconds=600.0, tasks=5))).deletion.why


@pytest.mark.parametrize(
    ("says", "changed"),
    [
        (demand(idle_seconds=599.0), {}),
        (demand(tasks(1), idle_seconds=600.0), {}),
        (demand(tasks(running=1), idle_seconds=600.0), {}),
        (None, {}),
        (demand(idle_seconds=None), {}),
        (demand(idle_seconds=600.0, features={"demand": "a hook is missing"}), {}),
        (IDLE, {"after": None}),
        (IDLE, {"suspend": True}),
    ],
    ids=[
        "not long enough",
        "a task waits",
        "a task runs",
        "nobody knows",
        "an older preload",
        "nobody counts",
        "nobody asked for it",
        "it was put aside",
    ],
)
def test_otherwise_it_stays(says: Demand | None, changed: dict[str, Any]):
    assert plan(observed(says, **changed)).deletion.why == ""


def test_an_actor_is_in_use():
    of = cluster(a_pool(), idle={"deleteAfter": "10m"})
    its = pod(of, "cpu")
    says = demand(idle_seconds=600.0, workers=(worker(its, blockers=("actor",)),))

    assert idle_seconds(seen(of, scheduler_pod(of), its, says=says)) == 0.0


def test_time_goes_on_since_the_scheduler_was_heard():
    assert plan(observed(demand(idle_seconds=590.0), now=NOW + 10)).deletion.why


@pytest.mark.parametrize(("idle", "soonest"), [(590.0, 10.0), (0.0, 600.0)])
def test_the_next_pass_comes_when_it_may_be_old_enough(idle: float, soonest: float):
    wake = plan(observed(demand(idle_seconds=idle))).requeue_after

    assert wake is not None
    assert wake <= soonest


def test_the_status_says_since_when_and_does_not_tremble():
    first = observed(demand(idle_seconds=100.0))
    before = report(first, plan(first), first.cluster.status)
    later = observed(demand(idle_seconds=100.4), now=NOW + 30)
    after = report(later, plan(later), before)

    assert before.scheduler.idle_since == "2027-01-15T07:58:20.000Z"
    assert after.scheduler.idle_since == before.scheduler.idle_since
    working = observed(demand(tasks(running=1), idle_seconds=0.0))
    assert report(working, plan(working), after).scheduler.idle_since == ""
