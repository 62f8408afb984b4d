"""A cluster that nobody uses, or to which nobody is connected: when it is deleted, and when it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.api.status import Condition
from gpudask.planning.idle import idle_seconds
from gpudask.planning.observed.observation import Observation
from gpudask.planning.plan import plan
from gpudask.planning.status import report
from gpudask.scaling.demand import Clients, Demand
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


def absent(seconds: float, **fields: Any) -> Demand:
    """A scheduler with a task that runs for ever, which no client has been connected to for so long."""
    return demand(tasks(running=1), clients=Clients(absent_seconds=seconds, **fields))


def leased(
    says: Demand | None, *, after: str | None = "10m", now: float = NOW, heard_since: float = NOW - 86400, **spec: Any
) -> Observation:
    of = cluster(a_pool(), **({"idle": {"shutdownAfterDisconnect": after}} if after else {}), **spec)
    found = seen(of, scheduler_pod(of), pod(of, "cpu"), says=says)
    return Observation(
        found.cluster, found.pods, now, demand=says, demand_at=NOW, scheduler_since=heard_since, wanted=of.spec
    )


GOES, OR = "the cluster is deleted at", "unless one comes (spec.idle.shutdownAfterDisconnect)"


def condition(observation: Observation) -> Condition | None:
    status = report(observation, plan(observation), observation.cluster.status)
    return next((each for each in status.conditions if each.type == "Leased"), None)


def test_one_without_a_client_for_long_enough_is_deleted_whatever_it_computes():
    deletion = plan(leased(absent(600.0))).deletion

    assert (deletion.reason, deletion.why) == (
        "DisconnectedTooLong",
        "no client has been connected for 600 s, and spec.idle.shutdownAfterDisconnect is 10m",
    )


def test_one_to_which_none_ever_came_counts_from_its_schedulers_start():
    assert plan(leased(absent(600.0, ever=False))).deletion.why


@pytest.mark.parametrize(
    ("says", "changed"),
    [
        (absent(599.0), {}),
        (absent(600.0, connected=1), {}),
        (absent(600.0), {"heard_since": NOW - 599.0}),
        (None, {}),
        (demand(), {}),
        (absent(600.0), {"after": None}),
        (absent(600.0), {"suspend": True}),
    ],
    ids=[
        "not long enough",
        "a client is connected",
        "the operator has not heard it for so long",
        "the scheduler is not heard now",
        "an older preload",
        "nobody asked for it",
        "it was put aside",
    ],
)
def test_otherwise_it_is_kept(says: Demand | None, changed: dict[str, Any]):
    assert plan(leased(says, **changed)).deletion.why == ""


def test_the_time_goes_on_between_two_answers():
    assert plan(leased(absent(590.0), now=NOW + 10)).deletion.why


def test_an_outage_of_the_operator_or_of_the_way_to_the_scheduler_begins_the_time_anew():
    """What kept the operator away may have kept the clients away, too: an API server that was gone, say."""
    after_outage = leased(absent(3600.0), heard_since=NOW)
    later = leased(absent(3600.0), heard_since=NOW, now=NOW + 600)

    assert plan(after_outage).deletion.why == ""
    assert plan(later).deletion.why


def test_whichever_reason_comes_first_is_the_one_that_is_told():
    of = cluster(a_pool(), idle={"shutdownAfterDisconnect": "10m", "deleteAfter": "20m"})
    says = demand(idle_seconds=700.0, clients=Clients(absent_seconds=700.0))
    both = seen(of, scheduler_pod(of), says=says, scheduler_since=NOW - 86400)

    assert plan(both).deletion.reason == "DisconnectedTooLong"


@pytest.mark.parametrize(("seconds", "soonest"), [(0.0, 100.0), (50.0, 50.0), (590.0, 10.0)])
def test_the_next_pass_comes_when_it_is_to_be_told_or_deleted(seconds: float, soonest: float):
    wake = plan(leased(absent(seconds))).requeue_after

    assert wake is not None
    assert wake <= soonest


@pytest.mark.parametrize("seconds", [0.0, 1.0, 50.0, 99.0, 100.0, 101.0, 350.0, 599.0, 600.0])
@pytest.mark.parametrize("ever", [True, False])
def test_nothing_changes_by_time_alone_before_that_pass(seconds: float, *, ever: bool):
    now = leased(absent(seconds, ever=ever))
    then = replace(now, now=NOW + 0.999 * (plan(now).requeue_after or 600.0))

    assert bool(plan(then).deletion.why) == bool(plan(now).deletion.why)
    assert (before := condition(now)) is not None
    assert (after := condition(then)) is not None
    assert (before.status, before.reason) == (after.status, after.reason)


@pytest.mark.parametrize(
    ("says", "changed", "told"),
    [
        (absent(0.0, connected=2), {}, ("True", "ClientsConnected", "clients: 2")),
        (absent(99.0), {}, ("True", "ClientsConnected", "a program was seen within the last two minutes")),
        (
            absent(300.0),
            {},
            (
                "False",
                "NoClient",
                f"no client has been connected since 2027-01-15T07:55:00Z: {GOES} 2027-01-15T08:05:00Z {OR}",
            ),
        ),
        (
            absent(300.0, ever=False),
            {"after": "99999999999h"},
            ("False", "NoClient", f"no client has come since 2027-01-15T07:55:00Z: {GOES} 9999-12-31T23:59:59Z {OR}"),
        ),
        (absent(5.0, ever=False), {}, ("Unknown", "ClientsUnknown", "no client has come yet")),
        (None, {}, ("Unknown", "ClientsUnknown", "the scheduler is not heard now: no time counts")),
        (
            demand(),
            {},
            ("Unknown", "ClientsUnknown", "the scheduler's preload does not count clients: no time counts"),
        ),
        (absent(300.0), {"suspend": True}, ("Unknown", "Suspended", "while it is suspended the cluster is kept")),
    ],
)
def test_a_condition_tells_whether_a_client_keeps_it_and_until_when(
    says: Demand | None, changed: dict[str, Any], told: tuple[str, str, str]
):
    found = condition(leased(says, **changed))

    assert found is not None
    assert (found.status, found.reason, found.message) == told


def test_who_did_not_ask_is_told_nothing():
    assert condition(leased(absent(300.0), after=None)) is None


def test_the_time_of_the_deletion_does_not_tremble():
    first = leased(absent(300.0))
    before = report(first, plan(first), first.cluster.status)
    later = leased(absent(300.4), now=NOW + 30)
    after = report(later, plan(later), before)

    assert [each.message for each in after.conditions if each.type == "Leased"] == [
        each.message for each in before.conditions if each.type == "Leased"
    ]
    assert after.scheduler.disconnected_since == before.scheduler.disconnected_since == "2027-01-15T07:55:00.000Z"
