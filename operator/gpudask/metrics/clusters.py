"""What is exported of one cluster: its last status, and what its loop has counted; and the samples made of them.

The number of series is bounded, whatever a tenant writes: SERIES_PER_CLUSTER. No label holds a task, a pod or a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gpudask.api.attribution import clean, metric_label
from gpudask.api.reasons import ConditionType
from gpudask.api.status import Condition, PoolStatus, Status
from gpudask.metrics import families
from gpudask.metrics.exposition import labels, sample
from gpudask.metrics.families import Family

# Pools of a spec are 32 at most; a removed one has a row until the last of its pods has gone.
MAX_POOLS = 40
MAX_OWNERS = 20
"""Of a pool, beside the empty one, which has all others."""
_CONDITIONS = frozenset(ConditionType)
_VALUES = {"True": 1, "False": 0, "Unknown": -1}
SERIES_PER_CLUSTER = (
    4  # info, unservable tasks, feed up and age
    + len(_CONDITIONS)
    + MAX_POOLS
    * (
        11  # sizes 3, GPUs held and busy, unschedulable time, drains 2, forced deletions, fallbacks 2
        + len(families.PODS.states)
        + len(families.DEMAND_TASKS.states)
        + len(families.CAUSES)
        + MAX_OWNERS
        + 1
        + len(families.TERMINATIONS)
    )
)


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Of a pool as it is sized now: pods at least and at most, whether it has GPUs, and whether it has a fallback."""

    min_pods: int
    max_pods: int
    has_gpus: bool = False
    has_fallback: bool = False


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


@dataclass(slots=True)
class PoolCounts:
    """What has happened to one pool since its cluster's loop began."""

    drains: int = 0
    forced_deletions: int = 0
    fallbacks: int = 0
    unschedulable_pod_seconds: float = 0.0
    terminations: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Feed:
    """What is known of the scheduler's answers now: whether they come, and the seconds since the last one."""

    up: bool
    age_seconds: float


class ClusterMetrics:
    """One cluster. Its loop sets `report` after each pass, and counts in `pool`.

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
        self._report: Report | None = None
        self._rows: list[tuple[PoolStatus, str, PoolLimits, PoolCounts]] = []
        self._counts: dict[str, PoolCounts] = {}
        self._highest: dict[tuple[str, str], float] = {}

    def attribute(self, values: Mapping[str, str]) -> None:
        """Export the cluster with these values from now on."""
        extra = {metric_label(name): clean(value) for name, value in values.items()}
        self._info = labels(self._identity | extra)

    def pool(self, name: str) -> PoolCounts:
        """The counts of a pool of this name."""
        return self._counts.setdefault(name, PoolCounts())

    def set_report(self, report: Report) -> None:
        """Export this from now on. Pools that are no longer in it are forgotten, with their counts."""
        pools = {clean(pool.name): pool for pool in report.status.pools[:MAX_POOLS]}
        self._report = report
        self._rows = [
            (
                pool,
                f"{self._labels},{labels({'pool': name})}",
                report.limits.get(pool.name)
                or PoolLimits(0, 0, has_gpus=bool(pool.gpus_held or pool.gpu_seconds_held)),
                self.pool(pool.name),
            )
            for name, pool in pools.items()
        ]
        kept = {pool.name for pool in pools.values()}
        self._counts = {name: counts for name, counts in self._counts.items() if name in kept}
        self._highest = {key: value for key, value in self._highest.items() if key[0] in kept}

    def samples(self, family: Family, now: float) -> Iterator[str]:
        """The samples of one of `families.CLUSTER_FAMILIES`, as lines. `now`: on the operator's clock."""
        if self._report is None:
            return
        name = family.name
        if of_cluster := _OF_CLUSTER.get(name):
            yield from of_cluster(self, name, now)
        else:
            of_pool = _OF_POOL[name]
            elapsed = max(0.0, now - self._report.at)
            for pool, of, limits, counts in self._rows:
                drains = max(0.0, now - self._report.drains_since.get(pool.name, now))
                yield from of_pool(self, _Row(name, pool, of, limits, counts, elapsed, drains))

    def grown(self, pool: str, what: str, value: float) -> float:
        """`value` of a counter, or the one that was exported before, where it was more: a counter never goes back."""
        value = self._highest[pool, what] = max(value, self._highest.get((pool, what), 0.0))
        return value

    def info(self, name: str, _: float) -> Iterator[str]:
        """The samples of `gpudask_cluster_info`."""
        yield sample(name, self._info, 1)

    def conditions(self, name: str, _: float) -> Iterator[str]:
        """The samples of `gpudask_cluster_condition`."""
        assert self._report is not None
        found: dict[str, Condition] = {each.type: each for each in self._report.status.conditions}
        for kind, condition in found.items():
            if kind in _CONDITIONS:
                extra = labels({"condition": kind, "reason": clean(condition.reason)})
                yield sample(name, f"{self._labels},{extra}", _VALUES[condition.status])

    def unservable(self, name: str, _: float) -> Iterator[str]:
        """The samples of `gpudask_cluster_unservable_tasks`."""
        assert self._report is not None
        yield sample(name, self._labels, self._report.unservable)

    def feed_up(self, name: str, _: float) -> Iterator[str]:
        """The samples of `gpudask_feed_up`."""
        if (feed := self._feed()) is not None:
            yield sample(name, self._labels, int(feed.up))

    def feed_age(self, name: str, _: float) -> Iterator[str]:
        """The samples of `gpudask_feed_age_seconds`."""
        if (feed := self._feed()) is not None:
            yield sample(name, self._labels, round(feed.age_seconds, 3))


