"""The takeover of a ledger: what another operator counted is gone on from, by what this one knows of the pods.

A status has the GPUs that a pool held as it was counted, and not whose: pods are matched with them. What is known then
may be old, as where a watch is behind: pods that got their nodes before are not there yet, and others are that had
ended. Such news is told within a minute. Then the same takeover is made once more with it. What that counts less is
left out of what is counted next, and what it counts more is added.

Who counted may have been behind as well, as where its own watch was cut. So a status says up to when pods were known to
it (`podsKnownAt`): those that got their nodes later were not counted and count from then, those that ended later were
counted for too long, and those that had ended before were not counted. Where it knew more than this operator does, this
one is behind: of its pods those have gone for which the status has no GPUs, and GPUs for which it has no pod are held
by pods of which it will be told. Until then it counts as the status has it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from gpudask.api.reasons import Cause
from gpudask.api.status import Status, epoch
from gpudask.planning.ledger.causes import Gone, Holder
from gpudask.planning.ledger.counting import Count, Ledger, PodCount, Seen
from gpudask.planning.ledger.totals import PoolCount

_NEVER = -1.0
_STAMP_SECONDS = 1.0  # by which a stamp may be off: it has whole seconds, and another machine's clock
# For how long a status may be on its way, as while the API server hangs; and how far the API server's time, as two
# operators know it, may differ.
_WRITE_SECONDS, _CLOCKS_SECONDS = 30.0, 0.2
_BEHIND_SECONDS = 30.0  # for how long another operator may have counted a pod that had ended: its watch was behind
_SET_SECONDS = 30.0  # by which clocks disagree of which one was set
_LATE_SECONDS = 60.0  # after a takeover, in which news of a time before it may be told
_UNHEARD_SECONDS = 120.0  # for which a watch may have told nothing to who counted; beyond that some clock is wrong
_UNTOLD = "untold/"  # before a pool's name: the uid of what holds GPUs of pods that are known to who counted alone


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a status was seen to come, `at`; and when the one before it was last seen, `after`. By an operator's clock.

    The two are far apart where nothing was heard in between, as through a connection that was cut.
    """

    at: float
    after: float

    @property
    def sent_after(self) -> float:
        """The time before which it cannot have been sent."""
        return min(self.at, self.after) - _WRITE_SECONDS

    def may_be_of(self, counted: float) -> bool:
        """Whether a status that came so may have been counted at that time."""
        return self.sent_after <= counted <= self.at + _CLOCKS_SECONDS

    def shifted(self, seconds: float) -> Arrival:
        """The same by a clock that is so many seconds ahead."""
        return Arrival(self.at + seconds, self.after + seconds)


def inherit(seen: Seen, status: Status, came: Arrival | None = None, *, gone_by: float | None = None) -> Ledger:
    """The ledger up to now, where another process wrote `status`, or none did.

    `came`: when it was seen to come, where it was; else what the status says is compared with the other clocks.
    `seen.gone`: the pods whose end this operator saw; those since then count until then. `gone_by`: when pods whose end
    nobody saw were gone for sure; None: by now.
    """
    written = epoch(status.counted_at)
    since = _counted_since(_told(status, seen, came), came)
    since = _NEVER if since is None else min(since, seen.now)
    before = Ledger(since, {row.name: PoolCount.of(row) for row in status.pools})
    known = epoch(status.pods_known_at)
    if written is not None and known is not None:
        before = replace(before, known_at=since - min(max(0.0, written - known), _UNHEARD_SECONDS))
    stamped = written if came is None else None
    return Takeover(seen, before, stamped, seen.now if gone_by is None else min(gone_by, seen.now)).ledger()


