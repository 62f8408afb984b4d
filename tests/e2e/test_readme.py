"""The README's installation by its own commands, read from the file: onto a Kubernetes on which nobody has anything,
from an empty registry to a result.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.host.commands import run
from local.host.progress import QUIET
from local.images.debian import BASE_IMAGE, ensure_base_image
from local.images.wheels import fetch_wheels
from tests.conftest import ROOT
from tests.docs.pages import BLOCK
from tests.e2e.kubeconfigs import write_kubeconfig
from tests.e2e.platform import Platform
from tests.e2e.registry import ensure_registry, image_registry, tags
from tests.e2e.second_cluster import second_cluster
from tests.e2e.space import Space
from tests.images.test_publish import VERSION

pytestmark = [
    pytest.mark.alone,  # a second cluster and a build of images take most of the machine
    pytest.mark.own_cluster,
    pytest.mark.registry,
    pytest.mark.local_cluster("it makes a cluster of its own, whose nodes pull from this machine's loopback"),
]
_REGISTRY = "registry.example/me"
_SECONDS = 900
_IMAGES = ("operator", "dask", "dask-cpu")
_LOCKS = [ROOT / "requirements" / f"{name}.lock" for name in _IMAGES]


def commands() -> list[str]:
    """The shell blocks of the section, in their order."""
    section = (ROOT / "README.md").read_text().partition("## Install it on your cluster")[2].partition("\n## ")[0]
    return [block["text"] for block in BLOCK.finditer(section) if block["language"] == "sh"]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A Python of a person's own with what the README says to install there: the second cluster has no way outside."""
    run(["python3", "-m", "venv", str(tmp_path / "mine")])
    programs = tmp_path / "mine" / "bin"
    follow(commands()[2].splitlines()[0], {}, programs)
    return programs


@pytest.fixture
def bare() -> Iterator[Platform]:
    """A cluster on which nobody has installed anything."""
    ensure_base_image(QUIET)
    ensure_registry()
    for lock in _LOCKS:
        fetch_wheels(lock, QUIET)
    with second_cluster(f"readme-{os.getpid()}", pretended_gpus=2) as platform:
        yield platform


def follow(commands: str, environment: dict[str, str], *programs: Path) -> str:
    """What the commands print, with these directories of programs first; where one fails, so does the test."""
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=ROOT,
        env={**os.environ, **environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_readme_installs_from_nothing_and_computes(mine: Path, bare: Platform, tmp_path: Path) -> None:
    build, install, (_, *programs) = *commands()[:2], commands()[2].splitlines()
    tools = (Path(bare.kubectl.path).parent, Path(bare.provider.helm).parent)
    with image_registry(tmp_path) as address, Space.opened(bare) as space:
        kubeconfig = tmp_path / "kubeconfig"
        write_kubeconfig(space, kubeconfig)
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "ENGINE": "buildah",
            "BUILD_ARGS": _build_options(),
            "PUSH_ARGS": "--tls-verify=false",
        }
        # As they are written, but for the registry's address.
        build, install = (block.replace(_REGISTRY, f"{address}/me") for block in (build, install))
        printed = follow(build, environment, *tools)
        for name in _IMAGES:
            assert tags(address, f"me/{name}") == [VERSION]
        assert install.startswith(printed), "what it prints is what the README has next"
        try:
            assert "condition met" in follow(install, environment, *tools)
            images = {pod["spec"]["containers"][0]["image"] for pod in space.get("pods")}
            assert images == {f"{address}/me/dask:{VERSION}"}, "no manifest named it: it is the default"
            said = follow("\n".join(programs), environment, mine, *tools)
        except AssertionError:
            print(space.show())
            raise
        assert "plain NumPy agrees: yes" in said
        assert "UserWarning" not in said, "its versions are the images'"


def _build_options() -> str:
    """What differs on this machine, which has no registry of base images: the base and the wheels are its own."""
    wheels = {lock.stem: fetch_wheels(lock, QUIET) for lock in _LOCKS}
    volumes = " ".join(f"--volume={path}:/wheels/{name}:ro" for name, path in wheels.items())
    links = " ".join(f"--find-links /wheels/{name}" for name in wheels)
    options = "--isolation=chroot --network=host --layers"
    return f"{options} {volumes} --build-arg=BASE={BASE_IMAGE} '--build-arg=PIP_ARGS=--no-index {links}'"
