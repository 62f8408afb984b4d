"""The ledger: each GPU-second has one cause, through restarts of everything that counts."""

from __future__ import annotations

from gpudask.api import Json

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpudask.api.reasons import Cause
from gpudask.api.resource import Cluster
from gpudask.api.status import Status, iso
from gpudask.planning.ledger import counting
from gpudask.planning.ledger.causes import Gone, Holder, holders, holders_unplanned
from gpudask.planning.ledger.counting import Ledger, Seen, count
from gpudask.planning.ledger.takeover import Arrival, inherit
from gpudask.planning.ledger.totals import OTHERS, OWNERS, PoolCount
from gpudask.planning.observed.clocks import Clocks
from gpudask.planning.observed.observation import PoolMemory
from gpudask.planning.observed.pods import Ended, Pod, Retirement
from gpudask.planning.plan import plan
from gpudask.planning.status import count_gpus, recount, report
from gpudask.scaling.demand import Demand, OwnerTime, Worker
from tests.planning.builders import NOW, busy, cluster, demand, gpu_pool, pod, scheduler_pod, seen, worker
from tests.builders import a_pool

FIXED = cluster(a_pool("gpu", gpu={"count": 1}, replicas=2))
SCALED = cluster(gpu_pool())
KEPT = cluster(gpu_pool())
POD = pod(SCALED, "gpu", placed=NOW - 95)


def an_override(**fields: Any) -> Cluster:
    return cluster(gpu_pool(), overrides=[{"pool": "gpu", "by": "alice"} | fields])


def with_minimum(least: int) -> Cluster:
    pool: Json = gpu_pool()
    return cluster(pool | {"autoscale": pool["autoscale"] | {"min": least}})


def causes_of(of: Cluster, *pods: Pod, says: Demand | None, **fields: Any) -> list[str]:
    observation = seen(of, scheduler_pod(of), *pods, says=says, **fields)
    return [str(holder.rest) for holder in holders(observation, plan(observation))]


def known(*pods: Pod) -> dict[str, float]:
    return {each.dask_name: NOW - 50 for each in pods}


LEAVES = replace(POD, retirement=Retirement("idle"))
HOLDS = worker(POD, idle_seconds=31, blockers=("data",), held_keys=1, held_bytes=8)

DECIDED: dict[str, Any] = {"memory": {"gpu": PoolMemory(size=1)}}  # else the loop's first decision lets go of nobody
CAUSES: list[tuple[str, Cluster, Pod, Demand | None, dict[str, Any]]] = [
    ("waitingIdleTimeout", SCALED, POD, demand(workers=(worker(POD, idle_seconds=5),)), {}),
    ("waitingIdleTimeout", SCALED, POD, demand(workers=(busy(POD),)), {}),
    ("waitingIdleTimeout", SCALED, POD, demand(workers=(replace(HOLDS, idle_seconds=5.0),)), {}),
    ("heldResult", SCALED, POD, demand(workers=(HOLDS,)), {}),
    ("heldResult", SCALED, POD, demand(workers=(replace(HOLDS, blockers=("actor",)),)), {}),
    ("heldResult", SCALED, LEAVES, demand(workers=(replace(HOLDS, retiring="blocked"),)), {}),
    ("draining", SCALED, LEAVES, demand(workers=(replace(HOLDS, retiring="draining"),)), {}),
    ("draining", SCALED, LEAVES, demand(workers=(busy(POD, retiring="blocked"),)), {}),
    ("draining", SCALED, replace(LEAVES, delete_by=NOW + 9), demand(workers=(replace(HOLDS, retiring="blocked"),)), {}),
    ("spare", with_minimum(1), POD, demand(workers=(worker(POD),)), {}),
    ("spare", with_minimum(1), POD, demand(workers=(HOLDS,)), {}),
    ("heldByUser", FIXED, POD, demand(workers=(worker(POD),)), {}),
    ("heldByUser", an_override(replicas=1), POD, demand(workers=(worker(POD),)), {}),
    ("heldByUser", an_override(min=1, max=2), POD, demand(workers=(worker(POD),)), {}),
    ("waitingIdleTimeout", an_override(min=0, max=2), POD, demand(workers=(worker(POD),)), {}),
    ("starting", SCALED, replace(POD, started=0.0, ready=False), demand(), {}),
    ("starting", SCALED, POD, demand(), {}),
    ("starting", SCALED, replace(POD, delete_by=NOW + 9), demand(), {}),
    ("starting", FIXED, replace(POD, ready=False), None, {}),
    ("unhealthy", SCALED, POD, demand(workers=(busy(POD, sick="3 tasks failed"),)), {}),
    ("unhealthy", SCALED, POD, demand(), {"first_joined": known(POD)}),
    ("unhealthy", SCALED, replace(POD, ended=Ended("Error", 1), ready=False), demand(), {}),
    ("unhealthy", FIXED, replace(POD, retirement=Retirement("unhealthy")), demand(), {"first_joined": known(POD)}),
    ("draining", SCALED, replace(POD, retirement=Retirement("idle")), demand(workers=(worker(POD),)), {}),
    ("draining", SCALED, replace(POD, delete_by=NOW + 9), demand(workers=(worker(POD),)), {}),
    ("draining", SCALED, replace(POD, delete_by=NOW + 9), demand(), {"first_joined": known(POD)}),
    ("draining", FIXED, replace(POD, retirement=Retirement("idle")), None, {"first_joined": known(POD)}),
    ("draining", cluster(gpu_pool(), suspend=True), POD, demand(workers=(worker(POD),)), {}),
    ("draining", cluster(a_pool()), replace(POD, gpus=1), demand(workers=(worker(POD),)), {}),
    ("frozen", SCALED, POD, None, {}),
    ("frozen", FIXED, POD, None, {}),
    ("frozen", SCALED, POD, demand(features={"demand": "a hook is missing"}), {}),
    ("frozen", SCALED, POD, demand(workers=(worker(POD),), features={"retire": "a hook is missing"}), DECIDED),
]


