"""Dask's performance report, written to a file when the operator asks, before it ends the cluster.

It needs the task stream, which distributed keeps from when somebody first asks for it: a copy of what each task told,
which takes memory. So it is kept only where the operator says so. The report needs the dashboard's library,
bokeh; where that is missing none is made, and that is told.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import tempfile
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dask

from .part import Part

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

    from .desired import Desired

DIRECTORY = "gpudask.reports"  # of Dask's configuration; by default a folder among the temporary ones
TASKS = 100_000  # that the stream keeps, as Dask's own dashboard does
_NO_NAME = re.compile(r"[^A-Za-z0-9.-]+")


class PerformanceReport(Part):
    """Keeps the task stream while it is wanted, and writes reports."""

    feature = "report"
    attributes = ("plugins", "id")
    methods = MappingProxyType(
        {"performance_report": ("start", "last_count"), "add_plugin": ("plugin",), "remove_plugin": ("name",)}
    )

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._stream = ""  # the name of the plugin, where it was added here
        self._since = time.time()  # of this scheduler's clock, as the stream's own times

    def apply(self, desired: Desired) -> dict[str, str]:
        """Begin or end the task stream."""
        if desired.task_stream and not self._stream:
            self._begin()
        elif self._stream and not desired.task_stream:
            name, self._stream = self._stream, ""
            if name in self._scheduler.plugins:
                self._scheduler.remove_plugin(name=name)
        return {}

    def why_none(self) -> str:
        """Return why no report can be made; `""` where one can."""
        if importlib.util.find_spec("bokeh") is None:
            return "the scheduler's image has no bokeh, which draws the report: install bokeh"
        return ""

    async def html(self) -> str:
        """Return the report of all that the task stream has; raises what drawing it raises."""
        return str(await self._scheduler.performance_report(start=self._since, last_count=1000))

    async def write(self, name: str) -> dict[str, Any]:
        """Write the report; return where it is, and how large, or why there is none."""
        if why := self.why_none():
            return {"path": "", "bytes": 0, "why": why}
        try:
            text = await self.html()
            path = await asyncio.to_thread(_write, name, text)
        except Exception as error:  # noqa: BLE001 - whatever fails in drawing it is told, and costs nothing else
            return {"path": "", "bytes": 0, "why": f"{type(error).__name__}: {error}"[:200]}
        return {"path": str(path), "bytes": path.stat().st_size, "why": ""}

    def _begin(self) -> None:
        from distributed.diagnostics.task_stream import TaskStreamPlugin  # noqa: PLC0415 - most clusters have none

        if TaskStreamPlugin.name not in self._scheduler.plugins:  # else the dashboard, or a client, has begun it
            stream: Any = TaskStreamPlugin
            self._scheduler.add_plugin(stream(self._scheduler, maxlen=TASKS))
            self._stream = TaskStreamPlugin.name
            self._since = time.time()


def _write(name: str, text: str) -> Path:
    folder = Path(dask.config.get(DIRECTORY, os.path.join(tempfile.gettempdir(), "gpudask-reports")))  # noqa: PTH118
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_NO_NAME.sub('-', name)[:100] or 'report'}.html"
    path.write_text(text, encoding="utf-8")
    return path
