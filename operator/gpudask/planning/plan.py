"""The plan of one pass: those of the scheduler and of each pool put together, with demand, fallback and deletion.

Of one pool: create the missing pods, retire those that are too many or outdated, delete the drained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpudask.api import addresses
from gpudask.desired import names
from gpudask.planning import autoscaling, degraded, drain, eviction, idle, listening, overrides, rollout, scheduler
from gpudask.planning.actions import Action, CreateWorker, DeletePod, MarkRetiring, Plan, PoolPlan, soonest
from gpudask.planning.autoscaling import Decision
from gpudask.planning.fallback import lent, plan_fallback, with_fallback_demand, without_lent_tasks
from gpudask.planning.idle import Freeze
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod, Retirement
from gpudask.planning.pool_view import PoolView, views
from gpudask.scaling import retirement
from gpudask.scaling.assignment import Share, assign
from gpudask.scaling.sizing import Size

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
    capacities = {name: autoscaling.capacity(view) for name, view in by_name.items()}
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
    of_scheduler = scheduler.plan_scheduler(observation)
    deletion, removed = idle.deletion(observation), plan_removed(observation)
    of_workers = (*removed, *(action for pool in pools.values() for action in pool.actions))
    preemption = scheduler.plan_preemption(observation, _decided(of_workers))
    protections = eviction.protections(observation)
    return Plan(
        scheduler=(*of_scheduler.actions, *preemption.actions, *removed),
        pools=pools,
        assignment=replace(assignment, unserved=unserved),
        fallbacks={name: fallback.to for name, fallback in fallbacks.items() if fallback.to},
        offers=lent(spec.pools, fallbacks),
        requeue_after=soonest(
            in_force.requeue_after,
            of_scheduler.requeue_after,
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


def plan_pool(view: PoolView, share: Share, tried: Share) -> PoolPlan:
    """One pass for the pool. Pools do not influence each other but through their shares of the demand.

    `tried`: as `autoscaling.decide` has it.
    """
    view, unhealthy = rollout.replace_unhealthy(view)
    decision = autoscaling.decide(view, share, tried)
    size, freeze = decision.size, idle.freeze(view, decision.size)
    if freeze.is_given_up:
        return _given_up(view, size, freeze)
    back = _reinstated(view, size.pods - len(view.staying))
    rolling = rollout.step(view, size, [*view.staying, *back])
    if rolling is None:
        missing = size.pods - len(view.staying) - len(back)
        retire = _retire(view, decision)
    else:
        missing = rolling.create
        going = (pod for pod in rolling.retire if pod not in back)  # one action a pass for a pod
        retire = [drain.begin(view.observation, p, rollout.why_replaced(view, p), final=True) for p in going]
    if not view.observation.can_drain and not view.observation.cluster.spec.suspend:
        retire = [action for action in retire if isinstance(action, DeletePod)]  # nobody would drain them: sizes stay
    finish = drain.finish(view, {pod.uid for pod in (*back, *(mark.pod for mark in unhealthy))})
    actions = (
        *_ended(view),
        *unhealthy,
        *(MarkRetiring(pod, None) for pod in back),
        *retire,
        *finish.actions,
        *([] if unhealthy else _creates(view, missing)),  # the next pass knows how long to wait
    )
    requeue_after = soonest(
        decision.requeue_after,
        freeze.requeue_after,
        rolling.requeue_after if rolling is not None else None,
        finish.requeue_after,
        view.memory.not_before - view.observation.now,
    )
    return PoolPlan(size, actions, requeue_after, missing=max(0, missing), frozen=freeze.why)


def plan_removed(observation: Observation) -> tuple[Action, ...]:
    """Retire or delete the pods of pools that the spec no longer has."""
    actions: list[Action] = []
    for pod in observation.pods_of_removed_pools:
        if pod.deleting:
            continue
        cancel = not pod.finished and not observation.has_process(pod)
        if pod.finished or cancel or (pod.retirement and drain.is_empty(observation, pod)):
            actions.append(DeletePod(pod, "its pool was removed", only_if_unchanged=cancel))
        elif pod.retirement is None and observation.can_drain:
            actions.append(MarkRetiring(pod, Retirement("its pool was removed")))
    return tuple(actions)


def _ended(view: PoolView) -> list[Action]:
    gone = [pod for pod in view.pods if pod.finished and not pod.deleting]
    return [DeletePod(pod, f"it ended: {_why_ended(pod)}") for pod in gone]


def _why_ended(pod: Pod) -> str:
    return (pod.ended.reason or pod.ended.message if pod.ended else "") or pod.phase


def _given_up(view: PoolView, size: Size, freeze: Freeze) -> PoolPlan:
    """The plan for a pool that was frozen for too long: its GPUs are given back, whatever is lost with them."""
    why = f"idle.frozenFor is over: {freeze.why}"
    keep = idle.least(view, size)
    going = [DeletePod(pod, why, forced=True) for pod in idle.to_go(view, keep)]
    missing = keep - len(view.staying)
    actions = (*_ended(view), *going, *_creates(view, missing))
    requeue_after = soonest(freeze.requeue_after, view.memory.not_before - view.observation.now)
    given_up = Size(keep, why, size.set_by)
    return PoolPlan(given_up, actions, requeue_after, missing=max(0, missing), frozen=freeze.why)


def _creates(view: PoolView, count: int) -> list[Action]:
    """New pods with the lowest numbers whose names nobody has."""
    observation, pool = view.observation, view.pool.name
    if count <= 0 or observation.now < view.memory.not_before or not _has_scheduler(view):
        return []
    taken = {pod.name for pod in view.pods} | view.memory.taken
    actions: list[Action] = []
    number = 0
    while len(actions) < count:
        if names.worker_pod(observation.cluster.name, pool, number) not in taken:
            actions.append(CreateWorker(pool, number))
        number += 1
    return actions


def _has_scheduler(view: PoolView) -> bool:
    """True if a new worker has a scheduler to wait for: UCX, unlike others, one that can be found and listens already.

    Where all of the cluster speaks UCX the scheduler listens as soon as it runs.
    """
    observation = view.observation
    if not addresses.needs_headless(observation.cluster.spec.protocol_of(view.pool)):
        return scheduler.is_there(observation)
    there = observation.scheduler_runs and not scheduler.is_replaced_now(observation)
    return there and not listening.is_awaited(observation, view.pool)


def _reinstated(view: PoolView, missing: int) -> list[Pod]:
    """Retiring pods that are wanted again, in place of new ones; and those that the scheduler refused to retire."""
    retiring = [pod for pod in view.leaving if pod.retirement and not rollout.is_final(pod.retirement)]
    refused = [pod for pod in retiring if pod.dask_name in view.observation.refused]
    usable = [pod for pod in retiring if pod not in refused and pod.spec_hash == view.spec_hash and pod.running]
    by_number = sorted(usable, key=lambda pod: pod.number)
    return [*refused, *by_number[: max(0, missing - len(refused))]]


def _retire(view: PoolView, decision: Decision) -> list[Action]:
    """Begin the retirement of pods that are too many."""
    observation, size, pods = view.observation, decision.size, view.staying
    if size.set_by == autoscaling.AUTOSCALE:
        return [*_retire_above_maximum(view, decision), *_retire_idle(view, decision)]
    if len(pods) <= size.pods:
        return []
    nobody_asks = observation.cluster.spec.suspend and not observation.can_drain
    is_unheard = observation.demand is None and observation.scheduler is not None and not nobody_asks
    if is_unheard:
        to_cancel = [pod for pod in pods if not pod.running][: len(pods) - size.pods]
        return [drain.begin(observation, pod, size.reason) for pod in to_cancel]
    release = size.set_by == "suspend"
    chosen = retirement.surplus(view.candidates(pods), len(pods) - size.pods)
    if not release:
        chosen = retirement.in_turn(chosen, of=len(pods), others_leave=bool(view.leaving))
    by_name = {pod.name: pod for pod in pods}
    return [drain.begin(observation, by_name[each.pod], size.reason, release=release) for each in chosen]


def _retire_idle(view: PoolView, decision: Decision) -> list[Action]:
    by_name, release_after = {pod.name: pod for pod in view.staying}, view.release_after_seconds
    return [
        drain.begin(
            view.observation,
            by_name[each.pod],
            "idle",
            if_idle=True,
            release=retirement.releases(each, release_after),
        )
        for each in decision.leaving
    ]


def _retire_above_maximum(view: PoolView, decision: Decision) -> list[Action]:
    """Retire what is above a maximum that a person lowered, busy or not."""
    if view.pool.autoscale is None or view.observation.demand is None:
        return []
    leaving = {each.pod for each in decision.leaving}
    by_name: dict[str, Pod] = {pod.name: pod for pod in view.staying if pod.name not in leaving}
    if len(by_name) <= view.pool.autoscale.max:
        return []
    chosen: Sequence[retirement.Candidate] = retirement.surplus(
        view.candidates(by_name.values()), len(by_name) - view.pool.autoscale.max
    )
    why = f"above the maximum of {view.pool.autoscale.max}"
    return [drain.begin(view.observation, by_name[each.pod], why) for each in chosen]
