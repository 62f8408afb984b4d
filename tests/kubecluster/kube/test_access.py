"""Which API server and namespace a program means: the kubeconfig's, or that of the pod it runs in."""

from pathlib import Path

import pytest
import yaml

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.kube import config
from gpudask.kubecluster.kube.config import Access
from gpudask.kubecluster.kube.server import Server
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import be_inside


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kubeconfig, and no pod."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def add_context(server: fake.FakeServer, path: Path, name: str, namespace: str) -> None:
    config = server.kubeconfig()
    config["contexts"].append({"name": name, "context": {"cluster": "lab", "user": "me", "namespace": namespace}})
    path.write_text(yaml.safe_dump(config))


async def test_a_context_that_is_named_brings_its_own_namespace(server: fake.FakeServer, tmp_path: Path):
    add_context(server, tmp_path / "kubeconfig", "other", "elsewhere")

    assert (await Server.connect(None)).namespace == "lab"
    assert (await Server.connect(None, context="other")).namespace == "elsewhere"
    assert (await Server.connect("mine", context="other")).namespace == "mine"


def test_a_cluster_is_sought_in_the_named_contexts_namespace(server: fake.FakeServer, tmp_path: Path):
    add_context(server, tmp_path / "kubeconfig", "other", "elsewhere")

    with pytest.raises(KubeClusterError):
        KubeCluster.from_name("demo", context="other")
    assert "GET /apis/gpudask.dev/v1alpha1/namespaces/elsewhere/gpudaskclusters/demo" in server.requests


async def test_a_context_that_the_kubeconfig_does_not_have_is_answered_with_those_there_are(server: fake.FakeServer):
    with pytest.raises(KubeClusterError, match="no context 'prod' in the kubeconfig: it has: lab"):
        await Server.connect(None, context="prod")


async def test_contexts_of_several_files_are_known(
    server: fake.FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = tmp_path / "first"
    first.write_text("{apiVersion: v1, kind: Config, contexts: []}")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'kubeconfig'}")

    assert (await Server.connect(None)).namespace == "lab"


@pytest.mark.usefixtures("nothing")
async def test_without_a_kubeconfig_and_outside_a_pod_it_says_both():
    with pytest.raises(
        KubeClusterError, match=r"KUBECONFIG is not set, there is no ~/.kube/config, and this is no pod"
    ):
        await Server.connect(None)


@pytest.mark.usefixtures("nothing")
async def test_a_pod_without_a_service_account_is_told_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    with pytest.raises(KubeClusterError, match=r"this pod has no credentials.*automountServiceAccountToken: true"):
        await Server.connect("lab")


def test_a_kubeconfig_that_leads_elsewhere_goes_before_the_pod(
    server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")

    assert not Access().is_inside()


def test_a_kubeconfig_that_leads_to_the_pods_own_server_is_inside(
    server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
):
    be_inside(server, monkeypatch)

    assert Access().is_inside()


@pytest.mark.parametrize(
    ("url", "is_own"),
    [
        ("https://kubernetes.default.svc", True),
        ("https://10.96.0.1", True),
        ("https://10.96.0.1:443", True),
        ("https://10.96.0.1:6443", False),
        ("https://example.com", False),
        ("https://example.com:port", False),
    ],
)
def test_the_pods_own_server_has_several_names(url: str, is_own: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    assert config._is_own(url) is is_own


@pytest.mark.usefixtures("nothing")
def test_without_a_kubeconfig_a_pod_is_inside(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")

    assert Access().is_inside()


async def test_a_socks_proxy_is_answered_with_what_to_install(server: fake.FakeServer, tmp_path: Path):
    config = server.kubeconfig()
    config["clusters"][0]["cluster"]["proxy-url"] = "socks5://127.0.0.1:1"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))

    with pytest.raises(KubeClusterError, match=r"proxy to the API server of context 'lab' .*pip install httpx.socks."):
        await Server.connect(None)