@pytest.mark.parametrize(("expected", "of", "holder", "says", "fields"), CAUSES)
def test_a_pod_that_does_not_work_holds_its_gpu_for(
    expected: str, of: Cluster, holder: Pod, says: Demand | None, fields: dict[str, Any]
):
    assert causes_of(of, holder, says=says, **fields) == [expected]


def test_each_cause_but_work_has_a_scenario():
    assert {expected for expected, *_ in CAUSES} | {"working"} == {str(cause) for cause in Cause}


def test_the_minimum_keeps_those_that_would_leave_last():
    of = with_minimum(1)
    one, two, three = (pod(of, "gpu", n) for n in range(3))
    rows = (worker(one, idle_seconds=100), busy(two), replace(HOLDS, name=three.dask_name))
    assert causes_of(of, one, two, three, says=demand(workers=rows)) == ["waitingIdleTimeout", "spare", "heldResult"]


@pytest.mark.parametrize(
    "fields", [{"node": "", "phase": "Pending", "started": 0.0}, {"phase": "Failed"}, {"phase": "Succeeded"}]
)
def test_a_pod_without_a_node_or_that_ended_holds_nothing(fields: dict[str, Any]):
    assert causes_of(SCALED, replace(POD, **fields), says=demand()) == []


def test_a_pool_without_gpus_has_no_ledger():
    of = cluster(a_pool(replicas=1))
    observation = seen(of, scheduler_pod(of), pod(of, "cpu"), says=demand())
    (row,) = report(observation, plan(observation), Status(counted_at=iso(NOW - 50))).pools
    assert (row.causes, row.owners, row.gpu_seconds_held) == ([], [], 0.0)


# --- counting: passes over one pod or a few, in whole seconds ---


class Operator:
    """One operator after another that counts the GPUs of one cluster, in simulated time.

    `ahead`, `wall`: by how much the API server's clock, and the machine's, are ahead of the present operator's.
    `unanswered`, `known_at`: as `Seen`'s.
    """

    def __init__(self) -> None:
        self.now, self.ahead, self.wall = 1000.0, 0.0, 0.0
        self.unanswered = self.known_at = -math.inf
        self.ledger: Ledger | None = None
        self.status = Status()
        self.pods: dict[str, Holder] = {}
        self.gone: list[Gone] = []
        self.says: Demand | None = None
        self.heard_at = 0.0
        self.lifetimes = 0.0

    def place(self, uid: str = "a", *, gpus: int = 1, rest: Cause = Cause.STARTING, pool: str = "gpu") -> None:
        self.pods[uid] = Holder(uid, pool, f"demo-{uid}", gpus, self.now, rest, stamp=self.now + self.ahead)

    def rests(self, cause: Cause, uid: str = "a") -> None:
        self.pods[uid] = replace(self.pods[uid], rest=cause)

    def end(self, uid: str = "a") -> None:
        holder = self.pods.pop(uid)
        self.gone.append(Gone(uid, holder.pool, holder.dask_name, holder.gpus, holder.placed, self.now))

    def hear(self, *workers: Worker, process: str = "s") -> None:
        self.says, self.heard_at = Demand("v", process, workers=workers), self.now

    def silence(self) -> None:
        self.says = None

    def wait(self, seconds: float) -> None:
        self.lifetimes += sum(holder.gpus for holder in self.pods.values()) * seconds
        self.now += seconds

    def count(self, *, write: bool = True) -> Status:
        gone, self.gone = tuple(self.gone), []
        holders = tuple(self.pods.values())
        seen = Seen(
            holders, self.now, self.says, self.heard_at, gone, ("gpu",), Clocks(self.ahead, self.wall), self.unanswered
        )
        seen, before = replace(seen, known_at=self.known_at), self.ledger
        self.ledger = inherit(seen, self.status) if before is None else count(seen, before)
        observation = a_row(self.pods)
        counted = recount(observation, self.ledger)
        if write:
            self.status = counted
        return counted

    def restart(self, *, seconds: float = 0.0, clock: float = 0.0) -> None:
        """Another operator, whose own clock is off by so much; what ended meanwhile nobody saw."""
        self.wait(seconds)
        self.ledger, self.says, self.gone = None, None, []
        self.shift(clock)

    def shift(self, clock: float) -> None:
        self.now, self.heard_at = self.now + clock, self.heard_at + clock
        self.ahead, self.wall = self.ahead - clock, self.wall - clock
        self.pods = {uid: replace(each, placed=each.placed + clock) for uid, each in self.pods.items()}

    def seconds(self, status: Status | None = None) -> dict[str, float]:
        (row,) = [row for row in (status or self.status).pools if row.name == "gpu"]
        return {each.cause: each.gpu_seconds for each in row.causes if each.gpu_seconds}

    def owners(self) -> dict[str, float]:
        return {each.owner: each.gpu_seconds for each in self.status.pools[0].owners}


def a_row(pods: dict[str, Holder]) -> Status:
    names = ["gpu", *{each.pool for each in pods.values()} - {"gpu"}]
    return Status(pools=[{"name": name} for name in names])  # type: ignore[list-item]


def at_work(seconds: float | None, uid: str = "a", *, own: int = 1, address: str = "", **owners: Any) -> Worker:
    """A worker that has worked for so long, and does."""
    rows = tuple(OwnerTime(owner, part, 1.0 if own else 0.0) for owner, part in owners.items())
    return Worker(f"demo-{uid}", address=address, own=own, busy_seconds=seconds, owners=rows)


