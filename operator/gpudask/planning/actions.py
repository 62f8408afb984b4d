"""A plan and its actions. Each decision says beside what it decides when to look again: `requeue_after`."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudask.api.reasons import Reason
from gpudask.planning.observed.pods import Pod, Retirement
from gpudask.scaling.assignment import Assignment
from gpudask.scaling.sizing import Size


@dataclass(frozen=True, slots=True)
class CreateScheduler:
    """Create the scheduler pod of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateWorker:
    """Create worker pod number `number` of a pool."""

    pool: str
    number: int


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod. `only_if_unchanged`: not if it changed since it was seen (a pending one that just started).

    `forced`: it may hold work and results, which are lost. `successor`: the name of the scheduler pod that is to take
    its place; one that the API server would not take leaves this one where it is.
    """

    pod: Pod
    why: str
    only_if_unchanged: bool = False
    forced: bool = False
    successor: str = ""


@dataclass(frozen=True, slots=True)
class MarkRetiring:
    """Write the retirement on the pod, or remove it (None) when the pod is wanted again.

    `failed`: that is a failure of its pool, whose next pod waits the longer the more there are.
    """

    pod: Pod
    retirement: Retirement | None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class MarkProtected:
    """Write the annotations by which node autoscalers leave the pod alone, or may evict it."""

    pod: Pod
    annotations: dict[str, str]


@dataclass(frozen=True, slots=True)
class RemoveFromService:
    """Remove the label by which the cluster's Service selects the pod."""

    pod: Pod


Action = CreateScheduler | CreateWorker | DeletePod | MarkRetiring | MarkProtected | RemoveFromService


@dataclass(frozen=True, slots=True)
class Event:
    """An event to record, once the pass has written the status. Those of one `series` count up instead of adding."""

    reason: str
    message: str
    series: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The plan for one pool. `missing`: pods that it lacks, created now or held back.

    `frozen`: why its size cannot follow what is wanted, empty where it can. `requeue_after`: as `Plan`'s.
    """

    size: Size
    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None
    missing: int = 0
    frozen: str = ""


@dataclass(frozen=True, slots=True)
class Deletion:
    """The reason to delete the cluster now, for its event; `why` is empty where it stays.

    `requeue_after`: in how many seconds there may be a reason.
    """

    why: str = ""
    reason: Reason = Reason.IDLE_TOO_LONG
    requeue_after: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions of one pass, and what was decided on the way.

    `requeue_after`: in how many seconds at the latest the next pass is due though nothing happens; None: not at all.
    `protects_scheduler`: whether the scheduler pod is kept from eviction; None: as it was.
    `deletion`: whether the whole cluster is to be deleted, and why.
    `fallbacks`: pool -> the pools on which its tasks fall back. `offers`: what those pools' workers offer for it.
    """

    scheduler: tuple[Action, ...] = ()
    pools: dict[str, PoolPlan] = field(default_factory=dict)
    assignment: Assignment = field(default_factory=lambda: Assignment({}, ()))
    fallbacks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    offers: dict[str, dict[str, float]] = field(default_factory=dict)
    requeue_after: float | None = None
    protections: tuple[MarkProtected, ...] = ()
    protects_scheduler: bool | None = None
    deletion: Deletion = field(default_factory=Deletion)

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions of the cluster, the scheduler's first; `protections` are for others and come after."""
        return (*self.scheduler, *(action for pool in self.pools.values() for action in pool.actions))


def soonest(*seconds: float | None) -> float | None:
    """The smallest positive value: the `requeue_after` of several decisions together; None: none of them has one."""
    return min((each for each in seconds if each is not None and each > 0), default=None)
