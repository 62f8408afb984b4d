"""What is packed comes out again, whatever the size of the parts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from local.bundle.manifest import Manifest
from local.bundle.packing import writing
from local.bundle.packing.pack import parse_size, write_start
from local.bundle.packing.writing import Item, write_bundle
from local.errors import LocalClusterError
from tests.local.bundle.bundles import MIB, noise, pack_small_bundle, read, small_bundle


@pytest.mark.parametrize("part_bytes", [MIB, MIB + 1, 48 * MIB])
def test_files_come_out_as_they_went_in(tmp_path: Path, part_bytes: int):
    directory = small_bundle(tmp_path, part_bytes=part_bytes)
    manifest = read(directory, tmp_path / "out")
    out, src = tmp_path / "out", tmp_path / "src"
    assert (out / "bin/large").read_bytes() == (src / "large").read_bytes()
    assert (out / "bin/other").read_bytes() == (src / "other").read_bytes()
    assert {(out / "text" / name).read_bytes() for name in ("a", "again", "run", "link")} == {(src / "a").read_bytes()}
    assert (out / "text/empty").read_bytes() == b""
    assert (out / "text/link").readlink() == Path("a")
    assert [os.access(out / name, os.X_OK) for name in ("bin/large", "text/run", "text/a")] == [True, True, False]
    assert {part.size for part in manifest.parts[:-1]} <= {part_bytes}
    assert 0 < manifest.parts[-1].size <= part_bytes


def test_a_file_larger_than_a_part_goes_through_several(tmp_path: Path):
    directory = small_bundle(tmp_path, part_bytes=MIB)
    names = sorted(path.name for path in directory.iterdir())
    assert names == ["manifest.json", "part-000", "part-001", "part-002"]


def test_the_same_content_is_kept_once(tmp_path: Path):
    manifest = Manifest.read(small_bundle(tmp_path))
    texts = next(archive for archive in manifest.archives if archive.name == "texts")
    assert sorted(content.size for content in texts.contents) == [0, 5000]


def test_the_same_files_give_the_same_bundle(tmp_path: Path):
    first, second = (pack_small_bundle(tmp_path / name) for name in "ab")
    assert Manifest.read(first) == Manifest.read(second)


def test_a_bundle_replaces_an_older_one_in_its_directory(tmp_path: Path):
    directory = small_bundle(tmp_path)
    item = Item("x", "x", noise(tmp_path / "x", 10))
    write_bundle([item], directory, part_bytes=MIB, preset=0)
    assert sorted(path.name for path in directory.iterdir()) == ["manifest.json", "part-000"]
    read(directory, tmp_path / "out")


def test_compressed_archives_are_taken_from_the_cache(tmp_path: Path):
    item, cache = Item("x", "x", noise(tmp_path / "x", 10)), tmp_path / "cache"
    write_bundle([item], tmp_path / "one", part_bytes=MIB, preset=0, cache=cache)
    (kept,) = cache.iterdir()
    before = kept.stat().st_mtime_ns
    write_bundle([item], tmp_path / "two", part_bytes=MIB, preset=0, cache=cache)
    assert [path.stat().st_mtime_ns for path in cache.iterdir()] == [before]
    read(tmp_path / "two", tmp_path / "out")


def test_a_file_that_changes_while_it_is_packed_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = noise(tmp_path / "x", 10)
    monkeypatch.setattr(writing, "hash_of", lambda _path: "another")
    with pytest.raises(LocalClusterError, match=r"x was changed while it was packed: pack once more"):
        write_bundle([Item("x", "x", source)], tmp_path / "bundle", part_bytes=MIB, preset=0)
    assert not (tmp_path / "bundle" / "manifest.json").exists()


def test_two_files_do_not_share_a_path(tmp_path: Path):
    items = [Item("x", "x", noise(tmp_path / name, 10, seed)) for seed, name in enumerate("ab")]
    with pytest.raises(LocalClusterError, match="two different files would be x"):
        write_bundle(items, tmp_path / "bundle", part_bytes=MIB, preset=0)


def test_a_part_has_a_least_size(tmp_path: Path):
    with pytest.raises(LocalClusterError, match="1048575 bytes is too small: write 1MiB"):
        write_bundle([], tmp_path / "bundle", part_bytes=MIB - 1)


def test_sizes_are_read_as_people_write_them():
    assert [parse_size(text) for text in ("48MiB", "1 GiB", "1048576")] == [48 * MIB, 1024 * MIB, MIB]
    with pytest.raises(LocalClusterError, match="--size '48MB' is no size: write 48MiB"):
        parse_size("48MB")


def test_what_starts_a_bundle_needs_the_standard_library_alone(tmp_path: Path):
    """An isolated Python without site-packages: it fails on the bundle that is not there, and on nothing before."""
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    write_start(tmp_path / "start.pyz")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "start.pyz"), "up"], capture_output=True, text=True, check=False
    )
    assert done.stderr == (
        f"Error: no manifest.json in {tmp_path}: it travels with the parts that `python -m local bundle` writes.\n"
    )
