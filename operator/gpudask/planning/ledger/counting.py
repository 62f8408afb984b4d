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

Where an operator begins with what another one wrote (`inherit`), the time since then has the causes that the GPUs had
then. Of pods that are gone since, and whose end nobody saw, it has half: that is off by no more than the other half.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from gpudask.api.reasons import Cause
from gpudask.api.status import CauseSeconds, OwnerSeconds, PoolStatus, Status, epoch
from gpudask.planning.ledger.causes import Gone, Holder
from gpudask.scaling.demand import Demand, Worker

OWNERS = 20  # kept apart in a pool; the others count under ""
# An answer is at most so old: the long poll waits 30 s. What lies further back was not heard.
_LONGEST_ESTIMATE_SECONDS = 60.0
# Measured work that is credited after its time: answers come once a second where counts flap.
_CARRIED_SECONDS = 2.0
_SAME_SECONDS = 1e-3  # by which two readings of one counter may go back
_GONE_KEPT = 1000  # pods that are remembered after their end: one whose label was off for a while comes back

REMOVED_KEPT = 8  # pools that the spec has no more, and whose pods are gone: those with the most GPU-seconds
OTHERS = ""  # what all further ones had, in one row: no pool can be named so

_DIGITS = 3  # of GPU-seconds in the status
_NEVER = -1.0
_STAMP_SECONDS = 1.0  # by which a stamp may be off: it has whole seconds, and another machine's clock
# For how long a status may be on its way, as while the API server hangs; and how far the API server's time, as two
# operators know it, may differ.
WRITE_SECONDS, _CLOCKS_SECONDS = 30.0, 0.2
_MOST = 1e18  # of a sum of shares: beyond it is none

Seconds = Mapping[Cause, float]  # GPU-seconds
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


