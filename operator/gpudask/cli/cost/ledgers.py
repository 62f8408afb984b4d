"""Ledgers: the GPU-seconds of a cluster by pool, cause and owner, read from its status, its record, or both.

`merged` counts a cluster once, whatever has it. `since` cuts a ledger to a window: the counters have no times, so a
cluster that is older than the window is cut by the samples of its record, if there are any.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from gpudask.api import Json
from gpudask.api.untrusted_text import quote
from gpudask.cli import untrusted
from gpudask.cli.cost.causes import UNKNOWN, WORKING

_MOST_POOLS = 200
_MOST_CAUSES = 32
_MOST_OWNERS = 100
_LABEL_LENGTH = 63
_OTHERS = ""  # the row of removed pools that have none of their own any more


@dataclass(frozen=True)
class PoolLedger:
    """One pool's: GPU-seconds by cause, and those that worked by owner; `""` has what nobody owns.

    `node_selector`: the labels of its nodes, as far as its spec names them.
    """

    name: str
    causes: Mapping[str, float]
    owners: Mapping[str, float] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)

    @property
    def held(self) -> float:
        """GPU-seconds of all causes."""
        return math.fsum(self.causes.values())

    @property
    def worked(self) -> float:
        """GPU-seconds that worked."""
        return self.causes.get(WORKING, 0.0)

    def owned(self) -> dict[str, float]:
        """The GPU-seconds that worked by owner, which add up to `worked`; what no owner has is under `""`."""
        known = math.fsum(self.owners.values())
        # Two counters that are written together may still differ, by rounding or by another's hand.
        share = min(1.0, self.worked / known) if known else 0.0
        shares = {owner: seconds * share for owner, seconds in self.owners.items()}
        rest = self.worked - math.fsum(shares.values())
        return shares | {"": shares.get("", 0.0) + max(0.0, rest)}


@dataclass(frozen=True)
class Sample:
    """The GPUs of each pool from `at` (seconds since 1970) to the next one: `(held, busy)`."""

    at: float
    pools: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class ClusterLedger:
    """One cluster's. Times are seconds since 1970; `ended` is None while it is there, `began` where nobody knows.

    `labels`: what the cluster's costs may be attributed to, by name.
    """

    namespace: str
    name: str
    uid: str
    pools: tuple[PoolLedger, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    began: float | None = None
    ended: float | None = None
    samples: tuple[Sample, ...] = ()


class Window(StrEnum):
    """How a ledger was cut to a window."""

    WHOLE = "whole"
    """All of it lies within."""
    OUTSIDE = "outside"
    """Nothing does."""
    ESTIMATED = "estimated"
    """It began before, and the samples say how much of it lies within."""
    UNCUT = "uncut"
    """It began before, and nothing says how much: all of it is counted."""


def of_cluster(body: Json) -> ClusterLedger:
    """The ledger in the status of a cluster that is there."""
    selectors = {
        untrusted.name(pool, "name"): _selector(body, pool) for pool in untrusted.objects(body, "spec", "pools")
    }
    reported = untrusted.objects(body, "status", "pools", most=_MOST_POOLS)
    pools = [_pool(pool, selectors.get(untrusted.name(pool, "name"), {})) for pool in reported]
    annotations = untrusted.texts(body, "metadata", "annotations")
    return ClusterLedger(
        namespace=untrusted.name(body, "metadata", "namespace"),
        name=untrusted.name(body, "metadata", "name"),
        uid=untrusted.name(body, "metadata", "uid"),
        pools=_with_gpus(pools),
        labels=_cut(annotations | untrusted.texts(body, "metadata", "labels")),
        began=untrusted.time(body, "metadata", "creationTimestamp"),
    )


def of_record(body: Json) -> ClusterLedger:
    """The ledger in a record, whose cluster may have ended."""
    record = untrusted.field(body, "record")
    pools = [
        _pool(pool, untrusted.texts(pool, "nodeSelector"))
        for pool in untrusted.objects(record, "pools", most=_MOST_POOLS)
    ]
    return ClusterLedger(
        namespace=untrusted.name(body, "metadata", "namespace"),
        name=untrusted.name(record, "cluster", "name"),
        uid=untrusted.name(record, "cluster", "uid"),
        pools=_with_gpus(pools),
        labels=_cut(untrusted.texts(record, "cluster", "attribution")),
        began=untrusted.time(record, "cluster", "created") or untrusted.time(record, "began"),
        ended=untrusted.time(record, "ended"),
        samples=_samples(record),
    )


def merged(clusters: Iterable[ClusterLedger], records: Iterable[ClusterLedger]) -> list[ClusterLedger]:
    """Each cluster once, by its uid, in the order of namespace, name and beginning.

    Of a pool that both sources have, the counters that are further along count: they only grow. A record without a
    uid is of no cluster, and is left out.
    """
    found = {cluster.uid: cluster for cluster in clusters}
    alive = set(found)
    for record in records:
        if not record.uid:
            continue
        before = found.get(record.uid)
        if before is None:
            found[record.uid] = record
            continue
        found[record.uid] = replace(
            before,
            pools=_further(before.pools, record.pools),
            labels={**record.labels, **before.labels},
            began=before.began if before.began is not None else record.began,
            ended=None if record.uid in alive else record.ended,
            samples=before.samples or record.samples,
        )
    return sorted(found.values(), key=lambda ledger: (ledger.namespace, ledger.name, ledger.began or 0.0, ledger.uid))


def _further(one: Iterable[PoolLedger], other: Iterable[PoolLedger]) -> tuple[PoolLedger, ...]:
    """Of each pool the counters that are further along.

    What `one` has of pools without a row of their own counts as far as `other` has none of them either.
    """
    before, more = {pool.name: pool for pool in one}, {pool.name: pool for pool in other}
    others = before.pop(_OTHERS, None), more.pop(_OTHERS, None)
    further = {**before, **{name: pool for name, pool in more.items() if _is_further(pool, before.get(name))}}
    least, rest = others[1], others[0]
    if rest is not None:
        causes, owners = dict(rest.causes), dict(rest.owners)
        for name, pool in further.items():
            known = before.get(name, PoolLedger(name, {}))
            _subtract(causes, pool.causes, known.causes)
            _subtract(owners, pool.owners, known.owners)
        rest = replace(rest, causes=causes, owners=owners)
        least = rest if _is_further(rest, least) else least
    return (*further.values(), *([least] if least is not None and least.held > 0 else []))


def _is_further(pool: PoolLedger, than: PoolLedger | None) -> bool:
    return than is None or than.held < pool.held


def _subtract(left: dict[str, float], further: Mapping[str, float], before: Mapping[str, float]) -> None:
    """Take off `left` by how much `further` has more than `before`."""
    for key, seconds in left.items():
        left[key] = max(0.0, seconds - max(0.0, further.get(key, 0.0) - before.get(key, 0.0)))


def since(ledger: ClusterLedger, start: float, now: float) -> tuple[ClusterLedger, Window]:
    """The part of a ledger from `start` to `now`, in seconds since 1970, and how it was found.

    Of a pool's working seconds as much lies within as of the busy GPUs of its samples; of each other cause as much as
    of the idle ones. A pool that the samples do not have, or of which they saw no such GPU, is not cut.
    """
    if ledger.ended is not None and ledger.ended <= start:
        return replace(ledger, pools=()), Window.OUTSIDE
    if ledger.began is not None and ledger.began >= start:
        return ledger, Window.WHOLE
    if not ledger.samples:
        return ledger, Window.UNCUT
    end = ledger.ended if ledger.ended is not None else now
    pools, is_cut = [], True
    for pool in ledger.pools:
        busy, idle = _shares(ledger.samples, pool.name, start, end)
        is_cut = is_cut and not (busy is None and pool.worked) and not (idle is None and pool.held > pool.worked)
        pools.append(_scaled(pool, 1.0 if busy is None else busy, 1.0 if idle is None else idle))
    return replace(ledger, pools=tuple(pools)), Window.ESTIMATED if is_cut else Window.UNCUT


def _shares(samples: tuple[Sample, ...], pool: str, start: float, end: float) -> tuple[float | None, float | None]:
    """The shares of busy and of idle GPU-seconds that lie after `start`; None where the samples have none at all."""
    within, whole = [0.0, 0.0], [0.0, 0.0]
    times = [sample.at for sample in samples] + [max(end, samples[-1].at)]
    for sample, (begin, stop) in zip(samples, pairwise(times), strict=True):
        held, busy = sample.pools.get(pool, (0.0, 0.0))
        for index, gpus in enumerate((busy, max(0.0, held - busy))):
            whole[index] += gpus * max(0.0, stop - begin)
            within[index] += gpus * max(0.0, stop - max(begin, start))
    shares = [part / total if total else None for part, total in zip(within, whole, strict=True)]
    return shares[0], shares[1]


def _scaled(pool: PoolLedger, busy: float, idle: float) -> PoolLedger:
    causes = {cause: seconds * (busy if cause == WORKING else idle) for cause, seconds in pool.causes.items()}
    return replace(pool, causes=causes, owners={owner: seconds * busy for owner, seconds in pool.owners.items()})


def _pool(pool: Json, selector: Mapping[str, str]) -> PoolLedger:
    causes = _sums(pool, "causes", "cause", _MOST_CAUSES)
    if not causes:  # an operator from before the ledger
        held, used = untrusted.amount(pool, "gpuSecondsHeld"), untrusted.amount(pool, "gpuSecondsUsed")
        used = min(used, held)
        causes = {WORKING: used, UNKNOWN: held - used} if held else {}
    owners = _sums(pool, "owners", "owner", _MOST_OWNERS)
    return PoolLedger(untrusted.name(pool, "name"), causes, owners, selector)


def _sums(pool: Json, items: str, key: str, most: int) -> dict[str, float]:
    """The GPU-seconds of a list by one of its fields; items that have it in common are added up."""
    sums: dict[str, float] = {}
    for item in untrusted.objects(pool, items, most=most):
        named = untrusted.name(item, key)
        sums[named] = sums.get(named, 0.0) + untrusted.amount(item, "gpuSeconds")
    return sums


def _with_gpus(pools: Iterable[PoolLedger]) -> tuple[PoolLedger, ...]:
    """The pools that ever held a GPU, each name once."""
    return tuple({pool.name: pool for pool in pools if pool.held > 0}.values())


def _selector(body: Json, pool: Json) -> dict[str, str]:
    """The labels that a pool's nodes have, as its pods ask for them: the template's, the pool's own, the GPU's."""
    return {
        **untrusted.texts(body, "spec", "template", "spec", "nodeSelector"),
        **untrusted.texts(pool, "gpu", "nodeSelector"),
        **untrusted.texts(pool, "template", "spec", "nodeSelector"),
    }


def _samples(record: object) -> tuple[Sample, ...]:
    samples = []
    for item in untrusted.objects(record, "samples"):
        at = untrusted.time(item, "at")
        if at is not None:
            pools = {
                untrusted.name(pool, "name"): (untrusted.amount(pool, "gpusHeld"), untrusted.amount(pool, "gpusBusy"))
                for pool in untrusted.objects(item, "pools", most=_MOST_POOLS)
            }
            samples.append(Sample(at, pools))
    return tuple(sorted(samples, key=lambda sample: sample.at))


def _cut(labels: Mapping[str, str]) -> dict[str, str]:
    """Values as records and metrics have them, so that those of the living and of the dead are one."""
    return {key: quote(value, _LABEL_LENGTH) for key, value in labels.items()}
