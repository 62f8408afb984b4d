"""Display: a cluster's pools as text and as HTML, and the progress of a wait.

A wait is a live panel on a terminal or in a notebook, else a line for each change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

from gpudask.api import Json
from gpudask.kubecluster.timing import Timing

# <cluster>-<pool>-worker-<n>-<nonce>[-<GPU>]: docs/preload-protocol.md
_WORKER_NAME = re.compile(r"^(?P<cluster>.+)-(?P<pool>[a-z][a-z0-9]{0,14})-worker-\d+-[0-9a-z]{5}(-\d+)?$")


@dataclass(frozen=True)
class Row:
    """One pool: its size as asked for, who set it, and the Dask workers that are there."""

    name: str
    size: str
    gpus: str
    workers: int


def pool_of(worker_name: object, cluster: str) -> str:
    """The pool of a Dask worker's name, `""` where it is none of `cluster`'s."""
    match = _WORKER_NAME.match(str(worker_name))
    return match["pool"] if match and match["cluster"] == cluster else ""


def pool_rows(body: Json, workers: Mapping[str, Json]) -> list[Row]:
    """The pools of a cluster, in its manifest's order.

    Args:
        body: the cluster as last read; empty where it never was.
        workers: of the scheduler's identity, by address.
    """
    spec = body.get("spec") or {}
    name = (body.get("metadata") or {}).get("name", "")
    counted = Counter(pool_of(worker.get("name", ""), name) for worker in workers.values())
    set_sizes = {entry["pool"]: entry for entry in spec.get("overrides") or []}
    return [
        Row(
            pool["name"],
            _size(pool, set_sizes.get(pool["name"])),
            str((pool["gpu"] or {}).get("count", 1)) if "gpu" in pool else "",
            counted[pool["name"]],
        )
        for pool in spec.get("pools", [])
    ]


def as_text(rows: list[Row]) -> str:
    """`cpu=2, gpu=0`: workers of each pool."""
    return ", ".join(f"{row.name}={row.workers}" for row in rows)


def as_html(rows: list[Row]) -> str:
    """Rows for Dask's own table of a cluster."""
    if not rows:
        return ""
    lines = [
        f"<tr><td><strong>{escape(row.name)}</strong></td><td>{_count(row.workers, 'worker')}, {escape(row.size)}"
        f"{f', {escape(row.gpus)} GPU a pod' if row.gpus else ''}</td></tr>"
        for row in rows
    ]
    return "".join(lines)


def _size(pool: Json, override: Json | None) -> str:
    if override is not None:
        by = f" (set by {override['by']})" if override.get("by") else " (set)"
        return _replicas(override.get("replicas"), override.get("min", 0), override.get("max")) + by
    limits = pool.get("autoscale") or {}
    return _replicas(pool.get("replicas", 1), limits.get("min", 0), limits.get("max"))


def _replicas(replicas: Any, least: Any, most: Any) -> str:
    return _count(replicas, "pod") if most is None else f"{least} to {most} pods"


def _count(number: Any, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Progress:
    """Progress of a wait, shown while it lasts; nothing where it is quiet, or where the wait ends at once.

    Args:
        title: what is being done.
        timing: for how long nothing is shown.
        quiet: show nothing.
        write: takes a line of plain text.
    """

    def __init__(self, title: str, timing: Timing, *, quiet: bool, write: Callable[[str], None] = print) -> None:
        self._title = title
        self._quiet = quiet
        self._write = write
        self._live: Any = None
        self._printed: set[str] = set()
        self._timing = timing
        self._began = timing.clock.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, lines: list[str]) -> None:
        """Show the present reasons for the wait, a line each."""
        seconds = self._timing.clock.monotonic() - self._began
        if self._quiet or seconds < self._timing.progress_seconds:
            return
        if self._live is None and not self._printed:
            self._live = _live_display()
        if self._live is not None:
            self._live.update(_panel(self._title, lines, seconds), refresh=True)
            return
        for line in lines:
            if line not in self._printed:
                self._printed.add(line)
                self._write(f"{self._title}: {line}")


def _live_display() -> Any:
    """A live display of rich where somebody can see it, else None."""
    try:
        from rich import get_console  # noqa: PLC0415 - a worker's image may have no rich
        from rich.live import Live  # noqa: PLC0415
    except ImportError:
        return None
    console = get_console()
    if not (console.is_terminal or console.is_jupyter):
        return None
    if console.is_jupyter and find_spec("ipywidgets") is None:
        return None  # rich draws with them in a notebook, and without them nothing
    live = Live(console=console, auto_refresh=False, transient=True)
    live.start()
    return live


def _panel(title: str, lines: list[str], seconds: float) -> Any:
    from rich.panel import Panel  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415 - Text, not markup: the text is others'

    body = Text("\n".join(lines) or "nothing is wrong: it just takes a moment")
    return Panel(body, title=Text(title), subtitle=Text(f"{seconds:.0f} s"), width=100)
