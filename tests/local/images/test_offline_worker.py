"""The image of pods that run the machine's own Python."""

import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from local.host.progress import QUIET
from local.images import offline_worker
from local.images.node_images import Loadable


def test_the_toolkit_is_named_by_where_it_is_and_not_by_a_link_through_what_pods_do_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "usr/cuda-13.0/nvvm").mkdir(parents=True)
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "etc/alternatives/cuda").symlink_to(tmp_path / "usr/cuda-13.0")
    (tmp_path / "usr/cuda").symlink_to(tmp_path / "etc/alternatives/cuda")
    monkeypatch.setattr(offline_worker, "_TOOLKIT", tmp_path / "usr/cuda")
    assert f"CUDA_HOME={tmp_path / 'usr/cuda-13.0'}" in offline_worker._config("/usr/bin/python3")["Env"]


def test_without_a_toolkit_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(offline_worker, "_TOOLKIT", tmp_path / "usr/cuda")
    assert not [line for line in offline_worker._config("/usr/bin/python3")["Env"] if line.startswith("CUDA_HOME=")]


class Taking:
    """Nodes' images that keep what they are given."""

    def load(self, image: Loadable) -> None:
        with tarfile.open(image.archive) as archive:
            (name,) = [item for item in archive.getnames() if item.endswith("layer.tar")]
            layer = archive.extractfile(name)
            assert layer is not None
            with tarfile.open(fileobj=io.BytesIO(layer.read())) as files:
                self.names = files.getnames()


def test_its_packages_have_bytecode_since_pods_cannot_write_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "cache" / "images").mkdir(parents=True)
    (tmp_path / "site" / "dask").mkdir(parents=True)
    (tmp_path / "site" / "dask" / "array.py").write_text("size = 1\n")
    (tmp_path / "site" / "dask" / "template.py").write_text("{{ no Python }\n")
    monkeypatch.setattr(offline_worker, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(offline_worker, "worker_sites", lambda _: [tmp_path / "site"])
    nodes: Any = Taking()

    offline_worker.load_worker(nodes, tmp_path, QUIET)

    place = "gpudask/packages/dask"
    assert f"{place}/__pycache__/array.{sys.implementation.cache_tag}.pyc" in nodes.names
    assert f"{place}/template.py" in nodes.names
