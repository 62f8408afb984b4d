"""The report of a run: a table by way, and the verdict. Pure. Times are seconds of one monotonic clock.

A program that never had a cluster shows nothing about leaks: it is named, and the run is not clean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.leaks.ways import WAYS, Planned

_HEAD = ("way", "programs", "killed late", "left at its end", "gone after")


@dataclass(frozen=True)
class Ended:
    """A program that has ended.

    Attributes:
        planned: which.
        ended_at: when the last of its processes had.
        had_cluster: whether it came so far that its cluster was there, and its end could be tried.
        is_late: whether it had to be killed at its deadline.
        left_cluster: whether its cluster was there then, and nobody had asked for its deletion.
        trouble: why its way could not be tried; or what it said last, where that was not asked for.
    """

    planned: Planned
    ended_at: float
    had_cluster: bool = True
    is_late: bool = False
    left_cluster: bool = False
    trouble: str = ""


@dataclass(frozen=True)
class Seen:
    """What was seen of the clusters in the namespace.

    Attributes:
        gone_at: name -> when neither the resource nor a pod of it was there any more.
        left: name -> what of it is there now.
    """

    gone_at: dict[str, float]
    left: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Report:
    """`programs`: that had a cluster."""

    table: tuple[str, ...]
    left: tuple[str, ...]
    not_tried: tuple[str, ...]
    programs: int

    @property
    def is_clean(self) -> bool:
        """Nothing is left, and every program was tried."""
        return not self.left and not self.not_tried and self.programs > 0

    @property
    def line(self) -> str:
        """The last line."""
        return f"leaks: programs={self.programs} left={len(self.left)}"


def report(ended: Sequence[Ended], seen: Seen) -> Report:
    """What became of them all."""
    by_way = {way.name: [each for each in ended if each.planned.way == way] for way in WAYS}
    rows = [_HEAD, *(_row(name, group, seen) for name, group in by_way.items() if group), _row("all", ended, seen)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return Report(
        table=tuple(_line(row, widths) for row in rows),
        left=tuple(f"{name}: {', '.join(what)}" for name, what in sorted(seen.left.items())),
        not_tried=tuple(f"{each.planned}: {each.trouble or 'no cluster'}" for each in ended if not each.had_cluster),
        programs=sum(each.had_cluster for each in ended),
    )


def _row(name: str, ended: Sequence[Ended], seen: Seen) -> tuple[str, ...]:
    tried = [each for each in ended if each.had_cluster]
    late, left = sum(each.is_late for each in ended), sum(each.left_cluster for each in tried)
    if stays := sum(each.planned.cluster in seen.left for each in tried):
        gone = f"{stays} stay"
    elif tried:
        longest = max(max(0.0, seen.gone_at.get(each.planned.cluster, 0.0) - each.ended_at) for each in tried)
        gone = f"{longest:.0f} s at most"
    else:
        gone = "not tried"
    return name, str(len(tried)), str(late), str(left), gone


def _line(row: tuple[str, ...], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
