"""The course of each job: what was seen of it and when, by the observer, the proxy, and in the operator's log."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

_LOG_LINE = re.compile(r"\[(?P<at>[-\d]+ [:\d]+,\d+)\] \S+ +\[\w+ *\] jobs/(?P<job>j\d+): (?P<text>.*)")
_LEADER_LINE = re.compile(
    r"\[(?P<at>[-\d]+ [:\d]+,\d+)\] .*\b(operator leads(?P<ends> no more)?|(?P<lost>Lease could not be renewed).*)$"
)

_TICK_SECONDS, _LATE_SECONDS = 0.05, 0.25


@dataclass(frozen=True)
class Release:
    """From the end of a runner until the last worker that its own cluster had was gone; times since the epoch."""

    job: str
    runner: str
    ended_at: float
    released_at: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.released_at - self.ended_at


@dataclass
class Course:
    """What happened to jobs, by name, and when; and when no operator led, as pairs of times since the epoch.

    `led_from`: when an operator began to lead. `late`: when this machine was too busy to do anything, and how long.
    """

    notes: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    without_leader: list[tuple[float, float]] = field(default_factory=list)
    led_from: list[float] = field(default_factory=list)
    late: list[tuple[float, float]] = field(default_factory=list)

    def note(self, job: str, text: str) -> None:
        """Something happened to a job just now."""
        self.notes[job].append((time.time(), text))

    async def watch_machine(self) -> None:
        """Note for ever when this process, and so the operator beside it, gets no processor."""
        while True:
            before = time.time()
            await asyncio.sleep(_TICK_SECONDS)
            if (seconds := time.time() - before - _TICK_SECONDS) > _LATE_SECONDS:
                self.late.append((time.time(), seconds))

    def read_log(self, lines: Iterable[str]) -> None:
        """Take what the operator's log says of jobs, and of the times in which it stood by though it was not killed."""
        since: float | None = None
        for line in lines:
            if found := _LOG_LINE.match(line):
                self.notes[found["job"]].append((_epoch(found["at"]), f"log: {found['text']}"))
            elif found := _LEADER_LINE.match(line):
                at = _epoch(found["at"])
                if found["ends"] or found["lost"]:
                    since = at if since is None else since
                    continue
                self.led_from.append(at)
                if since is not None:
                    self.without_leader.append((since, at))
                since = None

    def seconds_led(self, release: Release) -> float:
        """Seconds of a release in which an operator led."""
        begin, end = release.ended_at, release.released_at
        away, at = 0.0, begin
        for since, until in sorted(self.without_leader):
            away += max(0.0, min(end, until) - max(at, since))
            at = max(at, min(end, until))
        return release.seconds - away

    def told(self, release: Release) -> list[str]:
        """A line for the release, and one for each thing that happened meanwhile, in seconds since the runner's end."""
        begin, end = release.ended_at, release.released_at
        common = [
            *((since, "no operator leads") for since, until in self.without_leader if until > begin),
            *((at, "log: the next operator leads") for at in self.led_from),
            *((at, f"the machine was busy for {seconds:.2f} s") for at, seconds in self.late),
        ]
        notes = sorted(each for each in [*self.notes[release.job], *common] if begin - 1.0 <= each[0] <= end + 0.1)
        first = f"{release.job}: released after {release.seconds:.2f} s, {self.seconds_led(release):.2f} s of them led"
        return [first, *(f"  {at - begin:+7.2f} {text}" for at, text in notes)]


def percentile_99(seconds: Iterable[float]) -> float:
    """The 99th percentile; 0.0 of nothing."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else 0.0


def _epoch(text: str) -> float:
    """Seconds since the epoch of a log's local time."""
    local = datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").astimezone()
    return local.astimezone(UTC).timestamp()
