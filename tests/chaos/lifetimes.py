"""The lifetimes of pods with GPUs, by a watch of the API server, beside what the statuses' ledgers count. Pure.

A status says up to when it counts (`countedAt`). Until then each pod held its GPUs from when it got its node until it
was gone. A cluster that ended has a record, which counts to the end of its last pod: that has the last word, since an
operator whose own watch is behind, or whose writes are refused, may never come to write a last status of a cluster that
is deleted meanwhile. What a watch cannot tell is allowed for:

- A pod holds its GPUs until its containers have ended, of which the kubelet's stamps tell, or until it is gone, which
  is told later: a ledger may count up to either.
- It holds them from when it was given its node, of which its condition tells, or from when that could be stored and
  told: while etcd hangs there are seconds between the two.
- While the watch itself was away, a pod came or went at some time between its last word and the first of the next. An
  operator, whose watch was away as well, hears of the end a little later.
- Between two counts of a status that lie further apart than counts ever do while an operator leads, nobody counted:
  the leader had ended. The next one has seen what went meanwhile, unless it had just begun itself: then it takes half
  of that time, and is off by no more than the other half.
- Where no operator is there as the last pods of a deleted cluster end, nobody can know when that was. Its record says
  of how many GPUs (`unseenGpus`), and has between what was counted before and what these pods lived in all.
- While all watches were held back on purpose, a status knows of no pod that came meanwhile, and of none that went. It
  has the last word where nobody saw the cluster's end. A record counts a pod that went meanwhile until that is heard:
  when the watches are let go, or, where the API server was away by then, when it is back and has been asked again.
- Kubernetes stamps in whole seconds: of a pod whose node or end was told late, half a second is unknown.
- An operator that begins while the API server tells a wrong time takes that for the time. So a cluster whose status
  once told a time that was not, is left out.

All times are seconds since the epoch: the API server is on the machine that watches.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpudask.api import Json
from tests.chaos.audit import PoolSample, Verdict

_GPU = "nvidia.com/gpu"
_POOL, _CLUSTER = "gpudask.dev/pool", "gpudask.dev/cluster"
# A pod that goes wakes a pass, and its status follows at once or a second later; one that comes likewise.
_COUNTED_SECONDS = 3.0
_ASKED_AGAIN_SECONDS = 3.0  # so long after the API server is back an operator has listed all pods again
_AWAY_SECONDS = 1.0  # a watch that is begun anew so much later could not be begun before
_TOLD_SECONDS = 60.0  # a status that tells another time by so much was told a wrong one
_SHARE = 0.01
_SAME_SECONDS = 0.5  # two watches hear of the same event at two times, some hundredths apart each
# Of a pod: the stamps of its node and its end have whole seconds, and where news of it comes late nobody knows more.
_SLACK_SECONDS = 0.5


@dataclass
class Lifetime:
    """A pod that holds GPUs, from between two times until between two others; not ended: None."""

    owner: str
    pool: str
    gpus: int
    began: tuple[float, float]
    ended: tuple[float, float] | None = None

    def gpu_seconds(self, until: float) -> tuple[float, float]:
        """The GPU-seconds until then, at least and at most."""
        first, last = self.ended or (until, until)
        least, most = min(first, until) - self.began[1], min(last, until) - self.began[0]
        return self.gpus * max(0.0, least), self.gpus * max(0.0, most)


@dataclass
class Lifetimes:
    """The pods that were watched. Each method gets the time of what it is told."""

    pods: dict[str, Lifetime] = field(default_factory=dict)
    _known_at: float = 0.0

    def listed(self, pods: Iterable[Json], at: float) -> None:
        """All pods that there are: what has gone since the last word went meanwhile."""
        there = {pod["metadata"]["uid"]: pod for pod in pods}
        for pod in there.values():
            self._see(pod, (self._known_at, at))
        was_away = at - self._known_at > _AWAY_SECONDS
        for uid, lifetime in self.pods.items():
            if uid not in there and lifetime.ended is None:
                lifetime.ended = (self._known_at, at + _ASKED_AGAIN_SECONDS if was_away else at)
        self._known_at = at

    def heard(self, event: Json, at: float) -> None:
        """An event of the watch."""
        pod = event["object"]
        self._see(pod, (at, at))
        lifetime = self.pods.get(pod["metadata"]["uid"])
        if event["type"] == "DELETED" and lifetime is not None and lifetime.ended is None:
            lifetime.ended = (min(_containers_ended(pod) or at, at), at)
        self._known_at = at

    def silent(self, at: float) -> None:
        """The watch was there until now, and said nothing."""
        self._known_at = at

    def _see(self, pod: Json, when: tuple[float, float]) -> None:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        gpus = sum(int(each.get("resources", {}).get("limits", {}).get(_GPU, 0)) for each in spec["containers"])
        owners = [each["uid"] for each in pod["metadata"].get("ownerReferences", ()) if each.get("controller")]
        pool = pod["metadata"].get("labels", {}).get(_POOL)
        if not (gpus and pool and owners):
            return
        if uid not in self.pods and spec.get("nodeName"):
            self.pods[uid] = Lifetime(owners[0], pool, gpus, (min(_placed(pod) or when[0], when[0]), when[1]))
        if pod["status"].get("phase") in ("Failed", "Succeeded"):
            lifetime = self.pods.get(uid)
            if lifetime is not None and lifetime.ended is None:
                lifetime.ended = (min(_containers_ended(pod) or when[0], when[0]), when[1])


def _placed(pod: Json) -> float | None:
    """When a pod got its node, to half a second; None: nobody has said."""
    conditions = pod["status"].get("conditions", ())
    stamps = [str(each.get("lastTransitionTime") or "") for each in conditions if each.get("type") == "PodScheduled"]
    return _seconds(stamps[0]) if stamps and stamps[0] else None


def _containers_ended(pod: Json) -> float | None:
    """When the last container of a pod that is no more had ended, to half a second; None: the kubelet has not said."""
    states = [each.get("state", {}).get("terminated", {}) for each in pod["status"].get("containerStatuses", ())]
    stamps = [str(state.get("finishedAt") or "") for state in states]
    return max(map(_seconds, stamps)) if stamps and all(stamps) else None


def _seconds(stamp: str) -> float:
    """The middle of the second that a stamp names: half a second is allowed for anyway."""
    return datetime.fromisoformat(stamp).timestamp() + _SLACK_SECONDS


@dataclass(frozen=True)
class Comparison:
    """The ledgers beside the lifetimes. `gap`: the part of all GPU-seconds by which they differ, from 0 to 1.

    `told`: the pools that differ at all, the furthest first, each with its course.
    """

    gap: float
    verdict: Verdict
    told: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """What a record says of a pool: its GPU-seconds, and of how many GPUs of the cluster nobody saw the end."""

    held: float
    unseen_gpus: int = 0


def recorded(records: Iterable[Json]) -> dict[tuple[str, str], Recorded]:
    """The GPU-seconds by a cluster's uid and pool, of the GpuDaskRecords of clusters that ended.

    Of one that was deleted while no operator ran a record has no more than was written before, and says so: then the
    last status has the last word.
    """
    return {
        (record["cluster"]["uid"], pool["name"]): Recorded(
            sum(each.get("gpuSeconds", 0.0) for each in pool.get("causes", ()))
            - sum(each.get("gpuSeconds", 0.0) for each in pool.get("causesBefore", ())),
            record.get("unseenGpus", 0),
        )
        for record in records
        if record.get("ended") and not is_unseen(record)
        for pool in record.get("pools", ())
    }


def is_unseen(record: Json) -> bool:
    """Whether nobody saw the cluster's end, as its record says."""
    return any(event.get("reason") == "EndedUnseen" for event in record.get("events", ()))