@dataclass(frozen=True, slots=True)
class Takeover:
    """A takeover of the ledger `before` at the time of `seen`.

    `written`: when that was counted, by Kubernetes' clocks, where nobody saw it come. `gone_by`: as `inherit`'s.
    """

    seen: Seen
    before: Ledger
    written: float | None
    gone_by: float

    def ledger(self) -> Ledger:
        """The ledger up to then."""
        matching = _Matching(self.seen, self.before, is_behind=self._is_behind(self.seen))
        there = [(holder, self._earlier(holder)) for holder in sorted(self.seen.holders, key=lambda each: each.placed)]
        for holder, earlier in there:
            if earlier >= _STAMP_SECONDS:
                matching.hold(holder, earlier)
        for gone in sorted(self.seen.ended(), key=lambda each: _doubt(each, matching.known_at)):
            matching.end(gone)
        for holder, earlier in there:
            if earlier < _STAMP_SECONDS:  # it may have got its node after the count
                matching.hold(holder, earlier)
        return replace(matching.ledger(self.gone_by), takeover=self)

    def as_known(self, seen: Seen, ledger: Ledger) -> Seen:
        """`seen`; while that is behind without pods that have gone, and with what holds the GPUs of untold ones."""
        if not self._is_behind(seen):
            return seen
        untold = tuple(each.holder for uid, each in ledger.pods.items() if uid.startswith(_UNTOLD))
        return replace(seen, holders=(*(each for each in seen.holders if each.uid not in self._left(ledger)), *untold))

    def _left(self, ledger: Ledger) -> set[str]:
        """The pods that were there as far as was told here, and had gone by what `ledger` goes on from."""
        there = {holder.uid for holder in self.seen.holders}
        return there - ledger.pods.keys() if self._is_behind(self.seen) else set()

    def _is_behind(self, seen: Seen) -> bool:
        """Whether who counted knew of pods what was not told here."""
        return math.isfinite(seen.known_at) and seen.known_at < self.before.known_at - _CLOCKS_SECONDS

    def _earlier(self, holder: Holder) -> float:
        """How many seconds before the count it got its node."""
        by_ours = self.before.at - holder.placed
        if self.written is None or not holder.stamp:
            return by_ours
        # Both by Kubernetes' clocks, where neither was seen: ours may have learned of them only since. Where that
        # says something else altogether, one of its clocks was set: a pod that is there was counted, more likely.
        by_theirs = self.written - holder.stamp - _STAMP_SECONDS / 2
        return by_theirs if abs(by_theirs - by_ours) <= _SET_SECONDS else max(by_theirs, by_ours)

    def corrected(self, seen: Seen, ledger: Ledger) -> Ledger:
        """`ledger`, which goes on from this takeover, with what is told only now of the time before it."""
        was_behind, left = self._is_behind(self.seen), self._left(ledger)
        if self._is_behind(seen):
            return ledger
        if seen.now - self.seen.now > _LATE_SECONDS and not was_behind:
            return replace(ledger, takeover=None)
        there = {holder.uid: holder for holder in self.seen.holders}
        known = there.keys() | {gone.uid for gone in self.seen.gone} | ledger.pods.keys() | ledger.gone.keys()
        came = [each for each in seen.holders if each.uid not in known and each.placed < self.seen.now]
        went: list[Gone] = []
        for gone in seen.ended():
            if gone.uid in left:
                went.append(gone)
                continue
            if gone.uid in known:
                may_be_late = gone.at < self.seen.now or gone.may_be_of(self.before.at)
                is_late = gone.uid in there and gone.uid in ledger.pods and may_be_late
            else:
                is_late = gone.placed < self.seen.now
            if is_late and (gone.at <= self.seen.now or gone.may_be_of(self.before.at)):
                went.append(gone)
            elif is_late and gone.gpus:
                came.append(gone.holder)
        return self._with(came, went, ledger, seen.known_at) if came or went or was_behind else ledger

    def _with(self, came: list[Holder], went: list[Gone], ledger: Ledger, known_at: float) -> Ledger:
        """`ledger` with pods that `came` before this takeover and are there, and others that `went` before it."""
        uids = {gone.uid for gone in went}
        holders = (*(each for each in self.seen.holders if each.uid not in uids), *came)
        gone_by_now = (*self.seen.gone, *went)
        again = replace(self, seen=replace(self.seen, holders=holders, gone=gone_by_now, known_at=known_at))
        old, new = self.ledger(), again.ledger()
        more: defaultdict[str, float] = defaultdict(float)  # pool -> GPU-seconds up to the last count
        rests: defaultdict[str, Cause] = defaultdict(lambda: Cause.STARTING)
        for name in old.pools.keys() | new.pools.keys():
            more[name] = _total(new.of(name)) - _total(old.of(name))
        pods = dict(ledger.pods)
        for uid in new.pods.keys() - old.pods.keys():
            holder = new.pods[uid].holder
            more[holder.pool] += holder.gpus * (ledger.at - self.seen.now)
            pods[uid] = PodCount(holder, {}, {}, is_inherited=True)
            rests[holder.pool] = holder.rest
        for uid in old.pods.keys() - new.pods.keys():
            if (known := pods.pop(uid, None)) is not None:
                until = max(self.seen.now, new.gone.get(uid, self.seen.now))
                more[known.holder.pool] -= known.holder.gpus * (ledger.at - until)
        pools = {**ledger.pools, **{name: _with_more(ledger.of(name), more[name], rests[name]) for name in more}}
        left = dict(ledger.gone) | {gone.uid: new.gone[gone.uid] for gone in went}
        return replace(ledger, pools=pools, pods=pods, gone=left, takeover=again)


