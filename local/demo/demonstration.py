"""The order of events: apply, wait for the scheduler, run the pipeline, wait for the GPU pools to empty, sum up."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from gpudask.kubecluster.errors import KubeClusterError
from local.demo.lines import lines_of
from local.demo.model import Fact, LineFact, View
from local.demo.pipeline import run_pipeline
from local.demo.plot import draw
from local.demo.recording import Recording, TooLateError
from local.demo.summary import Line, summarize
from local.demo.view import table
from local.demo.watching import Watcher

_REFRESH_SECONDS = 0.25


class DemoError(Exception):
    """The demonstration failed; the text says at which step and why."""


@dataclass(frozen=True)
class Demonstration:
    """The demonstration to run, and deadlines for each of its steps, in seconds."""

    kubeconfig: str
    namespace: str
    manifest: dict[str, Any]
    plot: Path
    start_seconds: float = 180
    pipeline_seconds: float = 600
    shrink_seconds: float = 120

    @property
    def name(self) -> str:
        """The cluster's name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def gpu_pools(self) -> list[str]:
        """Names of the pools that hold GPUs."""
        return [pool["name"] for pool in self.manifest["spec"]["pools"] if "gpu" in pool]

    async def run(self, console: Console) -> list[Line]:
        """Show it all; the summary.

        Raises:
            DemoError: a step failed or took too long.
        """
        watcher = await Watcher.connect(self.kubeconfig, self.namespace)
        recording = Recording()
        following = asyncio.create_task(watcher.follow(self.name, recording))
        steps = asyncio.create_task(self._steps(watcher, recording))
        try:
            async with shown(recording, self.name, console):
                # A watch that breaks for good would leave the steps waiting for facts that never come.
                await asyncio.wait({following, steps}, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()  # raises: watches end only by failing
                before, report = await steps
        except TooLateError as error:
            raise DemoError(str(error)) from error
        finally:
            for task in (following, steps):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            if recording.view.samples:
                draw(recording.view, recording.now(), self.gpu_pools, self.plot)
        return summarize(recording.view, before, report, self.gpu_pools)

    async def _steps(self, watcher: Watcher, recording: Recording) -> tuple[View, dict[str, Any]]:
        try:
            await watcher.apply(self.manifest)
        except KubeClusterError as error:
            raise DemoError(f"the API server refuses the manifest of {self.name}: {error}") from error
        await recording.until(
            lambda view: view.status.scheduler.ready, self.start_seconds, "the scheduler was not ready"
        )
        before = recording.view
        report = await self._pipeline(recording)
        await recording.until(
            lambda view: all(view.pool(name).empty for name in self.gpu_pools),
            self.shrink_seconds,
            "the GPU pool did not go back to 0",
        )
        return before, report

    async def _pipeline(self, recording: Recording) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            arguments = ["--cluster", self.name, "--namespace", self.namespace, "--report", str(report)]
            arguments += ["--gpu-pool", self.gpu_pools[0]]
            try:
                code = await run_pipeline(
                    arguments,
                    self.kubeconfig,
                    lambda text: recording.add(LineFact(recording.now(), text)),
                    self.pipeline_seconds,
                )
            except TimeoutError:
                raise DemoError(f"the pipeline still ran after {self.pipeline_seconds:g} s and was ended") from None
            if code != 0:
                raise DemoError(f"the pipeline failed with exit code {code}: see its lines above")
            result: dict[str, Any] = json.loads(report.read_text())
            return result


@asynccontextmanager
async def shown(recording: Recording, name: str, console: Console) -> AsyncIterator[None]:
    """Print facts as they come; on a terminal with a live table of the pools below them."""

    def say(before: View, after: View, fact: Fact) -> None:
        for line in lines_of(before, after, fact, with_pools=not console.is_terminal):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    recording.listen(say)
    if not console.is_terminal:
        yield
        return
    with Live(console=console, auto_refresh=False) as live:

        async def refresh() -> None:
            while True:
                live.update(table(recording.view, name, recording.now()), refresh=True)
                await asyncio.sleep(_REFRESH_SECONDS)

        task = asyncio.create_task(refresh())
        try:
            yield
        finally:
            task.cancel()
            live.update(table(recording.view, name, recording.now()), refresh=True)


def print_summary(lines: list[Line], console: Console) -> None:
    """The summary as a table."""
    result = Table("what", "value", "source", title="What happened", title_justify="left", box=None, pad_edge=False)
    for line in lines:
        result.add_row(line.what, line.value, line.source)
    console.print()
    console.print(result)