def compare(
    lifetimes: Lifetimes,
    samples: Iterable[PoolSample],
    records: Mapping[tuple[str, str], Recorded] | None = None,
    *,
    late_seconds: float = 0.0,
    behind: Sequence[tuple[float, float]] = (),
) -> Comparison:
    """The last count of each pool whose time can be believed, beside what its pods had lived by then.

    `records`: as `recorded` has them. `late_seconds`: by which news of a pod reach the operator late.
    `behind`: from when until when all watches were held back, as `unheard` has it.
    """
    by_pool: defaultdict[tuple[str, str], list[PoolSample]] = defaultdict(list)
    for sample in samples:
        if sample.counted_at:
            by_pool[sample.uid, sample.pool].append(sample)
    off_in_all = lived_in_all = 0.0
    wrong, differ = [], []
    for (uid, pool), counts in by_pool.items():
        if any(abs(each.counted_at - each.at) > _TOLD_SECONDS for each in counts):
            continue
        last, until = counts[-1], counts[-1].counted_at
        pods = [each for each in lifetimes.pods.values() if (each.owner, each.pool) == (uid, pool)]
        untold = 0.0
        if records and (uid, pool) in records and all(each.ended for each in pods):
            record = records[uid, pool]
            untold = _untold(pods, until, record.unseen_gpus)
            last, until = replace(last, held=record.held), math.inf
        bounds = [each.gpu_seconds(until) for each in pods]
        unseen = sum(_unseen(each, counts) + _held_back(each, until, behind) for each in pods)
        least, most = sum(low for low, _ in bounds) - unseen - untold, sum(high for _, high in bounds) + unseen
        off = max(0.0, least - last.held, last.held - most)
        off_in_all, lived_in_all = off_in_all + off, lived_in_all + most
        by = "its record counted" if until == math.inf else "counted"
        words = f"{last.cluster}/{pool} {by} {last.held:.1f} GPU-seconds, and its pods lived"
        words = f"{words} {least:.1f} to {most:.1f}: {_course(pods, counts)}"
        slack = late_seconds + _SLACK_SECONDS
        if off > _SHARE * most + slack * max(1, sum(each.gpus for each in pods)):
            wrong.append(words)
        elif off:
            differ.append((off, words))
    told = tuple(words for _, words in sorted(differ, reverse=True))
    return Comparison(off_in_all / lived_in_all if lived_in_all else 0.0, Verdict(wrong=tuple(wrong)), told)


