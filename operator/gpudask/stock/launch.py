"""The command line of a stock container: `dask-worker --nthreads 4 ...` as what our fields say.

What a flag means is Dask's: https://docs.dask.org/en/stable/deploying-cli.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gpudask.api.addresses import COMM_PORT, DASHBOARD_PORT
from gpudask.stock.notes import Notes

_COMMANDS = {
    ("dask", "scheduler"): "scheduler",
    ("dask-scheduler",): "scheduler",
    ("dask", "cuda", "worker"): "cuda",
    ("dask-cuda-worker",): "cuda",
    ("dask", "worker"): "worker",
    ("dask-worker",): "worker",
}
# Ours, or the default anyway: nothing is lost without them.
_SILENT_SWITCHES = {"--dashboard", "--no-nanny"}
_SILENT_VALUES = {"--name"}
_KNOWN_SWITCHES = {"--no-dashboard", "--no-reconnect", "--reconnect", "--no-show", "--show", "--jupyter"}
_LOST = {
    "--nworkers": "a pod runs one worker process, or one for each GPU; raise replicas instead",
    "--nanny": "workers run without one; the kubelet restarts a container that ends",
    "--scheduler-file": "workers connect to their own cluster's scheduler",
}
_SCHEDULER_DEFAULTS = {"--port": str(COMM_PORT), "--dashboard-address": str(DASHBOARD_PORT)}
# Dask writes 4GB or 4GiB, Kubernetes 4G or 4Gi.
_BYTES = re.compile(r"^([0-9.]+)\s*([kMGTP]i?)B?$")


@dataclass(frozen=True)
class Launch:
    """A command line as it was read. `kind`: scheduler, worker or cuda; empty where it is no Dask command."""

    kind: str = ""
    nthreads: int | None = None
    memory: str = ""
    offers: dict[str, str] = field(default_factory=dict)
    protocol: str = ""
    preload: list[str] = field(default_factory=list)
    preload_argv: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


def read(command: list[str], where: tuple[str, str], notes: Notes) -> Launch:
    """The launch of `command`, a container's command and args in one; `where`: the object and the field, for notes."""
    start, length, kind = _launcher(command)
    if not kind:
        if command:
            notes.lost(*where, f"{' '.join(command)!r} is no Dask command that is known; the operator starts its own")
        return Launch()
    if start:
        wrapper = " ".join(command[:start])
        notes.lost(*where, f"{wrapper!r} before the Dask command: make it the image's entrypoint")
    return _Reader(kind, where, notes).read(command[start + length :])


def words_before(command: list[str]) -> int | None:
    """How many words of `command` stand before its Dask command, such as `conda run -n mine`; None: it has none.

    What a shell is told with `-c` is its own: the word after it is no Dask command, whatever it begins with.
    """
    start, _, kind = _launcher(command)
    return start if kind and command[start - 1 : start] != ["-c"] else None


def _launcher(command: list[str]) -> tuple[int, int, str]:
    for start in range(len(command)):
        for pattern, kind in _COMMANDS.items():
            if tuple(word.rpartition("/")[2] for word in command[start : start + len(pattern)]) == pattern:
                return start, len(pattern), kind
    return 0, 0, ""


class _Reader:
    """Reads the arguments of one command."""

    def __init__(self, kind: str, where: tuple[str, str], notes: Notes) -> None:
        self._kind, self._where, self._notes = kind, where, notes
        self._nthreads: int | None = None
        self._memory = self._protocol = ""
        self._offers: dict[str, str] = {}
        self._extra: list[str] = []
        self._preload: list[str] = []
        self._preload_argv: list[str] = []

    def read(self, arguments: list[str]) -> Launch:
        rest = _flags(arguments)
        for flag, values in rest:
            if not flag:
                self._address(values)
            elif self._kind == "scheduler":
                self._scheduler(flag, values)
            else:
                self._worker(flag, values)
        return Launch(
            self._kind,
            self._nthreads,
            self._memory,
            self._offers,
            self._protocol,
            self._preload,
            self._preload_argv,
            self._extra,
        )

    def _lose(self, text: str) -> None:
        self._notes.lost(*self._where, text)

    def _address(self, values: list[str]) -> None:
        for value in values:
            if "DASK_SCHEDULER_ADDRESS" not in value and "-scheduler" not in value:
                self._lose(f"{value!r}: workers connect to their own cluster's scheduler")

    def _scheduler(self, flag: str, values: list[str]) -> None:
        value = values[0] if values else ""
        if flag in _SCHEDULER_DEFAULTS:
            if value.rpartition(":")[2] != _SCHEDULER_DEFAULTS[flag]:
                self._lose(f"{flag} {value}: the ports are fixed, {_SCHEDULER_DEFAULTS[flag]} here")
        elif flag == "--dashboard-prefix":
            self._lose(f"{flag} {value}: the operator reads the scheduler's routes at their usual place")
        elif flag == "--protocol":
            self._set_protocol(value)
        elif flag not in _SILENT_SWITCHES:
            self._extra += [flag, *values]

    def _worker(self, flag: str, values: list[str]) -> None:
        value = " ".join(values)
        readers = {
            "--nthreads": self._threads,
            "--memory-limit": self._limit,
            "--resources": self._resources,
            "--protocol": self._set_protocol,
        }
        if flag in readers:
            readers[flag](value)
        elif flag == "--preload":
            self._preload += values
        elif flag == "--preload-argv":
            self._preload_argv += values
        elif flag in _LOST:
            if (flag, value) != ("--nworkers", "1"):
                self._lose(f"{' '.join((flag, *values))}: {_LOST[flag]}")
        elif flag not in _SILENT_SWITCHES | _SILENT_VALUES:
            self._extra += [flag, *values]

    def _set_protocol(self, value: str) -> None:
        self._protocol = value

    def _resources(self, value: str) -> None:
        self._offers = dict(part.split("=", 1) for part in re.split(r"[,\s]+", value) if "=" in part)

    def _threads(self, value: str) -> None:
        if value.isdecimal() and int(value):
            self._nthreads = int(value)
        else:
            self._lose(f"--nthreads {value}: not a number above 0; write nthreads into the pool")

    def _limit(self, value: str) -> None:
        if (match := _BYTES.match(value)) or (value.isdecimal() and int(value)):
            self._memory = "".join(match.groups()) if match else value
        else:
            self._lose(f"--memory-limit {value}: Dask is told resources.memory, shared by the pod's workers")


def _flags(arguments: list[str]) -> list[tuple[str, list[str]]]:
    """Each flag with its values; words that belong to none stand under an empty flag."""
    found: list[tuple[str, list[str]]] = []
    for word in arguments:
        if word.startswith("--"):
            flag, has_value, value = word.partition("=")
            found.append((flag, [value] if has_value else []))
        elif found and found[-1][0] and _takes_more(*found[-1]):
            found[-1][1].append(word)
        else:
            found.append(("", [word]))
    return found


def _takes_more(flag: str, values: list[str]) -> bool:
    if flag in _SILENT_SWITCHES | _KNOWN_SWITCHES or flag == "--nanny":
        return False
    return not values or flag == "--preload-argv" or (flag == "--resources" and "=" in values[-1])
