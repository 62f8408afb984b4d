"""Counts that one process keeps and another reads: a small file, mapped into memory."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

_FORMAT = struct.Struct("=Q")


@dataclass(frozen=True)
class Counts:
    """What the operator has done since it began."""

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
