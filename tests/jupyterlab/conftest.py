"""The played Kubernetes, and JupyterLabs that are configured as docs/jupyterlab.md says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.browser import Browser, ensure_browser, started
from tests.eventually import eventually
from tests.jupyterlab.operator import PlayedOperator
from tests.jupyterlab.server import Lab, lab
from tests.kubecluster import fake_server as fake

FACTORY = """
labextension:
  factory:
    module: gpudask
    class: KubeCluster
    kwargs: {image: registry.example/me/dask:0.1.0, n_workers: 1, gpus: 2}
"""


@dataclass(frozen=True)
class Platform:
    """A Kubernetes that is played, and who uses it."""

    server: fake.FakeServer
    operator: PlayedOperator
    kubeconfig: Path

    @property
    def names(self) -> list[str]:
        """Of the clusters that there are."""
        return sorted(self.server.clusters)

    def override(self, pool: str) -> dict[str, object]:
        """The size that is set of a pool of the only cluster."""
        (body,) = self.server.clusters.values()
        listed = body["spec"].get("overrides", [])
        found = next((entry for entry in listed if entry["pool"] == pool), {})
        return {key: value for key, value in found.items() if key not in {"pool", "by"}}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with fake.FakeServer() as server, PlayedOperator(server) as operator:
        kubeconfig = tmp_path_factory.mktemp("user") / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        yield Platform(server, operator, kubeconfig)


@pytest.fixture(autouse=True)
def is_left_empty(platform: Platform) -> Iterator[None]:
    """A test begins without clusters, also where the one before has failed."""
    yield
    platform.server.clusters.clear()
    platform.server.forbidden.clear()
    eventually(lambda: platform.operator.is_idle, "the played operator has ended all")


@pytest.fixture(scope="module")
def one_lab(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab that the tests of a module share: it takes seconds to start."""
    with lab(tmp_path_factory.mktemp("labs") / "lab", platform.kubeconfig, FACTORY) as running:
        yield running


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    ensure_browser()
    (folder := tmp_path / "browser").mkdir()
    async with started(folder) as running:
        yield running
