"""Counting of GPU-seconds by cause and owner, from one pass to the next.

For a pod that holds G GPUs, in the seconds T since it was counted last (or since it got its node) until now (or until
it was seen gone):

    held    = G * T                                          exact, by the pod's stamps
    working = sum over its workers of GPUs * busy seconds    measured by the scheduler, at most held
    rest    = held - working                                 has the cause that the pod had at the last count

A worker's counter is known up to the last answer. Since then it is taken to go on as that says: a worker with work of
its own goes on working. What was credited is kept, and the next difference is taken to it: so nothing counts twice, a
counter that was overtaken by its own estimate adds nothing until it is there, and what a late answer says of a time
whose causes are written counts only as far as `_CARRIED_SECONDS`. Such counters are a tenant's: whatever they say, a
worker works at most for as long as its pod holds its GPUs.

A pod whose end is told late, as by a watch that is behind, was counted for too long. That is its pool's surplus: so
much is left out of what is counted next, since counters go up only.

Where an operator begins with what another one wrote (`takeover`), the time since then has the causes that the GPUs had
then. Of pods that are gone since, and whose end nobody saw, it has half: that is off by no more than the other half.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from gpudask.api.reasons import Cause
from gpudask.planning.ledger.causes import Gone, Holder
from gpudask.planning.ledger.totals import OTHERS, PoolCount, Seconds, added_owners, less_surplus
from gpudask.planning.observed.clocks import AGREED, Clocks
from gpudask.scaling.demand import Demand, Worker

# An answer is at most so old: the long poll waits 30 s. What lies further back was not heard.
_LONGEST_ESTIMATE_SECONDS = 60.0
# Measured work that is credited after its time: answers come once a second where counts flap.
_CARRIED_SECONDS = 2.0
_SAME_SECONDS = 1e-3  # by which two readings of one counter may go back
_GONE_KEPT = 1000  # pods that are remembered after their end: one whose label was off for a while comes back

REMOVED_KEPT = 8  # pools that the spec has no more, and whose pods are gone: those with the most GPU-seconds

_MOST = 1e18  # of a sum of shares: beyond it is none

Key = tuple[str, str, str]  # a worker process: its scheduler process, its name, its address


@dataclass(frozen=True, slots=True)
class WorkerCount:
    """A worker's counter: as it was read, and up to where it is credited; in seconds of one GPU.

    `read` is None where its preload has no such counter. `busy`: whether it had work then. `owners`: their counters.
    `shares`: of it now.
    """

    read: float | None = None
    credited: float = 0.0
    busy: bool = False
    owners: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodCount:
    """A pod as it was counted last. `seconds`: its own GPU-seconds, since this operator knows it.

    `is_inherited`: its workers' counters were not read yet, and tell of a time that somebody else has counted.
    """

    holder: Holder
    workers: Mapping[Key, WorkerCount]
    seconds: Seconds
    is_inherited: bool = False


class Correction(Protocol):
    """What was counted from another operator's ledger on (`takeover`)."""

    def corrected(self, seen: Seen, ledger: Ledger) -> Ledger:
        """`ledger`, which goes on from it, with what `seen` tells late."""

    def as_known(self, seen: Seen, ledger: Ledger) -> Seen:
        """`seen`, with what the other operator knew of pods and this one was not told yet."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is counted up to `at`, in seconds since the epoch: this process's memory between two passes.

    `ended`: the pods whose end the last count saw, by uid, with all their GPU-seconds. `gone`: uid -> when the pod was
    gone, of those that are remembered. `unseen`: the GPUs whose end nobody saw, and of which this count has a guess.
    `takeover`: from which it goes on, while late news may change what that counted. `known_at`: up to when what comes
    and goes was known to who counted; -inf: nobody said. `clocks`: as they are at `at`.
    """

    at: float
    pools: Mapping[str, PoolCount] = field(default_factory=dict)
    pods: Mapping[str, PodCount] = field(default_factory=dict)
    ended: Mapping[str, PodCount] = field(default_factory=dict)
    gone: Mapping[str, float] = field(default_factory=dict)
    unseen: int = 0
    takeover: Correction | None = None
    known_at: float = -math.inf
    clocks: Clocks = AGREED

    @property
    def gpus(self) -> int:
        """The GPUs that pods hold."""
        return sum(each.holder.gpus for each in self.pods.values())

    def of(self, pool: str) -> PoolCount:
        """The counters of `pool`."""
        return self.pools.get(pool, PoolCount())

    def worked(self) -> str:
        """The share of all GPU-seconds in which tasks ran, such as `63%`; empty where there are none."""
        held = sum(sum(pool.seconds.values()) for pool in self.pools.values())
        working = sum(pool.seconds.get(Cause.WORKING, 0.0) for pool in self.pools.values())
        return f"{100 * working / held:.0f}%" if held else ""

    def settled(self) -> Ledger:
        """The same with the final totals of all pools, as a cluster's record has them."""
        return replace(self, pools={name: pool.settled() for name, pool in self.pools.items()})


