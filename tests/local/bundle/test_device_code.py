"""GPU code for one architecture is kept, for others it becomes zeros, and what is not understood is refused."""

from __future__ import annotations

import struct

import pytest

from local.bundle.packing.device_code import SECTION, device_code, only_architecture
from local.errors import LocalClusterError

PTX, MACHINE_CODE = 1, 2


def entry(kind: int, architecture: int, content: bytes, header: int = 64) -> bytes:
    fields = struct.pack("<HHIQIIHHI", kind, 0x101, header, len(content), len(content), 0, 8, 1, architecture)
    return fields.ljust(header, b"\x01") + content


def container(*entries: bytes) -> bytes:
    rows = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(rows)) + rows


def library(code: bytes, section: str = SECTION) -> bytes:
    """An ELF file with three sections: none, the code, and their names."""
    names = b"\0" + section.encode() + b"\0.shstrtab\0"
    table = 64 + len(code) + len(names)
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 40, table)
    struct.pack_into("<HHH", header, 58, 64, 3, 2)
    rows = [(0, 0, 0), (1, 64, len(code)), (2 + len(section), 64 + len(code), len(names))]
    sections = b"".join(struct.pack("<IIQQQQ", name, 1, 0, 0, at, size).ljust(64, b"\0") for name, at, size in rows)
    return bytes(header) + code + names + sections


CODE = container(
    entry(MACHINE_CODE, 80, b"A" * 24), entry(MACHINE_CODE, 90, b"H" * 32), entry(PTX, 90, b"P" * 16, header=80)
) + container(entry(MACHINE_CODE, 90, b"h" * 8), entry(MACHINE_CODE, 120, b"B" * 40, header=112))


def test_one_architecture_is_kept_and_nothing_moves():
    whole = library(CODE)
    reduced = only_architecture(whole, 90)
    assert len(reduced) == len(whole)
    expected = whole.replace(b"A" * 24, bytes(24)).replace(b"P" * 16, bytes(16)).replace(b"B" * 40, bytes(40))
    assert reduced == expected
    assert list(device_code(reduced)) == list(device_code(whole))


def test_containers_may_have_a_gap_between_them():
    gapped = library(CODE + bytes(8) + CODE)
    assert [found.architecture for found in device_code(gapped)] == [80, 90, 90, 90, 120] * 2


@pytest.mark.parametrize("other", [b"", b"#!/bin/sh\n", library(CODE, ".text"), b"\x7fELF\x01\x01" + bytes(90)])
def test_a_file_without_gpu_code_stays_as_it_is(other: bytes):
    assert only_architecture(other, 90) == other


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(b"\xff" * 64, id="another format"),
        pytest.param(CODE[:-4], id="cut off"),
        pytest.param(struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0) * 4, id="a header of no size"),
        pytest.param(container(entry(MACHINE_CODE, 90, b"H" * 8, header=64)[:24]), id="an entry that is cut off"),
    ],
)
def test_a_layout_that_is_not_known_is_refused(code: bytes):
    with pytest.raises(LocalClusterError, match="not laid out as known"):
        only_architecture(library(code), 90)


def test_a_library_without_code_for_the_architecture_is_refused():
    with pytest.raises(LocalClusterError, match="no machine code for architecture 70, only for 80, 90, 120"):
        only_architecture(library(CODE), 70)
