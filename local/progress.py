"""What the user sees while things are built and started: a line a step, with its time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_QUICK_SECONDS = 0.05
"""A step that took less found its work done: it earns no line."""


@dataclass(frozen=True)
class Steps:
    """Prints to `console`; `quiet` keeps only what takes long out of tests' output."""

    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))
    quiet: bool = False

    @contextmanager
    def step(self, title: str, *, log: Path | None = None) -> Iterator[None]:
        """Show `title` with its running time, then its result; on failure also `log`'s path."""
        if self.quiet:
            yield
            return
        start = time.monotonic()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        try:
            if self.console.is_terminal:
                with Progress(*columns, console=self.console, transient=True) as progress:
                    progress.add_task(title, total=None)
                    yield
            else:
                yield
        except BaseException:
            where = f" (log: {log})" if log else ""
            self.console.print(f"[red]✗[/red] {title} after {time.monotonic() - start:.1f} s{where}")
            raise
        seconds = time.monotonic() - start
        if seconds >= _QUICK_SECONDS:
            self.console.print(f"[green]✓[/green] {title} [dim]{seconds:.1f} s[/dim]")


QUIET = Steps(quiet=True)