def test_a_pods_life_has_a_cause_each_second():
    on = Operator()
    on.count()
    on.place()
    on.wait(30)
    on.hear(at_work(0.0, own=0))
    on.rests(Cause.WAITING_IDLE_TIMEOUT)
    on.count()
    on.wait(4)
    on.hear(at_work(0.0))
    on.count()
    on.wait(20)
    on.hear(at_work(19.5, own=0))
    on.count()
    on.wait(8)
    on.rests(Cause.DRAINING)
    on.count()
    on.wait(2)
    on.end()
    on.wait(5)  # its end is seen, and counted by the next pass
    on.count()
    assert on.seconds() == {"starting": 30, "waitingIdleTimeout": 12.5, "working": 19.5, "draining": 2}
    assert sum(on.seconds().values()) == on.lifetimes == on.status.pools[0].gpu_seconds_held
    assert on.status.pools[0].gpu_seconds_used == 19.5
    assert on.status.summary.worked == "30%"
    on.wait(100)
    on.count()
    assert sum(on.seconds().values()) == on.lifetimes


def test_a_worker_with_work_is_taken_to_go_on_and_what_it_says_later_is_no_second_time():
    on = Operator()
    on.place()
    on.count()
    on.hear(at_work(0.0))
    on.count()
    on.wait(10)
    on.count()
    assert on.seconds() == {"working": 10}
    on.hear(at_work(9.0))  # it had ended, and begun again
    on.wait(3)
    on.count()
    assert on.seconds() == {"working": 12, "starting": 1}
    on.hear(at_work(12.0, own=0))
    on.wait(3)
    on.count()
    assert on.seconds() == {"working": 12, "starting": 4}


def test_what_a_late_answer_says_counts_as_far_as_it_may_be_true():
    on = Operator()
    on.place(rest=Cause.SPARE)
    on.hear(at_work(0.0, own=0))
    on.count()
    on.wait(10)
    on.count()
    on.hear(at_work(9.0, own=0))
    on.wait(1)
    on.count()
    assert on.seconds() == {"spare": 10, "working": 1}
    on.wait(10)
    on.count()
    assert on.seconds() == {"spare": 18, "working": 3}, "two seconds of it are carried over"


def test_a_pod_of_four_gpus_works_with_those_whose_workers_do():
    on = Operator()
    on.place(gpus=4, rest=Cause.WAITING_IDLE_TIMEOUT)
    on.count()
    workers = [Worker(f"demo-a-{n}", own=int(n < 3), busy_seconds=0.0) for n in range(4)]
    on.hear(*workers)
    on.count()
    assert [(each.cause, each.gpus) for each in on.status.pools[0].causes] == [
        ("working", 3),
        ("waitingIdleTimeout", 1),
    ]
    on.wait(10)
    on.count()
    assert on.seconds() == {"working": 30, "waitingIdleTimeout": 10}
    one_for_all = Operator()
    one_for_all.place(gpus=4, rest=Cause.WAITING_IDLE_TIMEOUT)
    one_for_all.hear(at_work(0.0))
    one_for_all.count()
    one_for_all.wait(10)
    one_for_all.count()
    assert one_for_all.seconds() == {"working": 40}


def test_working_seconds_are_split_by_owner():
    on = Operator()
    on.place()
    on.hear(at_work(0.0, own=0))
    on.count()
    on.wait(10)
    on.hear(replace(at_work(8.0, own=0), owners=(OwnerTime("a", 6.0), OwnerTime("b", 2.0))))
    on.count()
    assert on.owners() == {"a": 6, "b": 2}
    on.hear(replace(at_work(8.0), owners=(OwnerTime("a", 6.0), OwnerTime("b", 2.0, 1.0))))
    on.count()
    on.wait(5)
    on.count()
    assert on.owners() == {"a": 6, "b": 7}
    assert sum(on.owners().values()) == on.status.pools[0].gpu_seconds_used


def test_twenty_owners_are_kept_apart():
    on = Operator()
    on.place()
    on.count()
    on.wait(100)
    many = tuple(OwnerTime(f"team-{n:02}", 1.0) for n in range(30))
    on.hear(replace(at_work(30.0, own=0), owners=many))
    on.count()
    assert len(on.owners()) == OWNERS + 1
    assert on.owners()[""] == 10
    on.restart()
    on.count()
    assert on.owners()[""] == 10


def test_an_older_preload_is_sampled():
    on = Operator()
    on.place(rest=Cause.SPARE)
    on.hear(at_work(None, own=0))
    on.count()
    on.wait(3)
    on.hear(at_work(None))
    on.count()
    on.wait(4)
    on.hear(at_work(None, own=0))
    on.count()
    on.wait(5)
    on.count()
    assert on.seconds() == {"spare": 8, "working": 4}
    assert on.owners() == {"": 4}


@pytest.mark.parametrize(("process", "address"), [("other", ""), ("s", "tcp://other"), ("s", "")])
def test_a_scheduler_or_worker_that_starts_anew_counts_from_nothing(process: str, address: str):
    on = Operator()
    on.place(rest=Cause.SPARE)
    on.hear(at_work(0.0))
    on.count()
    on.wait(50)
    on.hear(at_work(50.0))
    on.count()
    on.hear(at_work(0.0, own=0, address=address), process=process)
    on.count()
    on.wait(10)
    on.hear(at_work(4.0, own=0, address=address), process=process)
    on.count()
    assert on.seconds() == {"working": 54, "spare": 6}


def test_while_the_scheduler_is_silent_nothing_works_and_what_it_then_says_is_not_counted_twice():
    on = Operator()
    on.place(rest=Cause.FROZEN)
    on.hear(at_work(0.0))
    on.count()
    on.wait(10)
    on.silence()
    on.count()  # until then it worked
    on.wait(20)
    on.count()
    on.hear(at_work(30.0))
    on.count()
    on.wait(10)
    on.hear(at_work(40.0))
    on.count()
    assert on.seconds() == {"working": 20, "frozen": 20}