@dataclass(frozen=True, slots=True)
class PoolCount:
    """A pool's totals, and its GPUs by cause now. `changed`: whether the last count added anything."""

    seconds: Seconds = field(default_factory=dict)
    owners: Mapping[str, float] = field(default_factory=dict)
    gpus: Mapping[Cause, int] = field(default_factory=dict)
    changed: bool = False

    def causes(self) -> list[CauseSeconds]:
        """The status' `causes`, by precedence: those that hold GPUs, or did."""
        return [
            CauseSeconds(
                cause=cause, gpus=self.gpus.get(cause, 0), gpu_seconds=round(self.seconds.get(cause, 0.0), _DIGITS)
            )
            for cause in Cause
            if self.gpus.get(cause) or self.seconds.get(cause)
        ]

    def owner_rows(self) -> list[OwnerSeconds]:
        """The status' `owners`, by name."""
        return [
            OwnerSeconds(owner=owner, gpu_seconds=round(seconds, _DIGITS))
            for owner, seconds in sorted(self.owners.items())
        ]

    def in_status(self, row: PoolStatus) -> PoolStatus:
        """`row` with these counters."""
        causes = self.causes()
        return row.model_copy(
            update={
                "gpus_held": sum(each.gpus for each in causes),
                "gpus_busy": self.gpus.get(Cause.WORKING, 0),
                "gpu_seconds_held": round(sum(each.gpu_seconds for each in causes), _DIGITS),
                "gpu_seconds_used": round(self.seconds.get(Cause.WORKING, 0.0), _DIGITS),
                "causes": causes,
                "owners": self.owner_rows(),
            }
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is counted up to `at`, in seconds since the epoch: this process's memory between two passes.

    `ended`: the pods whose end the last count saw, by uid, with all their GPU-seconds. `gone`: uid -> when the pod was
    gone, of those that are remembered. `unseen`: the GPUs whose end nobody saw, and of which this count has a guess.
    """

    at: float
    pools: Mapping[str, PoolCount] = field(default_factory=dict)
    pods: Mapping[str, PodCount] = field(default_factory=dict)
    ended: Mapping[str, PodCount] = field(default_factory=dict)
    gone: Mapping[str, float] = field(default_factory=dict)
    unseen: int = 0

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


@dataclass(frozen=True, slots=True)
class Seen:
    """What a count goes by. Times are seconds since the epoch, by the operator's clock.

    `holders`: the pods that hold GPUs now. `gone`: those that ended since the last count. `demand`: None while the
    scheduler is silent; `demand_at`: when it answered. `pools`: the names of the spec's, whose counters are kept though
    they hold nothing; of others those with the most GPU-seconds, and the rest under `OTHERS`. `server_ahead`: as
    `Observation`'s.
    """

    holders: tuple[Holder, ...]
    now: float
    demand: Demand | None = None
    demand_at: float = 0.0
    gone: tuple[Gone, ...] = ()
    pools: Collection[str] = ()
    server_ahead: float = 0.0

    def ended(self) -> Iterable[Gone]:
        """Of `gone` each pod once, since when it was first seen gone; without those that are back."""
        holding = {holder.uid for holder in self.holders}
        return {gone.uid: gone for gone in reversed(self.gone) if gone.uid not in holding}.values()


def count(seen: Seen, before: Ledger) -> Ledger:
    """The ledger up to now, where this process has counted before."""
    adding = _Count(seen, before)
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
    return adding.ledger()


def inherit(seen: Seen, status: Status, counted_at: float | None = None, *, gone_by: float | None = None) -> Ledger:
    """The ledger up to now, where another process wrote `status`, or none did.

    `counted_at`: when it was seen to come, by this operator's clock, where it was; else what the status says is
    compared with the API server's time. `seen.gone`: the pods whose end this operator saw; those since then count until
    then. `gone_by`: when pods whose end nobody saw were gone for sure; None: by now.
    """
    written = epoch(status.counted_at)
    since = _counted_since(None if written is None else written - seen.server_ahead, counted_at)
    since = _NEVER if since is None else min(since, seen.now)
    before = Ledger(since, {row.name: _totals(row) for row in status.pools})
    adding = _Count(seen, before)
    room = Counter({name: sum(pool.gpus.values()) for name, pool in before.pools.items()})
    rests: defaultdict[str, Counter[Cause]] = defaultdict(Counter)  # pool -> the causes of these pods' GPUs now
    gap: defaultdict[str, float] = defaultdict(float)  # pool -> GPU-seconds since then of the pods that were there then
    for holder in sorted(seen.holders, key=lambda each: each.placed):
        # Both by Kubernetes' clocks, where neither was seen: ours may have learned of them only since.
        by_stamps = counted_at is None and written is not None and holder.stamp
        earlier = written - holder.stamp if by_stamps and written is not None else since - holder.placed
        if _was_counted(earlier, holder.gpus, room[holder.pool]):
            room[holder.pool] -= holder.gpus
            rests[holder.pool][holder.rest] += holder.gpus
            gap[holder.pool] += holder.gpus * (seen.now - since)
            adding.take_over(holder)
        else:
            adding.hold(holder, None, _begun(holder.placed, since, before.of(holder.pool)))
    for gone in seen.ended():
        earlier = since - gone.placed
        if gone.at <= since:
            if since - gone.at <= _STAMP_SECONDS and _was_counted(earlier, gone.gpus, room[gone.pool]):
                room[gone.pool] -= gone.gpus  # it went as this was counted: it is nobody's half gap
            adding.forget(gone.uid, gone.at)
        elif _was_counted(earlier, gone.gpus, room[gone.pool]):
            room[gone.pool] -= gone.gpus
            gap[gone.pool] += gone.gpus * (gone.at - since)
            adding.forget(gone.uid, gone.at)
        elif _had_ended(gone, since, before.of(gone.pool)):
            adding.forget(gone.uid, gone.at)
        else:
            adding.end(gone.holder, None, _begun(gone.placed, since, before.of(gone.pool)), gone.at)
    unseen = max(0.0, (seen.now if gone_by is None else min(gone_by, seen.now)) - since)
    for name, left in (+room).items():
        gap[name] += left * unseen / 2
    for name, gpu_seconds in gap.items():
        adding.add_gap(name, before.of(name).gpus or rests[name], gpu_seconds)
    return replace(adding.ledger(), unseen=(+room).total())


def _counted_since(told: float | None, came: float | None) -> float | None:
    """When a status was counted, by the operator's clock, of which it is `told`, and which `came` at a time.

    It came no sooner than it was counted, and later where the API server kept it waiting: so far as it can have done
    that, and as two clocks may differ, what is told stands. Beyond that the clocks are not to be believed.
    """
    if told is None or came is None:
        return told if came is None else came
    return min(told, came) if came - WRITE_SECONDS <= told <= came + _CLOCKS_SECONDS else came


def _was_counted(earlier: float, gpus: int, room: int) -> bool:
    """Whether a pod that got its node so many seconds before a count is one of those that held the `room` GPUs then."""
    return earlier >= -_STAMP_SECONDS and room >= gpus


def _had_ended(gone: Gone, since: float, pool: PoolCount) -> bool:
    """Whether a pod had ended by the count at the time `since`; its end may have been seen, or be stamped, later."""
    earlier, counted = since - gone.placed, sum(pool.seconds.values())
    is_of_then = gone.at - since <= _STAMP_SECONDS and counted >= gone.gpus * earlier - _STAMP_SECONDS
    return is_of_then if gone.is_stamped else earlier > _STAMP_SECONDS


def _begun(placed: float, since: float, pool: PoolCount) -> float:
    """Since when a pod counts that was not counted at the time `since`, when its pool had what `pool` says.

    Where that was no GPU, who counted may not have known of its node yet: a watch may be behind.
    """
    is_behind = not sum(pool.gpus.values()) and since - placed <= WRITE_SECONDS
    return placed if is_behind else max(placed, since)


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


class _Count:
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
        self._ended[holder.uid] = self._counted(holder, known, since, until)
        self.forget(holder.uid, max(since, until))

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
        names = dict.fromkeys([*self._before.pools, *self._gpus, *self._seconds])
        stay = {OTHERS, *self._seen.pools, *self._gpus}
        pools = {name: self._pool(name) for name in names}
        totals = {name: sum(pools[name].seconds.values()) for name in names if name not in stay}
        for name in sorted(totals, key=lambda each: -totals[each])[REMOVED_KEPT:]:
            if totals[name]:
                pools[OTHERS] = _with(pools.get(OTHERS, PoolCount()), pools[name])
            del pools[name]
        pools = {name: pool for name, pool in pools.items() if totals.get(name, 1.0)}
        return Ledger(max(self._seen.now, self._before.at), pools, self._pods, self._ended, self._remembered())

    def _remembered(self) -> dict[str, float]:
        """The pods that are gone, the last ones; and all that are still seen as gone, or they would count anew."""
        surplus = len(self._gone) - _GONE_KEPT
        if surplus <= 0:
            return self._gone
        still = {gone.uid for gone in self._seen.gone}
        forgotten = set(islice((uid for uid in self._gone if uid not in still), surplus))
        return {uid: at for uid, at in self._gone.items() if uid not in forgotten}

    def _pool(self, name: str) -> PoolCount:
        before, added = self._before.of(name), self._seconds[name]
        seconds = defaultdict(float, before.seconds)
        for cause, amount in added.items():
            seconds[cause] += amount
        owners = _owners(before.owners, self._owners[name])
        return PoolCount(dict(seconds), owners, dict(self._gpus[name]), changed=any(added.values()))

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


def _with(pool: PoolCount, other: PoolCount) -> PoolCount:
    """`pool` with what `other`, which holds no GPUs any more, has held."""
    seconds = defaultdict(float, pool.seconds)
    for cause, amount in other.seconds.items():
        seconds[cause] += amount
    return PoolCount(dict(seconds), _owners(pool.owners, other.owners), pool.gpus, changed=True)


def _owners(before: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """The sums; those of owners beyond the first ones are under an empty name."""
    owners = defaultdict(float, before)
    for owner, amount in more.items():
        has_room = len(owners) - ("" in owners) < OWNERS
        owners[owner if owner in owners or has_room else ""] += amount
    return dict(owners)


def _gpus(holder: Holder, worker: str) -> int:
    """The GPUs of a worker: one of the pod's own name has all, others have one each."""
    return holder.gpus if worker == holder.dask_name else 1


def _counter(worker: Worker, estimate: _Estimate, credited: float) -> WorkerCount:
    return WorkerCount(worker.busy_seconds, credited, bool(worker.own), estimate.owners, estimate.shares)


def _totals(row: PoolStatus) -> PoolCount:
    """The counters of a status; of an older operator's, or where the definition is older, the two sums that it has."""
    causes = {each.cause: each for each in row.causes}
    seconds: defaultdict[Cause, float] = defaultdict(float)
    gpus: Counter[Cause] = Counter()
    if not causes:
        held, used = max(0.0, row.gpu_seconds_held), max(0.0, row.gpu_seconds_used)
        seconds[Cause.WORKING] = min(used, held)
        seconds[Cause.WAITING_IDLE_TIMEOUT] = max(0.0, held - used)
        gpus[Cause.WORKING] = max(0, min(row.gpus_busy, row.gpus_held))
        gpus[Cause.WAITING_IDLE_TIMEOUT] = max(0, row.gpus_held) - gpus[Cause.WORKING]
    for name, each in causes.items():
        cause = Cause(name) if name in set(Cause) else Cause.WAITING_IDLE_TIMEOUT  # a newer operator's
        seconds[cause] += max(0.0, each.gpu_seconds)
        gpus[cause] += max(0, each.gpus)
    owners = {each.owner: max(0.0, each.gpu_seconds) for each in row.owners[: OWNERS + 1]}
    return PoolCount({cause: amount for cause, amount in seconds.items() if amount}, owners, +gpus)
