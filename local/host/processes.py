"""Long-running parts: started detached, recorded, found again by a later command, stopped.

Only what a record names is ever signalled, and only while its start time still matches.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from local.errors import LocalClusterError
from local.host.process_identity import boot_id, start_ticks

_STANDARD_ERROR = 2
_POLL_SECONDS = 0.02
_KILLED_SECONDS = 10.0


@dataclass(frozen=True)
class Part:
    """A program to keep running: what to start, and with which additions to the environment."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """A started part, as written to disk."""

    name: str
    pid: int
    start_ticks: int
    boot: str
    command: list[str]
    environment: dict[str, str]
    log: str
    started: float = 0.0
    """When, in seconds since 1970: to tell what others have said of it since."""

    @property
    def alive(self) -> bool:
        """Whether the very process that was started still runs."""
        return self.boot == boot_id() and start_ticks(self.pid) == self.start_ticks

    @property
    def part(self) -> Part:
        """What was started."""
        return Part(self.name, tuple(self.command), self.environment)


@dataclass(frozen=True)
class Processes:
    """The parts of one cluster: `records` holds a file for each, `logs` what each has printed."""

    records: Path
    logs: Path

    def log_of(self, name: str) -> Path:
        """Find where a part prints to."""
        return self.logs / f"{name}.log"

    def all(self) -> list[Record]:
        """Read every record, dead parts' too, by name."""
        return [Record(**json.loads(path.read_text())) for path in sorted(self.records.glob("*.json"))]

    def find(self, name: str) -> Record | None:
        """Read one part's record."""
        path = self.records / f"{name}.json"
        return Record(**json.loads(path.read_text())) if path.exists() else None

    def ensure(self, part: Part) -> bool:
        """Have `part` running with exactly its command. Returns whether that took a start."""
        record = self.find(part.name)
        if record and record.alive:
            if record.part == part:
                return False
            self.stop([part.name])
        self._start(part)
        return True

    def restart(self, name: str, *, patience_seconds: float = 5.0) -> None:
        """Stop a part and start it again as it was started.

        Raises:
            KeyError: no part of that name was ever started.
        """
        record = self.find(name)
        if record is None:
            raise KeyError(name)
        self.stop([name], patience_seconds=patience_seconds)
        self._start(record.part)

    def stop(self, names: Sequence[str], *, patience_seconds: float = 5.0) -> None:
        """End parts together, gently at first, and forget them.

        Raises:
            LocalClusterError: one runs on although it was killed. Its record stays.
        """
        found = [record for name in names if (record := self.find(name))]
        _end(found, signal.SIGTERM, patience_seconds)
        if running := _end(found, signal.SIGKILL, _KILLED_SECONDS):
            names_and_pids = ", ".join(f"{record.name} (pid {record.pid})" for record in running)
            raise LocalClusterError(
                f"{names_and_pids} did not end within {_KILLED_SECONDS:g} s of SIGKILL: a system call of theirs hangs."
            )
        for record in found:
            (self.records / f"{record.name}.json").unlink(missing_ok=True)

    def _start(self, part: Part) -> None:
        self.records.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.log_of(part.name)
        started = time.time()
        pid = os.posix_spawnp(
            part.command[0],
            part.command,
            {**os.environ, **part.environment},
            setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
            ],
        )
        # A program that dies at once leaves no start time: -1 then records it as dead.
        ticks = start_ticks(pid)
        record = Record(
            name=part.name,
            pid=pid,
            start_ticks=-1 if ticks is None else ticks,
            boot=boot_id(),
            command=list(part.command),
            environment=dict(part.environment),
            log=str(log),
            started=started,
        )
        path = self.records / f"{part.name}.json"
        path.with_suffix(".new").write_text(json.dumps(asdict(record), indent=1))
        path.with_suffix(".new").replace(path)


def _inheritable() -> list[int]:
    """List what a part would inherit and must not: with the caller's open files it would hold a caller's lock."""
    descriptors = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return [number for number in descriptors if number > _STANDARD_ERROR and _is_inheritable(number)]


def _is_inheritable(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:  # it was closed since, as the one that listed them
        return False


def _end(records: Sequence[Record], signum: signal.Signals, patience_seconds: float) -> list[Record]:
    """Signal those that run, wait until all have ended. Returns those that have not."""
    for record in records:
        if record.alive:
            with suppress(ProcessLookupError):
                os.kill(record.pid, signum)
    deadline = time.monotonic() + patience_seconds
    while (running := [record for record in records if record.alive]) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return running
