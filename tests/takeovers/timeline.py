"""The virtual time of a history, what is to happen in it, and its course as it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

EPOCH: Final = 1_800_000_000.0  # when a history begins, on the API server's clock
STEP_SECONDS: Final = 0.1
_DIGITS = 3  # of the time: steps do not add up errors


@dataclass(frozen=True)
class Line:
    """A line of the course. `at`: seconds since the history began.

    `error`: of a status that was written, by how many GPU-seconds it counts more than the pods lived.
    """

    at: float
    text: str
    error: float | None = None

    def told(self) -> str:
        """The line as it is printed."""
        error = "" if self.error is None else f" [{self.error:+.1f}]"
        return f"{self.at:7.1f}{error} {self.text}"


class Timeline:
    """`now`: seconds since the history began. `chance`: all that is random is drawn from it, so a seed is a history.

    `server_set`: by how many seconds somebody has set the API server's clock.
    """

    def __init__(self, seed: int) -> None:
        self.now = self.server_set = 0.0
        self.chance = Random(seed)  # noqa: S311 - no secret
        self.course: list[Line] = []
        self._later: list[tuple[float, Callable[[], object]]] = []

    @property
    def wall(self) -> float:
        """The time in seconds since the epoch, by every clock that is right."""
        return EPOCH + self.now

    @property
    def server_wall(self) -> float:
        """The same by the API server's clock."""
        return self.wall + self.server_set

    def note(self, text: str, error: float | None = None) -> None:
        """Add a line to the course."""
        self.course.append(Line(self.now, text, error))

    def later(self, at: float, do: Callable[[], object]) -> None:
        """Do something at a time, in seconds since the history began."""
        self._later.append((at, do))

    def advance(self) -> None:
        """Make a step, and do what is due."""
        self.now = round(self.now + STEP_SECONDS, _DIGITS)
        due = [do for at, do in self._later if at <= self.now]
        self._later = [(at, do) for at, do in self._later if at > self.now]
        for do in due:
            do()
