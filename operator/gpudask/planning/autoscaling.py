"""The steps of autoscaling, as docs/pools.md has them: growth, what is held back, cancelled or retired; and capacity.

How many pods a demand takes, `scaling/sizing.py` computes; a step here says what of it a pool does now.

The capacity is what the pool can have now: its maximum, or fewer pods where further ones find no node or are refused.
A node that an autoscaler brings takes its time: whether pods that wait for one may still get it is told by how long
pods took to start before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpudask.api.pool import Autoscale
from gpudask.api.reasons import Reason
from gpudask.planning import rollout
from gpudask.planning.actions import soonest
from gpudask.planning.pool_view import PoolView
from gpudask.scaling import retirement, sizing
from gpudask.scaling.assignment import Capacity, Share
from gpudask.scaling.retirement import Candidate
from gpudask.scaling.sizing import Size

AUTOSCALE = "autoscale"
# A pod that waits for a node longer than the last one took to start, and by so much, waits for one that may never come.
_LATE_FACTOR, _LATE_SECONDS = 1.5, 30.0
# So long a pod may wait for its node where none was seen to start: in a cloud most GPU nodes come sooner.
_UNKNOWN_LATE_SECONDS = 180.0
# How soon a loop decides again that has put off what its first decision would have cancelled.
_AGAIN_SECONDS = 1.0
_REFUSALS = (Reason.QUOTA, Reason.FORBIDDEN, Reason.TEMPLATE_REFUSED)


@dataclass(frozen=True, slots=True)
class Decision:
    """The size of a pool, and the pods that are retired because demand does not need them."""

    size: Size
    leaving: Sequence[Candidate] = ()
    requeue_after: float | None = None


def decide(view: PoolView, share: Share, tried: Share) -> Decision:
    """The size of the pool that serves `share` of the demand; `tried`: what its share is once cheaper pools were tried.

    A suspended cluster has none; an override wins over the manifest; without any size a pool has one pod. Limits
    that an override sets are in the pool already (`planning.overrides`).
    """
    pool, override = view.pool, view.override
    if view.observation.cluster.spec.suspend:
        return Decision(Size(0, "suspended", "suspend"))
    if override is not None and override.replicas is not None:
        by = override.by or "an override"
        return Decision(Size(override.replicas, f"set by {by}", by))
    if pool.autoscale is None:
        return Decision(Size(1 if pool.replicas is None else pool.replicas, "fixed in the spec", "spec"))
    if not view.observation.knows_demand:
        return _unchanged(view, pool.autoscale)
    return _Autoscaling(view, pool.autoscale, share, tried).decide()


def _unchanged(view: PoolView, limits: Autoscale) -> Decision:
    """Rule 7: while the demand is not known, sizes stay."""
    before = view.memory.size
    size = rollout.possible_sizes(view)[1] if before is None else before
    kept = min(max(size, limits.min), limits.max)
    why = "the demand is not known: the size stays" if size else f"at its minimum of {limits.min}"
    return Decision(Size(kept, why, AUTOSCALE, is_guess=before is None))


@dataclass(frozen=True, slots=True)
class _Want:
    """The number of pods that the demand asks for, and the reason."""

    pods: int
    reason: str
    requeue_after: float | None


@dataclass(frozen=True)
class _Autoscaling:
    """One decision about a pool whose demand is known. Each rule of docs/pools.md is a method."""

    view: PoolView
    limits: Autoscale
    share: Share
    tried: Share

    def decide(self) -> Decision:
        """Apply the rules: up to 5 they give the number of pods wanted, from 5 on the pods to retire."""
        want = self._held_back(self._up_or_ahead())
        enough = max(want.pods, sizing.kept(self.limits, self.tried, self._pods()))
        have = self._have(enough)
        if want.pods >= have:
            return Decision(Size(want.pods, want.reason, AUTOSCALE), (), want.requeue_after)
        candidates = self.view.candidates(self.view.staying)
        cancelled = self._cancelled(candidates, enough, have)
        idle, idle_after = self._down(candidates, have - len(cancelled) - enough, len(cancelled))
        leaving = [*cancelled, *idle]
        if leaving and self.view.memory.size is None:
            # What is refused elsewhere, for which these may start, this loop asks in the pass of its first decision.
            return Decision(Size(have, want.reason, AUTOSCALE), (), _AGAIN_SECONDS)
        size = Size(have - len(leaving), want.reason, AUTOSCALE)
        return Decision(size, leaving, soonest(want.requeue_after, idle_after))

    def _up_or_ahead(self) -> _Want:
        """Rules 3 and 4: as many as clear the queue in time; one where tasks can run soon."""
        pods, observation = self.view.staying, self.view.observation
        next_seconds, start_seconds = self._next_seconds(), self.view.start_times.expected
        is_soon = sizing.is_soon(next_seconds, start_seconds, pods=len(pods))
        count, reason = sizing.wanted(self.limits, self.share, self._pods(), is_soon=is_soon)
        warm_ups = (observation.warm_up_seconds(pod) for pod in pods if observation.registered(pod))
        lead_seconds = sizing.lead_seconds(start_seconds, pods=len(pods))
        return _Want(count, reason, soonest(*warm_ups, None if next_seconds is None else next_seconds - lead_seconds))

    def _held_back(self, want: _Want) -> _Want:
        """Rule 5: while pods wait too long for a node, no more are asked for."""
        wait, there = node_wait(self.view), len(self.view.staying)
        requeue_after = soonest(want.requeue_after, wait.requeue_after)
        if want.pods <= there or not wait.holds_growth:
            return replace(want, requeue_after=requeue_after)
        reason = f"{want.reason}; pods wait for a node: no more until they have one"
        return _Want(max(there, self.limits.min), reason, requeue_after)

    def _have(self, want: int) -> int:
        """The size that corresponds to the pods that exist.

        After a restart in a rollout that may be several: what the demand asks for decides between them.
        """
        before, there = self.view.memory.size, len(self.view.staying)
        if not self._rolls:
            return min(there, self.limits.max)
        least, most = rollout.possible_sizes(self.view) if before is None else (before, before)
        return min(max(least, min(want, most)), there, self.limits.max)

    def _cancelled(self, candidates: list[Candidate], want: int, have: int) -> list[Candidate]:
        """Rule 5: pods that do not run yet, once no tasks are left to fill them.

        A better estimate is no reason to cancel a pod that starts: only that there are no tasks for it. Nor is it for
        one of a rollout's surplus, which is no part of the size. Those that wait for a node go already when the pods
        that have one will soon have done the work.
        """
        surplus = len(candidates) - have if self._rolls else 0
        starting = sum(1 for candidate in candidates if candidate.pending)
        beyond = min(have - max(want, sizing.fillable(self.share)), starting - surplus)
        cancelled = retirement.pending(candidates, beyond)
        there = self._pods()
        if not there.start_seconds or self._rolls:
            return cancelled
        enough = max(want, sizing.worth_waiting_for(self.limits, self.tried, there))
        gone = {candidate.pod for candidate in cancelled}
        waiting = {pod.name for pod in self.view.staying if pod.unschedulable} - gone
        without_node = [candidate for candidate in candidates if candidate.pod in waiting]
        return cancelled + retirement.pending(without_node, have - len(cancelled) - enough)

    def _down(self, candidates: list[Candidate], count: int, cancelled: int) -> tuple[list[Candidate], float | None]:
        """Rule 6: at most `count` that were idle for long enough; and in how many seconds others may be.

        `cancelled`: how many leave besides.
        """
        timeout, release_after = self.limits.idle_timeout_seconds, self.view.release_after_seconds
        leaving = retirement.idle(candidates, count, timeout_seconds=timeout, release_after_seconds=release_after)
        leaving = retirement.in_turn(leaving, of=len(candidates) - cancelled, others_leave=bool(self.view.leaving))
        resting = [candidate.idle_seconds for candidate in candidates if not candidate.busy]
        ends = [end for end in (timeout, release_after) if end is not None]
        ends_after = [end - idle for idle in resting for end in ends]
        return leaving, soonest(*ends_after, *map(self.view.unregistered_after, self.view.staying))

    @property
    def _rolls(self) -> bool:
        return bool(rollout.old_and_new(self.view, self.view.staying)[0])

    def _pods(self) -> sizing.Pods:
        """The pods that stay, as the sizing policy counts them."""
        pods, observation, starts = self.view.staying, self.view.observation, self.view.start_times
        ready = [pod for pod in pods if observation.registered(pod)]
        return sizing.Pods(
            ready=len(ready),
            warmed_up=sum(1 for pod in ready if not observation.warm_up_seconds(pod)),
            placed=sum(1 for pod in pods if pod.node),
            start_seconds=starts.slowest or 0.0,
            held_seconds=starts.held if self.view.pool.gpu else 0.0,
        )

    def _next_seconds(self) -> float | None:
        """Seconds until the first waiting task can run: the scheduler's estimate, less the time since then.

        None where it is not known, or where that is no reason for a pod.
        """
        if self.share.next_seconds is None or not self.limits.look_ahead:
            return None
        return max(0.0, self.share.next_seconds - (self.view.observation.now - self.view.observation.demand_at))


@dataclass(frozen=True, slots=True)
class NodeWait:
    """The pods of a pool that wait for a node.

    `is_late`: one waits for a node that will not come, as far as one can tell by now. `holds_growth`: they are a reason
    to ask for no more of them. Where no pod of the pool was seen to start, nobody knows whether there are nodes for it.
    """

    is_late: bool = False
    holds_growth: bool = False
    requeue_after: float | None = None


def node_wait(view: PoolView) -> NodeWait:
    """The wait of the pool's pods for a node: whether they may still get one."""
    waiting = [pod for pod in view.staying if pod.unschedulable]
    if not waiting:
        return NodeWait()
    start = view.start_times.last
    limit_seconds = _UNKNOWN_LATE_SECONDS if start is None else _LATE_FACTOR * start + _LATE_SECONDS
    left = [pod.created + limit_seconds - view.observation.now for pod in waiting]
    is_late = min(left) <= 0
    return NodeWait(is_late, holds_growth=is_late or start is None, requeue_after=soonest(*left))


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """The capacity of a pool. `requeue_after`: until there may be more or less of it by time alone."""

    capacity: Capacity
    requeue_after: float | None = None


def capacity(view: PoolView) -> PoolCapacity:
    """The number of pods that the pool can have now."""
    pods, wait = view.staying, node_wait(view)
    most = _most(view)
    if view.memory.refusal and view.memory.refusal_reason in _REFUSALS:
        most = min(most, len(pods))
    if wait.is_late:
        most = min(most, sum(1 for pod in pods if not pod.unschedulable))
    warm_ups = [view.observation.warm_up_seconds(pod) for pod in pods if view.observation.registered(pod)]
    found = Capacity(float(most), all_warmed_up=warm_ups.count(0.0) >= most, start_seconds=view.start_times.last)
    return PoolCapacity(found, soonest(wait.requeue_after, *warm_ups))


def _most(view: PoolView) -> int:
    if view.override is not None and view.override.replicas is not None:
        return view.override.replicas
    if view.pool.autoscale is not None:
        return view.pool.autoscale.max
    return 1 if view.pool.replicas is None else view.pool.replicas
