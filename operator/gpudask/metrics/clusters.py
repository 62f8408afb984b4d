"""What is exported of one cluster: its last status, and what its loop has counted; and the samples made of them.

The number of series is bounded, whatever a tenant writes: MAX_SERIES. No label holds a task, a pod or a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpudask.api.attribution import clean, metric_label
from gpudask.api.reasons import ConditionType
from gpudask.api.status import Condition, Status
from gpudask.metrics import families, pools
from gpudask.metrics.exposition import labels, sample
from gpudask.metrics.families import Family
from gpudask.metrics.pools import PoolLimits, PoolMetrics

# Pools of a spec are 32 at most; of removed ones the ledger keeps 8 when the last of their pods has gone.
MAX_POOLS = 40
_CONDITIONS = frozenset(ConditionType)
_VALUES = {"True": 1, "False": 0, "Unknown": -1}
# The first: info, unservable tasks, feed up and age.
MAX_SERIES = 4 + len(_CONDITIONS) + MAX_POOLS * pools.MAX_SERIES


@dataclass(frozen=True, slots=True)
class Report:
    """A cluster after a pass. `at`: when, in seconds on the operator's clock, as all times here.

    `limits`: of the pools of the spec. `unservable`: tasks. `drains_since`: pool -> since when its longest drain lasts.
    """

    status: Status
    at: float
    limits: Mapping[str, PoolLimits] = field(default_factory=dict)
    unservable: int = 0
    drains_since: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Feed:
    """What is known of the scheduler's answers now: whether they come, and the seconds since the last one."""

    up: bool
    age_seconds: float


class ClusterMetrics:
    """One cluster. Its loop sets the report after each pass, and counts in `pool`.

    `attribution`: values by the names that the chart lists. `feed`: tells of the scheduler's answers when the metrics
    are read; None where no scheduler runs.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        *,
        attribution: Mapping[str, str] | None = None,
        feed: Callable[[], Feed | None] = lambda: None,
    ) -> None:
        self._identity = {"namespace": namespace, "cluster": name}
        self._labels = labels(self._identity)
        self._info = ""
        self.attribute(attribution or {})
        self._feed = feed
        self._pools: dict[str, PoolMetrics] = {}
        self._shown: tuple[PoolMetrics, ...] = ()
        self._unservable: int | None = None  # None: there is no report yet
        self._conditions: tuple[tuple[str, int], ...] = ()

    def attribute(self, values: Mapping[str, str]) -> None:
        """Export the cluster with these values from now on."""
        extra = {metric_label(name): clean(value) for name, value in values.items()}
        self._info = labels(self._identity | extra)

    def pool(self, name: str) -> PoolMetrics:
        """The metrics of the pool of this name."""
        if (known := self._pools.get(name)) is not None:
            return known
        made = self._pools[name] = PoolMetrics(self._labels, name)
        return made

    def set_report(self, report: Report) -> None:
        """Export this from now on. Pools that are no longer in it are forgotten, with their counts."""
        # Without the row, named by nothing, to which what removed pools had moves: an increase would count it twice.
        rows = {clean(row.name): row for row in report.status.pools[:MAX_POOLS] if row.name}
        for row in rows.values():
            self.pool(row.name).set_row(
                row, report.limits.get(row.name), at=report.at, drains_since=report.drains_since.get(row.name)
            )
        self._pools = {row.name: self._pools[row.name] for row in rows.values()}
        self._shown = tuple(self._pools.values())
        self._unservable = report.unservable
        found: dict[str, Condition] = {each.type: each for each in report.status.conditions}
        self._conditions = tuple(
            (labels({"condition": kind, "reason": clean(each.reason)}), _VALUES[each.status])
            for kind, each in found.items()
            if kind in _CONDITIONS
        )

    def samples(self, family: Family, now: float) -> list[str]:
        """The samples of one of `families.CLUSTER_FAMILIES`, as lines. `now`: on the operator's clock."""
        name = family.name
        if self._unservable is None:
            return []
        if name == families.CLUSTER_INFO.name:
            return [sample(name, self._info, 1)]
        if name == families.CLUSTER_CONDITION.name:
            return [sample(name, f"{self._labels},{extra}", value) for extra, value in self._conditions]
        if name == families.UNSERVABLE_TASKS.name:
            return [sample(name, self._labels, self._unservable)]
        if name in _OF_FEED:
            feed = self._feed()
            return [] if feed is None else [sample(name, self._labels, _OF_FEED[name](feed))]
        return [line for pool in self._shown for line in pool.samples(name, now)]


_OF_FEED: dict[str, Callable[[Feed], float]] = {
    families.FEED_UP.name: lambda feed: int(feed.up),
    families.FEED_AGE.name: lambda feed: round(feed.age_seconds, 3),
}
