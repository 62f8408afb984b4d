"""The README's installation by its own commands, read from the file: from an empty registry to a result."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.host.commands import run
from local.host.progress import QUIET
from local.images.debian import BASE_IMAGE
from local.images.wheels import fetch_wheels
from local.operator.release import NAMESPACE
from tests.conftest import ROOT
from tests.docs.pages import BLOCK
from tests.e2e.kubeconfigs import write_kubeconfig
from tests.e2e.platform import Platform
from tests.e2e.registry import image_registry, tags
from tests.e2e.space import Space
from tests.images.test_publish import VERSION

pytestmark = [
    pytest.mark.alone,  # it removes the operator and installs another
    pytest.mark.registry,
    pytest.mark.local_cluster("its nodes pull from this machine's loopback"),
]
_REGISTRY = "registry.example/me"
_SECONDS = 900


def commands() -> list[str]:
    """The shell blocks of the section, in their order."""
    section = (ROOT / "README.md").read_text().partition("## Install it on your cluster")[2].partition("\n## ")[0]
    return [block["text"] for block in BLOCK.finditer(section) if block["language"] == "sh"]


@pytest.fixture
def bare(platform: Platform) -> Iterator[Platform]:
    """The cluster without an operator; afterwards with the one of the other tests."""
    run([str(platform.provider.helm), "uninstall", "gpudask", "-n", NAMESPACE, "--wait"], environment=_admin(platform))
    yield platform
    platform.kubectl.attempt("delete", "gdc", "--all", "--all-namespaces", "--timeout=30s")
    platform.install()


def _admin(platform: Platform) -> dict[str, str]:
    return {"KUBECONFIG": str(platform.kubectl.kubeconfig)}


def _build_options() -> str:
    """What differs on this machine, which has no registry of base images: the base and the wheels are its own."""
    wheels = {
        name: fetch_wheels(ROOT / "requirements" / f"{name}.lock", QUIET) for name in ("operator", "dask", "dask-cpu")
    }
    volumes = " ".join(f"--volume={path}:/wheels/{name}:ro" for name, path in wheels.items())
    links = " ".join(f"--find-links /wheels/{name}" for name in wheels)
    options = "--isolation=chroot --network=host --layers"
    return f"{options} {volumes} --build-arg=BASE={BASE_IMAGE} '--build-arg=PIP_ARGS=--no-index {links}'"


def test_the_readme_installs_from_nothing_and_computes(bare: Platform, tmp_path: Path) -> None:
    build, install, on_my_machine = commands()
    with image_registry(tmp_path) as address, Space.opened(bare) as space:
        kubeconfig = tmp_path / "kubeconfig"
        write_kubeconfig(space, kubeconfig)
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "ENGINE": "buildah",
            "BUILD_ARGS": _build_options(),
            "PUSH_ARGS": "--tls-verify=false",
        }

        def follow(block: str, **more: str) -> str:
            """A block as it is written, but for the registry's address; what it printed."""
            text = block.replace(_REGISTRY, f"{address}/me")
            programs = [Path(bare.kubectl.path).parent, Path(bare.provider.helm).parent]
            path = os.pathsep.join([*filter(None, [more.pop("first", "")]), *map(str, programs), os.environ["PATH"]])
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=ROOT,
                env={**os.environ, **environment, **more, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS,
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}{space.show()}"
            return done.stdout

        printed = follow(build)
        for name in ("operator", "dask", "dask-cpu"):
            assert tags(address, f"me/{name}") == [VERSION]
        next_command = install.replace(_REGISTRY, f"{address}/me")
        assert next_command.startswith(printed), "what it prints is what the README has next"
        assert "condition met" in follow(install)
        images = {pod["spec"]["containers"][0]["image"] for pod in space.get("pods")}
        assert images == {f"{address}/me/dask:{VERSION}"}, "no manifest named it: it is the default"

        run(["python3", "-m", "venv", str(tmp_path / "mine")])
        said = follow(on_my_machine, first=str(tmp_path / "mine" / "bin"))
        assert "plain NumPy agrees: yes" in said
        assert "UserWarning" not in said, "its versions are the images'"
