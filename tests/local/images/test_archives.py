"""Images of one binary: the same each time, and readable as what `docker save` writes."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from local.errors import LocalClusterError
from local.images.archives import read_archive, write_thin
from local.images.scratch import write_archive


def _write(target: Path, binary: Path) -> str:
    return write_archive(target, reference="localhost/x:1", files={"/x": binary}, command=["/x"])


def test_an_archive_tells_its_own_name_and_id(tmp_path: Path):
    binary = tmp_path / "x"
    binary.write_bytes(b"program")
    image_id = _write(tmp_path / "x.tar", binary)
    archived = read_archive(tmp_path / "x.tar")
    assert (archived.reference, archived.image_id) == ("localhost/x:1", image_id)


def test_the_same_binary_gives_the_same_image(tmp_path: Path):
    binary = tmp_path / "x"
    binary.write_bytes(b"program")
    assert _write(tmp_path / "a.tar", binary) == _write(tmp_path / "b.tar", binary)


def test_a_file_that_is_no_archive_is_refused_by_name(tmp_path: Path):
    (tmp_path / "x.tar").write_text("no archive")
    with pytest.raises(LocalClusterError, match=r"x\.tar is no image archive"):
        read_archive(tmp_path / "x.tar")


def test_a_thin_archive_leaves_out_only_the_layers_that_are_there(tmp_path: Path):
    binary = tmp_path / "x"
    binary.write_bytes(b"program")
    image_id = _write(tmp_path / "whole.tar", binary)
    with tarfile.open(tmp_path / "whole.tar") as whole:
        layer = next(name.split("/")[0] for name in whole.getnames() if name.endswith("layer.tar"))

    def blobs(present: set[str]) -> set[str]:
        write_thin(tmp_path / "whole.tar", tmp_path / "thin.tar", reference="localhost/x:1", present=present)
        with tarfile.open(tmp_path / "thin.tar") as thin:
            return {name.removeprefix("blobs/sha256/") for name in thin.getnames() if name.startswith("blobs/")}

    assert {layer, image_id} < blobs(set())
    assert blobs(set()) - blobs({f"sha256:{layer}"}) == {layer}
