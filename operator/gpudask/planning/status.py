"""The status after a pass: its pools, scheduler, summary and counters. Its conditions are in conditions.py.

And its write priority: forms of it without what changes all the time, by which two are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from gpudask.api import addresses
from gpudask.api.status import Demand, PoolStatus, SchedulerStatus, Status, Summary, Termination, epoch, iso
from gpudask.api.untrusted_text import quote
from gpudask.desired import spec_hash
from gpudask.planning import drain, idle, listening, overrides, rollout
from gpudask.planning.actions import DeletePod, MarkRetiring, Plan, PoolPlan
from gpudask.planning.conditions import with_conditions
from gpudask.planning.degraded import refusal_message
from gpudask.planning.ledger.causes import Gone, holders
from gpudask.planning.ledger.counting import Ledger, Seen, count
from gpudask.planning.ledger.takeover import Arrival, inherit
from gpudask.planning.ledger.totals import OTHERS, PoolCount
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod
from gpudask.planning.pool_view import PoolView, has_joined, views
from gpudask.scaling.assignment import Share

_ABOUT_SECONDS = 2.0
_LEAVING_NAMED = 3
_SINCE = "; since "  # of a pool's message, as in `degraded.refusal_message`
# What moves while a cluster works: written at most every few seconds, and never alone a reason to hurry.
_LIVE = {"demand", "start_seconds", "held_seconds", "gpus_busy", "reason", "held", "leaving", "workers"}
# How pods come and go: many of them in a moment are one write.
_PROGRESS = {"pods", "ready", "pending", "retiring", "gpus_held"}
# Of the last count, and never a reason to write.
_TIMES = {"counted_at": "", "machine_counted_at": "", "pods_known_at": ""}
_COUNTERS = {"gpu_seconds_held", "gpu_seconds_used", "owners"}


def count_gpus(
    observation: Observation,
    plan: Plan,
    before: Status,
    counted: Ledger | None = None,
    *,
    gone: tuple[Gone, ...] = (),
    came: Arrival | None = None,
) -> Ledger:
    """The ledger after this pass. `counted`: what this process has counted so far; None: `before` is another one's.

    `gone`: the pods that ended since. `came`: as `inherit`'s.
    """
    seen = Seen(
        holders(observation, plan),
        observation.now,
        observation.demand,
        observation.demand_at,
        gone,
        frozenset(pool.name for pool in observation.cluster.spec.pools),
        observation.clocks,
        observation.unanswered_at,
        observation.pods_known_at,
    )
    return inherit(seen, before, came) if counted is None else count(seen, counted)


def report(observation: Observation, plan: Plan, before: Status, counted: Ledger | None = None) -> Status:
    """The status after this pass; `before` is the last one computed, for transition times.

    `counted`: the ledger after this pass; None: as `count_gpus` has it where another process wrote `before`.
    """
    counted = counted or count_gpus(observation, plan, before)
    observation = overrides.in_force(observation).observation
    earlier = {pool.name: pool for pool in before.pools}
    pools = [
        _pool_status(
            view,
            plan.pools[name],
            plan.assignment.shares[name],
            earlier.get(name),
            fallback=", ".join(plan.fallbacks.get(name, ())),
            counted=counted.of(name),
        )
        for name, view in views(observation).items()
        if name in plan.pools
    ]
    removed = {pod.pool for pod in observation.pods_of_removed_pools if not pod.finished}
    known = {pool.name for pool in observation.cluster.spec.pools}
    removed |= counted.pools.keys() - {*known, OTHERS}  # what the pods of one cost stays when they are gone
    pools += [_removed_pool_status(observation, name, earlier.get(name), counted.of(name)) for name in sorted(removed)]
    pools += _other_pools(counted)
    scheduler = _scheduler(observation, before.scheduler)
    status = Status(
        observed_generation=observation.cluster.generation,
        scheduler=scheduler,
        summary=_summary(observation, pools, counted),
        pools=pools,
        **_times(counted),
    )
    return with_conditions(observation, plan, status, before)


def recount(before: Status, counted: Ledger) -> Status:
    """`before` with the counters of `counted`, where nothing else of it is known anew: its spec cannot be acted on."""
    pools = [counted.of(row.name).in_status(row) for row in before.pools if row.name != OTHERS]
    pools += _other_pools(counted)
    summary = before.summary.model_copy(update={"worked": counted.worked()})
    return before.model_copy(update={"pools": pools, "summary": summary} | _times(counted))


def _times(counted: Ledger) -> dict[str, str]:
    """Up to when a status counts and knows of pods, by the API server's clock, and the former by this machine's."""
    server_time = counted.at + counted.clocks.server_ahead
    known_ago = max(0.0, counted.at - counted.known_at)
    return {
        "counted_at": iso(server_time),
        "machine_counted_at": iso(counted.at + counted.clocks.wall_ahead),
        "pods_known_at": iso(server_time - known_ago) if math.isfinite(known_ago) else "",
    }


def _scheduler(observation: Observation, before: SchedulerStatus) -> SchedulerStatus:
    cluster, pod = observation.cluster, observation.scheduler
    process, tasks, lost = before.process, before.tasks, before.lost
    if observation.demand is not None:
        process, tasks = observation.demand.scheduler_id, observation.demand.tasks
        if before.process not in ("", process) and before.tasks:
            lost = f"{iso(observation.now)}: {before.tasks} tasks"
    elif cluster.spec.suspend and pod is None:
        process, tasks = "", 0  # a person's wish
    return SchedulerStatus(
        pod=pod.name if pod else "",
        address=addresses.scheduler_address(cluster.name, cluster.namespace, cluster.spec.protocol),
        dashboard=addresses.dashboard(cluster.name, cluster.namespace),
        ready=bool(pod and pod.ready),
        process=process,
        tasks=tasks,
        lost=lost,
        idle_since=_idle_since(observation, before.idle_since),
        disconnected_since=_disconnected_since(observation, before.disconnected_since),
    )


def _idle_since(observation: Observation, before: str) -> str:
    """The beginning of idleness."""
    unused = idle.idle_seconds(observation)
    if observation.cluster.spec.idle.delete_after is None or not unused:
        return ""
    return _about(observation.now - unused, before)


def _disconnected_since(observation: Observation, before: str) -> str:
    """The beginning of the time without a client, once it has lasted."""
    absent = idle.disconnected_seconds(observation)
    if observation.cluster.spec.idle.shutdown_after_disconnect is None or observation.cluster.spec.suspend:
        return ""
    if absent is None or absent < idle.REPORT_DISCONNECTED_SECONDS:
        return ""
    return _about(observation.now - absent, before)


def _about(since: float, before: str) -> str:
    """`since` as a text: the last one, `before`, while it is about right: answers differ by the time they take."""
    said = epoch(before)
    return before if said is not None and abs(said - since) < _ABOUT_SECONDS else iso(since)


def _summary(observation: Observation, pools: list[PoolStatus], counted: Ledger) -> Summary:
    gpu = {pool.name for pool in observation.cluster.spec.pools if pool.gpu}
    gpu |= {pod.pool for pod in observation.pods_of_removed_pools if pod.gpus}
    return Summary(
        cpu=_ready_of_desired([p for p in pools if p.name not in gpu]),
        gpu=_ready_of_desired([p for p in pools if p.name in gpu]),
        worked=counted.worked(),
    )


def _ready_of_desired(pools: list[PoolStatus]) -> str:
    return f"{sum(pool.ready for pool in pools)}/{sum(pool.desired for pool in pools)}"


def _pool_status(
    view: PoolView,
    plan: PoolPlan,
    share: Share,
    before: PoolStatus | None,
    *,
    fallback: str,
    counted: PoolCount,
) -> PoolStatus:
    """The row of a pool of the spec.

    `before`: its last row, None if there was none; `fallback`: the pools that its tasks run on meanwhile.
    """
    observation, pool = view.observation, view.pool
    pods = [pod for pod in view.pods if not pod.finished]
    live = [pod for pod in pods if pod.live]
    workers = [worker for pod in pods for worker in observation.registered(pod)]
    current = spec_hash.of_worker(observation.written, pool)
    scaled = before is not None and before.desired != plan.size.pods
    before = before or PoolStatus(name=pool.name)
    row = PoolStatus(
        name=pool.name,
        desired=plan.size.pods,
        pods=len(pods),
        ready=sum(1 for pod in live if view.is_complete(pod)),
        pending=sum(1 for pod in live if not pod.running),
        unschedulable=sum(1 for pod in live if pod.unschedulable),
        retiring=sum(1 for pod in pods if pod.retirement or pod.deleting),
        outdated=sum(1 for pod in live if pod.spec_hash != current),
        workers=len(workers),
        demand=_demand(share),
        start_seconds=round(view.start_times.slowest or 0.0, 1),
        held_seconds=round(view.start_times.held, 1) if pool.gpu else 0.0,
        size_set_by=overrides.set_by(view.override, plan.size),
        reason=plan.size.reason,
        message=_message(view, live, missing=plan.missing),
        fallback=fallback if observation.demand else before.fallback,  # nobody takes back what a silent scheduler lent
        held=_held(observation, pods),
        leaving=_leaving(observation, pods),
        replaced=_replaced(plan) or before.replaced,
        forced=_forced(plan) or before.forced,
        frozen_since=_frozen_since(view, plan),
        last_scale_time=iso(observation.now) if scaled else before.last_scale_time,
        last_scale_reason=plan.size.reason if scaled else before.last_scale_reason,
        last_termination=_last_termination(view.pods) or before.last_termination,
    )
    return counted.in_status(row)


def _demand(share: Share) -> Demand:
    """The demand by which the size was decided, rounded for people."""
    return Demand(
        waiting=share.unrunnable,
        running=share.processing,
        pods=round(share.pods, 2),
        pods_unknown=round(share.pods_unknown, 2),
        pod_seconds=round(share.pod_seconds, 1),
        next_seconds=None if share.next_seconds is None else round(share.next_seconds, 1),
    )


def _removed_pool_status(
    observation: Observation, name: str, before: PoolStatus | None, counted: PoolCount
) -> PoolStatus:
    """The row of a pool that the spec no longer has: what is known of it stands on its pods."""
    pods = [pod for pod in observation.workers(name) if not pod.finished]
    live = [pod for pod in pods if pod.live]
    scaled = before is not None and before.desired != 0
    reason = "the spec has no such pool any more"
    before = before or PoolStatus(name=name)
    row = PoolStatus(
        name=name,
        removed=True,
        pods=len(pods),
        ready=sum(1 for pod in live if has_joined(observation, pod)),
        pending=sum(1 for pod in live if not pod.running),
        retiring=sum(1 for pod in pods if pod.retirement or pod.deleting),
        workers=sum(len(observation.registered(pod)) for pod in pods),
        size_set_by="spec",
        reason=reason,
        held=_held(observation, pods),
        leaving=_leaving(observation, pods),
        last_scale_time=iso(observation.now) if scaled else before.last_scale_time,
        last_scale_reason=reason if scaled else before.last_scale_reason,
        last_termination=(_last_termination(observation.workers(name)) or before.last_termination) if pods else None,
    )
    return counted.in_status(row)


def _other_pools(counted: Ledger) -> list[PoolStatus]:
    """The row, if any, of the removed pools that have none of their own any more."""
    if OTHERS not in counted.pools:
        return []
    reason = "removed pools that have no row of their own any more"
    row = PoolStatus(name=OTHERS, removed=True, size_set_by="spec", reason=reason)
    return [counted.of(OTHERS).in_status(row)]


def _message(view: PoolView, live: list[Pod], *, missing: int) -> str:
    """What keeps the pool from progress, and since when: what its missing pods wait for, else the first that waits."""
    if view.memory.refusal:
        return refusal_message(view.observation, view.memory)
    if missing and (waits := listening.message(view.observation, view.pool)):
        return waits
    for pod in live:
        if pod.unschedulable:
            return f"{pod.name}: {pod.unschedulable.rstrip('.')}{_SINCE}{iso(pod.created, to='seconds')}"
        if pod.waiting:
            return f"{pod.name}: {pod.waiting}"
    return ""


def _held(observation: Observation, pods: list[Pod]) -> str:
    """A message about what keeps idle pods."""
    keeps = []
    for pod in pods:
        for worker in observation.registered(pod):
            blockers = [blocker for blocker in worker.blockers if blocker != "running"]
            if not worker.own and (worker.retiring == "blocked" or blockers):
                detail = worker.detail or f"{worker.held_keys} results, {worker.held_bytes} bytes"
                keeps.append(f"{pod.name}: {quote(', '.join(blockers)) or 'data'}: {detail}")
    return "; ".join(keeps[:3])


def _leaving(observation: Observation, pods: list[Pod]) -> str:
    """A message about the pods that leave: since when, why, and what they wait for."""
    items = []
    for pod in pods:
        if pod.live and pod.retirement is not None:
            since = f" since {iso(pod.retirement.at)}" if pod.retirement.at else ""
            items.append(f"{pod.name}{since} ({pod.retirement.why}): {drain.waits_for(observation, pod)}")
    more = len(items) - _LEAVING_NAMED
    return "; ".join(items[:_LEAVING_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _replaced(plan: PoolPlan) -> str:
    for action in plan.actions:
        if isinstance(action, MarkRetiring) and action.retirement is not None and action.retirement.final:
            unhealthy, recycled = action.failed, action.retirement.why == rollout.RECYCLED
            if unhealthy or recycled:
                return f"{action.pod.dask_name}: {action.retirement.why}"
    return ""


def _forced(plan: PoolPlan) -> str:
    forced = [action for action in plan.actions if isinstance(action, DeletePod) and action.forced]
    return f"{forced[0].pod.dask_name}: {forced[0].why}" if forced else ""


def _frozen_since(view: PoolView, plan: PoolPlan) -> str:
    since = idle.frozen_since(view, plan.frozen)
    return "" if since is None else iso(since)


def _last_termination(pods: Iterable[Pod]) -> Termination | None:
    ended = [pod for pod in pods if pod.ended is not None]
    if not ended:
        return None
    last = max(ended, key=lambda pod: (pod.started, pod.created))
    assert last.ended is not None
    return Termination(
        pod=last.name, reason=last.ended.reason, exit_code=last.ended.exit_code, message=last.ended.message
    )


def without_progress(status: Status) -> Status:
    """`without_live_values` without the counts of pods by their progress: when this changed, it is written at once."""
    status = without_live_values(status)
    pools = [pool.model_copy(update=dict.fromkeys(_PROGRESS)) for pool in status.pools]
    return status.model_copy(update={"pools": pools, "summary": Summary()})


def without_live_values(status: Status) -> Status:
    """`status` without live values and counters: when this changed, it is written almost at once."""
    # Of a message only what it says: the next try of what is refused moves with each try.
    pools = [
        pool.model_copy(
            update=dict.fromkeys(_LIVE | _COUNTERS | {"causes"}) | {"message": pool.message.partition(_SINCE)[0]}
        )
        for pool in status.pools
    ]
    # A condition's message may count tasks; its status and reason are what changes.
    conditions = [condition.model_copy(update={"message": ""}) for condition in status.conditions]
    scheduler = status.scheduler.model_copy(update={"tasks": 0, "idle_since": "", "disconnected_since": ""})
    live = {"pools": pools, "conditions": conditions, "scheduler": scheduler, "reason": ""} | _TIMES
    return status.model_copy(update=live | {"summary": status.summary.model_copy(update={"worked": ""})})


def without_counters(status: Status) -> Status:
    """`status` without counters, which grow by themselves: when this changed, it is written soon."""
    pools = [
        pool.model_copy(
            update=dict.fromkeys(_COUNTERS)
            | {"causes": [each.model_copy(update={"gpu_seconds": 0.0}) for each in pool.causes if each.gpus]}
        )
        for pool in status.pools
    ]
    summary = status.summary.model_copy(update={"worked": ""})
    return status.model_copy(update={"pools": pools, "summary": summary} | _TIMES)


def counters(status: Status) -> Status:
    """`status` as it is but for when it was counted: when this changed, it is written now and then."""
    return status.model_copy(update=_TIMES)