def _total(pool: PoolCount) -> float:
    return sum(pool.seconds.values()) - pool.surplus


def _with_more(pool: PoolCount, gpu_seconds: float, cause: Cause) -> PoolCount:
    """`pool` with so many more GPU-seconds, of that cause; less are a surplus: counters go up only."""
    surplus = max(0.0, pool.surplus - gpu_seconds)
    added = max(0.0, gpu_seconds - pool.surplus)
    seconds = {**pool.seconds, cause: pool.seconds.get(cause, 0.0) + added} if added else pool.seconds
    return replace(pool, seconds=seconds, surplus=surplus)


def _told(status: Status, seen: Seen, came: Arrival | None) -> float | None:
    """When a status says that it was counted, by the operator's clock; None: it does not say.

    It says so by the API server's clock and, unless an older operator wrote it, by that of its writer's machine. A
    clock that is always off says the same of how long ago that was as the other one. Where the two disagree, one was
    set since: the API server's is believed where the status may have come so. Where nobody saw it come the time that is
    nearest to now is believed, and none that is far in the future: an operator begins soon after another ends.
    """
    counted, by_machine = epoch(status.counted_at), epoch(status.machine_counted_at)
    if counted is None:
        return None
    told = counted - seen.clocks.server_ahead
    if by_machine is None or abs(told - (machine_told := by_machine - seen.clocks.wall_ahead)) <= _SET_SECONDS:
        return told
    if came is not None:
        return told if came.may_be_of(told) else machine_told
    could_be = [time for time in (told, machine_told) if time <= seen.now + _SET_SECONDS]
    return min(could_be or (told, machine_told), key=lambda time: abs(seen.now - time))


def _counted_since(told: float | None, came: Arrival | None) -> float | None:
    """When a status was counted, by the operator's clock, of which it is `told`, and which `came`.

    It came no sooner than it was counted, and later where the API server kept it waiting, or nothing was heard for a
    while: so far as that can be, and as two clocks may differ, what is told stands. Beyond that the clocks are wrong.
    """
    if told is None or came is None:
        return told if came is None else came.at
    return min(told, came.at) if came.may_be_of(told) else came.at


def _doubt(gone: Gone, since: float) -> int:
    """How doubtful it is that a pod was there at the time `since`: 0, not at all, to 2."""
    return 1 if gone.may_be_of(since) else 2 * (gone.at <= since)


def _had_ended(gone: Gone, since: float, pool: PoolCount) -> bool:
    """Whether a pod had ended by the count at the time `since`; its end may have been seen, or be stamped, later."""
    earlier, counted = since - gone.placed, sum(pool.seconds.values())
    is_of_then = gone.at - since <= _STAMP_SECONDS and counted >= gone.gpus * earlier - _STAMP_SECONDS
    return is_of_then if gone.is_stamped else earlier > _STAMP_SECONDS


def _begun(pod: Holder | Gone, since: float, pool: PoolCount) -> float:
    """Since when a pod counts that was not counted at the time `since`, when its pool had what `pool` says.

    Where that was no GPU, and less in all than the pod had held by then, who counted did not know of its node yet: its
    watch was behind. Where it was more, ours may be: the pod was counted and has gone since, perhaps.
    """
    earlier = since - pod.placed
    is_uncounted = not sum(pool.gpus.values()) and _total(pool) < pod.gpus * earlier - _STAMP_SECONDS
    return pod.placed if is_uncounted and earlier <= _WRITE_SECONDS else max(pod.placed, since)


