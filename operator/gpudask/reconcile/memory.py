"""What a loop remembers between passes, how it backs off when refused, and what all loops know of starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gpudask.api.resource import LABEL_CLUSTER
from gpudask.api.status import Reason
from gpudask.clients.backoff import Backoff
from gpudask.clients.errors import ApiError
from gpudask.planning.observed.observation import PoolMemory
from gpudask.planning.pool_view import Start

# A node that stands idle is taken away after ten minutes by default (Kubernetes' Cluster Autoscaler), and the image
# that it has with it; and a pod that is there is looked at once in ten minutes at least.
_KEPT_SECONDS = 1200.0
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 1.0, 300.0
_FORGIVEN_SECONDS = 600.0
_SAME_SECONDS = 0.5
# Creations in a row that met a name in use, after which the next is tried at once.
_MET_AT_ONCE = 2
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0


class Memory:
    """Per pool (the scheduler under ""): size, back-off, refusal, names that others hold.

    `random`: as `Backoff`; without jitter unless it is given.
    """

    def __init__(self, random: Callable[[], float] = lambda: 0.5) -> None:
        self.pools: dict[str, PoolMemory] = {}
        self._backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS, random)
        self.busy_at: dict[str, float] = {}
        self.frozen_at: dict[str, float] = {}
        self._started: set[str] = set()
        self._failures: dict[str, _Failures] = {}
        self._met: dict[str, _Failures] = {}  # by pool: creations in a row that met a pod of their name
        self._held: dict[tuple[str, str], _Failures] = {}  # by pool and name: how often a pod of our own had it

    def of(self, pool: str) -> PoolMemory:
        """What is remembered of `pool`."""
        return self.pools.get(pool, PoolMemory())

    def saw(self, present: Iterable[str], at_work: frozenset[str], now: float) -> None:
        """Remember when pods, by uid, were last seen at work; those that are no longer `present` are forgotten."""
        there = frozenset(present)
        self.busy_at = {uid: at for uid, at in self.busy_at.items() if uid in there} | dict.fromkeys(at_work, now)

    def froze(self, pools: Iterable[str], now: float) -> None:
        """Remember since when these pools are frozen; the others no longer are."""
        self.frozen_at = {pool: self.frozen_at.get(pool, now) for pool in pools}

    def sized(self, pool: str, pods: int) -> None:
        """Remember the size that was decided."""
        self.pools[pool] = replace(self.of(pool), size=pods)

    def started(self, pool: str, seen: Sequence[Start], *, empty: bool) -> None:
        """Remember how long the last pod took to start, and how long the first one after none held its node for it.

        `empty`: the pool has no pod.
        """
        if empty:
            self._started.discard(pool)
        if not seen:
            return
        if pool not in self._started:
            self._started.add(pool)
            self.pools[pool] = replace(self.of(pool), held_seconds=seen[0].held_seconds)
        if seen[-1].seconds != self.of(pool).start_seconds:
            self.pools[pool] = replace(self.of(pool), start_seconds=seen[-1].seconds)

    def failed(self, pool: str, now: float, *, retry_after_seconds: float | None = None) -> None:
        """A pod of `pool` ended, or was not made: wait before the next, twice as long each time, up to five minutes."""
        past = self._failures.get(pool, _Failures())
        if past.count and now - past.last < _SAME_SECONDS:
            return  # many pods that end at once are one failure
        count = past.count + 1 if now - past.last < _FORGIVEN_SECONDS else 1
        self._failures[pool] = _Failures(count, now)
        not_before = now + self._backoff.delay(count, retry_after_seconds)
        self.pools[pool] = replace(self.of(pool), not_before=max(self.of(pool).not_before, not_before))

    def refused(self, pool: str, error: ApiError, now: float) -> None:
        """A creation was refused: keep the API server's message; try again later, or after the next edit.

        Also where the template is at fault: what refuses it may be a policy that somebody else mends.
        """
        self.failed(pool, now, retry_after_seconds=error.retry_after_seconds)
        before, reason = self.of(pool), reason_of(error)
        since = before.refused_since if before.refusal_reason == reason and before.refused_since else now
        message = error.message or str(error)
        self.pools[pool] = replace(before, refusal=message, refusal_reason=reason, refused_since=since)

    def met_a_name(self, pool: str, now: float) -> None:
        """A creation met a pod of its name: the next tries another, but many in a row wait."""
        past = self._met.get(pool, _Failures())
        if past.count and now - past.last < _SAME_SECONDS / 10:
            return  # pods that are created together are one try
        self._met[pool] = _Failures(past.count + 1, now)
        not_before = now + _pause_seconds(past.count + 1)
        if not_before > now:
            self.pools[pool] = replace(self.of(pool), not_before=max(self.of(pool).not_before, not_before))

    def name_taken(self, pool: str, name: str) -> None:
        """A name belongs to somebody else: the next number serves."""
        self._tell_of_name(pool, f"a pod {name} exists that is not this cluster's: another name is used")
        self._take(pool, name)

    def name_held(self, pool: str, name: str, now: float) -> None:
        """A name belongs to a pod of ours that is not among those that we see: the next number serves meanwhile.

        Most likely it is just going. Told once that lasts: then its label was taken off, or it cannot be read.
        """
        held = _Failures(self._held.get((pool, name), _Failures()).count + 1, now)
        self._held[pool, name] = held
        self._take(pool, name)
        if held.count > 1:
            why = f"its label {LABEL_CLUSTER} is missing, or it cannot be read"
            self._tell_of_name(pool, f"a pod {name} of this cluster exists that is not counted: {why}: delete it")

    def free_names(self, now: float) -> None:
        """Let names be tried again whose pods may be gone by now, each time later."""
        for (pool, name), held in list(self._held.items()):
            if now - held.last < self._backoff.delay(held.count):
                continue
            if name in self.of(pool).taken:
                self.pools[pool] = replace(self.of(pool), taken=self.of(pool).taken - {name})
            elif now - held.last >= _FORGIVEN_SECONDS:
                del self._held[pool, name]

    def _take(self, pool: str, name: str) -> None:
        self.pools[pool] = replace(self.of(pool), taken=self.of(pool).taken | {name})

    def _tell_of_name(self, pool: str, words: str) -> None:
        conflict = Reason.NAME_CONFLICT
        self.pools[pool] = replace(self.of(pool), refusal=words, refusal_reason=conflict, refused_since=0.0)

    def satisfied(self, pool: str) -> None:
        """`pool` lacks no pod: what was refused is not wanted any more. A bad template stays bad."""
        memory = self.of(pool)
        if memory.refusal and memory.refusal_reason != Reason.TEMPLATE_REFUSED:
            self._failures.pop(pool, None)
            self.pools[pool] = replace(memory, refusal="", refusal_reason="", refused_since=0.0, not_before=0.0)

    def made_room(self, pool: str, now: float) -> None:
        """A pod of `pool` goes: what a quota refused may fit soon."""
        if self.of(pool).refusal_reason == Reason.QUOTA:
            self._failures.pop(pool, None)
            self.pools[pool] = replace(self.of(pool), not_before=now + _FIRST_BACKOFF_SECONDS)

    def created(self, pool: str) -> None:
        """A creation went well: refusals are over."""
        self._met.pop(pool, None)
        memory = self.of(pool)
        if memory.refusal:
            self.pools[pool] = replace(memory, refusal="", refusal_reason="", refused_since=0.0, not_before=0.0)

    def edited(self) -> None:
        """The spec changed: what was refused may be well now."""
        self._failures.clear()
        self._met.clear()
        self.pools = {
            name: PoolMemory(size=memory.size, start_seconds=memory.start_seconds, held_seconds=memory.held_seconds)
            for name, memory in self.pools.items()
        }


def _pause_seconds(met: int) -> float:
    """How long to wait after so many creations in a row that met a name in use."""
    late = met - _MET_AT_ONCE - 1
    return 0.0 if late < 0 else min(_FIRST_PAUSE_SECONDS * 2.0 ** min(late, 16), _LAST_PAUSE_SECONDS)


def reason_of(error: ApiError) -> Reason:
    """The reason that a condition gives for `error`."""
    if error.conflict:
        return Reason.NAME_CONFLICT
    if error.quota:
        return Reason.QUOTA
    if error.invalid:
        return Reason.TEMPLATE_REFUSED
    return Reason.FORBIDDEN if error.forbidden else Reason.API_FAILED


@dataclass(frozen=True, slots=True)
class _KnownStart:
    start: Start
    told_at: float

    def holds(self, now: float) -> bool:
        return now - self.told_at <= _KEPT_SECONDS


class KnownStarts:
    """How long pods took to start lately, in whichever cluster: a new cluster's first pod will take about as long.

    By spec hash, which is what a user asked of a pod. Losing it costs an estimate.
    """

    def __init__(self) -> None:
        self._known: dict[str, _KnownStart] = {}

    def tell(self, start: Start, now: float) -> None:
        """The pod that started so is there. It may have been told of before, and others may have started since."""
        known = self._known.get(start.spec_hash)
        if known is None or not known.holds(now):
            self._known = {spec_hash: each for spec_hash, each in self._known.items() if each.holds(now)}
            known = _KnownStart(start, now)
        self._known[start.spec_hash] = replace(
            known, start=max(known.start, start, key=lambda each: each.at), told_at=now
        )

    def recall(self, spec_hash: str, now: float) -> float | None:
        """How many seconds the last one took, None where there was none in the last twenty minutes."""
        known = self._known.get(spec_hash)
        return known.start.seconds if known and known.holds(now) else None
