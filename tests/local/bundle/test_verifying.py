"""A bundle that did not come whole is refused, with a line for each thing that is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from local.bundle.manifest import MANIFEST, File, Manifest
from local.bundle.unpacking import unpack
from local.bundle.verifying import machine_faults, verify
from local.errors import LocalClusterError
from tests.local.bundle.bundles import small_bundle


def _faults(directory: Path) -> list[str]:
    with pytest.raises(LocalClusterError) as error:
        verify(directory)
    return str(error.value).splitlines()


def test_a_missing_part_is_named_with_its_size(tmp_path: Path):
    directory = small_bundle(tmp_path)
    (directory / "part-001").unlink()
    assert _faults(directory) == [
        f"The bundle in {directory} cannot be used:",
        "- part-001 is missing (1048576 bytes): copy it beside the manifest.",
    ]


def test_a_flipped_bit_is_found(tmp_path: Path):
    directory = small_bundle(tmp_path)
    part = directory / "part-000"
    content = bytearray(part.read_bytes())
    content[777] ^= 1
    part.write_bytes(content)
    (_, line) = _faults(directory)
    assert line.startswith("- part-000 is damaged, its SHA-256 is not ")


@pytest.mark.parametrize("change", [-1, 1])
def test_a_part_of_another_size_is_named_with_both(tmp_path: Path, change: int):
    directory = small_bundle(tmp_path)
    part = directory / "part-002"
    content = part.read_bytes()
    part.write_bytes(content[:-1] if change < 0 else content + b"x")
    (_, line) = _faults(directory)
    size = len(content)
    assert line == f"- part-002 has {size + change} bytes and should have {size}: copy it once more."


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path):
    directory = small_bundle(tmp_path)
    (directory / "part-000").unlink()
    (directory / "part-002").unlink()
    assert len(_faults(directory)) == 3


def test_a_directory_without_a_manifest_is_no_bundle(tmp_path: Path):
    with pytest.raises(LocalClusterError, match=r"no manifest.json in .*: it travels with the parts"):
        verify(tmp_path)


def test_a_cut_manifest_is_no_manifest(tmp_path: Path):
    directory = small_bundle(tmp_path)
    path = directory / MANIFEST
    path.write_text(path.read_text()[:-40])
    with pytest.raises(LocalClusterError, match=r"is no manifest of a bundle .*: copy it once more"):
        verify(directory)


def test_a_bundle_of_a_later_version_says_so(tmp_path: Path):
    directory = small_bundle(tmp_path)
    path = directory / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    with pytest.raises(LocalClusterError, match="is of format 2, and this version reads 1"):
        verify(directory)


def test_a_manifest_cannot_write_outside_the_bundle(tmp_path: Path):
    directory = small_bundle(tmp_path)
    manifest = Manifest.read(directory)
    strange = replace(manifest, files=(*manifest.files, File("../outside", manifest.files[0].sha256)))
    with pytest.raises(LocalClusterError, match=r"names '../outside', which lies outside"):
        unpack(strange, directory, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_manifest_that_does_not_fit_its_parts_unpacks_nothing(tmp_path: Path):
    directory = small_bundle(tmp_path)
    manifest = Manifest.read(directory)
    first, *rest = manifest.archives
    content = replace(first.contents[0], sha256=manifest.archives[1].contents[0].sha256)
    wrong = replace(manifest, archives=(replace(first, contents=(content,)), *rest))
    with pytest.raises(LocalClusterError, match="does not come out of the bundle as it went in"):
        unpack(wrong, directory, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_machine_must_be_of_the_bundles_kind(tmp_path: Path):
    manifest = replace(Manifest.read(small_bundle(tmp_path)), machine="x86_64", glibc="2.36")
    assert not list(machine_faults(manifest, machine="x86_64", libc=("glibc", "2.39")))
    (line,) = machine_faults(manifest, machine="aarch64", libc=("glibc", "2.36"))
    assert line == "it is for x86_64, and this machine is aarch64: pack it on one of the same kind."
    (line,) = machine_faults(manifest, machine="x86_64", libc=("glibc", "2.9"))
    assert line.startswith("it needs the C library 2.36 and this machine has 2.9:")
    (line,) = machine_faults(manifest, machine="x86_64", libc=("", ""))
    assert line.startswith("it needs the GNU C library")