def test_a_worker_that_goes_has_worked_until_then():
    on = Operator()
    on.place(rest=Cause.UNHEALTHY)
    on.hear(at_work(0.0, **{"team-a": 0.0}))
    on.count()
    on.wait(10)
    on.hear()
    on.count()
    on.wait(10)
    on.count()
    assert on.seconds() == {"working": 10, "unhealthy": 10}
    assert on.owners() == {"team-a": 10}


HOSTILE = [
    [at_work(1e9)],
    [at_work(1e9, own=0), at_work(0.0), at_work(1e9)],
    [at_work(float(n), address=str(n)) for n in range(500)],
    [replace(at_work(5.0), owners=tuple(OwnerTime(str(n), 1e9, 1.0) for n in range(64)))],
    [replace(at_work(1e9), owners=(OwnerTime("a", 0.0), OwnerTime("a", 1e9)))],
]


@pytest.mark.parametrize("workers", HOSTILE)
def test_whatever_a_scheduler_says_a_pod_works_at_most_as_long_as_it_holds(workers: list[Worker]):
    on = Operator()
    on.place()
    on.count()
    for step in range(20):
        on.hear(*(workers if step % 3 else reversed(workers)))
        on.wait(1)
        before = on.seconds()
        on.count()
        assert all(on.seconds()[cause] >= seconds for cause, seconds in before.items()), "a counter never goes back"
        assert sum(on.seconds().values()) == pytest.approx(on.lifetimes)
        assert sum(on.owners().values()) == pytest.approx(on.status.pools[0].gpu_seconds_used, abs=0.1)
    assert on.status.pools[0].gpu_seconds_used <= 20
    assert len(on.owners()) <= OWNERS + 1


def test_a_pod_that_came_and_went_between_two_passes_is_counted():
    on = Operator()
    on.count()
    on.wait(1)
    on.place()
    on.wait(3)
    on.end()
    on.wait(1)
    on.count()
    assert on.seconds() == {"starting": 3}
    assert list(on.ledger.ended) == ["a"]  # type: ignore[union-attr]


def test_a_pod_whose_label_was_off_for_a_while_is_not_counted_twice():
    on = Operator()
    on.place()
    on.wait(50)
    on.count()
    holder = on.pods["a"]
    on.end()
    on.count()
    on.now += 10
    on.pods["a"] = holder
    on.wait(5)
    on.count()
    assert sum(on.seconds().values()) == 50 + 15, "what nobody saw counts from when it went"


def test_a_pod_that_left_and_is_back_before_the_next_pass_is_one_pod():
    on = Operator()
    on.place()
    on.count()
    holder = on.pods["a"]
    on.wait(4)
    on.end()
    on.pods["a"] = holder
    on.wait(6)
    on.count()
    assert on.seconds() == {"starting": 10}
    assert on.ledger is not None
    assert not on.ledger.ended


def test_a_pod_that_ended_is_counted_once_however_many_go_while_it_is_still_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(counting, "_GONE_KEPT", 3)
    on = Operator()
    on.place()
    on.count()
    on.wait(4)
    on.end()
    failed = on.gone[0]
    on.count()
    for number in range(10):
        uid = f"short-{number}"
        on.place(uid)
        on.wait(1)
        on.end(uid)
        on.gone.append(failed)
        on.count()
    assert on.seconds() == {"starting": 4 + 10}
    assert on.ledger is not None
    assert len(on.ledger.gone) == 3


def test_a_pod_that_failed_is_counted_until_it_was_seen_to_and_once():
    on = Operator()
    on.place()
    on.count()
    on.wait(4)
    on.end()
    failed = on.gone[0]
    for _ in range(3):  # it stays in the cache until it is deleted
        on.gone.append(failed)
        on.wait(2)
        on.count()
    assert on.seconds() == {"starting": 4}


def test_a_pod_whose_end_is_told_late_counts_no_longer_than_it_lived():
    """What was counted for too long is left out of what comes next: a counter goes up only."""
    on = Operator()
    on.place("a", rest=Cause.DRAINING)
    on.place("b", rest=Cause.SPARE)
    on.wait(10)
    on.count()
    gone = on.pods.pop("a")
    on.now += 4  # it is gone, and no watch has told
    on.pods["a"] = gone
    told = on.count()
    assert sum(on.seconds().values()) == 14 + 14
    on.pods.pop("a")
    on.gone.append(Gone("a", "gpu", "demo-a", 1, gone.placed, on.now - 4, is_stamped=True))
    on.now += 1
    on.count()
    assert on.seconds() == on.seconds(told)
    assert on.ledger is not None
    assert sum(on.ledger.settled().of("gpu").seconds.values()) == 10 + 15
    assert sum(on.ledger.ended["a"].seconds.values()) == 10
    on.now += 3
    on.count()
    assert on.seconds() == on.seconds(told), "b's seconds since then make up for a's"
    on.now += 2
    on.count()
    assert sum(on.seconds().values()) == 10 + 20
    assert on.ledger.settled() == on.ledger


def test_measured_work_makes_up_for_nothing():
    on = Operator()
    on.place("a")
    on.place("b")
    on.hear(at_work(0.0, "b"))
    on.wait(5)
    on.count()
    on.pods.pop("a")
    on.gone.append(Gone("a", "gpu", "demo-a", 1, 1000.0, on.now - 3, is_stamped=True))
    on.wait(2)
    on.hear(at_work(7.0, "b"))
    on.count()
    assert on.seconds()["working"] == 7
    assert on.ledger is not None
    settled = on.ledger.settled().of("gpu")
    assert (settled.seconds[Cause.WORKING], sum(settled.seconds.values())) == (7, 2 + 7)


