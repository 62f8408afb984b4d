"""Sizes on a real API server: the rules of server-side apply that the fake one only imitates."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpudask import KubeClusterError
from gpudask.kubecluster.cluster import KubeCluster
from gpudask.kubecluster.server import Server
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api
MIXED = Path(__file__).parents[2] / "examples" / "mixed.yaml"


class Sizes(KubeCluster):
    """A KubeCluster that needs no scheduler: no pod runs behind an API-only server."""

    async def _start(self) -> None:
        self._server = await Server.connect(self._wanted_namespace)
        self.namespace = self._server.namespace


@pytest.fixture
def sizes(in_namespace: Kubectl, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sizes]:
    in_namespace("apply", "-f", str(MIXED))
    monkeypatch.setenv("KUBECONFIG", str(in_namespace.kubeconfig))
    with Sizes.from_name("demo", namespace=in_namespace.namespace) as cluster:
        yield cluster


def overrides(kubectl: Kubectl) -> dict[str, int]:
    spec = yaml.safe_load(kubectl("get", "gdc", "demo", "-o", "yaml").stdout)["spec"]
    return {entry["pool"]: entry["replicas"] for entry in spec.get("overrides", [])}


def test_sizes_of_several_pools_are_set_changed_and_given_back(sizes: Sizes, in_namespace: Kubectl):
    sizes.scale(4, pool="gpu")
    sizes.scale(2, pool="cpu")
    sizes.scale(3, pool="gpu")
    assert overrides(in_namespace) == {"gpu": 3, "cpu": 2}

    sizes.unscale("gpu")
    assert overrides(in_namespace) == {"cpu": 2}

    sizes.scale(None, pool="cpu")
    assert overrides(in_namespace) == {}


def test_applying_the_manifest_again_keeps_the_sizes_that_people_set(sizes: Sizes, in_namespace: Kubectl):
    sizes.scale(4, pool="gpu")

    in_namespace("apply", "-f", str(MIXED))

    assert overrides(in_namespace) == {"gpu": 4}


def test_an_override_that_a_manifest_holds_too_is_reported_when_it_stays(sizes: Sizes, in_namespace: Kubectl):
    manifest = yaml.safe_load(MIXED.read_text())
    manifest["spec"]["overrides"] = [{"pool": "gpu", "replicas": 7, "by": "git"}]
    in_namespace(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=argocd",
        "-f",
        "-",
        stdin=yaml.safe_dump(manifest),
    )
    sizes.scale(4, pool="gpu")
    assert overrides(in_namespace) == {"gpu": 4}

    with pytest.raises(KubeClusterError, match="argocd set it as well"):
        sizes.unscale("gpu")


def test_a_size_beyond_the_schema_is_refused_in_the_servers_words(sizes: Sizes):
    with pytest.raises(KubeClusterError, match="should be greater than or equal to 0"):
        sizes.scale(-1, pool="gpu")


def test_an_unknown_name_is_answered_with_those_that_exist(sizes: Sizes):
    with (
        Sizes.from_name("dmeo", namespace=sizes.namespace) as other,
        pytest.raises(KubeClusterError, match="there are: demo"),
    ):
        other.scale(1)
