"""How the chart's tests get at helm and at what it renders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.clusters.api_server import ApiServer
from local.control_plane.kube_api import KubeApi
from local.host.progress import QUIET
from local.programs.binaries import HELM, ensure_binary
from tests.kubectl import Kubectl

CHART = Path(__file__).resolve().parents[2] / "charts" / "gpudask"
REPOSITORY = ("--set", "image.repository=registry.example/operator")
GOLDEN = Path(__file__).resolve().parent / "golden"

# To a program in Go that runs for 50 ms: a quarter of that went by in collecting its garbage.
_SOON_OVER = {"GOGC": "off"}

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Helm:
    """The chart in helm's hands: each method is one helm command on it."""

    command: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.command, *arguments], env=os.environ | _SOON_OVER, capture_output=True, text=True, check=False
        )

    def template(self, *options: str) -> subprocess.CompletedProcess[str]:
        return _rendered(self, options)

    def text(self, *options: str) -> str:
        done = self.template(*options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def manifests(self, *options: str) -> list[Manifest]:
        return [document for document in yaml.load_all(self.text(*options), yaml.CSafeLoader) if document]

    def the(self, kind: str, *options: str) -> Manifest:
        """The one manifest of `kind`."""
        [found] = [manifest for manifest in self.manifests(*options) if manifest["kind"] == kind]
        return found

    def notes(self, *options: str) -> str:
        """What the chart says to who installs it."""
        where = ("gpudask", str(CHART), "--namespace", "gpudask-system", *REPOSITORY)
        done = self.run("install", *where, "--dry-run=client", "--output", "json", *options)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["info"]["notes"])

    def refusal(self, *options: str) -> str:
        """What the chart says to bad values."""
        done = self.template(*options)
        assert done.returncode != 0, f"accepted: {options}"
        return done.stderr.split("\nUse --debug flag")[0].strip() + "\n"


@cache
def _rendered(helm: Helm, options: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """What helm renders with these options, once: a program's start for each of many questions takes its time."""
    return helm.run("template", "gpudask", str(CHART), "--namespace", "gpudask-system", *REPOSITORY, *options)


@dataclass(frozen=True)
class Cluster(Kubectl):
    """kubectl as the administrator of an API server of the test's own, and `api` without one."""

    _: KW_ONLY
    api: KubeApi

    def can(self, verb: str, resource: str, namespace: str, *, name: str = "", part: str = "") -> bool:
        """Whether the operator's service account may; `part` is a subresource."""
        target = f"{resource}/{name}" if name else resource
        account = "system:serviceaccount:gpudask-system:gpudask"
        options = ["--namespace", namespace, "--as", account, f"--subresource={part}"]
        done = self.attempt("auth", "can-i", verb, target, *options)
        return done.stdout.strip() == "yes"


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(shutil.which("helm") or str(ensure_binary(HELM, QUIET)))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    server = ApiServer.start(f"chart-{os.getpid()}")
    try:
        yield Cluster(str(server.kubectl), server.kubeconfig, namespace="", api=server.api)
    finally:
        server.stop()


@pytest.fixture
def golden(update_golden: bool) -> Callable[[str, str], None]:
    """Compare a text with tests/chart/golden/NAME; `--update-golden` writes it instead."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update_golden:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{path} differs: --update-golden writes it anew, then read its diff"

    return compare