def test_a_pod_that_the_last_operator_counted_for_too_long_counts_no_longer_than_it_lived():
    """Its watch was behind, and so it was there still; who leads now has seen when it went."""
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.place("b", rest=Cause.SPARE)
    on.wait(10)
    on.count()
    on.restart()
    del on.pods["a"]
    on.gone.append(Gone("a", "gpu", "demo-a", 1, 1000.0, on.now - 6, is_stamped=True))
    on.now += 2
    on.count()
    assert on.ledger is not None
    assert (on.ledger.unseen, sum(on.ledger.settled().of("gpu").seconds.values())) == (0, 4 + 12)
    on.now += 10
    on.count()
    assert sum(on.seconds().values()) == 4 + 22


def test_a_pod_that_failed_long_before_takes_no_room_of_one_whose_end_nobody_saw():
    """It is there still, and who leads now was not as it failed: that it was counted in time is likelier."""
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.place("b", rest=Cause.SPARE)
    on.wait(10)
    on.count()
    on.restart(seconds=8)
    del on.pods["b"]
    on.gone.append(Gone("failed", "gpu", "demo-failed", 1, 1000.0, on.now - 13, is_stamped=True, is_there=True))
    on.count()
    assert on.ledger is not None
    assert (on.ledger.unseen, sum(on.seconds().values())) == (1, 20 + 8 + 8 / 2)


def test_a_pool_that_works_alone_settles_with_its_owners():
    pool = PoolCount({Cause.WORKING: 8.0, Cause.SPARE: 1.0}, {"": 2.0, "team": 6.0}, surplus=5.0)
    settled = pool.settled()
    assert (settled.seconds, settled.owners) == ({Cause.WORKING: 4.0, Cause.SPARE: 0.0}, {"": 1.0, "team": 3.0})


# --- one operator after another ---


def test_the_next_operator_counts_the_gap_by_the_causes_of_the_last_status():
    on = Operator()
    for uid, rest in (("a", Cause.SPARE), ("b", Cause.SPARE), ("c", Cause.DRAINING)):
        on.place(uid, rest=rest)
    on.hear(at_work(0.0, "b"))
    on.count()
    on.restart(seconds=30)
    on.hear(at_work(30.0, "b"), at_work(5.0, "a", own=0))
    on.count()
    assert on.seconds() == {"working": 30, "spare": 30, "draining": 30}
    assert on.owners() == {"": 30}
    on.wait(10)
    on.hear(at_work(40.0, "b"), at_work(7.0, "a", own=0))
    on.count()
    assert on.seconds() == {"working": 42, "spare": 38, "draining": 40}, "what they had at first is no work of now"


def test_counters_that_are_heard_later_begin_when_they_are_heard():
    on = Operator()
    on.place(rest=Cause.FROZEN)
    on.count()
    on.restart(seconds=10)
    on.count()
    on.wait(10)
    on.hear(at_work(500.0, own=0))
    on.count()
    on.wait(10)
    on.hear(at_work(505.0, own=0))
    on.count()
    assert on.seconds() == {"frozen": 25, "working": 5}


def test_what_vanished_meanwhile_held_for_half_of_the_gap_and_what_came_since_it_came():
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.place("b", rest=Cause.SPARE)
    on.count()
    on.wait(2)
    on.place("c")
    del on.pods["b"]
    on.restart(seconds=18)
    on.count()
    assert on.seconds() == {"spare": 20 + 10, "starting": 18}


def test_what_one_operator_counted_and_did_not_write_the_next_counts():
    on = Operator()
    on.place(rest=Cause.SPARE)
    on.count()
    on.wait(7)
    on.count(write=False)
    on.restart(seconds=3)
    on.count()
    assert on.seconds() == {"spare": 10}


@pytest.mark.parametrize("clock", [-3600.0, 0.0, 3600.0])
def test_the_operators_own_clocks_do_not_matter(clock: float):
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.count()
    on.wait(5)
    on.place("b", rest=Cause.SPARE)
    on.restart(seconds=10, clock=clock)
    on.count()
    assert on.seconds() == {"spare": 15, "starting": 10}


OFF = [-3600.0, -600.0, -40.0, 40.0, 600.0, 3600.0]


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("seconds", [10, 60, 900])
@pytest.mark.parametrize("clock", ["the API server's is set", "the machine's is set", "the machine's is always off"])
def test_which_clock_is_off_does_not_matter_where_two_say_when_it_was_counted(clock: str, seconds: int, off: float):
    on = Operator()
    if clock == "the machine's is always off":
        on.wall += off
    on.place("a", rest=Cause.SPARE)
    on.count()
    on.wait(5)
    on.place("b", rest=Cause.SPARE)
    on.count()
    if clock == "the API server's is set":
        on.ahead += off
    if clock == "the machine's is set":
        on.wall += off
    on.restart(seconds=seconds)
    on.count()
    is_set_back = clock != "the machine's is always off" and -seconds < off < 0
    believed = seconds + off if is_set_back else seconds  # it says a shorter time, and that could be
    assert sum(on.seconds().values()) == pytest.approx(5 + 2 * believed, abs=1)


@pytest.mark.parametrize("off", OFF)
def test_a_status_of_an_older_operator_has_the_api_servers_time_alone(off: float):
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.count()
    on.status = on.status.model_copy(update={"machine_counted_at": ""})
    on.wall += off
    on.restart(seconds=900)
    on.count()
    assert on.seconds() == {"spare": 900}


@pytest.mark.parametrize("off", OFF)
def test_a_count_that_came_late_is_as_old_as_the_api_server_says_where_that_can_be(off: float):
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.count()
    on.wait(20)
    came = Arrival(on.now, after=on.now - 25)
    on.wait(70)
    seen = Seen(tuple(on.pods.values()), on.now, pools=("gpu",), clocks=Clocks(on.ahead, on.wall + off))
    assert sum(inherit(seen, on.status, came).of("gpu").seconds.values()) == 90


