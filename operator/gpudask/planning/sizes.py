"""The size of each pool: who set it, and what it should be now."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gpudask.api.pool import Autoscale, Pool
from gpudask.api.spec import Override
from gpudask.desired import spec_hash
from gpudask.planning import nodes, starts
from gpudask.planning.observed import Observation, Pod
from gpudask.planning.replacing import old_and_new
from gpudask.scaling import lookahead, retirement, sizing
from gpudask.scaling.assignment import Share
from gpudask.scaling.retirement import Candidate
from gpudask.scaling.sizing import Size

# A worker that is up but unknown to the scheduler for this long has nothing that anybody waits for.
UNREGISTERED_SECONDS = 15.0
_DIGITS = 9  # of a worker pod's number


def decide(seen: Observation, pool: Pool, share: Share) -> tuple[Size, list[Candidate]]:
    """The size of `pool`, and who leaves for it because demand does not need them.

    A suspended cluster has none; an override wins over the manifest; without any size a pool has one pod. Limits
    that an override sets are in `pool` already: limits.py.
    """
    spec = seen.cluster.spec
    override = active_override(spec.overrides, pool.name, seen.wall_time)
    if spec.suspend:
        return Size(0, "suspended", "suspend"), []
    if override is not None and override.replicas is not None:
        by = override.by or "an override"
        return Size(override.replicas, f"set by {by}", by), []
    if pool.autoscale is None:
        return Size(1 if pool.replicas is None else pool.replicas, "fixed in the spec", "spec"), []
    return _autoscaled(seen, pool, pool.autoscale, share)


def active_override(overrides: list[Override], pool: str, now: float) -> Override | None:
    """The override of `pool` that has not expired; `now` by the wall clock, as people set it."""
    return next((o for o in overrides if o.pool == pool and (o.until is None or o.until.timestamp() > now)), None)


def candidates(seen: Observation, pods: list[Pod]) -> list[Candidate]:
    """These pods as the retirement policy sees them, with how many of the cluster's pods share their nodes."""
    on_nodes = Counter(pod.node for pod in seen.pods if pod.live and pod.node)
    return [replace(candidate(seen, p, pod_number(p)), node=p.node, neighbours=on_nodes[p.node]) for p in pods]


def candidate(seen: Observation, pod: Pod, number: int) -> Candidate:
    """A pod as the retirement policy sees it. One that ran, but registered no worker, is idle since it could have.

    A container that waits to start again is no pending pod: its workers left with a scheduler that restarted, most
    likely, and are back soon. One that failed, and is not back soon, is as good as pending.
    """
    workers = seen.registered(pod)
    unheard = seen.unheard_seconds(pod) if seen.counts and ran(pod) else 0.0
    crashed = pod.ended is not None and pod.ended.exit_code != 0 and unheard >= UNREGISTERED_SECONDS
    return Candidate(
        pod=pod.name,
        number=number,
        pending=not seen.works(pod) and (not ran(pod) or crashed),
        idle_seconds=min((seen.idle_seconds(worker) for worker in workers), default=unheard),
        busy=any(worker.own for worker in workers) if workers else unheard < UNREGISTERED_SECONDS,
        held_bytes=sum(worker.held_bytes for worker in workers),
        blockers=tuple(sorted({blocker for worker in workers for blocker in worker.blockers})),
    )


def ran(pod: Pod) -> bool:
    """Whether its container runs or ran: there was a worker in it."""
    return pod.running or pod.restarts > 0 or pod.ended is not None


def staying(seen: Observation, pool: Pool) -> list[Pod]:
    """The live pods of `pool` that nobody asked to leave, by number."""
    return sorted((p for p in seen.workers(pool.name) if p.live and p.retirement is None), key=pod_number)


def pod_number(pod: Pod) -> int:
    """The number at the end of a worker pod's name; the highest for a pod that somebody else gave its name."""
    digits = pod.name.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS else 10**_DIGITS


