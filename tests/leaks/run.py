"""A run: the programs of a schedule in lanes, each started and ended in its way; then the wait for their clusters."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from local.errors import LocalClusterError
from tests.conftest import ROOT
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.platform import Platform
from tests.leaks.access import Access, Accesses
from tests.leaks.program import FORKED, READY
from tests.leaks.report import Ended, Report, report
from tests.leaks.watch import Watch
from tests.leaks.ways import Fault, Planned, schedule

Tell = Callable[[str], None]
_DEADLINE_SECONDS = 120.0  # of a program, from its start to its end
_START_SECONDS = 100  # of that, for its cluster
_POLL_SECONDS = 0.1
_KILLED_SECONDS = 10.0
_SAID_CHARACTERS = 400
# A lane waits while so many are there, so that new ones find room on two small nodes: those whose programs were killed
# stay for minutes.
_MOST_CLUSTERS = 12


@dataclass(frozen=True)
class Settings:
    """`only`: the ways; empty: all. `wait_seconds`: for what is left after the last program."""

    programs: int
    lanes: int
    seed: int
    only: frozenset[str] = frozenset()
    wait_seconds: float = 600.0


class Process:
    """A program that runs: a process group of its own, with a forked child perhaps, and what it said so far."""

    def __init__(self, planned: Planned, access: Access, output: Path) -> None:
        self._output = output
        told = json.dumps(
            {
                "name": planned.cluster,
                "manifest": _manifest(planned),
                "ending": planned.way.ending.value,
                "has_client": planned.has_client,
                "timeout": _START_SECONDS,
            }
        )
        # Its processes alone hold the other end of this pipe: it ends with the last of them.
        self._life, held = os.pipe()
        os.set_blocking(self._life, False)
        try:
            with output.open("wb") as file:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.leaks.program", told],
                    cwd=ROOT,
                    env={**os.environ, "KUBECONFIG": str(access.kubeconfig)},
                    stdin=subprocess.PIPE,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    pass_fds=[held],
                    start_new_session=True,
                )
        finally:
            os.close(held)

    @property
    def text(self) -> str:
        """What it said so far."""
        return self._output.read_text(errors="replace")

    @property
    def leader_has_ended(self) -> bool:
        """Whether the program itself has; its child may live."""
        return self._process.poll() is not None

    @property
    def has_ended(self) -> bool:
        """Whether all of its processes have."""
        if not self.leader_has_ended:
            return False
        try:
            return os.read(self._life, 1) == b""
        except BlockingIOError:
            return False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program itself, not to its child."""
        self._process.send_signal(number)

    def go_on(self) -> None:
        """Tell it to end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """End all that is left of it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End what is left of it, and forget it."""
        self.kill()
        self._process.wait(_KILLED_SECONDS)
        self.go_on()
        os.close(self._life)


class EndedTooSoonError(Exception):
    """The program ended before its way could be tried."""


@dataclass
class Lanes:
    """The lanes, which take one program after another."""

    accesses: Accesses
    watch: Watch
    folder: Path
    tell: Tell
    ended: list[Ended] = field(default_factory=list)

    async def run(self, planned: tuple[Planned, ...], lanes: int) -> None:
        """All of the programs, `lanes` at a time."""
        waiting = iter(planned)
        async with asyncio.TaskGroup() as group:
            for _ in range(lanes):
                group.create_task(self._lane(waiting))

    async def _lane(self, waiting: Iterator[Planned]) -> None:
        for planned in waiting:
            await _until(lambda: self.watch.count < _MOST_CLUSTERS)
            ended = await self._program(planned)
            self.ended.append(ended)
            late, left = "; killed at its deadline" * ended.is_late, "; its cluster is left" * ended.left_cluster
            self.tell(f"{planned}{late}{left}{'; ' * bool(ended.trouble)}{ended.trouble}")

    async def _program(self, planned: Planned) -> Ended:
        try:
            access = await self.accesses.give(planned)
        except AssertionError as error:
            return Ended(planned, time.monotonic(), had_cluster=False, trouble=" ".join(str(error).split()))
        is_late, trouble, process = False, "", Process(planned, access, self.folder / f"{planned.cluster}.log")
        had = False
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                await self._start(planned, access, process)
                had = True
                await access.spoil()
                await _end(planned, process)
        except TimeoutError:
            is_late, trouble = True, process.text[-_SAID_CHARACTERS:]
            had = had or await self._had(planned)
        except (EndedTooSoonError, AssertionError) as error:
            trouble = f"{error} {process.text[-_SAID_CHARACTERS:]}"
            had = False  # perhaps there was one, but its way was not tried
        finally:
            process.close()
        ended_at, left = time.monotonic(), await self._had(planned, uncalled=True)
        return Ended(planned, ended_at, had, is_late, left, " ".join(trouble.split()))

    async def _start(self, planned: Planned, access: Access, process: Process) -> None:
        """Wait until it is where its way begins.

        Raises:
            EndedTooSoonError: it has ended before.
        """
        way = planned.way

        async def is_there() -> bool:
            if way.fault is Fault.ANSWER_HELD:
                return access.proxy is not None and access.proxy.lost.is_set()
            if way.at_start:
                return await self._had(planned)
            return (FORKED if way.forks else READY) in process.text

        while not await is_there():
            if process.leader_has_ended:
                raise EndedTooSoonError("it ended too soon:")
            await asyncio.sleep(_POLL_SECONDS)
        if way.fault is Fault.ANSWER_LOST and not (access.proxy and access.proxy.lost.is_set()):
            raise EndedTooSoonError("no answer was lost:")

    async def _had(self, planned: Planned, *, uncalled: bool = False) -> bool:
        while True:
            try:
                return await self.watch.has(planned.cluster, uncalled=uncalled)
            except LocalClusterError as error:
                self.tell(f"the API server: {error}")
                await asyncio.sleep(1)


async def _end(planned: Planned, process: Process) -> None:
    """End it in its way, and wait until it has."""
    way, pauses = planned.way, iter(planned.pauses)
    for number in way.signals:
        await asyncio.sleep(next(pauses))
        process.send(number)
    if way.signals:
        await _until(lambda: process.leader_has_ended)  # told to go on, it would hide a signal without effect
    else:
        await asyncio.sleep(next(pauses))
    process.go_on()
    await _until(lambda: process.has_ended)


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - processes and what a watch sees set no event
        await asyncio.sleep(_POLL_SECONDS)


def _manifest(planned: Planned) -> Json:
    return cluster(planned.cluster, gpu(replicas=1) if planned.has_gpu else cpu())


async def run(settings: Settings, tell: Tell) -> Report:
    """Do it all on the local cluster, with this checkout's operator, in a namespace that goes afterwards."""
    platform = await asyncio.to_thread(Platform.up)
    planned = schedule(settings.seed, settings.programs, only=settings.only)
    with _namespace(platform) as namespace, _folder() as folder:
        watch = Watch(platform.provider.get, namespace)
        async with (
            Accesses(platform.cluster, platform.kubectl.inside(namespace), folder).opened() as accesses,
            _kept(watch),
        ):
            lanes = Lanes(accesses, watch, folder, tell)
            await lanes.run(planned, settings.lanes)
            tell(f"all programs have ended; something of {watch.count} clusters is there")
            await watch.until_gone(settings.wait_seconds)
        return report(lanes.ended, watch.seen)


@asynccontextmanager
async def _kept(watch: Watch) -> AsyncIterator[None]:
    keeping = asyncio.create_task(watch.keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


@contextmanager
def _namespace(platform: Platform) -> Iterator[str]:
    name = f"leaks-{os.getpid()}"
    platform.create_namespace(name)
    try:
        yield name
    finally:
        platform.kubectl.attempt("delete", "namespace", name, "--wait=false")


@contextmanager
def _folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="leaks-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
