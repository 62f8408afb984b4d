"""What is exported of one pool: its row of the status, and what its cluster's loop has counted; and the samples of it.

A thousand clusters are read in a fraction of a second, so what changes at a pass alone is made ready there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from gpudask.api.attribution import clean
from gpudask.api.status import PoolStatus
from gpudask.metrics import families
from gpudask.metrics.exposition import labels, sample

MAX_OWNERS = 20
"""Of a pool, beside the empty one, which has all others."""
MAX_SERIES = (
    11  # sizes 3, GPUs held and busy, unschedulable time, drains 2, forced deletions, fallbacks 2
    + len(families.PODS.states)
    + len(families.DEMAND_TASKS.states)
    + len(families.CAUSES)
    + MAX_OWNERS
    + 1
    + len(families.TERMINATIONS)
)


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Of a pool as it is sized now: pods at least and at most, whether it has GPUs, and whether it has a fallback."""

    min_pods: int
    max_pods: int
    has_gpus: bool = False
    has_fallback: bool = False


class PoolMetrics:
    """One pool. Its cluster's loop counts in it, and sets its row of the status after each pass.

    `drains`, `forced_deletions`, `fallbacks`, `unschedulable_pod_seconds`, `terminations` by reason: since the loop
    began. `cluster`: the cluster's labels, as they stand between the braces.
    """

    __slots__ = (
        "_at",
        "_drains_since",
        "_exported",
        "_labels",
        "_limits",
        "_owners",
        "_status",
        "drains",
        "fallbacks",
        "forced_deletions",
        "terminations",
        "unschedulable_pod_seconds",
    )

    def __init__(self, cluster: str, name: str) -> None:
        self._labels = f"{cluster},{labels({'pool': clean(name)})}"
        self.drains = self.forced_deletions = self.fallbacks = 0
        self.unschedulable_pod_seconds = 0.0
        self.terminations: Counter[str] = Counter()
        self._exported: dict[str, float] = {}  # the highest value so far of what grows between passes
        self.set_row(PoolStatus(name=name), PoolLimits(0, 0), at=0.0)

    def set_row(
        self, status: PoolStatus, limits: PoolLimits | None, *, at: float, drains_since: float | None = None
    ) -> None:
        """Export this row from now on, as it was `at`; `limits`: None where the spec has no such pool any more.

        `drains_since`: since when its longest drain lasts; None: there is none. In seconds on the operator's clock.
        """
        self._status = status
        self._limits = limits or PoolLimits(0, 0, has_gpus=bool(status.gpus_held or status.gpu_seconds_held))
        self._at = at
        self._drains_since = drains_since
        self._owners = tuple((labels({"owner": owner}), seconds) for owner, seconds in _by_owner(status).items())
        owned = {f"{self._labels},{owner}" for owner, _ in self._owners}
        self._exported = {key: value for key, value in self._exported.items() if "," not in key or key in owned}

    def samples(self, name: str, now: float) -> list[str]:
        """The samples of the family of this name, as lines. `now`: on the operator's clock."""
        if (one := _ONE.get(name)) is not None:
            value = one(self, now)
            return [] if value is None else [sample(name, self._labels, value)]
        return _MANY[name](self, name, now)

    def _with(self, name: str, label: str, value: str, amount: float) -> str:
        """A sample with one more label, whose value needs no escapes."""
        return sample(name, f'{self._labels},{label}="{value}"', amount)

    def _grown(self, what: str, value: float) -> float:
        """`value` of a counter, or the one that was exported before, where it was more: a counter never goes back."""
        value = self._exported[what] = max(value, self._exported.get(what, 0.0))
        return round(value, 3)

    def pods(self, name: str, _: float) -> list[str]:
        """Its pods by state."""
        of = self._status
        counts = (of.ready, of.pending, of.unschedulable, of.retiring)
        return [self._with(name, "state", *each) for each in zip(families.PODS.states, counts, strict=True)]

    def demand(self, name: str, _: float) -> list[str]:
        """Its demand by state."""
        demand = self._status.demand
        counts = (demand.waiting, demand.running)
        return [self._with(name, "state", *each) for each in zip(families.DEMAND_TASKS.states, counts, strict=True)]

    def gpu_seconds(self, name: str, now: float) -> list[str]:
        """Its GPU-seconds by cause, up to now: since the pass, each GPU has gone on in the state that it was in."""
        if not self._limits.has_gpus:
            return []
        elapsed, found = max(0.0, now - self._at), dict.fromkeys(families.CAUSES, 0.0)
        for each in self._status.causes:
            if each.cause in found:
                found[each.cause] = each.gpu_seconds + each.gpus * elapsed
        return [self._with(name, "cause", cause, self._grown(cause, seconds)) for cause, seconds in found.items()]

    def owner_seconds(self, name: str, _: float) -> list[str]:
        """Its working GPU-seconds by owner."""
        of = [(f"{self._labels},{owner}", seconds) for owner, seconds in self._owners]
        return [sample(name, each, self._grown(each, seconds)) for each, seconds in of]

    def unschedulable_seconds(self, now: float) -> float:
        """The time for which its pods found no node, up to now."""
        seconds = self.unschedulable_pod_seconds + self._status.unschedulable * max(0.0, now - self._at)
        return self._grown("unschedulable", seconds)

    def oldest_drain_seconds(self, now: float) -> float:
        """How long its longest drain has lasted."""
        return 0.0 if self._drains_since is None else round(max(0.0, now - self._drains_since), 3)

    def ends(self, name: str, _: float) -> list[str]:
        """Its terminations by reason."""
        return [self._with(name, "reason", reason, self.terminations[reason]) for reason in families.TERMINATIONS]

    def of_gpus(self, value: float) -> float | None:
        """`value`, where it has GPUs."""
        return value if self._limits.has_gpus else None

    def of_fallback(self, value: float) -> float | None:
        """`value`, where it has a fallback."""
        return value if self._limits.has_fallback else None

    @property
    def status(self) -> PoolStatus:
        """Its row of the status."""
        return self._status

    @property
    def limits(self) -> PoolLimits:
        """Its limits."""
        return self._limits


