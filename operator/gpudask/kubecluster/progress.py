"""What a program is told while it waits: a live panel on a terminal or in a notebook, else a line for each change."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

from gpudask.kubecluster.timing import Timing


class Progress:
    """Shows what is waited for; nothing where it is quiet, or where the wait ends at once.

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
        self._said: set[str] = set()
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
        """What keeps it now, a line each."""
        seconds = self._timing.clock.monotonic() - self._began
        if self._quiet or seconds < self._timing.progress_seconds:
            return
        if self._live is None and not self._said:
            self._live = _live_display()
        if self._live is not None:
            self._live.update(_panel(self._title, lines, seconds), refresh=True)
            return
        for line in lines:
            if line not in self._said:
                self._said.add(line)
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
    from rich.text import Text  # noqa: PLC0415 - Text, not markup: the words are others'

    body = Text("\n".join(lines) or "nothing is wrong: it just takes a moment")
    return Panel(body, title=Text(title), subtitle=Text(f"{seconds:.0f} s"), width=100)
