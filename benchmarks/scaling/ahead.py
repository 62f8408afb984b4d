"""What the preload estimates of tasks that wait for their inputs: when the first can run, and how many then.

The true remaining graph with the means known so far, at most once a second, and then wrong by up to a quarter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.scaling.trace import Trace
from gpudask.scaling.demand import Requirement

_EVERY_SECONDS = 1.0
_ERROR = 0.25
_BUDGET = 2000  # tasks that one estimate walks
_UNKNOWN_SECONDS = 0.5  # of a later step that never ran
_REPORTS = "next_seconds" in Requirement.__slots__


@dataclass(frozen=True, slots=True)
class Soon:
    """The first of the waiting tasks can run in `seconds`, None where that is not known, and about `tasks` then."""

    seconds: float | None = None
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """What a scheduler knows: mean seconds by prefix, tasks that ended, those that run and since when.

    `threads`: how many there are for plain tasks.
    """

    now: float
    means: Mapping[str, tuple[float, int]]
    finished: Mapping[int, float]
    running: Mapping[int, float]
    threads: int

    def left(self, task: int, prefix: str) -> float:
        """The seconds that a task is expected to take from now; over its time, as long again as it is over it."""
        mean = self.means[prefix][0] if prefix in self.means else _UNKNOWN_SECONDS
        return abs(mean - (self.now - self.running.get(task, self.now)))


def fields(soon: Soon) -> dict[str, Any]:
    """As fields of a requirement."""
    return {"next_seconds": soon.seconds, "next_tasks": soon.tasks} if _REPORTS else {}


class Lookout:
    """Estimates for one trace, kept for a second."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._random = Random(trace.seed)  # noqa: S311 - a simulation, no secret
        self._kept: dict[int, tuple[float, Soon]] = {}

    def look(self, waiting: set[int], known: Known) -> Soon:
        """The estimate for `waiting` tasks of one kind: for the one with the highest priority."""
        if not waiting:
            return Soon()
        first = min(waiting)
        kept = self._kept.get(first)
        if kept is not None and known.now - kept[0] < _EVERY_SECONDS:
            return kept[1]
        soon = self._estimate(first, waiting, known)
        self._kept = {first: (known.now, soon)}
        return soon

    def _estimate(self, first: int, waiting: set[int], known: Known) -> Soon:
        tasks = self._trace.tasks
        ancestors: set[int] = set()
        stack = [first]
        while stack and len(ancestors) < _BUDGET:
            for needed in tasks[stack.pop()].needs:
                if needed not in known.finished and needed not in ancestors:
                    ancestors.add(needed)
                    stack.append(needed)
        if any(tasks[number].prefix not in known.means and not tasks[number].needs for number in ancestors):
            return Soon()
        left = {number: known.left(number, tasks[number].prefix) for number in ancestors}
        chain: dict[int, float] = {}
        for number in sorted(ancestors):
            before = max((chain.get(needed, 0.0) for needed in tasks[number].needs), default=0.0)
            chain[number] = before + left[number]
        seconds = max(max(chain.values(), default=0.0), sum(left.values()) / max(1, known.threads))
        same = [number for number in waiting if set(tasks[number].needs) == set(tasks[first].needs)]
        return Soon(seconds * self._random.uniform(1 - _ERROR, 1 + _ERROR), len(same))
