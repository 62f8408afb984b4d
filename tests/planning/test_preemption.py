"""No worker is made before its scheduler, and workers of a lost one make room for the next where a quota refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api.reasons import Reason
from gpudask.planning.actions import CreateScheduler, CreateWorker, DeletePod
from gpudask.planning.observed.observation import Observation, PoolMemory
from gpudask.planning.plan import plan
from tests.builders import a_pool
from tests.planning.builders import NOW, cluster, pod, scheduler_pod, seen
from tests.planning.test_status import condition, status_of
from tests.planning.world import World

REFUSAL = "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2"
CLUSTER = cluster(a_pool("cpu", replicas=2), a_pool("gpu", gpu={}, replicas=1))
WORKERS = pod(CLUSTER, "cpu", 0), pod(CLUSTER, "cpu", 1), pod(CLUSTER, "gpu", gpus=1)


def refused(since: float = NOW - 60, reason: Reason = Reason.QUOTA, **fields: Any) -> dict[str, PoolMemory]:
    """The memory of a scheduler that is refused."""
    known = {"refusal": REFUSAL, "refusal_reason": reason, "refused_since": since, "not_before": NOW + 5}
    return {"": PoolMemory(**known | fields)}  # type: ignore[arg-type]


def created(observation: Observation) -> list[str]:
    """What is created, in its order: `scheduler`, or the pool's name."""
    kinds = CreateScheduler | CreateWorker
    made = (action for action in plan(observation).actions if isinstance(action, kinds))
    return ["scheduler" if isinstance(action, CreateScheduler) else action.pool for action in made]


def deleted(observation: Observation) -> list[str]:
    """Who is deleted."""
    return [action.pod.name for action in plan(observation).actions if isinstance(action, DeletePod)]


def test_a_new_cluster_gets_its_scheduler_and_its_workers_in_one_pass_the_scheduler_first():
    assert created(seen(CLUSTER)) == ["scheduler", "cpu", "cpu", "gpu"]


@pytest.mark.parametrize("reason", [Reason.QUOTA, Reason.FORBIDDEN, Reason.TEMPLATE_REFUSED, Reason.API_FAILED])
def test_no_worker_is_made_while_the_creation_of_the_scheduler_backs_off(reason: Reason):
    assert created(seen(CLUSTER, memory=refused(reason=reason))) == []
    assert plan(seen(CLUSTER, memory=refused(reason=reason))).requeue_after == 5
    assert created(seen(CLUSTER, memory=refused(reason=reason, not_before=NOW))) == ["scheduler", "cpu", "cpu", "gpu"]


def test_no_worker_is_made_while_the_last_scheduler_ends_whose_place_the_next_one_takes():
    ends = scheduler_pod(CLUSTER, delete_by=NOW + 30)
    assert created(seen(CLUSTER, ends)) == []
    assert created(seen(CLUSTER, scheduler_pod(CLUSTER, running=False))) == ["cpu", "cpu", "gpu"], "one that starts"


def test_a_worker_without_gpus_makes_room_for_the_scheduler_first_the_last_one_of_its_pool():
    assert deleted(seen(CLUSTER, *WORKERS, memory=refused())) == ["demo-cpu-worker-1"]
    assert deleted(seen(CLUSTER, *WORKERS[:1], WORKERS[2], memory=refused())) == ["demo-cpu-worker-0"]
    assert deleted(seen(CLUSTER, WORKERS[2], memory=refused())) == ["demo-gpu-worker-0"]


def test_one_that_does_not_run_goes_before_one_that_does():
    pending = pod(CLUSTER, "cpu", 0, running=False)
    assert deleted(seen(CLUSTER, pending, *WORKERS[1:], memory=refused())) == ["demo-cpu-worker-0"]


def test_a_worker_of_a_pool_that_is_no_more_makes_room_too():
    removed = pod(CLUSTER, "old", 7)
    assert deleted(seen(CLUSTER, removed, memory=refused())) == ["demo-old-worker-7"]


@pytest.mark.parametrize(
    ("memory", "why"),
    [
        ({}, "nothing is refused"),
        (refused(since=NOW - 9), "the place of the last scheduler may be about to be free"),
        (refused(room_at=NOW - 9), "a pod that has just gone may have made room"),
        (refused(not_before=NOW), "it is tried once more in this pass"),
        (refused(reason=Reason.FORBIDDEN), "a policy refuses it, and room would not help"),
        (refused(reason=Reason.TEMPLATE_REFUSED), "its template is refused"),
    ],
    ids=["not refused", "just refused", "just gone", "tried now", "policy", "template"],
)
def test_no_worker_makes_room_where(memory: dict[str, PoolMemory], why: str):
    assert deleted(seen(CLUSTER, *WORKERS, memory=memory)) == [], why


