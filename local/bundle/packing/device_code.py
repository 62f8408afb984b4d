"""The GPU code in a shared library, reduced to that of one architecture.

A library of RAPIDS has the same kernels for each generation of GPUs, compressed, in the ELF section `.nv_fatbin`: a row
of containers, each with an entry for every architecture. The driver chooses by the entries' headers and reads one of
them. Entries of others become zeros, which the bundle's compression makes vanish; nothing moves, so the rest of the
file stays true. The layout is not documented by NVIDIA: what does not fit is refused, and nothing is guessed.

Only for libraries whose licence allows changes.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from local.errors import LocalClusterError

SECTION = ".nv_fatbin"
_ELF = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQIIHHI")  # kind, version, size of this header, of the payload, ..., architecture
_SECTION_HEADER = struct.Struct("<IIQQQQ")  # name, type, flags, address, offset, size
_MACHINE_CODE = 2
_ALIGNMENT = 8


@dataclass(frozen=True)
class Entry:
    """Code for one architecture, as in 90: `size` bytes at `offset` of the file; machine code, or PTX."""

    architecture: int
    machine_code: bool
    offset: int
    size: int


def only_architecture(library: bytes, architecture: int) -> bytes:
    """The library with machine code for `architecture` alone; as it is where it has no GPU code.

    Raises:
        LocalClusterError: its GPU code is laid out in another way, or it has none for this architecture.
    """
    entries = list(device_code(library))
    kept = [entry for entry in entries if entry.machine_code and entry.architecture == architecture]
    if entries and not kept:
        others = ", ".join(map(str, sorted(Counter(entry.architecture for entry in entries))))
        raise LocalClusterError(f"there is no machine code for architecture {architecture}, only for {others}.")
    reduced = bytearray(library)
    for entry in set(entries) - set(kept):
        reduced[entry.offset : entry.offset + entry.size] = bytes(entry.size)
    return bytes(reduced)


def device_code(library: bytes) -> Iterator[Entry]:
    """Find the GPU code in a shared library for x86-64; nothing in a file of another kind.

    Raises:
        LocalClusterError: it is laid out in another way than is known here.
    """
    try:
        start, end = _section(library, SECTION)
        while start < end:
            magic, _, header, size = _CONTAINER.unpack_from(library, start)
            if magic == 0:  # between containers
                start += _ALIGNMENT
                continue
            if magic != _MAGIC or not 0 < header <= end - start or size > end - start - header:
                raise LocalClusterError(f"{SECTION} is not laid out as known: {magic:#x} at byte {start}.")
            yield from _entries(library, start + header, start + header + size)
            start += header + size
    except struct.error as error:
        raise LocalClusterError(f"{SECTION} is not laid out as known: {error}.") from error


def _entries(library: bytes, start: int, end: int) -> Iterator[Entry]:
    while start < end:
        kind, _, header, size, _, _, _, _, architecture = _ENTRY.unpack_from(library, start)
        if header < _ENTRY.size or size > end - start - header:
            raise LocalClusterError(f"{SECTION} is not laid out as known: an entry of {size} bytes at byte {start}.")
        yield Entry(architecture, kind == _MACHINE_CODE, start + header, size)
        start += header + size


def _section(library: bytes, name: str) -> tuple[int, int]:
    """Where a section begins and ends in the file; (0, 0) where there is none."""
    if not library.startswith(_ELF):
        return 0, 0
    (table,) = struct.unpack_from("<Q", library, 40)
    row_size, rows, names_row = struct.unpack_from("<HHH", library, 58)
    sections = [_SECTION_HEADER.unpack_from(library, table + row * row_size) for row in range(rows)]
    if not names_row < len(sections):
        return 0, 0
    names = sections[names_row][4]
    for name_at, _, _, _, offset, size in sections:
        if library[names + name_at : names + name_at + len(name) + 1] == name.encode() + b"\0":
            return offset, min(offset + size, len(library))
    return 0, 0
