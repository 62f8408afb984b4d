"""The pods of one pool: create what is missing, retire what is too much or out of date, finish what leaves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpudask.api import addresses
from gpudask.api.pool import Pool
from gpudask.api.status import Reason
from gpudask.desired import names, spec_hash
from gpudask.planning import drains, freezes, replacing, scheduler, sizes
from gpudask.planning.actions import Action, CreateWorker, DeletePod, MarkRetiring, PoolPlan
from gpudask.planning.moments import STUCK_SECONDS, wake_after
from gpudask.planning.observed import Observation, Pod, PoolMemory, Retirement
from gpudask.scaling import retirement
from gpudask.scaling.assignment import Share
from gpudask.scaling.retirement import Candidate
from gpudask.scaling.sizing import Size

_EDITED = "its spec was edited"


def plan_pool(seen: Observation, pool: Pool, share: Share) -> PoolPlan:
    """One pass for `pool`. Pools do not influence each other but through their shares of the demand."""
    seen, ousted = replacing.oust_sick(seen, pool)
    size, leaving = sizes.decide(seen, pool, share)
    memory = seen.memory.get(pool.name, PoolMemory())
    frozen = freezes.why_frozen(seen, pool, size)
    if frozen and freezes.is_given_up(seen, pool):
        return _given_up(seen, pool, size, frozen)
    pods = sizes.staying(seen, pool)
    back = _called_back(seen, pool, size.pods - len(pods))
    rolling = _rolling(seen, pool, size, [*pods, *back])
    if rolling is None:
        missing = size.pods - len(pods) - len(back)
        retire = list(_retire(seen, pool, size, leaving, pods))
    else:
        missing = rolling.create
        retire = [_replace(seen, pool, pod) for pod in rolling.retire if pod not in back]  # one word a pass for a pod
    if not seen.drains and not seen.cluster.spec.suspend:
        retire = [action for action in retire if isinstance(action, DeletePod)]  # nobody would drain them: sizes stay
    creates = [] if ousted else _creates(seen, pool, missing, memory)  # the next pass knows how long to wait
    actions: list[Action] = [
        *_ended(seen, pool),
        *ousted,
        *(MarkRetiring(pod, None) for pod in back),
        *retire,
        *_finish(seen, pool, {*back, *(mark.pod for mark in ousted)}),
        *creates,
    ]
    wake = wake_after(seen, pool, size, share, frozen=bool(frozen))
    return PoolPlan(size, tuple(actions), wake, missing=max(0, missing), frozen=frozen)


def _ended(seen: Observation, pool: Pool) -> list[Action]:
    gone = [pod for pod in seen.workers(pool.name) if pod.finished and not pod.deleting]
    return [DeletePod(pod, f"it ended: {_why_ended(pod)}") for pod in gone]


def _given_up(seen: Observation, pool: Pool, size: Size, frozen: str) -> PoolPlan:
    """Nobody knows whether the GPUs are used, and for too long: they are given back, whatever is lost with them."""
    why = f"idle.frozenFor is over: {frozen}"
    keep = freezes.least(seen, pool, size)
    going = [DeletePod(pod, why, forced=True) for pod in freezes.to_go(seen, pool, keep)]
    memory = seen.memory.get(pool.name, PoolMemory())
    missing = keep - len(sizes.staying(seen, pool))
    actions = (*_ended(seen, pool), *going, *_creates(seen, pool, missing, memory))
    given_up = Size(keep, why, size.set_by)
    wake = wake_after(seen, pool, given_up, Share(), frozen=True)
    return PoolPlan(given_up, actions, wake, missing=max(0, missing), frozen=frozen)


def _creates(seen: Observation, pool: Pool, count: int, memory: PoolMemory) -> list[Action]:
    """New pods with the lowest numbers whose names nobody has."""
    if count <= 0 or seen.now < memory.not_before or not _can_dial(seen):
        return []
    taken = {pod.name for pod in seen.workers(pool.name)} | memory.taken
    actions: list[Action] = []
    number = 0
    while len(actions) < count:
        if names.worker_pod(seen.cluster.name, pool.name, number) not in taken:
            actions.append(CreateWorker(pool.name, number))
        number += 1
    return actions


def _can_dial(seen: Observation) -> bool:
    """Whether a new worker finds the scheduler's name; UCX, unlike others, does not try again where it does not."""
    if not addresses.needs_headless(seen.cluster.spec.protocol):
        return True
    return seen.scheduler_runs and not scheduler.is_replaced_now(seen)


