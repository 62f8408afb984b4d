"""The audit of a run: what is wrong, lost, stuck or leaked. Pure. Times are seconds of one monotonic clock.

The rules:
- A program that ends gives its known answer. Another one is *wrong*, whatever was broken meanwhile.
- A program may fail only where a fault ended its own scheduler while it ran, or shortly before: Dask keeps a
  scheduler's state in its process alone. It is counted apart and run again. Any other failure is *lost*: lost workers,
  nodes, API servers and operators may cost time and repeated tasks, and nothing else.
- A scheduler that was ready is replaced or restarted only where a fault ended it; else its state is *lost*.
- A program that has not ended in its time, nor in the quiet that follows, in which no new fault begins, is *stuck*, and
  so is a cluster that does not settle, or that is not tried again although its status told when.
- GPU-seconds in a status never go back, and are what the pods lived, within 1 % and what no watch can tell
  (lifetimes.py); and an operator's log shows no defect: else *wrong*.
- A pod that is there though its cluster is gone, and has had its time, is *leaked*.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

_NOTICED_SECONDS = 10.0  # after a scheduler's end the last client has noticed
_DEFECT = re.compile(r"Traceback|a defect|never retrieved|Unclosed|CRITICAL", re.IGNORECASE)
_SLACK = 0.01  # of GPU-seconds, which a status rounds
_NEXT_TRY = re.compile(r"next try at (\d{4}-[\dT:-]+Z)")
# After the time that a status tells. What passes without an operator or an API server does not count: a lost node takes
# as long.
_TRIED_SECONDS = 60.0
# A time that is told so far from now is that of an operator which began while the API server told another time.
_BELIEVED_SECONDS = 900.0


@dataclass(frozen=True)
class Hit:
    """A fault ended the scheduler of `cluster`, or asked for its end, which came within so many `seconds`."""

    cluster: str
    at: float
    seconds: float = 0.0


@dataclass(frozen=True)
class Attempt:
    """A program that was run once. It ended with an answer, with an error, or with neither: not at all."""

    cluster: str
    program: str
    began: float
    ended: float
    expected: int
    answer: int | None = None
    error: str = ""

    def __str__(self) -> str:
        said = self.error or (f"{self.answer}, not {self.expected}" if self.answer is not None else "no end")
        return f"{self.program} on {self.cluster}, {self.ended - self.began:.0f} s: {said}"


@dataclass(frozen=True)
class PoolSample:
    """A look at a pool at some time: GPU-seconds by its status, and up to when they count; 0.0: that is not told.

    Times of this one are seconds since the epoch.
    """

    uid: str
    cluster: str
    pool: str
    held: float
    used: float
    counted_at: float = 0.0
    at: float = 0.0


@dataclass(frozen=True)
class SchedulerSample:
    """A look at a scheduler that is ready: its container is another one after each start."""

    cluster: str
    container: str
    at: float


@dataclass(frozen=True)
class StatusSample:
    """A look at a status: its text, and when. Seconds since the epoch, as the status tells times."""

    uid: str
    cluster: str
    text: str
    at: float


@dataclass(frozen=True)
class Verdict:
    """The findings of an audit, by kind; `again`: attempts that may have failed, and were repeated."""

    wrong: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    leaked: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.wrong + other.wrong,
            self.lost + other.lost,
            self.stuck + other.stuck,
            self.leaked + other.leaked,
            self.again + other.again,
        )

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.wrong or self.lost or self.stuck or self.leaked)


def of_attempt(attempt: Attempt, hits: Iterable[Hit]) -> Verdict:
    """One program, run once."""
    words = (str(attempt),)
    if attempt.answer is not None:
        return Verdict() if attempt.answer == attempt.expected else Verdict(wrong=words)
    if not attempt.error:
        return Verdict(stuck=words)
    return Verdict(again=words) if was_hit(attempt.cluster, attempt.began, attempt.ended, hits) else Verdict(lost=words)


def was_hit(cluster: str, since: float, until: float, hits: Iterable[Hit]) -> bool:
    """Whether a fault ended the scheduler of `cluster` between these times, or so shortly before that it counts."""
    return any(
        hit.cluster == cluster and since <= hit.at + hit.seconds + _NOTICED_SECONDS and hit.at <= until for hit in hits
    )


def of_schedulers(samples: Sequence[SchedulerSample], hits: Sequence[Hit]) -> Verdict:
    """The schedulers, in the order in which they were looked at.

    Each hit excuses one other container, however late that is seen: the node may be lost on which it is to start.
    """
    seen: dict[str, list[str]] = {}
    lost = []
    for sample in samples:
        containers = seen.setdefault(sample.cluster, [])
        if sample.container not in containers:
            containers.append(sample.container)
            excused = sum(hit.cluster == sample.cluster and hit.at <= sample.at for hit in hits)
            if len(containers) > 1 + excused:
                lost.append(f"the scheduler of {sample.cluster} is another one, and no fault ended it")
    return Verdict(lost=tuple(lost))


def of_gpu_seconds(samples: Iterable[PoolSample]) -> Verdict:
    """What the statuses counted, in the order in which they were looked at."""
    most: dict[tuple[str, str], PoolSample] = {}
    wrong = []
    for sample in samples:
        before = most.get((sample.uid, sample.pool), sample)
        for name, was, now in (("held", before.held, sample.held), ("used", before.used, sample.used)):
            if now < was - _SLACK:
                wrong.append(f"GPU-seconds {name} of {sample.cluster}/{sample.pool} went back: {was:g} to {now:g}")
        most[sample.uid, sample.pool] = sample
    return Verdict(wrong=tuple(wrong))


def of_retries(samples: Iterable[StatusSample], unattended: Collection[tuple[float, float]] = ()) -> Verdict:
    """What statuses told of next tries, in the order in which they were looked at.

    `unattended`: from when until when there was perhaps no operator, or no API server, to try it.
    """
    late: dict[tuple[str, str], str] = {}
    for sample in samples:
        for told in _NEXT_TRY.findall(sample.text):
            due = datetime.fromisoformat(told).timestamp()
            seconds = sample.at - due - _within(due, sample.at, unattended)
            if _TRIED_SECONDS < seconds < _BELIEVED_SECONDS:
                late[sample.uid, told] = f"{sample.cluster} was not tried again {seconds:.0f} s after {told}"
    return Verdict(stuck=tuple(late.values()))


def _within(first: float, last: float, spans: Iterable[tuple[float, float]]) -> float:
    """The seconds between two times that lie in any of the spans."""
    covered, reached = 0.0, first
    for begin, end in sorted(spans):
        covered += max(0.0, min(end, last) - max(begin, reached))
        reached = max(reached, end)
    return covered


def of_log(lines: Iterable[str]) -> Verdict:
    """What the operators logged: each kind of complaint once."""
    found = {re.sub(r"\d+", "0", line): line for line in lines if _DEFECT.search(line)}
    return Verdict(wrong=tuple(f"the operator's log: {line[:300]}" for line in found.values()))


def report(minutes: float, faults: int, programs: int, verdict: Verdict, ledger_gap: float) -> str:
    """The last line of a run. `ledger_gap`: the part of the GPU-seconds that the ledgers count wrong, from 0 to 1."""
    return (
        f"chaos: minutes={minutes:g} faults={faults} programs={programs} wrong={len(verdict.wrong)} "
        f"lost={len(verdict.lost)} stuck={len(verdict.stuck)} leaked_pods={len(verdict.leaked)} "
        f"ledger_gap={ledger_gap:.2%}"
    )