@dataclass(frozen=True, slots=True)
class Seen:
    """What a count goes by. Times are seconds since the epoch, by the operator's clock.

    `holders`: the pods that hold GPUs now. `gone`: those that ended since the last count. `demand`: None while the
    scheduler is silent; `demand_at`: when it answered. `pools`: the names of the spec's, whose counters are kept though
    they hold nothing; of others those with the most GPU-seconds, and the rest under `OTHERS`. `clocks`,
    `unanswered_at`, `known_at`: as `Observation`'s `clocks`, `unanswered_at` and `pods_known_at`.
    """

    holders: tuple[Holder, ...]
    now: float
    demand: Demand | None = None
    demand_at: float = 0.0
    gone: tuple[Gone, ...] = ()
    pools: Collection[str] = ()
    clocks: Clocks = AGREED
    unanswered_at: float = -math.inf
    known_at: float = -math.inf

    def ended(self) -> Iterable[Gone]:
        """Of `gone` each pod once, since when it was first seen gone; without those that are back."""
        holding = {holder.uid for holder in self.holders}
        return {gone.uid: gone for gone in reversed(self.gone) if gone.uid not in holding}.values()


def count(seen: Seen, before: Ledger) -> Ledger:
    """The ledger up to now, where this process has counted before."""
    before = before if before.takeover is None else before.takeover.corrected(seen, before)
    seen = seen if before.takeover is None else before.takeover.as_known(seen, before)
    adding = Count(seen, before)
    for holder in seen.holders:
        known = before.pods.get(holder.uid)
        since = before.at if known is not None else max(holder.placed, before.gone.get(holder.uid, 0.0))
        adding.hold(holder, known, since)
    for gone in seen.ended():
        known = before.pods.get(gone.uid)
        if known is not None:
            adding.end(known.holder, known, before.at, gone.at)
        elif gone.uid not in before.gone:
            adding.end(gone.holder, None, gone.placed, gone.at)
    accounted = {holder.uid for holder in seen.holders} | {gone.uid for gone in seen.gone}
    for uid, known in before.pods.items():
        if uid not in accounted:  # nobody saw its end: it may be no longer this cluster's
            adding.end(known.holder, known, before.at, seen.now)
    return replace(adding.ledger(), takeover=before.takeover)


@dataclass(frozen=True, slots=True)
class _Estimate:
    """A worker's counter at some time: the seconds in which it worked, and those by owner."""

    seconds: float
    owners: Mapping[str, float]
    shares: Mapping[str, float]

    @classmethod
    def of(cls, worker: Worker, seen: Seen, at: float) -> _Estimate:
        """The counter of `worker` at the time `at`, by the last answer."""
        assert worker.busy_seconds is not None, "an older preload has no counter"
        since = min(max(0.0, at - seen.demand_at), _LONGEST_ESTIMATE_SECONDS) if worker.own else 0.0
        owners: defaultdict[str, float] = defaultdict(float)
        shares: defaultdict[str, float] = defaultdict(float)
        for each in worker.owners:
            owners[each.owner] += each.seconds + each.share * since
            shares[each.owner] += each.share
        return cls(worker.busy_seconds + since, owners, shares)


class _Work:
    """The GPU-seconds that a pod's workers have worked, by owner; and their counters."""

    def __init__(self) -> None:
        self.owners: defaultdict[str, float] = defaultdict(float)
        self.workers: dict[Key, WorkerCount] = {}

    def add(self, gpu_seconds: float, split: Mapping[str, float]) -> None:
        """Add work, of owners in proportion to `split`."""
        total = sum(split.values())
        if gpu_seconds <= 0:
            return
        if not 0 < total < _MOST:
            split, total = {"": 1.0}, 1.0
        for owner, part in split.items():
            self.owners[owner] += gpu_seconds * part / total


