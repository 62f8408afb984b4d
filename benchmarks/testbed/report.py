"""How figures are told: samples, Markdown tables, the last line, and the file that keeps them all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

NOT_MEASURED = "n/a"


@dataclass(frozen=True)
class Sample:
    """The values of one figure; there is at least one."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median."""
        return median(self.values)

    def spread(self, unit: str = " s", digits: int = 2) -> str:
        """Median (least-most)."""
        low, high = min(self.values), max(self.values)
        return f"{self.median:.{digits}f}{unit} ({low:.{digits}f}-{high:.{digits}f})"

    def text(self, unit: str = " s", digits: int = 2) -> str:
        """Median (least-most), n."""
        return f"{self.spread(unit, digits)}, n={len(self.values)}"


def with_unit(value: float | None, unit: str, digits: int = 2) -> str:
    """A figure with its unit, or that it was not measured."""
    return NOT_MEASURED if value is None else f"{value:.{digits}f}{unit}"


def is_met(good: bool) -> str:
    """Whether what is wanted is met."""
    return "yes" if good else "NO"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; rows that are shorter than the head are filled up."""
    lines = [head, ["---"] * len(head), *([*cells, *[""] * (len(head) - len(cells))] for cells in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def one_line(name: str, values: Mapping[str, str]) -> str:
    """The last line of a benchmark: one for whoever reads figures by machine."""
    return f"{name}: " + " ".join(f"{key}={value}" for key, value in values.items())


def keep(path: Path, content: Mapping[str, Any]) -> None:
    """Write figures as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
