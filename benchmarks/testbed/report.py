"""Samples, Markdown tables, the last line, the file that keeps all figures, and on what machine they were taken."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from local.layout import REPOSITORY

NOT_MEASURED = "n/a"
_GIB = 1024**3


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


def describe(kubernetes: str, packages: Iterable[str], **more: Any) -> dict[str, Any]:
    """Date, machine and versions: of Kubernetes, of Python, of installed `packages`, and of whatever else is named."""
    return {
        "date": now(),
        "machine": machine(),
        "versions": {
            "kubernetes": kubernetes,
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
            **more,
            **checkout(),
        },
    }


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def machine() -> dict[str, Any]:
    """The machine; `memory_gib` in GiB, `load`: runnable processes of the last minute, ours not yet among them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / _GIB, 1),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "load": os.getloadavg()[0],
    }


def checkout() -> dict[str, Any]:
    """The commit, and whether the operator was edited since; empty and False where there is no repository."""
    return {
        "checkout": _git("rev-parse", "--short=12", "HEAD"),
        "checkout-edited": bool(_git("status", "--porcelain", "--", "operator")),
    }


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    ).stdout.strip()