@dataclass(frozen=True, slots=True)
class _Row:
    """A pool, and the family of which its samples are asked. `elapsed`: seconds since the report.

    `drain_seconds`: how long its longest drain has lasted; 0.0 without one.
    """

    name: str
    pool: PoolStatus
    labels: str
    limits: PoolLimits
    counts: PoolCounts
    elapsed: float
    drain_seconds: float

    def sample(self, value: float) -> str:
        return sample(self.name, self.labels, value)

    def state(self, label: str, value: str, amount: float) -> str:
        """A sample with one more label, whose value needs no escapes."""
        return sample(self.name, f'{self.labels},{label}="{value}"', amount)


def _pods(_: ClusterMetrics, row: _Row) -> Iterator[str]:
    pool = row.pool
    counts = (pool.ready, pool.pending, pool.unschedulable, pool.retiring)
    for state, count in zip(families.PODS.states, counts, strict=True):
        yield row.state("state", state, count)


def _demand(_: ClusterMetrics, row: _Row) -> Iterator[str]:
    yield row.state("state", "waiting", row.pool.demand.waiting)
    yield row.state("state", "running", row.pool.demand.running)


def _gpu_seconds(cluster: ClusterMetrics, row: _Row) -> Iterator[str]:
    """By cause, up to now: since the report, each GPU has gone on in the state that it was in."""
    if not row.limits.has_gpus:
        return
    for cause, seconds in _by_cause(row.pool, row.elapsed).items():
        yield row.state("cause", cause, round(cluster.grown(row.pool.name, cause, seconds), 3))


def _by_cause(pool: PoolStatus, elapsed: float) -> dict[str, float]:
    found = dict.fromkeys(families.CAUSES, 0.0)
    for each in pool.causes:
        if each.cause in found:
            found[each.cause] = each.gpu_seconds + each.gpus * elapsed
    return found


def _owner_seconds(cluster: ClusterMetrics, row: _Row) -> Iterator[str]:
    for owner, seconds in _by_owner(row.pool).items():
        extra = labels({"owner": owner})
        value = round(cluster.grown(row.pool.name, f"owner {owner}", seconds), 3)
        yield sample(row.name, f"{row.labels},{extra}", value)


def _by_owner(pool: PoolStatus) -> dict[str, float]:
    """Seconds by owner, cleaned. Of two that are the same then, and of too many, the sum."""
    found: dict[str, float] = {}
    for each in pool.owners:
        owner = clean(each.owner)
        if owner not in found and len(found) - ("" in found) >= MAX_OWNERS:
            owner = ""
        found[owner] = found.get(owner, 0.0) + each.gpu_seconds
    return found


def _unschedulable(cluster: ClusterMetrics, row: _Row) -> Iterator[str]:
    seconds = row.counts.unschedulable_pod_seconds + row.pool.unschedulable * row.elapsed
    yield row.sample(round(cluster.grown(row.pool.name, "unschedulable", seconds), 3))


def _terminations(_: ClusterMetrics, row: _Row) -> Iterator[str]:
    for reason in families.TERMINATIONS:
        yield row.state("reason", reason, row.counts.terminations[reason])


def _one(value: Callable[[_Row], float | None]) -> Callable[[ClusterMetrics, _Row], Iterator[str]]:
    """Of a family with one series for each pool; none where `value` is None."""

    def samples(_: ClusterMetrics, row: _Row) -> Iterator[str]:
        amount = value(row)
        if amount is not None:
            yield row.sample(amount)

    return samples


_OF_CLUSTER: dict[str, Callable[[ClusterMetrics, str, float], Iterator[str]]] = {
    families.CLUSTER_INFO.name: ClusterMetrics.info,
    families.CLUSTER_CONDITION.name: ClusterMetrics.conditions,
    families.UNSERVABLE_TASKS.name: ClusterMetrics.unservable,
    families.FEED_UP.name: ClusterMetrics.feed_up,
    families.FEED_AGE.name: ClusterMetrics.feed_age,
}
_OF_POOL: dict[str, Callable[[ClusterMetrics, _Row], Iterator[str]]] = {
    families.PODS.name: _pods,
    families.DESIRED_PODS.name: _one(lambda row: row.pool.desired),
    families.MIN_PODS.name: _one(lambda row: row.limits.min_pods),
    families.MAX_PODS.name: _one(lambda row: row.limits.max_pods),
    families.DEMAND_TASKS.name: _demand,
    families.GPUS_HELD.name: _one(lambda row: row.pool.gpus_held if row.limits.has_gpus else None),
    families.GPUS_BUSY.name: _one(lambda row: row.pool.gpus_busy if row.limits.has_gpus else None),
    families.GPU_SECONDS.name: _gpu_seconds,
    families.OWNER_GPU_SECONDS.name: _owner_seconds,
    families.UNSCHEDULABLE_SECONDS.name: _unschedulable,
    families.DRAINS.name: _one(lambda row: row.counts.drains),
    families.OLDEST_DRAIN.name: _one(lambda row: round(row.drain_seconds, 3)),
    families.FORCED_DELETIONS.name: _one(lambda row: row.counts.forced_deletions),
    families.FALLBACK_ACTIVE.name: _one(lambda row: int(bool(row.pool.fallback)) if row.limits.has_fallback else None),
    families.FALLBACKS.name: _one(lambda row: row.counts.fallbacks if row.limits.has_fallback else None),
    families.TERMINATIONS_TOTAL.name: _terminations,
}
