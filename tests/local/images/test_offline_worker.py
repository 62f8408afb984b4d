"""The image of pods that run the machine's own Python."""

from pathlib import Path

import pytest

from local.images import offline_worker


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
