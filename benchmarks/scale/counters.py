"""The operator as it is, with counters: `python -m benchmarks.scale.counters FILE`.

The counts are a small file, mapped into memory: this process keeps them, and the benchmark reads them. A few functions
are wrapped to count their calls, which costs each well under a microsecond; nothing else differs from `python -m
gpudask`.
"""

from __future__ import annotations

import functools
import mmap
import struct
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

_FORMAT = struct.Struct("=Q")


@dataclass(frozen=True)
class Counts:
    """Counts of what the operator has done since it began."""

    passes: int = 0
    """Passes of all clusters' loops."""
    events: int = 0
    """Objects that watches told of: pods, Services, ConfigMaps and clusters."""
    answers: int = 0
    """Demands heard from schedulers."""
    requests: int = 0
    """Requests to the API server, but for lists and watches."""
    statuses: int = 0
    """Writes of a status, among the requests."""

    def __sub__(self, before: Counts) -> Counts:
        """What was done since `before`."""
        return Counts(**{f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)})


_NAMES = tuple(field.name for field in fields(Counts))


class Counters:
    """The file with the counts."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> Self:
        """Map the file; `create` begins at zero."""
        if create:
            path.write_bytes(b"\0" * _FORMAT.size * len(_NAMES))
        with path.open("r+b") as file:
            return cls(mmap.mmap(file.fileno(), 0))

    def add(self, name: str) -> None:
        """Count one more of `name`, a field of Counts. Only one process may do this."""
        offset = _FORMAT.size * _NAMES.index(name)
        (value,) = _FORMAT.unpack_from(self._memory, offset)
        _FORMAT.pack_into(self._memory, offset, value + 1)

    def read(self) -> Counts:
        """What is counted by now."""
        return Counts(*(_FORMAT.unpack_from(self._memory, _FORMAT.size * i)[0] for i in range(len(_NAMES))))


def _count(counters: Counters, name: str, owner: type, method: str) -> None:
    """Count the calls of `owner.method` as `name`."""
    original: Callable[..., Any] = getattr(owner, method)

    @functools.wraps(original)
    def counted(*args: Any, **kwargs: Any) -> Any:
        counters.add(name)
        return original(*args, **kwargs)

    setattr(owner, method, counted)


def _count_items(counters: Counters, name: str, owner: type, method: str) -> None:
    """Count what the generators of `owner.method` yield as `name`."""
    original: Callable[..., AsyncGenerator[Any]] = getattr(owner, method)

    @functools.wraps(original)
    async def counted(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        async with aclosing(original(*args, **kwargs)) as items:
            async for item in items:
                counters.add(name)
                yield item

    setattr(owner, method, counted)


def _run(path: Path) -> int:
    # Only here: the benchmark, which reads the counts, is no operator.
    from gpudask.__main__ import main  # noqa: PLC0415
    from gpudask.clients.kubernetes import Kubernetes  # noqa: PLC0415
    from gpudask.clients.scheduler import SchedulerClient  # noqa: PLC0415
    from gpudask.reconcile.loop import Registry  # noqa: PLC0415
    from gpudask.reconcile.reconciler import Reconciler  # noqa: PLC0415

    counters = Counters.open(path)
    _count(counters, "passes", Reconciler, "reconcile")
    _count_items(counters, "events", Kubernetes, "stream")
    _count(counters, "events", Registry, "cluster_changed")
    _count(counters, "answers", SchedulerClient, "demand")
    _count(counters, "requests", Kubernetes, "request")
    _count(counters, "statuses", Kubernetes, "write_status")
    sys.argv = sys.argv[:1]
    return main()


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1])))
