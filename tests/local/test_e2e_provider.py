"""Which Kubernetes the e2e tests take, and what becomes of those that only the local cluster can run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from local.clusters.api_server import ApiServer
from local.errors import LocalClusterError
from tests.conftest import ROOT
from tests.e2e.provider import (
    E2E_IMAGE,
    E2E_KUBECONFIG,
    E2E_OPERATOR_IMAGE,
    GivenProvider,
    LocalProvider,
    ProviderError,
    provider_of,
    why_not,
)

ONLY_LOCAL = "tests/e2e/test_bundle.py"


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """The environment of `make test-e2e` for somebody's cluster, which nothing here asks."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("kind: Config\n")
    return {E2E_KUBECONFIG: str(kubeconfig), E2E_IMAGE: "you/dask:1", E2E_OPERATOR_IMAGE: "you/operator:1"}


def collected(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest as a program of its own."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_without_a_word_it_is_the_local_cluster() -> None:
    provider = provider_of({"KUBECONFIG": "/somebody's"})
    assert isinstance(provider, LocalProvider)
    assert why_not("it restarts the API server", provider) == ""


def test_a_given_cluster_runs_the_given_images_and_is_not_the_local_one(given: dict[str, str]) -> None:
    provider = provider_of(given)
    assert isinstance(provider, GivenProvider)
    assert (provider.image, provider.pull_policy) == ("you/dask:1", "IfNotPresent")
    assert why_not("it restarts the API server", provider) == "only on the local cluster: it restarts the API server"
    with pytest.raises(ProviderError, match="the test lacks the mark local_cluster"):
        _ = provider.cluster


@pytest.mark.parametrize("lacking", [E2E_KUBECONFIG, E2E_IMAGE, E2E_OPERATOR_IMAGE])
def test_what_is_missing_is_named(given: dict[str, str], lacking: str) -> None:
    del given[lacking]
    with pytest.raises(ProviderError, match=rf"and {lacking} is missing: make test-e2e KUBECONFIG=\.\.\. IMAGE="):
        provider_of(given)


def test_a_kubeconfig_that_is_not_there_is_named(given: dict[str, str]) -> None:
    with pytest.raises(ProviderError, match="/no/such: there is no such file"):
        provider_of(given | {E2E_KUBECONFIG: "/no/such"})


@pytest.mark.program
def test_elsewhere_a_test_for_the_local_cluster_is_skipped_with_its_reason(given: dict[str, str]) -> None:
    done = collected(given, ONLY_LOCAL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "only on the local cluster: it makes a cluster of its own, from a bundle" in done.stdout
    assert "1 skipped" in done.stdout


@pytest.mark.program
def test_pytest_says_what_is_missing_before_any_test(given: dict[str, str]) -> None:
    del given[E2E_IMAGE]
    done = collected(given, ONLY_LOCAL)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "E2E_IMAGE is missing" in done.stderr


@pytest.mark.parametrize("words", [["IMAGE=a"], ["OPERATOR_IMAGE=b"], ["KUBECONFIG=c"], ["IMAGE=a", "KUBECONFIG=c"]])
def test_make_says_that_a_cluster_of_ones_own_takes_all_three(words: list[str]) -> None:
    command = ["make", "--dry-run", "test-e2e", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "a cluster of your own takes all three" in done.stderr


@pytest.fixture
def on_api_server(api_server: ApiServer) -> GivenProvider:
    """A given cluster, as far as an API server without nodes is one."""
    return GivenProvider(api_server.kubeconfig, "you/dask:1", "you/operator:1")


@pytest.mark.api
def test_objects_of_a_given_cluster_are_read_and_one_that_is_not_there_is_none(on_api_server: GivenProvider) -> None:
    found = on_api_server.get("/api/v1/namespaces/default")
    assert found is not None
    assert found["metadata"]["name"] == "default"
    assert on_api_server.get("/api/v1/namespaces/nobody") is None
    with pytest.raises(LocalClusterError, match="GET /api/v1/namespaces"):
        on_api_server.get("/api/v1/namespaces?limit=x")


@pytest.mark.api
def test_the_tests_get_a_kubeconfig_of_its_own_that_holds_all_it_needs(on_api_server: GivenProvider) -> None:
    kubeconfig = on_api_server.kubectl.kubeconfig
    assert kubeconfig is not None
    assert kubeconfig.stat().st_mode & 0o077 == 0, "it has credentials"
    (entry,) = yaml.safe_load(kubeconfig.read_text())["clusters"]
    assert "certificate-authority-data" in entry["cluster"]


@pytest.mark.api
def test_a_cluster_of_fewer_than_two_nodes_is_refused_and_what_lacks_gpus_says_so(
    on_api_server: GivenProvider,
) -> None:
    with pytest.raises(ProviderError, match="has 0 nodes: the tests take 2"):
        on_api_server.start()
    assert on_api_server.lacks_gpus() == "the nodes offer 0 nvidia.com/gpu, and the tests take 4"
