"""Progress shown while things are built and started: the current step, and each step's result with its time."""

from __future__ import annotations

import threading
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
    """Prints to `console`, live on a terminal, else a line when a step begins and one when it ends.

    `quiet` prints nothing.
    """

    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))
    quiet: bool = False

    @contextmanager
    def step(self, title: str, *, log: Path | None = None) -> Iterator[None]:
        """Show that `title` runs, then its result with its time; on failure also `log`'s path."""
        if self.quiet:
            yield
            return
        start = time.monotonic()
        try:
            with self._live(title) if self.console.is_terminal else self._announced(title, log):
                yield
        except BaseException:
            self._print(f"[red]✗[/red] {title} after {time.monotonic() - start:.1f} s{_where(log)}")
            raise
        seconds = time.monotonic() - start
        if seconds >= _QUICK_SECONDS:
            self._print(f"[green]✓[/green] {title} [dim]{seconds:.1f} s[/dim]")

    @contextmanager
    def _live(self, title: str) -> Iterator[None]:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            progress.add_task(title, total=None)
            yield

    @contextmanager
    def _announced(self, title: str, log: Path | None) -> Iterator[None]:
        """Print that a step has begun, once it is sure not to be a quick one."""
        timer = threading.Timer(_QUICK_SECONDS, self._print, [f"… {title}{_where(log)}"])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _print(self, line: str) -> None:
        """Print a line whole: paths in it are there to be copied."""
        self.console.print(line, soft_wrap=True)


def _where(log: Path | None) -> str:
    return f" (log: {log})" if log else ""


QUIET = Steps(quiet=True)