@pytest.mark.parametrize("step", [-3600.0, 0.0, 3600.0])
def test_an_operator_that_saw_the_last_count_come_and_pods_go_needs_no_clock_but_its_own(step: float):
    """The API server's clock is set, or its answers tell another time for a while, just when the leader changes."""
    on = Operator()
    for uid in "abc":
        on.place(uid, rest=Cause.SPARE)
    on.count()
    came = Arrival(on.now, after=on.now - 15)
    on.wait(4)
    on.end("a")
    on.place("d")
    on.wait(6)
    on.end("d")
    on.place("e")
    on.wait(10)
    gone, ledger = tuple(on.gone), on.ledger
    on.ahead += step
    seen = Seen(tuple(on.pods.values()), on.now, None, 0.0, gone, ("gpu",), clocks=Clocks(on.ahead))
    on.ledger = inherit(seen, on.status, came)
    counted = {cause: amount for cause, amount in on.ledger.of("gpu").seconds.items() if amount}
    assert counted == {Cause.SPARE: 4 + 20 + 20, Cause.STARTING: 6 + 10}
    assert ledger is not None
    assert sum(count(seen, on.ledger).of("gpu").seconds.values()) == 60, "what is gone is counted once"


@pytest.mark.parametrize(
    ("late", "unheard"),
    [(0.0, 0.0), (0.1, 0.0), (1.5, 0.0), (12.0, 0.0), (42.0, 44.0), (400.0, 415.0)],
)
def test_a_count_that_was_long_on_its_way_is_as_old_as_it_says(late: float, unheard: float):
    """The API server hung while the last status of an operator was written, which was ended then.

    Or nothing was heard of it for so many seconds, as through a connection that was cut.
    """
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.place("b", rest=Cause.SPARE)
    on.wait(5)
    on.count()
    on.wait(late)
    came = Arrival(on.now, after=on.now - unheard)
    on.end("b")
    on.wait(8)
    seen = Seen(tuple(on.pods.values()), on.now, None, 0.0, tuple(on.gone), ("gpu",))
    assert sum(inherit(seen, on.status, came).of("gpu").seconds.values()) == pytest.approx(on.lifetimes)


def test_a_pod_that_had_failed_before_an_operator_came_is_no_pod_of_its_time():
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.wait(10)
    on.end("a")
    on.count()
    gone = Gone("a", "gpu", "demo-a", 1, 1000.0, on.now)
    assert on.seconds() == {"starting": 10}
    on.restart(seconds=5)
    for _ in range(3):  # it stays in the cache
        on.gone.append(gone)
        on.wait(5)
        on.count()
    assert on.seconds() == {"starting": 10}


def test_a_pod_that_ended_before_the_last_count_and_is_still_there_costs_no_next_operator_anything():
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.wait(10)
    on.end("a")
    on.place("b", rest=Cause.SPARE)
    on.wait(5)
    on.count()
    for _ in range(3):
        on.restart(seconds=100)
        on.gone.append(Gone("a", "gpu", "demo-a", 1, 1000.0, on.now))  # seen at first, where no kubelet says when
        on.count()
    assert sum(on.seconds().values()) == on.lifetimes == 10 + 5 + 300


@pytest.mark.parametrize("is_there", [False, True])
def test_a_pod_whose_node_the_last_count_did_not_know_yet_counts_from_then(is_there: bool):
    """The watch of the operator that counted was behind, and it was killed."""
    on = Operator()
    on.count()
    on.restart(seconds=20)
    began = on.now - 22.5
    if is_there:
        on.pods["a"] = Holder("a", "gpu", "demo-a", 1, began, Cause.SPARE)
    else:
        on.gone.append(Gone("a", "gpu", "demo-a", 1, began, on.now, is_stamped=True))
    on.count()
    assert sum(on.seconds().values()) == 22.5


def test_a_pod_whose_end_was_counted_and_is_stamped_a_moment_later_is_not_counted_again():
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    began = on.now
    on.wait(8.5)
    on.end("a")
    on.count()
    ended = on.now + 0.5  # a stamp has whole seconds
    on.restart(seconds=3.5)
    on.gone.append(Gone("a", "gpu", "demo-a", 1, began, ended, is_stamped=True))
    on.count()
    assert sum(on.seconds().values()) == 8.5


def test_a_pod_with_a_stamp_of_its_end_that_was_not_counted_counts_from_the_last_count_where_others_held_gpus():
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.count()
    on.restart(seconds=20)
    on.gone.append(Gone("b", "gpu", "demo-b", 1, on.now - 25.0, on.now - 5.0, is_stamped=True))
    on.count()
    assert sum(on.seconds().values()) == 20 + 15


def test_what_was_not_counted_before_takes_no_half_gap_from_what_was():
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.place("b", rest=Cause.SPARE)
    on.count()
    on.restart(seconds=20)
    del on.pods["b"]
    on.pods["c"] = replace(on.pods["a"], uid="c", dask_name="demo-c", gpus=4)  # its label was off
    on.gone.append(Gone("d", "gpu", "demo-d", 4, 900.0, on.now))
    on.count()
    assert sum(on.seconds().values()) == 20 + 10 + 80


def test_a_pod_that_the_next_operator_saw_go_twice_went_once():
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.place("b", rest=Cause.SPARE)
    on.count()
    on.restart(seconds=5)
    on.end("a")
    del on.pods["b"]
    on.wait(9)
    on.gone.append(on.gone[0])
    on.count()
    assert on.seconds() == {"spare": 5 + 14 / 2}