class _Matching:
    """A count that goes on from another operator's, `before`, which has GPUs and not whose: pods are matched with them.

    What no pod is found for was gone before anybody saw that.
    """

    def __init__(self, seen: Seen, before: Ledger, *, is_behind: bool) -> None:
        self._now, self._before, self._unanswered_at = seen.now, before, seen.unanswered_at
        self._is_told, self._is_behind = math.isfinite(before.known_at), is_behind
        self.known_at = before.known_at if self._is_told else before.at
        self._has_missed = False  # whether who counted had not heard of something by then
        self._count = Count(seen, before)
        self._room = Counter({name: sum(pool.gpus.values()) for name, pool in before.pools.items()})
        self._rests: defaultdict[str, Counter[Cause]] = defaultdict(Counter)  # pool -> causes of these pods' GPUs now
        self._gap: defaultdict[str, float] = defaultdict(float)  # pool -> GPU-seconds since then of those pods
        self._late: list[Gone] = []  # were gone by then, and perhaps nobody had told who counted

    def hold(self, holder: Holder, earlier: float) -> None:
        """Count a pod that holds its GPUs, and got its node so many seconds before `before`."""
        since, pool = self._before.at, holder.pool
        if self._came_later(earlier):
            self._was_unheard(earlier)
            self._count.hold(holder, None, max(holder.placed, self.known_at))
        elif self._was_counted(holder, earlier):
            self._rests[pool][holder.rest] += holder.gpus
            self._gap[pool] += holder.gpus * (self._now - since)
            self._count.take_over(holder)
        elif self._is_behind:
            self._count.forget(holder.uid, since)
        else:
            self._count.hold(holder, None, _begun(holder, since, self._before.of(pool)))

    def end(self, gone: Gone) -> None:
        """Count a pod that holds its GPUs no more."""
        since, holder, pool = self._before.at, gone.holder, self._before.of(gone.pool)
        earlier = since - gone.placed
        if self._came_later(earlier):
            self._was_unheard(earlier)
            self._count.end(holder, None, gone.placed, gone.at)
        elif self._is_told and gone.at + gone.doubt_seconds <= self.known_at + _STAMP_SECONDS / 2:
            self._count.forget(gone.uid, gone.at)  # as who counted knew
        elif gone.may_be_of(since):
            # What is known to have been there then comes first; where no room is left, it had gone.
            until = (since + gone.at + gone.doubt_seconds) / 2 if self._was_counted(holder, earlier) else since
            self._gap[gone.pool] += gone.gpus * (min(until, self._now) - since)
            self._count.forget(gone.uid, until)
        elif gone.at <= since:
            if self._is_told or since - gone.at <= _STAMP_SECONDS:
                self._was_unheard(since - gone.at)
                if self._was_counted(holder, earlier):  # it went as this was counted: it is nobody's half gap
                    self._count.add_surplus(holder, gone.at, since)
            elif not gone.is_there and since - gone.at <= _BEHIND_SECONDS:
                self._late.append(gone)
            self._count.forget(gone.uid, gone.at)
        elif self._was_counted(holder, earlier):
            self._gap[gone.pool] += gone.gpus * (gone.at - since)
            self._count.forget(gone.uid, gone.at)
        elif self._is_told or _had_ended(gone, since, pool):
            self._count.forget(gone.uid, gone.at)
        else:
            self._count.end(holder, None, _begun(gone, since, pool), gone.at)

    def ledger(self, gone_by: float) -> Ledger:
        """The ledger; what no pod was found for was gone by that time, and has half of the time until then.

        All of that before the API server last was found to answer nobody: in such a time no pod can go.
        """
        since = self._before.at
        # Where who counted is known to have missed something, its watch told nothing since then, and not for quiet.
        known = min(since, self.known_at) if self._has_missed else since
        there = min(max(known, self._unanswered_at), max(since, gone_by))
        for gone in sorted(self._late, key=lambda each: -each.at):
            if self._was_counted(gone.holder, since - gone.placed):
                self._count.add_surplus(gone.holder, gone.at, since)
        for name, left in (+self._room).items():
            if self._is_behind:
                self._hold_untold(name, left)
                continue
            gpu_seconds = left * ((there + max(since, gone_by)) / 2 - since)
            self._gap[name] += max(0.0, gpu_seconds)
            self._count.add_surplus_seconds(name, max(0.0, -gpu_seconds))
        for name, gpu_seconds in self._gap.items():
            if gpu_seconds:  # pods without GPUs take no room, and have no causes
                self._count.add_gap(name, self._before.of(name).gpus or self._rests[name], gpu_seconds)
        return replace(self._count.ledger(), unseen=0 if self._is_behind else (+self._room).total())

    def _hold_untold(self, pool: str, gpus: int) -> None:
        """Count GPUs of pods that are known to who counted alone: they hold them, as far as anybody knows."""
        since, causes = self._before.at, self._before.of(pool).gpus
        name, rest = f"{_UNTOLD}{pool}", max(causes, key=lambda cause: causes[cause])
        self._gap[pool] += gpus * (self._now - since)
        self._count.take_over(Holder(name, pool, name, gpus, since, rest))

    def _was_unheard(self, earlier: float) -> None:
        """Note what happened so many seconds before the count, and was not known to who counted."""
        self._has_missed |= self._is_told and earlier > _STAMP_SECONDS

    def _came_later(self, earlier: float) -> bool:
        """Whether who counted did not know yet of a pod that got its node so many seconds before."""
        return self._is_told and earlier < self._before.at - self.known_at - _STAMP_SECONDS / 2

    def _was_counted(self, holder: Holder, earlier: float) -> bool:
        """Whether a pod that got its node so many seconds before is one of those that held the GPUs; it takes room."""
        is_one = earlier >= -_STAMP_SECONDS and self._room[holder.pool] >= holder.gpus
        if is_one:
            self._room[holder.pool] -= holder.gpus
        return is_one
