"""One pool's part of the status: its pods as they are, its size and why, and what keeps or ends its pods."""

from __future__ import annotations

from gpudask.api.pool import Pool
from gpudask.api.quote import quote
from gpudask.api.status import Demand, PoolStatus, Termination
from gpudask.desired import spec_hash
from gpudask.planning import drains, freezes, limits, replacing, sizes, starts
from gpudask.planning.actions import DeletePod, MarkRetiring, PoolPlan
from gpudask.planning.observed import Observation, Pod
from gpudask.planning.times import iso
from gpudask.scaling.assignment import Share


def pool_status(
    seen: Observation,
    pool: Pool,
    plan: PoolPlan,
    share: Share,
    before: PoolStatus | None,
    *,
    fallback: str,
    elapsed: float,
) -> PoolStatus:
    """The row of a pool of the spec.

    `before`: its last row, None if there was none; `elapsed`: the seconds since then; `fallback`: the pools that its
    tasks run on meanwhile.
    """
    pods = [pod for pod in seen.workers(pool.name) if not pod.finished]
    live = [pod for pod in pods if pod.live]
    workers = [worker for pod in pods for worker in seen.registered(pod)]
    current = spec_hash.of_worker(seen.written, pool)
    scaled = before is not None and before.desired != plan.size.pods
    before = before or PoolStatus(name=pool.name)
    return PoolStatus(
        name=pool.name,
        desired=plan.size.pods,
        pods=len(pods),
        ready=sum(1 for pod in live if sizes.complete(seen, pool, pod)),
        pending=sum(1 for pod in live if not pod.running),
        unschedulable=sum(1 for pod in live if pod.unschedulable),
        retiring=sum(1 for pod in pods if pod.retirement or pod.deleting),
        outdated=sum(1 for pod in live if pod.spec_hash != current),
        workers=len(workers),
        gpus_held=sum(pod.gpus or pool.gpus_per_pod for pod in pods if pod.node),
        gpus_busy=sum(_busy_gpus(seen, pod, pod.gpus or pool.gpus_per_pod) for pod in pods),
        gpu_seconds_held=round(before.gpu_seconds_held + before.gpus_held * elapsed, 3),
        gpu_seconds_used=round(before.gpu_seconds_used + before.gpus_busy * elapsed, 3),
        demand=_demand(share),
        start_seconds=round(starts.slowest_start_seconds(seen, pool.name) or 0.0, 1),
        held_seconds=round(starts.held_seconds(seen, pool.name), 1) if pool.gpu else 0.0,
        size_set_by=limits.set_by(seen, pool, plan.size),
        reason=plan.size.reason,
        message=_message(seen, pool, live),
        fallback=fallback if seen.demand else before.fallback,  # nobody takes back what a silent scheduler lent
        held=_held(seen, pods),
        leaving=_leaving(seen, pods),
        replaced=_replaced(plan) or before.replaced,
        forced=_forced(plan) or before.forced,
        frozen_since=_frozen_since(seen, pool, plan),
        last_scale_time=iso(seen.now) if scaled else before.last_scale_time,
        last_scale_reason=plan.size.reason if scaled else before.last_scale_reason,
        last_termination=_last_termination(seen.workers(pool.name)) or before.last_termination,
    )


def _demand(share: Share) -> Demand:
    """The share as the size was decided on it, rounded for people."""
    return Demand(
        waiting=share.unrunnable,
        running=share.processing,
        pods=round(share.pods, 2),
        pods_unknown=round(share.pods_unknown, 2),
        pod_seconds=round(share.pod_seconds, 1),
        next_seconds=None if share.next_seconds is None else round(share.next_seconds, 1),
    )