def _by_owner(pool: PoolStatus) -> dict[str, float]:
    """Seconds by owner, cleaned. Of two that are the same then, and of too many, the sum."""
    found: dict[str, float] = {}
    for each in pool.owners:
        owner = clean(each.owner)
        if owner not in found and len(found) - ("" in found) >= MAX_OWNERS:
            owner = ""
        found[owner] = found.get(owner, 0.0) + each.gpu_seconds
    return found


_ONE: dict[str, Callable[[PoolMetrics, float], float | None]] = {
    families.DESIRED_PODS.name: lambda pool, _: pool.status.desired,
    families.MIN_PODS.name: lambda pool, _: pool.limits.min_pods,
    families.MAX_PODS.name: lambda pool, _: pool.limits.max_pods,
    families.GPUS_HELD.name: lambda pool, _: pool.of_gpus(pool.status.gpus_held),
    families.GPUS_BUSY.name: lambda pool, _: pool.of_gpus(pool.status.gpus_busy),
    families.UNSCHEDULABLE_SECONDS.name: PoolMetrics.unschedulable_seconds,
    families.DRAINS.name: lambda pool, _: pool.drains,
    families.OLDEST_DRAIN.name: PoolMetrics.oldest_drain_seconds,
    families.FORCED_DELETIONS.name: lambda pool, _: pool.forced_deletions,
    families.FALLBACK_ACTIVE.name: lambda pool, _: pool.of_fallback(int(bool(pool.status.fallback))),
    families.FALLBACKS.name: lambda pool, _: pool.of_fallback(pool.fallbacks),
}
_MANY: dict[str, Callable[[PoolMetrics, str, float], list[str]]] = {
    families.PODS.name: PoolMetrics.pods,
    families.DEMAND_TASKS.name: PoolMetrics.demand,
    families.GPU_SECONDS.name: PoolMetrics.gpu_seconds,
    families.OWNER_GPU_SECONDS.name: PoolMetrics.owner_seconds,
    families.TERMINATIONS_TOTAL.name: PoolMetrics.ends,
}