def test_a_pod_that_the_next_operator_saw_go_and_come_back_is_one_pod():
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.count()
    on.restart(seconds=5)
    holder = on.pods["a"]
    on.end("a")
    on.pods["a"] = holder
    on.wait(5)
    on.count()
    assert on.seconds() == {"spare": 10}


@pytest.mark.parametrize("after", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("second", [0.0, 0.5])
@pytest.mark.parametrize("sees_it_go", [False, True])
def test_a_pod_that_got_its_node_in_the_second_of_the_last_count_is_no_pod_that_went_unseen(
    second: float, after: float, sees_it_go: bool
):
    """Its stamp has whole seconds, and so lies before the count or after it, whatever was first."""
    on = Operator()
    on.place("a", rest=Cause.SPARE)
    on.wait(9)
    on.place("b", rest=Cause.SPARE)
    stamped = on.pods["b"].placed + second  # as the next operator takes it: the stamp, or the middle of its second
    on.wait(after)
    on.count()
    on.restart()
    on.pods["b"] = replace(on.pods["b"], placed=stamped, stamp=stamped)
    on.wait(20)
    if sees_it_go:
        on.end("b")
    on.count()
    assert sum(on.seconds().values()) == pytest.approx(on.lifetimes, abs=0.01)


def test_without_any_status_pods_count_from_when_they_came():
    on = Operator()
    on.place()
    on.wait(10)
    on.count()
    assert on.seconds() == {"starting": 10}


def test_an_older_operators_sums_are_kept():
    on = Operator()
    on.status = Status(
        pools=[{"name": "gpu", "gpus_held": 2, "gpus_busy": 1, "gpu_seconds_held": 100, "gpu_seconds_used": 40}],  # type: ignore[list-item]
        counted_at=iso(on.now),
    )
    on.place("a")
    on.place("b")
    on.pods = {uid: replace(each, placed=1.0, stamp=1.0) for uid, each in on.pods.items()}
    on.wait(10)
    on.count()
    assert on.seconds() == {"working": 50, "waitingIdleTimeout": 70}


@pytest.mark.parametrize("counted_at", ["", "garbage", iso(9e9)])
def test_a_status_in_which_somebody_wrote_nonsense_costs_no_more_than_itself(counted_at: str):
    on = Operator()
    nonsense = [{"cause": "nonsense", "gpus": -5, "gpu_seconds": -7}, {"cause": "working", "gpu_seconds": 1e300}]
    on.status = Status(pools=[{"name": "gpu", "causes": nonsense}], counted_at=counted_at)  # type: ignore[list-item]
    on.place()
    on.wait(10)
    assert all(seconds >= 0 for seconds in on.seconds(on.count()).values())


def test_a_removed_pools_row_stays_with_its_seconds_and_a_pool_that_comes_back_goes_on_from_there():
    before = Status(counted_at=iso(NOW))
    of = cluster(a_pool(replicas=1))
    old = pod(of, "old", gpus=1, placed=NOW)
    observation = seen(of, scheduler_pod(of), old, says=demand(workers=(worker(old),)))
    ledger = count_gpus(observation, plan(observation), before)
    later = seen(of, scheduler_pod(of), says=demand(), now=NOW + 20)
    gone = (Gone(old.uid, "old", old.dask_name, 1, NOW, NOW + 8),)
    counted = count_gpus(later, plan(later), before, ledger, gone=gone)
    rows = {row.name: row for row in report(later, plan(later), before, counted).pools}
    assert (rows["old"].removed, rows["old"].pods, rows["old"].gpu_seconds_held) == (True, 0, 8)
    again = count_gpus(later, plan(later), before, counted)
    status = report(later, plan(later), before, again)
    assert (status.pools[-1].name, status.pools[-1].gpu_seconds_held, status.summary.worked) == ("old", 8, "0%")

    back = cluster(a_pool(replicas=1), a_pool("old", gpu={"count": 1}, replicas=1))
    anew = pod(back, "old", 1, gpus=1, placed=NOW + 30)
    returned = seen(back, scheduler_pod(back), anew, says=demand(workers=(worker(anew),)), now=NOW + 33)
    for ledger in (again, None):  # this operator's own, and the next one's of the status alone
        row = report(returned, plan(returned), status, count_gpus(returned, plan(returned), status, ledger)).pools[-1]
        assert (row.name, row.removed, row.gpu_seconds_held) == ("old", False, 8 + 3)


def test_of_many_removed_pools_those_with_the_most_seconds_stay():
    on = Operator()
    for number in range(counting.REMOVED_KEPT + 3):
        uid = f"p{number}"
        on.place(uid, pool=uid)
        on.count()
        on.wait(10 - number if number < 3 else 10 + number)
        on.end(uid)
        on.count()
    assert on.ledger is not None
    kept = {f"p{number}" for number in range(3, counting.REMOVED_KEPT + 3)}
    assert set(on.ledger.pools) == {*kept, OTHERS}
    on.place(pool="p3")
    on.place("b", pool="new")
    on.count()
    assert {"p3", "new"} < set(on.ledger.pools), "of those that hold GPUs none is forgotten"
    assert len(on.ledger.pools) == counting.REMOVED_KEPT + 2


def test_what_removed_pools_held_stays_in_the_sum_however_many_there_were():
    """Over another operator, too, which begins with the status; and when a pool comes back under its name."""
    of, held = cluster(a_pool(replicas=1)), 0.0
    ledger, status = None, Status(counted_at=iso(NOW))
    for number in range(3 * counting.REMOVED_KEPT):
        began, name = NOW + 20.0 * number, f"p{number % 20}"
        old = pod(of, name, number, gpus=1, placed=began)
        now = seen(of, scheduler_pod(of), old, says=demand(workers=(worker(old),)), now=began + 5.0)
        ledger = count_gpus(now, plan(now), status, ledger if number % 3 else None)
        later = seen(of, scheduler_pod(of), says=demand(), now=began + 19.0)
        gone = (Gone(old.uid, name, old.dask_name, 1, began, began + 6.0 + number),)
        held += 6.0 + number
        ledger = count_gpus(later, plan(later), status, ledger, gone=gone)
        status = report(later, plan(later), status, ledger)
        assert sum(row.gpu_seconds_held for row in status.pools) == pytest.approx(held)
        assert len(status.pools) <= 1 + counting.REMOVED_KEPT + 1
    others = status.pools[-1]
    assert (others.name, others.removed, others.pods, others.retiring) == ("", True, 0, 0)


def test_an_invalid_spec_loses_none_of_what_removed_pools_held():
    ledger = Ledger(NOW, {"": PoolCount({Cause.SPARE: 7.0})})
    (row,) = recount(Status(), ledger).pools
    assert (row.name, row.removed, row.gpu_seconds_held) == ("", True, 7.0)
    assert recount(Status(pools=[row]), ledger).pools == [row]


def test_the_owners_of_removed_pools_are_bounded_in_their_row_and_none_is_lost():
    on = Operator()
    pools = {
        f"p{number}": PoolCount({Cause.WORKING: 30.0}, {f"team-{number}-{n}": 1.0 for n in range(OWNERS)})
        for number in range(counting.REMOVED_KEPT + 3)
    }
    on.ledger = Ledger(NOW, pools)
    on.count()
    others = on.ledger.pools[OTHERS]
    assert len(others.owners) == OWNERS + 1
    assert sum(others.owners.values()) == 3.0 * OWNERS


def test_an_invalid_spec_holds_its_gpus_on():
    of = cluster(gpu_pool())
    one, two = pod(of, "gpu", 0, placed=NOW - 9), pod(of, "gpu", 1, delete_by=NOW + 5, gpus=3)
    three, scheduler = pod(of, "gpu", 2, ready=False, gpus=1), scheduler_pod(of)
    found = holders_unplanned((one, two, three, scheduler), [], {one.uid: 2})
    assert [(each.gpus, str(each.rest)) for each in found] == [(2, "frozen"), (3, "draining"), (1, "starting")]


# --- the property ---

ACTIONS = ["place", "end", "pass", "pass", "pass", "unwritten", "hear", "silence", "restart", "rest", "new scheduler"]
ACTIONS += ["end told late"]
# What happens, to which pod, after how many seconds.
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.floats(0, 30)), max_size=60)


