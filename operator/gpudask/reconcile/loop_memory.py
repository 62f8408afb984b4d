"""Memory of a loop between passes: sizes, refusals and back-off by pool; ends of pods; and start times of all pods.

And of what outlives the loops: the counts in the clusters' statuses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from gpudask.api import Json
from gpudask.api.reasons import Reason
from gpudask.api.resource import LABEL_CLUSTER
from gpudask.api.untrusted_text import quote
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import Backoff
from gpudask.planning.ledger.causes import Gone, ended_for_good
from gpudask.planning.ledger.counting import Ledger
from gpudask.planning.ledger.takeover import Arrival
from gpudask.planning.observed.observation import PoolMemory
from gpudask.planning.observed.pods import Pod
from gpudask.planning.pool_view import Start

# An idle node is removed after ten minutes by default (Kubernetes' Cluster Autoscaler), and the image on it with it;
# and a pod that exists is seen by a pass once in ten minutes at least.
_KEPT_SECONDS = 1200.0
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 1.0, 300.0
# A quota is raised, or another cluster's pods go, without a word to this operator: a try every half a minute finds out.
_LAST_QUOTA_SECONDS = 30.0
_FORGIVEN_SECONDS = 600.0
_SAME_SECONDS = 0.5
# Creations in a row whose name was in use, after which the next is tried at once.
_NAMES_IN_USE_AT_ONCE = 2
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.5, 30.0
# For so long an end is remembered that was counted: another operator, whose count may be adopted, had not heard of it.
_ENDS_KEPT_SECONDS = 60.0
_MESSAGE_LENGTH = 1024
_ENDS_KEPT = 1000  # of them, the last ones


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0


class Memory:
    """By pool (the scheduler's under ""): size, back-off, refusal, names in use.

    `random`: as `Backoff`; without jitter unless it is given.
    """

    def __init__(self, random: Callable[[], float] = lambda: 0.5) -> None:
        self.pools: dict[str, PoolMemory] = {}
        self._backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS, random)
        self._quota_backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LAST_QUOTA_SECONDS, random)
        self.busy_at: dict[str, float] = {}
        self.frozen_at: dict[str, float] = {}
        self._started: set[str] = set()
        self._failures: dict[str, _Failures] = {}  # by pool: pods that failed, which a creation does not forgive
        self._refusals: dict[str, _Failures] = {}  # by pool: creations that were refused since the last that was not
        self._names_in_use: dict[str, _Failures] = {}  # by pool: creations in a row whose name was in use
        self._unseen_names: dict[tuple[str, str], _Failures] = {}  # by pool and name: how often a pod of ours had it

    def of(self, pool: str) -> PoolMemory:
        """The memory of `pool`."""
        return self.pools.get(pool, PoolMemory())

    def record_busy(self, present: Iterable[str], at_work: frozenset[str], now: float) -> None:
        """Remember which pods, by uid, are at work now; forget those that are no longer `present`."""
        there = frozenset(present)
        self.busy_at = {uid: at for uid, at in self.busy_at.items() if uid in there} | dict.fromkeys(at_work, now)

    def record_frozen(self, pools: Iterable[str], now: float) -> None:
        """Remember since when these pools are frozen; the others are not any more."""
        self.frozen_at = {pool: self.frozen_at.get(pool, now) for pool in pools}

    def record_size(self, pool: str, pods: int) -> None:
        """Remember the size that was decided."""
        self.pools[pool] = replace(self.of(pool), size=pods)

    def record_starts(self, pool: str, starts: Sequence[Start], *, empty: bool) -> None:
        """Remember the start time of the last pod, and for how long the first one after none held its node meanwhile.

        `empty`: the pool has no pod.
        """
        if empty:
            self._started.discard(pool)
        if not starts:
            return
        if pool not in self._started:
            self._started.add(pool)
            self.pools[pool] = replace(self.of(pool), held_seconds=starts[0].held_seconds)
        if starts[-1].seconds != self.of(pool).start_seconds:
            self.pools[pool] = replace(self.of(pool), start_seconds=starts[-1].seconds)

    def record_failure(self, pool: str, now: float) -> None:
        """Back off after a pod of `pool` failed: twice as long each time, up to five minutes."""
        if count := _count_up(self._failures, pool, now):
            self.wait(pool, now + self._backoff.delay(count))

    def record_refusal(self, pool: str, error: ApiError, now: float) -> None:
        """Keep the API server's message of a refused creation, and back off; a creation or an edit ends that.

        Also where the template is invalid: what refuses it may be a policy that somebody else changes.
        """
        if count := _count_up(self._refusals, pool, now):
            backoff = self._quota_backoff if error.quota else self._backoff
            self.wait(pool, now + backoff.delay(count, error.retry_after_seconds))
        before, reason = self.of(pool), reason_of(error)
        since = before.refused_since if before.refusal_reason == reason and before.refused_since else now
        message = quote(error.message or str(error), _MESSAGE_LENGTH)  # it names each fault of a template
        self.pools[pool] = replace(before, refusal=message, refusal_reason=reason, refused_since=since)

    def record_name_in_use(self, pool: str, now: float) -> None:
        """Count a creation whose name was in use: the next tries another, and after many in a row it waits."""
        past = self._names_in_use.get(pool, _Failures())
        if past.count and now - past.last < _SAME_SECONDS / 10:
            return  # pods that are created together count once
        self._names_in_use[pool] = _Failures(past.count + 1, now)
        self.wait(pool, now + _pause_seconds(past.count + 1))

    def wait(self, pool: str, not_before: float) -> None:
        """Create no pod of `pool` before then."""
        self.pools[pool] = replace(self.of(pool), not_before=max(self.of(pool).not_before, not_before))

    def requeue_after(self, now: float) -> float | None:
        """Seconds until the first pool that waits may have a pod again; None: none waits."""
        return min((pool.not_before - now for pool in self.pools.values() if pool.not_before > now), default=None)

    def record_foreign_name(self, pool: str, name: str) -> None:
        """Avoid a name that belongs to somebody else's pod."""
        self._report_name(pool, f"a pod {name} exists that is not this cluster's: another name is used")
        self._avoid_name(pool, name)

    def record_unseen_name(self, pool: str, name: str, now: float) -> None:
        """Avoid for a while a name that belongs to a pod of ours that is not in the cache.

        Most likely it is just being deleted. Reported once that lasts: its label was removed, or it cannot be read.
        """
        held = _Failures(self._unseen_names.get((pool, name), _Failures()).count + 1, now)
        self._unseen_names[pool, name] = held
        self._avoid_name(pool, name)
        if held.count > 1:
            why = f"its label {LABEL_CLUSTER} is missing, or it cannot be read"
            self._report_name(pool, f"a pod {name} of this cluster exists that is not counted: {why}: delete it")

    def retry_names(self, now: float) -> None:
        """Allow the names again whose pods may be gone by now, each time after a longer wait."""
        for (pool, name), held in list(self._unseen_names.items()):
            if now - held.last < self._backoff.delay(held.count):
                continue
            if name in self.of(pool).taken:
                self.pools[pool] = replace(self.of(pool), taken=self.of(pool).taken - {name})
            elif now - held.last >= _FORGIVEN_SECONDS:
                del self._unseen_names[pool, name]

    def _avoid_name(self, pool: str, name: str) -> None:
        self.pools[pool] = replace(self.of(pool), taken=self.of(pool).taken | {name})

    def _report_name(self, pool: str, message: str) -> None:
        conflict = Reason.NAME_CONFLICT
        self.pools[pool] = replace(self.of(pool), refusal=message, refusal_reason=conflict, refused_since=0.0)

    def clear_refusal(self, pool: str) -> None:
        """Forget the refusal of a pool that lacks no pod any more, but not that of a template."""
        memory = self.of(pool)
        if memory.refusal and memory.refusal_reason != Reason.TEMPLATE_REFUSED:
            self._failures.pop(pool, None)
            self._refusals.pop(pool, None)
            self.pools[pool] = replace(memory, refusal="", refusal_reason="", refused_since=0.0, not_before=0.0)

    def record_deletion(self, pool: str, now: float) -> None:
        """Try again soon after a pod of `pool` was deleted: what a quota refused may fit."""
        if self.of(pool).refusal_reason == Reason.QUOTA:
            self._failures.pop(pool, None)
            self._refusals.pop(pool, None)
            self.pools[pool] = replace(self.of(pool), not_before=now + _FIRST_BACKOFF_SECONDS)

    def record_gone(self, now: float) -> None:
        """Try a scheduler that a quota refuses again soon after a pod of its cluster is gone: it may fit."""
        memory = self.of("")
        if memory.refusal_reason == Reason.QUOTA:
            self._refusals.pop("", None)
            soon = min(memory.not_before, now + _FIRST_BACKOFF_SECONDS)
            self.pools[""] = replace(memory, not_before=soon, room_at=now)

    def record_creation(self, pool: str) -> None:
        """Forget the refusals after a successful creation: the next one is tried again after a second."""
        self._names_in_use.pop(pool, None)
        self._refusals.pop(pool, None)
        memory = self.of(pool)
        if memory.refusal:
            self.pools[pool] = replace(memory, refusal="", refusal_reason="", refused_since=0.0, not_before=0.0)

    def forget_refusals(self) -> None:
        """Forget all refusals after an edit: it may have been the cure."""
        self._failures.clear()
        self._refusals.clear()
        self._names_in_use.clear()
        self.pools = {
            name: PoolMemory(size=memory.size, start_seconds=memory.start_seconds, held_seconds=memory.held_seconds)
            for name, memory in self.pools.items()
        }


def _count_up(failures: dict[str, _Failures], pool: str, now: float) -> int:
    """How many failures in a row of `pool` this one makes; 0: it is the same as the last, as pods end together."""
    past = failures.get(pool, _Failures())
    if past.count and now - past.last < _SAME_SECONDS:
        return 0
    count = past.count + 1 if now - past.last < _FORGIVEN_SECONDS else 1
    failures[pool] = _Failures(count, now)
    return count


def _pause_seconds(count: int) -> float:
    """How long to wait after so many creations in a row whose name was in use."""
    late = count - _NAMES_IN_USE_AT_ONCE - 1
    return 0.0 if late < 0 else min(_FIRST_PAUSE_SECONDS * 2.0 ** min(late, 16), _LAST_PAUSE_SECONDS)


def reason_of(error: ApiError) -> Reason:
    """The reason of the condition that reports `error`."""
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
    last_seen: float

    def holds(self, now: float) -> bool:
        return now - self.last_seen <= _KEPT_SECONDS


class KnownStarts:
    """The start times of pods in all clusters, by spec hash: a new cluster's first pod will take about as long.

    Losing them costs an estimate.
    """

    def __init__(self) -> None:
        self._known: dict[str, _KnownStart] = {}

    def record(self, start: Start, now: float) -> None:
        """Remember the start time of a pod that exists. It may be known, and others may have started since."""
        known = self._known.get(start.spec_hash)
        if known is None or not known.holds(now):
            self._known = {spec_hash: each for spec_hash, each in self._known.items() if each.holds(now)}
            known = _KnownStart(start, now)
        self._known[start.spec_hash] = replace(
            known, start=max(known.start, start, key=lambda each: each.at), last_seen=now
        )

    def seconds(self, spec_hash: str, now: float) -> float | None:
        """The start time of the last pod in seconds, None where there was none in the last twenty minutes."""
        known = self._known.get(spec_hash)
        return known.start.seconds if known and known.holds(now) else None


class PodEnds:
    """The ends of pods that held GPUs: those since the last count, and those of the last while, once more.

    `clock`: the operator's, in seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._new: list[Gone] = []  # since the last count
        self._counted: list[Gone] = []

    def note(self, pod: Pod, at: float) -> None:
        """Note that a pod is gone since `at`, as it was last seen."""
        if pod.pool and pod.node:
            self._new.append(Gone.of(pod, at))

    def take(self, pods: Iterable[Pod], there: Collection[str]) -> tuple[Gone, ...]:
        """The pods that held GPUs, and do not since the last count.

        `there`: the uids of those that exist. Those of `pods` that went only after that, as in a long write, are for
        the next count; but some are back by now.
        """
        later = {pod.uid for pod in pods} - set(there)
        taken = [each for each in self._new if each.uid not in later]
        self._new = [each for each in self._new if each.uid in later]
        since = self._clock() - _ENDS_KEPT_SECONDS
        self._counted = [each for each in (*self._counted, *taken) if each.at >= since][-_ENDS_KEPT:]
        return (*taken, *ended_for_good(pods))

    def take_back(self) -> None:
        """Have the next count learn of the last ones once more: it goes on from what another operator counted."""
        self._new, self._counted = [*self._counted, *self._new], []


@dataclass(frozen=True, slots=True)
class OwnCount:
    """The last count that was sent here: the status' `countedAt`, and `at` which time by the operator's clock.

    `ledger`: what it was made of, or a later one that was not sent.
    """

    told: str
    at: float
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class _Seen:
    """A status' `countedAt`, when it came, if it was seen to, and when it was last seen."""

    told: str
    came: Arrival | None
    last: float


class LastCounts:
    """The last counts in the clusters' statuses, by `owner_key`: when each was seen to come, and this process's own.

    They outlive the clusters' loops, of which there are none while another operator leads. `clock`: this process's.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._own: dict[str, tuple[OwnCount, float]] = {}  # and when it was, by this clock

    def note(self, key: str, body: Json) -> Arrival | None:
        """Note the count in a cluster's status; when it came, where it is another one than before.

        So the next leader need not ask any other clock for that.
        """
        told, known, now = _counted_at(body), self._seen.get(key), self._clock()
        is_new = known is not None and known.told != told
        came = known.came if known is not None else None
        if known is not None and is_new:
            came = Arrival(now, after=known.last)
        self._seen[key] = _Seen(told, came, now)
        return came if is_new else None

    def keep(self, key: str, own: OwnCount, ahead: float) -> None:
        """Keep what a loop here has counted. `ahead`: by how many seconds the operator's clock is ahead of this one."""
        self._own[key] = own, own.at - ahead

    def take(self, key: str) -> tuple[Arrival | None, OwnCount | None]:
        """When the count in a status was seen to come; and our own last one, which may be that, or come yet."""
        seen, (own, at) = self._seen[key], self._own.pop(key, (None, 0.0))
        return Arrival(at, at) if own is not None and own.told == seen.told else seen.came, own

    def forget(self, key: str) -> Arrival | None:
        """Forget a cluster that is gone; when its last count was seen to come."""
        came = self.take(key)[0] if key in self._seen else None
        self._seen.pop(key, None)
        return came


def _counted_at(body: Json) -> str:
    status = body.get("status")
    text = status.get("countedAt") if isinstance(status, dict) else ""
    return text if isinstance(text, str) else ""