def removed_pool_status(seen: Observation, name: str, before: PoolStatus | None, *, elapsed: float) -> PoolStatus:
    """The row of a pool that the spec no longer has: what is known of it stands on its pods."""
    pods = [pod for pod in seen.workers(name) if not pod.finished]
    live = [pod for pod in pods if pod.live]
    scaled = before is not None and before.desired != 0
    reason = "the spec has no such pool any more"
    before = before or PoolStatus(name=name)
    return PoolStatus(
        name=name,
        removed=True,
        pods=len(pods),
        ready=sum(1 for pod in live if sizes.joined(seen, pod)),
        pending=sum(1 for pod in live if not pod.running),
        retiring=sum(1 for pod in pods if pod.retirement or pod.deleting),
        workers=sum(len(seen.registered(pod)) for pod in pods),
        gpus_held=sum(pod.gpus for pod in pods if pod.node),
        gpus_busy=sum(_busy_gpus(seen, pod, pod.gpus) for pod in pods),
        gpu_seconds_held=round(before.gpu_seconds_held + before.gpus_held * elapsed, 3),
        gpu_seconds_used=round(before.gpu_seconds_used + before.gpus_busy * elapsed, 3),
        size_set_by="spec",
        reason=reason,
        held=_held(seen, pods),
        leaving=_leaving(seen, pods),
        last_scale_time=iso(seen.now) if scaled else before.last_scale_time,
        last_scale_reason=reason if scaled else before.last_scale_reason,
        last_termination=_last_termination(seen.workers(name)) or before.last_termination,
    )


def _busy_gpus(seen: Observation, pod: Pod, gpus: int) -> int:
    """Of the `gpus` of `pod`, those whose workers have work: one with the pod's very name has all, another one each."""
    busy = [worker for worker in seen.registered(pod) if worker.own]
    return min(gpus, sum(gpus if worker.name == pod.dask_name else 1 for worker in busy))


def _message(seen: Observation, pool: Pool, live: list[Pod]) -> str:
    memory = seen.memory.get(pool.name)
    if memory and memory.refusal:
        return memory.refusal
    for pod in live:
        if pod.unschedulable or pod.waiting:
            return f"{pod.name}: {pod.unschedulable or pod.waiting}"
    return ""


def _held(seen: Observation, pods: list[Pod]) -> str:
    """What keeps pods that would otherwise leave."""
    keeps = []
    for pod in pods:
        for worker in seen.registered(pod):
            blockers = [blocker for blocker in worker.blockers if blocker != "running"]
            if not worker.own and (worker.retiring == "blocked" or blockers):
                detail = worker.detail or f"{worker.held_keys} results, {worker.held_bytes} bytes"
                keeps.append(f"{pod.name}: {quote(', '.join(blockers)) or 'data'}: {detail}")
    return "; ".join(keeps[:3])


def _leaving(seen: Observation, pods: list[Pod]) -> str:
    """What leaves, since when, and what it waits for."""
    words = []
    for pod in pods:
        if pod.live and pod.retirement is not None:
            since = f" since {iso(pod.retirement.at)}" if pod.retirement.at else ""
            words.append(f"{pod.name}{since} ({pod.retirement.why}): {drains.waits_for(seen, pod)}")
    return "; ".join(words[:3]) + (f"; and {len(words) - 3} more" if len(words) > 3 else "")  # noqa: PLR2004


def _replaced(plan: PoolPlan) -> str:
    for action in plan.actions:
        if isinstance(action, MarkRetiring) and action.retirement is not None and action.retirement.final:
            sick, worn = action.failed, action.retirement.why == replacing.WORN
            if sick or worn:
                return f"{action.pod.dask_name}: {action.retirement.why}"
    return ""


def _forced(plan: PoolPlan) -> str:
    forced = [action for action in plan.actions if isinstance(action, DeletePod) and action.forced]
    return f"{forced[0].pod.dask_name}: {forced[0].why}" if forced else ""


def _frozen_since(seen: Observation, pool: Pool, plan: PoolPlan) -> str:
    """Told only once it has lasted: a scheduler that restarts is silent for some seconds."""
    since = seen.frozen_at.get(pool.name)
    if not plan.frozen or since is None or seen.now - since < freezes.patience_seconds(seen):
        return ""
    return iso(since)


def _last_termination(pods: tuple[Pod, ...]) -> Termination | None:
    ended = [pod for pod in pods if pod.ended is not None]
    if not ended:
        return None
    last = max(ended, key=lambda pod: (pod.started, pod.created))
    assert last.ended is not None
    return Termination(
        pod=last.name, reason=last.ended.reason, exit_code=last.ended.exit_code, message=last.ended.message
    )