def _called_back(seen: Observation, pool: Pool, missing: int) -> list[Pod]:
    """Retiring pods that are wanted again: rather than new ones, and those that the scheduler would not let go."""
    current = spec_hash.of_worker(seen.cluster.spec, pool)
    retiring = [p for p in seen.workers(pool.name) if p.live and p.retirement and not _is_final(p.retirement)]
    refused = [pod for pod in retiring if pod.dask_name in seen.refused]
    usable = [pod for pod in retiring if pod not in refused and pod.spec_hash == current and pod.running]
    return [*refused, *sorted(usable, key=sizes.pod_number)[: max(0, missing - len(refused))]]


def _retire(seen: Observation, pool: Pool, size: Size, leaving: list[Candidate], pods: list[Pod]) -> list[Action]:
    """Begin the retirement of pods that are too many."""
    by_name = {pod.name: pod for pod in pods}
    if size.set_by == "autoscale":
        release_after = pool.held_data.release_after_seconds if pool.held_data else None
        return [
            *_leave_above_maximum(seen, pool, [pod for pod in pods if pod.name not in {c.pod for c in leaving}]),
            *(
                _leave(seen, by_name[c.pod], "idle", if_idle=True, release=retirement.releases(c, release_after))
                for c in leaving
            ),
        ]
    nobody_asks = seen.cluster.spec.suspend and not seen.drains
    if len(pods) > size.pods and seen.demand is None and seen.scheduler is not None and not nobody_asks:
        pods_to_cancel = [pod for pod in pods if not pod.running]
        return [_leave(seen, pod, size.reason) for pod in pods_to_cancel[: len(pods) - size.pods]]
    release = size.set_by == "suspend"
    chosen = retirement.surplus(sizes.candidates(seen, pods), len(pods) - size.pods)
    if not release:
        others_leave = any(p.live and p.retirement is not None for p in seen.workers(pool.name))
        chosen = retirement.in_turn(chosen, of=len(pods), others_leave=others_leave)
    return [_leave(seen, by_name[c.pod], size.reason, release=release) for c in chosen]


def _leave_above_maximum(seen: Observation, pool: Pool, pods: list[Pod]) -> list[Action]:
    """A lowered maximum is a person's word: what is above it drains, busy or not."""
    if pool.autoscale is None or seen.demand is None:
        return []
    too_many = len(pods) - pool.autoscale.max
    if too_many <= 0:
        return []
    by_name = {pod.name: pod for pod in pods}
    chosen = retirement.surplus(sizes.candidates(seen, pods), too_many)
    return [_leave(seen, by_name[c.pod], f"above the maximum of {pool.autoscale.max}") for c in chosen]


def _is_final(retirement: Retirement) -> bool:
    return retirement.final or retirement.why == _EDITED  # so an operator before this one wrote it


def _replace(seen: Observation, pool: Pool, pod: Pod) -> Action:
    edited = pod.spec_hash != spec_hash.of_worker(seen.cluster.spec, pool)
    return _leave(seen, pod, _EDITED if edited else replacing.WORN, final=True)


def _leave(
    seen: Observation, pod: Pod, why: str, *, if_idle: bool = False, release: bool = False, final: bool = False
) -> Action:
    """Cancel a pod that does not run; retire one that does."""
    if not seen.works(pod):
        return DeletePod(pod, why, only_if_unchanged=True)
    return MarkRetiring(pod, Retirement(why, if_idle=if_idle, release=release, final=final, at=seen.now))