def _course(pods: list[Lifetime], counts: list[PoolSample]) -> str:
    """When its pods came and went, and what was counted up to when: where the two part is where to look."""
    lived = [
        f"{each.gpus} GPU {_span(each.began)} to {_span(each.ended) if each.ended else 'now'}"
        for each in sorted(pods, key=lambda each: each.began)
    ]
    last: dict[float, PoolSample] = {each.counted_at: each for each in reversed(counts)}
    counted = [f"{_clock(at)} {each.held:.1f} (came {_clock(each.at)})" for at, each in sorted(last.items())]
    return f"pods: {', '.join(lived)}; counts: {', '.join(counted)}"


def _span(between: tuple[float, float]) -> str:
    first, last = between
    return _clock(last) if last - first < _SAME_SECONDS else f"({_clock(first)} or {_clock(last)})"


def _clock(at: float) -> str:
    """Minutes and seconds of the hour, as the logs of the operators have them."""
    return f"{int(at) % 3600 // 60:02d}:{at % 60:04.1f}"


def _untold(pods: list[Lifetime], counted_at: float, gpus: int) -> float:
    """What so many GPUs held at most since they were counted: those of the pods that held theirs for the longest."""
    since = [(each.gpu_seconds(math.inf)[1] - each.gpu_seconds(counted_at)[1], each.gpus) for each in pods]
    untold = 0.0
    for seconds, held in sorted(since, reverse=True):
        untold, gpus = untold + (seconds if gpus >= held else 0.0), gpus - held
    return untold


def unheard(behind: Sequence[tuple[float, float]], away: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """From when until when nothing could be heard, of `behind`: longer where the API server was `away` in the end."""
    spans = []
    for first, last in behind:
        until = last
        for gone, back in sorted(away):
            if first <= gone <= until:
                until = max(until, back + _ASKED_AGAIN_SECONDS)
        spans.append((first, until))
    return spans


def _held_back(lifetime: Lifetime, counted_at: float, behind: Sequence[tuple[float, float]]) -> float:
    """The GPU-seconds by which a count is off that was made while watches were held back, and the pod came or went.

    By a record, whose count is made afterwards: where it went.
    """
    if counted_at == math.inf:
        ended = lifetime.ended[0] if lifetime.ended else math.inf
        return lifetime.gpus * max((last - ended for first, last in behind if first <= ended <= last), default=0.0)
    for first, last in behind:
        changed = [at for at in (lifetime.began[0], lifetime.ended[0] if lifetime.ended else math.inf) if at >= first]
        if first <= counted_at <= last and changed and min(changed) <= counted_at:
            return lifetime.gpus * (counted_at - min(changed))
    return 0.0


def _unseen(lifetime: Lifetime, counts: list[PoolSample]) -> float:
    """The GPU-seconds by which nobody can tell when the pod ended: half of the time between two counts without any."""
    if lifetime.ended is None:
        return 0.0
    ended = lifetime.ended[1]
    before = max((each.counted_at for each in counts if each.counted_at <= ended), default=None)
    after = min((each.counted_at for each in counts if each.counted_at > ended), default=None)
    if before is None or after is None or after - ended < _COUNTED_SECONDS:
        return 0.0
    return lifetime.gpus * (after - before) / 2