class Count:
    """A count under way: what it adds to the ledger `before`."""

    def __init__(self, seen: Seen, before: Ledger) -> None:
        self._seen = seen
        self._before = before
        self._seconds: defaultdict[str, defaultdict[Cause, float]] = defaultdict(lambda: defaultdict(float))
        self._owners: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._gpus: defaultdict[str, Counter[Cause]] = defaultdict(Counter)
        self._pods: dict[str, PodCount] = {}
        self._ended: dict[str, PodCount] = {}
        self._gone = dict(before.gone)
        self._surplus: defaultdict[str, float] = defaultdict(float)  # by pool

    def hold(self, holder: Holder, known: PodCount | None, since: float) -> None:
        """Count a pod that has held its GPUs from `since` until now, and holds them."""
        self._pods[holder.uid] = replace(self._counted(holder, known, since, self._seen.now), holder=holder)
        self._add_gpus(holder)

    def take_over(self, holder: Holder) -> None:
        """Note a pod that somebody else has counted: its workers' counters count from what they have by now."""
        workers = {}
        for key, worker in self._workers(holder).items():
            workers[key] = WorkerCount(busy=bool(worker.own))
            if worker.busy_seconds is not None:
                estimate = _Estimate.of(worker, self._seen, self._seen.now)
                workers[key] = _counter(worker, estimate, estimate.seconds)
        self._pods[holder.uid] = PodCount(holder, workers, {}, is_inherited=self._seen.demand is None)
        self._add_gpus(holder)

    def end(self, holder: Holder, known: PodCount | None, since: float, until: float) -> None:
        """Count a pod that held its GPUs from `since` until `until`, and holds them no more."""
        counted = self._counted(holder, known, since, until)
        if known is not None and until < since:
            surplus = self.add_surplus(holder, until, since)
            counted = replace(counted, seconds=less_surplus(counted.seconds, surplus)[0])
        self._ended[holder.uid] = counted
        self.forget(holder.uid, max(since, until))

    def add_surplus(self, holder: Holder, ended: float, since: float) -> float:
        """Note that a pod which had `ended` was counted until `since`; the GPU-seconds."""
        surplus = holder.gpus * (since - max(ended, holder.placed))
        self.add_surplus_seconds(holder.pool, surplus)
        return surplus

    def add_surplus_seconds(self, pool: str, gpu_seconds: float) -> None:
        """Note GPU-seconds that were counted too much."""
        self._surplus[pool] += gpu_seconds

    def forget(self, uid: str, at: float) -> None:
        """Count a pod no more until it is seen to hold GPUs again."""
        self._gone.pop(uid, None)
        self._gone[uid] = at

    def add_gap(self, pool: str, gpus: Mapping[Cause, int], gpu_seconds: float) -> None:
        """Count GPU-seconds that nobody saw, in proportion to the causes that the pool's GPUs had."""
        total = sum(gpus.values())
        for cause, number in gpus.items():
            self._seconds[pool][cause] += gpu_seconds * number / total
            if cause is Cause.WORKING:
                self._owners[pool][""] += gpu_seconds * number / total

    def ledger(self) -> Ledger:
        """The ledger with all that was added."""
        names = dict.fromkeys([*self._before.pools, *self._gpus, *self._seconds, *self._surplus])
        stay = {OTHERS, *self._seen.pools, *self._gpus}
        pools = {name: self._pool(name) for name in names}
        totals = {name: sum(pools[name].seconds.values()) for name in names if name not in stay}
        for name in sorted(totals, key=lambda each: -totals[each])[REMOVED_KEPT:]:
            if totals[name]:
                pools[OTHERS] = pools.get(OTHERS, PoolCount()).with_others(pools[name])
            del pools[name]
        pools = {name: pool for name, pool in pools.items() if totals.get(name, 1.0)}
        return Ledger(
            max(self._seen.now, self._before.at),
            pools,
            self._pods,
            self._ended,
            self._remembered(),
            known_at=max(self._before.known_at, min(self._seen.known_at, self._seen.now)),
            clocks=self._seen.clocks,
        )

    def _remembered(self) -> dict[str, float]:
        """The pods that are gone, the last ones; and all that are still seen as gone, or they would count anew."""
        surplus = len(self._gone) - _GONE_KEPT
        if surplus <= 0:
            return self._gone
        still = {gone.uid for gone in self._seen.gone}
        forgotten = set(islice((uid for uid in self._gone if uid not in still), surplus))
        return {uid: at for uid, at in self._gone.items() if uid not in forgotten}

    def _pool(self, name: str) -> PoolCount:
        before, work = self._before.of(name), self._seconds[name].get(Cause.WORKING, 0.0)
        rest: Seconds = {cause: amount for cause, amount in self._seconds[name].items() if cause is not Cause.WORKING}
        added, surplus = less_surplus(rest, before.surplus + self._surplus[name])
        added |= {Cause.WORKING: work} if work else {}
        seconds = defaultdict(float, before.seconds)
        for cause, amount in added.items():
            seconds[cause] += amount
        owners = added_owners(before.owners, self._owners[name])
        changed = any(added.values())
        return PoolCount(dict(seconds), owners, dict(self._gpus[name]), changed=changed, surplus=surplus)

    def _counted(self, holder: Holder, known: PodCount | None, since: float, until: float) -> PodCount:
        """The pod with its GPU-seconds from `since` until `until`, which are its pool's as well."""
        then = known.holder if known is not None else holder
        if known is None and since >= self._before.at:
            then = replace(then, rest=Cause.STARTING)  # so each of them begins
        seconds = max(0.0, until - since)
        work = self._work(then, known, seconds, until)
        held, worked = then.gpus * seconds, sum(work.owners.values())
        possible = min(1.0, held / worked) if worked else 0.0
        own = defaultdict(float, known.seconds if known is not None else {})
        for cause, amount in ((Cause.WORKING, worked * possible), (then.rest, held - worked * possible)):
            own[cause] += max(0.0, amount)
            self._seconds[then.pool][cause] += max(0.0, amount)
        for owner, amount in work.owners.items():
            self._owners[then.pool][owner] += amount * possible
        is_inherited = known is not None and known.is_inherited and self._seen.demand is None
        return PodCount(then, work.workers, dict(own), is_inherited)

    def _work(self, holder: Holder, known: PodCount | None, seconds: float, until: float) -> _Work:
        """The work of the pod's workers in these `seconds`, which end at `until`."""
        before: Mapping[Key, WorkerCount] = known.workers if known is not None else {}
        now, work = self._workers(holder), _Work()
        for key, worker in now.items():
            weight, counter = _gpus(holder, worker.name), before.get(key)
            if worker.busy_seconds is None:
                worked = seconds if counter is not None and counter.busy else 0.0
                work.add(worked * weight, {})
                work.workers[key] = WorkerCount(busy=bool(worker.own))
                continue
            estimate = _Estimate.of(worker, self._seen, until)
            if counter is not None and (counter.read is None or worker.busy_seconds < counter.read - _SAME_SECONDS):
                counter = None  # another process of this name and address, or another preload
            if counter is None:
                is_old = known is not None and known.is_inherited
                counter = _counter(worker, estimate, estimate.seconds) if is_old else WorkerCount()
            worked = min(max(0.0, estimate.seconds - counter.credited), seconds)
            more = {owner: at - counter.owners.get(owner, 0.0) for owner, at in estimate.owners.items()}
            grown = {owner: amount for owner, amount in more.items() if amount > 0}
            work.add(worked * weight, grown or estimate.shares)
            credited = max(counter.credited + worked, estimate.seconds - _CARRIED_SECONDS)
            work.workers[key] = _counter(worker, estimate, credited)
        for key, counter in before.items():
            if key not in now:  # what worked did so until it went
                worked = seconds if counter.busy else 0.0
                work.add(worked * _gpus(holder, key[1]), counter.shares)
                if self._seen.demand is None:  # it may be there again once the scheduler is heard
                    work.workers[key] = replace(counter, busy=False, credited=counter.credited + worked)
        return work

    def _workers(self, holder: Holder) -> dict[Key, Worker]:
        demand = self._seen.demand
        if demand is None:
            return {}
        return {(demand.scheduler_id, each.name, each.address): each for each in demand.workers_of(holder.dask_name)}

    def _add_gpus(self, holder: Holder) -> None:
        working = sum(_gpus(holder, worker.name) for worker in self._workers(holder).values() if worker.own)
        working = min(holder.gpus, working)
        self._gpus[holder.pool][Cause.WORKING] += working
        self._gpus[holder.pool][holder.rest] += holder.gpus - working


def _gpus(holder: Holder, worker: str) -> int:
    """The GPUs of a worker: one of the pod's own name has all, others have one each."""
    return holder.gpus if worker == holder.dask_name else 1


def _counter(worker: Worker, estimate: _Estimate, credited: float) -> WorkerCount:
    return WorkerCount(worker.busy_seconds, credited, bool(worker.own), estimate.owners, estimate.shares)