def test_no_worker_makes_room_for_a_scheduler_that_is_there_or_is_not_wanted():
    assert deleted(seen(CLUSTER, scheduler_pod(CLUSTER), *WORKERS, memory=refused())) == []
    suspended = cluster(a_pool("cpu", replicas=2), a_pool("gpu", gpu={}, replicas=1), suspend=True)
    held = plan(seen(suspended, *WORKERS, memory=refused())).scheduler
    assert held == ()


def test_it_is_looked_again_when_the_first_worker_may_make_room():
    memory = refused(since=NOW - 7, not_before=NOW + 30)
    assert plan(seen(CLUSTER, *WORKERS, memory=memory)).requeue_after == 3
    tried = refused(not_before=NOW)
    assert plan(seen(CLUSTER, *WORKERS, memory=tried)).requeue_after == 1, "it may be refused again"


def test_the_next_one_waits_for_the_end_of_the_first_unless_its_node_is_lost():
    ends = pod(CLUSTER, "cpu", 1, delete_by=NOW + 5)
    lost = pod(CLUSTER, "cpu", 1, delete_by=NOW - 20)
    assert deleted(seen(CLUSTER, WORKERS[0], ends, memory=refused(not_before=NOW + 30))) == []
    assert plan(seen(CLUSTER, WORKERS[0], ends, memory=refused(not_before=NOW + 30))).requeue_after == 15
    assert deleted(seen(CLUSTER, WORKERS[0], lost, memory=refused())) == ["demo-cpu-worker-0"]


def test_the_status_has_the_quotas_name_and_numbers_and_what_becomes_of_the_workers():
    status = status_of(seen(CLUSTER, *WORKERS, memory=refused()))
    degraded, ready = condition(status, "Degraded"), condition(status, "SchedulerReady")
    assert degraded[:2] == ("True", "QuotaExceeded")
    assert degraded[2].startswith(f"scheduler: {REFUSAL}; since 20")
    assert "until it is there no worker is made, and its 3 worker pods are deleted one after another" in degraded[2]
    assert degraded[2].endswith("raise the quota, or end other pods of the namespace")
    assert ready[:2] == ("False", "SchedulerPending")
    assert REFUSAL in ready[2]
    without = condition(status_of(seen(CLUSTER, memory=refused())), "Degraded")[2]
    assert without.endswith("until it is there no worker is made: raise the quota, or end other pods of the namespace")


def test_a_refusal_that_no_room_would_mend_is_told_as_it_is():
    memory = refused(reason=Reason.FORBIDDEN, refusal="no PriorityClass with name none was found")
    degraded = condition(status_of(seen(CLUSTER, *WORKERS, memory=memory)), "Degraded")
    assert degraded[:2] == ("True", "Forbidden")
    assert degraded[2].startswith("scheduler: no PriorityClass with name none was found; since")
    assert "deleted" not in degraded[2]


def full(world: World, places: int) -> None:
    """A quota leaves so many places for pods."""
    world.places = places


def test_a_cluster_whose_scheduler_finds_no_place_makes_no_worker_until_it_does():
    world = World(CLUSTER)
    full(world, 0)
    world.run(60)
    assert world.created == []
    full(world, 3)
    world.run(40)
    assert world.scheduler == "R"
    assert len(world.pods) == 3


def test_the_place_of_a_lost_scheduler_that_others_took_is_made_free_by_one_worker():
    world = World(CLUSTER)
    full(world, 4)
    world.run(10)
    assert (world.scheduler, world.show("cpu"), world.show("gpu")) == ("R", "0I 1I", "0I")
    world.lose_scheduler()
    full(world, 3)
    world.run(9)
    assert (world.scheduler, world.show("cpu"), world.show("gpu")) == ("", "0P 1P", "0P"), "it may be free in a moment"
    world.run(30)
    assert (world.scheduler, world.show("cpu"), world.show("gpu")) == ("R", "0I", "0I"), "one is enough"
    full(world, 4)
    world.run(40)
    assert (world.scheduler, world.show("cpu"), world.show("gpu")) == ("R", "0I 1I", "0I")


def test_workers_without_a_scheduler_give_their_gpus_back_where_no_room_is_enough():
    world = World(CLUSTER)
    world.run(10)
    world.lose_scheduler()
    world.quota.add("")
    world.run(120)
    assert (world.scheduler, world.show("cpu"), world.show("gpu")) == ("", "", "")
