"""Servers that the environment's proxy is not asked for: NO_PROXY with ranges, as kubectl understands it."""

import pytest

from gpudask import KubeClusterError
from gpudask.kubecluster.kube.session import is_direct
from gpudask.kubecluster.kube.server import Server
from tests.kubecluster import fake_server as fake


@pytest.mark.parametrize(
    ("server", "environment", "direct"),
    [
        ("https://10.1.2.3:6443", {"NO_PROXY": "10.0.0.0/8"}, True),
        ("https://10.1.2.3", {"no_proxy": ".example, 10.1.2.9/24"}, True),
        ("https://[fd00::7]:6443", {"NO_PROXY": "10.0.0.0/8,fd00::/8"}, True),
        ("https://11.1.2.3:6443", {"NO_PROXY": "10.0.0.0/8"}, False),
        ("https://10.1.2.3", {"NO_PROXY": "10.1.2.3"}, False),
        ("https://10.1.2.3", {"NO_PROXY": "10.0.0.0/40, /, a/8"}, False),
        ("https://kubernetes.example", {"NO_PROXY": "0.0.0.0/0"}, False),
        ("https://10.1.2.3", {}, False),
    ],
    ids=["v4", "not its first address", "v6", "outside", "no range", "no ranges", "a name", "nothing"],
)
def test_a_range_is_of_addresses(server: str, environment: dict[str, str], direct: bool) -> None:
    assert is_direct(server, environment) is direct


@pytest.fixture
def proxied(server: fake.FakeServer, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names a proxy that does not answer."""
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_tcp_port}")


async def test_a_server_in_a_range_is_asked_directly(proxied: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    with pytest.raises(KubeClusterError, match="cannot reach the API server"):
        await Server.connect(None)

    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,127.0.0.0/8")
    assert await Server.connect(None)
