"""Libraries that wheels load and do not bring: the Dask images have them, and a base that has them is left as it is."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from local.images import debian
from tests.conftest import ROOT

IMAGES = ("dask", "dask-cpu", "dask-rapids")


def containerfile(name: str) -> str:
    return (ROOT / "images" / name / "Containerfile").read_text()


def packages(name: str) -> str:
    found = re.search(r'^ARG DEBIAN_PACKAGES="(.*)"$', containerfile(name), re.MULTILINE)
    assert found is not None
    return found[1]


def installed_by(name: str, tmp_path: Path, wanted: str, present: str) -> list[str]:
    """What the build's own script installs of `wanted` on a base that has `present`, by played programs."""
    script = next(
        run
        for run in re.findall(r"^RUN ((?:.*\\\n)*.*)$", containerfile(name), re.MULTILINE)
        if "DEBIAN_PACKAGES" in run
    )
    log = tmp_path / "log"
    played = {
        "dpkg": f'shift; for name in "$@"; do case " {present} " in *" $name "*) ;; *) exit 1 ;; esac; done',
        "apt-get": f'echo "$@" >> {log}',
        "rm": "",
    }
    for program, text in played.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / program).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "DEBIAN_PACKAGES": wanted}
    subprocess.run(["sh", "-c", script.replace("\\\n", "\n")], env=environment, check=True)
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.partition("--no-install-recommends ")[2] for line in lines if " install" in f" {line}"]


@pytest.mark.parametrize("name", IMAGES)
def test_the_dask_images_have_openmp_which_lightgbm_loads(name: str):
    assert "libgomp1" in packages(name).split()


@pytest.mark.parametrize("name", IMAGES)
def test_the_base_of_the_local_images_has_them_so_that_their_build_asks_no_network(name: str):
    assert set(packages(name).split()) <= set(debian._PACKAGES.split(","))


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(
    ("wanted", "present", "installed"),
    [
        ("libgomp1", "python3", ["libgomp1"]),
        ("libgomp1", "python3 libgomp1", []),
        ("libgomp1 libgl1", "libgomp1", ["libgomp1 libgl1"]),
        ("", "", []),
    ],
)
def test_what_the_base_lacks_is_installed_and_nothing_else(
    name: str, tmp_path: Path, wanted: str, present: str, installed: list[str]
):
    assert installed_by(name, tmp_path, wanted, present) == installed
