"""What is decided while the scheduler cannot count or drain, or a worker is not where the kubelet says."""

from __future__ import annotations

from dataclasses import replace

from gpudask.planning.actions import Action, DeletePod, MarkRetiring
from gpudask.planning.observed.observation import Observation, PoolMemory
from gpudask.planning.plan import plan
from gpudask.api.reasons import Reason
from tests.builders import a_cluster, a_pool
from tests.planning.builders import NOW, demand, pod, scheduler_pod, seen, tasks, worker
from tests.planning.test_status import condition, status_of

LIMITS = {"min": 0, "max": 4, "idleTimeout": "10s"}
GPUS = a_cluster(pools=[a_pool("cpu"), a_pool("gpu", gpu={}, autoscale=LIMITS)])
HEAD, CPU, GPU = scheduler_pod(GPUS), pod(GPUS, "cpu"), pod(GPUS, "gpu")


def actions(observation: Observation) -> tuple[Action, ...]:
    return plan(observation).actions


def test_no_demand_from_a_scheduler_that_cannot_count_is_no_reason_to_shrink():
    said = demand(workers=(worker(CPU), worker(GPU, idle_seconds=900.0)), features={"demand": "no hook"})
    assert actions(seen(GPUS, HEAD, CPU, GPU, says=said)) == ()


def test_a_drained_rollout_waits_where_nobody_counts_what_runs():
    drain = a_cluster(rollout="Drain")
    old = scheduler_pod(drain, spec_hash="old")
    busy = demand(workers=(), features={"demand": "no hook"}, tasks=50)
    assert plan(seen(drain, old, says=busy)).scheduler == ()
    assert plan(seen(drain, old, says=replace(busy, tasks=0))).scheduler != ()


def test_a_pod_is_not_marked_where_nobody_drains():
    said = demand(workers=(worker(CPU), worker(GPU, idle_seconds=900.0)), features={"retire": "no hook"})
    assert actions(seen(GPUS, HEAD, CPU, GPU, says=said)) == ()
    fewer = a_cluster(pools=[a_pool("cpu", replicas=0)])
    assert actions(seen(fewer, scheduler_pod(fewer), pod(fewer, "cpu"), says=said)) == ()


def test_a_worker_that_works_is_drained_though_the_kubelet_has_not_said_that_it_runs():
    fewer = a_cluster(pools=[a_pool("cpu", replicas=1)])
    late, idle = replace(pod(fewer, "cpu", 1), started=0.0), pod(fewer, "cpu", 0)
    said = demand(workers=(worker(late, own=1, processing=1), worker(idle, idle_seconds=5.0)))
    (leaving,) = actions(seen(fewer, scheduler_pod(fewer), late, idle, says=said))
    assert isinstance(leaving, MarkRetiring)
    assert leaving.pod == idle


def test_a_pod_whose_worker_never_registers_leaves_when_nothing_needs_it():
    said = demand(workers=(worker(CPU),))
    silent = replace(GPU, started=NOW - 300.0)
    (leaving,) = actions(seen(GPUS, HEAD, CPU, silent, says=said, memory={silent.pool: PoolMemory(size=1)}))
    assert isinstance(leaving, MarkRetiring)
    assert leaving.pod == silent
    after = actions(seen(GPUS, HEAD, CPU, replace(silent, retirement=leaving.retirement), says=said))
    assert [type(action) for action in after] == [DeletePod]


def test_a_pod_whose_worker_never_registers_is_told_of_while_it_is_needed():
    silent = replace(GPU, started=NOW - 300.0)
    status = status_of(seen(GPUS, HEAD, CPU, silent, says=demand(tasks(3, GPU=1), workers=(worker(CPU),))))
    assert condition(status, "Degraded")[1] == "WorkerNotRegistered"


def test_a_rollout_makes_room_where_a_quota_leaves_none():
    two = a_cluster(pools=[a_pool("cpu", replicas=2)])
    old = [pod(two, "cpu", n, spec_hash="old") for n in range(2)]
    said = demand(workers=tuple(worker(p) for p in old))
    full = {"cpu": PoolMemory(refusal="exceeded quota", refusal_reason=Reason.QUOTA, not_before=NOW + 9)}
    assert [type(a) for a in actions(seen(two, scheduler_pod(two), *old, says=said, memory=full))] == [MarkRetiring]


def test_many_kinds_of_demand_that_nobody_serves_are_counted_not_listed():
    kinds = [tasks(1, MEMORY=float(n)) for n in range(1, 400)]
    status = status_of(seen(GPUS, HEAD, CPU, says=demand(*kinds, workers=(worker(CPU),))))
    assert "and 389 more kinds" in condition(status, "DemandServable")[2]