def _finish(seen: Observation, pool: Pool, spoken_for: set[Pod]) -> Iterable[Action]:
    """Delete the retiring pods that have nothing left, or too long a drain; let held data go when its time has come."""
    named = {pod.uid for pod in spoken_for}
    for pod in seen.workers(pool.name):
        if not pod.live or pod.retirement is None or pod.uid in named:
            continue
        if not seen.works(pod):
            yield DeletePod(pod, pod.retirement.why, only_if_unchanged=True)
        elif is_empty(seen, pod):
            yield DeletePod(pod, pod.retirement.why)
        elif drains.is_overdue(seen, pool, pod):
            waited = f"drainTimeout is over: {drains.waits_for(seen, pod)}"
            yield DeletePod(pod, waited, forced=True)
        elif not pod.retirement.release and _may_release(seen, pool, pod):
            yield MarkRetiring(pod, replace(pod.retirement, release=True))
        elif not pod.retirement.at:
            yield MarkRetiring(pod, replace(pod.retirement, at=seen.now))  # from now on its drain is timed


def is_empty(seen: Observation, pod: Pod) -> bool:
    """Whether a retiring pod holds nothing that anybody waits for."""
    workers = seen.registered(pod)
    if seen.cluster.spec.suspend and not seen.drains:  # nobody will ever drain it
        return all(not worker.processing for worker in workers)
    if seen.demand is None:
        return False
    if workers:
        return all(worker.retiring == "drained" for worker in workers)
    return seen.unheard_seconds(pod) >= sizes.UNREGISTERED_SECONDS


def _may_release(seen: Observation, pool: Pool, pod: Pod) -> bool:
    """A device that is sick cannot be read any more: what could not be moved is lost already."""
    after = pool.held_data.release_after_seconds if pool.held_data else None
    if retirement.releases(sizes.candidate(seen, pod, 0), after):
        return True
    tried = any(worker.retiring == "blocked" and "data" in worker.blockers for worker in seen.registered(pod))
    return tried and bool(replacing.sickness(seen, pool, pod)) and _has_another_worker(seen, pod)


def _has_another_worker(seen: Observation, pod: Pod) -> bool:
    """Whether results of `pod` had somewhere to go: a worker that runs, stays, and is not sick."""
    stay = (other for other in seen.pods if other.pool and other.live and not other.retirement and other.uid != pod.uid)
    return any(worker.status == "running" and not worker.sick for other in stay for worker in seen.registered(other))


@dataclass(frozen=True)
class _Rolling:
    """A step of a rollout: how many new pods, and which old ones begin to leave."""

    create: int
    retire: list[Pod]


def _rolling(seen: Observation, pool: Pool, size: Size, pods: list[Pod]) -> _Rolling | None:
    """Replace pods of an older spec, or that have done their tasks, new ones first; None where there are none.

    A quarter of the pool, at least one pod, is surplus meanwhile. Where a new pod finds no node, an old one makes room.
    """
    old, new = replacing.old_and_new(seen, pool, pods)
    if not old:
        return None
    broken, working = [p for p in old if not seen.works(p)], [p for p in old if seen.works(p)]
    joined = sum(1 for pod in new if sizes.joined(seen, pod))
    stuck = [pod for pod in new if pod.unschedulable]
    spare = len(working) + joined - size.pods
    no_room = seen.memory.get(pool.name, PoolMemory()).refusal_reason == Reason.QUOTA
    if (stuck or no_room) and not sizes.room_was_made(seen, pool):
        crowded = no_room or len(new) + len(working) > size.pods
        if crowded or seen.now - min(pod.created for pod in stuck) >= STUCK_SECONDS:
            spare = max(spare, 1)
    by_name = {pod.name: pod for pod in working}
    chosen = retirement.surplus(sizes.candidates(seen, working), spare)
    surge = 0 if size.is_guess else sizes.surge(size.pods)
    create = min(size.pods - len(new), size.pods + surge - len(new) - len(working))
    return _Rolling(
        create=0 if stuck else max(0, create),
        retire=[*broken, *(by_name[c.pod] for c in chosen)],
    )


def _why_ended(pod: Pod) -> str:
    return (pod.ended.reason or pod.ended.message if pod.ended else "") or pod.phase
