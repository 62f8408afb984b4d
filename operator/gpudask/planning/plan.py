"""The plan of one pass: those of the scheduler and of each pool put together, with demand, fallback and deletion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpudask.planning import degraded, eviction, idle, overrides
from gpudask.planning.actions import Action, CreateWorker, DeletePod, MarkRetiring, Plan, PoolPlan, soonest
from gpudask.planning.autoscaling import capacity
from gpudask.planning.fallback import lent, plan_fallback, with_fallback_demand, without_lent_tasks
from gpudask.planning.observed.observation import Observation
from gpudask.planning.pool_view import PoolView, views
from gpudask.planning.pools import plan_pool, plan_removed
from gpudask.planning.scheduler import plan_preemption, plan_scheduler
from gpudask.scaling.assignment import assign

# How many pods a pass creates at most. The rest comes in the next pass, which follows at once: so a pass stays short,
# whatever a spec asks for, and what is wanted meanwhile (a first GPU pod, a smaller size) need not wait for thousands
# of pods.
CREATIONS_AT_MOST = 200


def plan(observation: Observation) -> Plan:
    """The actions that are due now; the same for the same observation. A cluster that is being deleted needs none."""
    if observation.cluster.deleting:
        return Plan()
    in_force = overrides.in_force(observation)
    observation = in_force.observation
    spec, by_name = observation.cluster.spec, views(observation)
    capacities = {name: capacity(view) for name, view in by_name.items()}
    requirements = observation.demand.requirements if observation.demand else ()
    known = {name: each.capacity for name, each in capacities.items()}
    own = tuple(without_lent_tasks(requirement) for requirement in requirements)
    assignment = assign(spec, own, known)
    warmed_up = {name: replace(each, all_warmed_up=True) for name, each in known.items()}
    if_tried = assignment if warmed_up == known else assign(spec, own, warmed_up)
    fallbacks = {name: plan_fallback(view) for name, view in by_name.items()}
    shares = with_fallback_demand(assignment.shares, fallbacks.values())
    tried = with_fallback_demand(if_tried.shares, fallbacks.values())
    served = {requirement.resources for fallback in fallbacks.values() for requirement in fallback.served}
    unserved = tuple(requirement for requirement in assignment.unserved if requirement.resources not in served)
    pools = limit_creations({name: plan_pool(view, shares[name], tried[name]) for name, view in by_name.items()})
    scheduler, deletion, removed = plan_scheduler(observation), idle.deletion(observation), plan_removed(observation)
    of_workers = (*removed, *(action for pool in pools.values() for action in pool.actions))
    preemption = plan_preemption(observation, _decided(of_workers))
    protections = eviction.protections(observation)
    return Plan(
        scheduler=(*scheduler.actions, *preemption.actions, *removed),
        pools=pools,
        assignment=replace(assignment, unserved=unserved),
        fallbacks={name: fallback.to for name, fallback in fallbacks.items() if fallback.to},
        offers=lent(spec.pools, fallbacks),
        requeue_after=soonest(
            in_force.requeue_after,
            scheduler.requeue_after,
            preemption.requeue_after,
            deletion.requeue_after,
            protections.requeue_after,
            *(each.requeue_after for each in capacities.values()),
            *(each.requeue_after for each in fallbacks.values()),
            *(each.requeue_after for each in pools.values()),
            _degraded_after(observation, by_name),
        ),
        protections=protections.actions,
        protects_scheduler=protections.of_scheduler,
        deletion=deletion,
    )


def _decided(actions: Iterable[Action]) -> frozenset[str]:
    """The uids of the pods that `actions` delete or mark."""
    return frozenset(action.pod.uid for action in actions if isinstance(action, DeletePod | MarkRetiring))


def _degraded_after(observation: Observation, by_name: dict[str, PoolView]) -> float | None:
    """Seconds until Degraded may have to report something by time alone."""
    kept = degraded.kept_after_deletion(observation, observation.pods)
    failing = (degraded.failing_pods(observation, view.pods) for view in by_name.values())
    return soonest(kept.requeue_after, *(each.requeue_after for each in failing))


def limit_creations(pools: dict[str, PoolPlan], at_most: int = CREATIONS_AT_MOST) -> dict[str, PoolPlan]:
    """`pools` that together create `at_most` pods: each as many as it wants, while the larger wishes share evenly."""
    wanted = {name: _creations(pool) for name, pool in pools.items()}
    if sum(wanted.values()) <= at_most:
        return pools
    left, allowed = at_most, {}
    for place, name in enumerate(sorted(wanted, key=wanted.__getitem__)):
        allowed[name] = min(wanted[name], left // (len(wanted) - place))
        left -= allowed[name]
    return {name: _cut(pool, allowed[name]) for name, pool in pools.items()}


def _creations(pool: PoolPlan) -> int:
    return sum(isinstance(action, CreateWorker) for action in pool.actions)


def _cut(pool: PoolPlan, creations: int) -> PoolPlan:
    actions: list[Action] = []
    for action in pool.actions:
        if isinstance(action, CreateWorker):
            creations -= 1
            if creations < 0:
                continue
        actions.append(action)
    return replace(pool, actions=tuple(actions))