class History:
    """Steps of a cluster's life. `unseen`: GPU-seconds of pods whose end no operator saw, or told, at most."""

    def __init__(self) -> None:
        self.on, self.made, self.process = Operator(), 0, "s"
        self.unseen, self.written_at = 0.0, self.on.now
        self.untold: list[Gone] = []  # since the last status
        self.on.count()

    def do(self, what: str, number: int, seconds: float) -> None:
        on = self.on
        if what == "restart":
            self.unseen += sum(gone.gpus for gone in self.untold) * (on.now + 0.25 + seconds - self.written_at)
            self.untold = []
        on.wait(0.25)
        if what == "place":
            self.made += 1
            on.place(f"p{self.made}", gpus=number + 1)
        elif what == "end" and on.pods:
            on.end(sorted(on.pods)[number % len(on.pods)])
        elif what == "end told late" and on.pods:
            on.end(sorted(on.pods)[number % len(on.pods)])
            gone = on.gone[-1]
            late = min(seconds, on.now - gone.placed)
            on.gone[-1] = replace(gone, at=on.now - late, is_stamped=True)
            on.lifetimes -= gone.gpus * late
        elif what == "hear":
            rows = (at_work(seconds * 10, uid, own=number % 2, team=seconds * 10) for uid in on.pods)
            on.hear(*rows, process=self.process)
        elif what == "rest" and on.pods:
            on.rests(list(Cause)[1:][number], min(on.pods))
        else:
            self._pass(what, seconds)
        self.untold += on.gone

    def _pass(self, what: str, seconds: float) -> None:
        on = self.on
        if what == "silence":
            on.silence()
        elif what == "new scheduler":
            self.process += "+"
        elif what == "restart":
            on.restart(seconds=seconds)
        else:
            on.wait(seconds)

    def count(self, *, write: bool) -> Status:
        status = self.on.count(write=write)
        if write:
            self.written_at, self.untold = self.on.now, []
        return status


@given(STEPS)
@example([("place", 0, 0.0), ("place", 0, 0.0), ("restart", 0, 0.0), ("end told late", 0, 1.0)])  # just before a count
def test_the_causes_add_up_to_the_lifetimes(steps: list[tuple[str, int, float]]):
    """But for the pods that ended where no operator saw it: of these, for half of that time each."""
    history = History()
    on, last = history.on, {}
    for what, number, seconds in steps:
        history.do(what, number, seconds)
        went_on = on.ledger is not None
        status = history.count(write=what not in ("end", "unwritten"))
        now = on.seconds(status)
        assert on.ledger is not None
        settled = sum(on.ledger.settled().of("gpu").seconds.values())
        assert abs(settled - on.lifetimes) <= history.unseen + 0.02
        assert sum(now.values()) == pytest.approx(settled + on.ledger.of("gpu").surplus, abs=0.02)
        assert not went_on or all(now.get(cause, 0.0) >= amount for cause, amount in last.items())
        last = now
        (row,) = status.pools
        assert row.gpus_held == sum(holder.gpus for holder in on.pods.values())
        assert row.gpu_seconds_held == pytest.approx(sum(now.values()), abs=1e-3)
        assert sum(each.gpu_seconds for each in row.owners) == pytest.approx(row.gpu_seconds_used, abs=0.05)
