"""What a plan is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudask.planning.observed import Pod, Retirement
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

    `forced`: it may hold work and results, which are lost.
    """

    pod: Pod
    why: str
    only_if_unchanged: bool = False
    forced: bool = False


@dataclass(frozen=True, slots=True)
class MarkRetiring:
    """Write the retirement on the pod, or take it off (None) when it is wanted again.

    `failed`: that is a failure of its pool, whose next pod waits the longer the more there are.
    """

    pod: Pod
    retirement: Retirement | None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class MarkGuarded:
    """Tell node autoscalers to leave the pod alone, or that it may go."""

    pod: Pod
    annotations: dict[str, str]


@dataclass(frozen=True, slots=True)
class TakeOffService:
    """Let the cluster's Service no longer lead to the pod."""

    pod: Pod


Action = CreateScheduler | CreateWorker | DeletePod | MarkRetiring | MarkGuarded | TakeOffService


@dataclass(frozen=True, slots=True)
class Announcement:
    """An event to record, once the pass has written the status. Those of one `series` count up instead of adding."""

    reason: str
    message: str
    series: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What to do for one pool. `missing`: pods that it lacks, created now or held back.

    `frozen`: why its size cannot follow what is wanted, empty where it can.
    """

    size: Size
    actions: tuple[Action, ...] = ()
    wake_after_seconds: float | None = None
    missing: int = 0
    frozen: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do in one pass, and what was decided on the way.

    `guarded`: whether the scheduler pod is kept from eviction; None: as it was.
    `delete_why`: why the whole cluster is to be deleted, empty where it stays.
    `fallbacks`: pool -> the pools on which its tasks fall back. `offers`: what those pools' workers offer for it.
    """

    scheduler: tuple[Action, ...] = ()
    pools: dict[str, PoolPlan] = field(default_factory=dict)
    assignment: Assignment = field(default_factory=lambda: Assignment({}, ()))
    fallbacks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    offers: dict[str, dict[str, float]] = field(default_factory=dict)
    wake_after_seconds: float | None = None
    markers: tuple[MarkGuarded, ...] = ()
    guarded: bool | None = None
    delete_why: str = ""

    @property
    def actions(self) -> tuple[Action, ...]:
        """All that matter to the cluster, the scheduler's first; `markers` are for others and come after."""
        return (*self.scheduler, *(action for pool in self.pools.values() for action in pool.actions))
