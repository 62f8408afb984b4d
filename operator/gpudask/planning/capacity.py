"""How many pods each pool can have now: its maximum, or fewer where further ones find no node or are refused.

A node that an autoscaler brings takes its time: whether pods that wait for one may still get it is told by how long
pods took to start before.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpudask.api.status import Reason
from gpudask.planning.actions import soonest
from gpudask.planning.pool_view import PoolView
from gpudask.scaling.assignment import Capacity

# A pod that waits for a node longer than the last one took to start, and by so much, waits for one that may never come.
_LATE_FACTOR, _LATE_SECONDS = 1.5, 30.0
# So long a pod may wait for its node where none was seen to start: in a cloud most GPU nodes come sooner.
_UNKNOWN_LATE_SECONDS = 180.0
_REFUSALS = (Reason.QUOTA, Reason.FORBIDDEN, Reason.TEMPLATE_REFUSED)


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
    """Whether the pods of the pool that wait for a node may still get one."""
    waiting = [pod for pod in view.staying if pod.unschedulable]
    if not waiting:
        return NodeWait()
    start = view.start_times.last
    patience = _UNKNOWN_LATE_SECONDS if start is None else _LATE_FACTOR * start + _LATE_SECONDS
    left = [pod.created + patience - view.observation.now for pod in waiting]
    is_late = min(left) <= 0
    return NodeWait(is_late, holds_growth=is_late or start is None, requeue_after=soonest(*left))


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """The capacity of a pool. `requeue_after`: until there may be more or less of it by time alone."""

    capacity: Capacity
    requeue_after: float | None = None


def capacity(view: PoolView) -> PoolCapacity:
    """How many pods the pool can have now."""
    pods, wait = view.staying, node_wait(view)
    most = _most(view)
    if view.memory.refusal and view.memory.refusal_reason in _REFUSALS:
        most = min(most, len(pods))
    if wait.is_late:
        most = min(most, sum(1 for pod in pods if not pod.unschedulable))
    trials = [view.observation.trial_seconds(pod) for pod in pods if view.observation.registered(pod)]
    found = Capacity(float(most), all_tried=trials.count(0.0) >= most, start_seconds=view.start_times.last)
    return PoolCapacity(found, soonest(wait.requeue_after, *trials))


def _most(view: PoolView) -> int:
    if view.override is not None and view.override.replicas is not None:
        return view.override.replicas
    if view.pool.autoscale is not None:
        return view.pool.autoscale.max
    return 1 if view.pool.replicas is None else view.pool.replicas