def surge(size: int) -> int:
    """How many pods a rollout may have beyond a pool's size: a quarter of it, at least one."""
    return max(1, size // 4)


def joined(seen: Observation, pod: Pod) -> bool:
    """Whether a pod's workers are registered; where nobody says so, whether it is ready."""
    return bool(seen.registered(pod)) if seen.counts else pod.ready


def complete(seen: Observation, pool: Pool, pod: Pod) -> bool:
    """Whether all workers of a pod are registered: of one that an older spec made, whether any is."""
    if not seen.counts:
        return pod.ready
    current = pod.spec_hash == spec_hash.of_worker(seen.cluster.spec, pool)
    return len(seen.registered(pod)) >= (pool.workers_per_pod if current else 1)


def room_was_made(seen: Observation, pool: Pool) -> bool:
    """Whether a pod that is replaced is on its way out, whose room a new one that is stuck may get."""
    pods = [pod for pod in seen.workers(pool.name) if not pod.finished and (pod.deleting or pod.retirement is not None)]
    old, new = old_and_new(seen, pool, pods)
    return bool(old) or any(pod.retirement is not None and pod.retirement.final for pod in new)


def look_ahead_after(seen: Observation, pool: Pool, share: Share) -> float | None:
    """In how many seconds a pod is to be ordered for tasks that still wait for their inputs; None: not for any."""
    limits, coming = pool.autoscale, _next_seconds(seen, share)
    if limits is None or not limits.look_ahead or coming is None or not seen.counts:
        return None
    start = starts.expected_start_seconds(seen, pool.name)
    return coming - lookahead.lead_seconds(start, pods=len(staying(seen, pool)))


def _next_seconds(seen: Observation, share: Share) -> float | None:
    """In how long the first waiting task can run: what the scheduler said, less the time since then."""
    return None if share.next_seconds is None else max(0.0, share.next_seconds - (seen.now - seen.demand_at))


def _there(seen: Observation, pool: Pool, pods: list[Pod]) -> sizing.Pods:
    """The pods of `pool` that stay, as the sizing policy counts them."""
    ready = [pod for pod in pods if seen.registered(pod)]
    return sizing.Pods(
        ready=len(ready),
        tried=sum(1 for pod in ready if not seen.trial_seconds(pod)),
        placed=sum(1 for pod in pods if pod.node),
        start_seconds=starts.slowest_start_seconds(seen, pool.name) or 0.0,
        held_seconds=starts.held_seconds(seen, pool.name) if pool.gpu else 0.0,
    )


def _possible_sizes(seen: Observation, pool: Pool, pods: list[Pod]) -> tuple[int, int]:
    """The least and the largest size that `pods`, which stay, may stand for: all of them, or a rollout's surplus less.

    A rollout never makes more new pods than the size, nor more pods than the size and its surge. An old one leaves for
    each new one that has joined (but while the scheduler is not heard), or to make room for a new one that is stuck.
    """
    old, new = old_and_new(seen, pool, pods)
    if not old:
        return len(pods), len(pods)
    replaced = sum(1 for pod in new if joined(seen, pod))
    if any(pod.unschedulable for pod in new) and room_was_made(seen, pool):
        replaced += 1
    bare = next(size for size in range(len(pods) + 1) if size + surge(size) >= len(pods))
    least = max(len(old), len(new), bare)
    return least, max(least, len(old) + replaced)


def _autoscaled(seen: Observation, pool: Pool, limits: Autoscale, share: Share) -> tuple[Size, list[Candidate]]:
    pods = staying(seen, pool)
    memory = seen.memory.get(pool.name)
    before = memory.size if memory else None
    least, most = (before, before) if before is not None else _possible_sizes(seen, pool, pods)
    if not seen.counts:
        kept = min(max(most, limits.min), limits.max)
        why = "the demand is not known: the size stays" if most else f"at its minimum of {limits.min}"
        return Size(kept, why, "autoscale", is_guess=before is None), []
    there = _there(seen, pool, pods)
    soon = limits.look_ahead and lookahead.is_soon(
        _next_seconds(seen, share), starts.expected_start_seconds(seen, pool.name), pods=len(pods)
    )
    want, reason = sizing.wanted(limits, share, there, is_soon=soon)
    if want > len(pods) and nodes.keep_from_growing(seen, pool.name):
        want, reason = max(len(pods), limits.min), f"{reason}; pods wait for a node: no more until they have one"
    rolls = bool(old_and_new(seen, pool, pods)[0])
    # After a restart in a rollout the pods may stand for several sizes: what the demand asks for decides between them.
    have = min(max(least, min(want, most)), len(pods), limits.max) if rolls else min(len(pods), limits.max)
    if want >= have:
        return Size(want, reason, "autoscale"), []
    able = candidates(seen, pods)
    # A better estimate is no reason to cancel a pod that starts: only that there are no tasks for it.
    # Nor is it for one of a rollout's surplus, which is no part of the size.
    surplus = len(pods) - have if rolls else 0
    starting = sum(1 for item in able if item.pending)
    cancelled = retirement.pending(able, min(have - max(want, sizing.fillable(share)), starting - surplus))
    if there.start_seconds and not rolls:
        enough = max(want, sizing.worth_waiting_for(limits, share, there))
        waiting = {pod.name for pod in pods if pod.unschedulable} - {item.pod for item in cancelled}
        without_node = [item for item in able if item.pod in waiting]
        cancelled += retirement.pending(without_node, have - len(cancelled) - enough)
    leaving = retirement.idle(
        able,
        have - len(cancelled) - want,
        timeout_seconds=limits.idle_timeout_seconds,
        release_after_seconds=pool.held_data.release_after_seconds if pool.held_data else None,
    )
    others_leave = any(p.live and p.retirement is not None for p in seen.workers(pool.name))
    leaving = retirement.in_turn(leaving, of=len(pods) - len(cancelled), others_leave=others_leave)
    gone = [*cancelled, *leaving]
    return Size(have - len(gone), reason, "autoscale"), gone
