"""Credential plugins and files: what they give is used, and what they lack is said."""

import asyncio
import base64
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpudask import KubeClusterError
from gpudask.cli.output import Exit
from gpudask.kubecluster.kube.credentials import Login
from gpudask.kubecluster.kube.config import Access
from gpudask.kubecluster.forward.port_forward import PortForward
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Timing
from tests.cli.invoke import invoke
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import until

SCHEDULER = "demo-scheduler-00000"


def as_user(server: fake.FakeServer, path: Path, user: dict[str, Any]) -> None:
    config = server.kubeconfig()
    config["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(config))


def with_plugin(server: fake.FakeServer, folder: Path, script: str, **more: str) -> Path:
    """The kubeconfig's user gets its token from a shell script; where that lies."""
    path = folder / "plugin"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "args": ["get-token"]}
    as_user(server, folder / "kubeconfig", {"exec": plugin | more})
    return path


def giving(path: Path) -> str:
    """A script that gives the token which a file holds."""
    return f'echo "{{\\"status\\": {{\\"token\\": \\"$(cat {path})\\"}}}}"\n'


async def test_a_plugin_is_asked_again_when_its_token_has_ended(server: fake.FakeServer, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("first")
    server.token = "first"
    with_plugin(server, tmp_path, giving(token))
    api = await Server.connect(None)

    token.write_text("second")
    server.token = "second"

    assert len(await api.clusters()) == 1


async def test_a_plugin_that_is_not_installed_is_named_with_its_hint(server: fake.FakeServer, tmp_path: Path):
    with_plugin(server, tmp_path, "", command="gke-gcloud-auth-plugin-x", installHint="Install it from example.com")

    with pytest.raises(KubeClusterError) as raised:
        await Server.connect(None)

    assert str(raised.value) == (
        "no credentials for context 'lab' of the kubeconfig: 'gke-gcloud-auth-plugin-x' is not installed, or not on"
        " PATH. Install it from example.com, or put it on PATH"
    )


def test_a_plugin_that_fails_is_one_line_of_the_command_line(server: fake.FakeServer, tmp_path: Path):
    plugin = with_plugin(server, tmp_path, "echo 'The SSO session has expired' >&2; exit 255\n")

    result = invoke("get")

    assert result.exit_code == Exit.FAILED
    assert result.stderr.strip() == (
        f"error: no credentials for context 'lab' of the kubeconfig: '{plugin}' says: The SSO session has expired."
        f" Run it by hand to see what it wants: {plugin} get-token"
    )


@pytest.mark.parametrize("printed", ["hello", "{}", '{\\"status\\": {}}', "[]"])
async def test_a_plugin_that_gives_no_token_is_named(server: fake.FakeServer, tmp_path: Path, printed: str):
    plugin = with_plugin(server, tmp_path, f'echo "{printed}"\n')

    with pytest.raises(KubeClusterError, match=f"'{plugin}' gave no token and no certificate"):
        await Server.connect(None)


async def test_a_plugin_that_does_not_end_is_given_up(server: fake.FakeServer, tmp_path: Path):
    plugin = with_plugin(server, tmp_path, "exec sleep 60\n")

    with pytest.raises(KubeClusterError, match=f"'{plugin}' did not end within 0.3 s. Run it by hand"):
        await asyncio.wait_for(Server.connect(None, timing=Timing(plugin_seconds=0.3)), 10)


async def test_a_token_that_ended_ends_no_watch_over_pods_and_starts_no_plugin(server: fake.FakeServer, tmp_path: Path):
    """What is forwarded to a pod that is gone is cut, once the program's next call has brought a new token."""
    token, calls = tmp_path / "token", tmp_path / "calls"
    token.write_text("first")
    server.token = "first"
    fails = f"echo x >> {calls}; [ -s {token} ] || exit 1\n"
    with_plugin(server, tmp_path, fails + giving(token))
    server.pods.append(fake.scheduler_pod(SCHEDULER))
    listener = await asyncio.start_server(lambda *_: asyncio.sleep(60), "127.0.0.1", 0)
    server.targets[SCHEDULER] = ("127.0.0.1", listener.sockets[0].getsockname()[1])
    timing = Timing(forward_look_seconds=0.05, forward_seldom_seconds=0.05, watch_seconds=0.1)
    api = await Server.connect(None, timing=timing)
    forwarding = PortForward(api, "demo", 8786, uid="uid-of-demo")
    await forwarding.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", forwarding.local_port)
    await until(lambda: any(forwarding._connections.values()), "a connection")

    token.write_text("")
    server.token = "second"
    starts, looks = len(calls.read_text()), server.requests.count(f"GET {fake.PODS}")
    server.pods[:] = [fake.scheduler_pod(SCHEDULER, uid="another")]
    await until(lambda: server.requests.count(f"GET {fake.PODS}") > looks + 2, "it looks in vain")
    assert len(calls.read_text()) == starts
    token.write_text("second")
    await api.clusters()

    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    await forwarding.stop()
    listener.close()


async def test_a_token_in_a_file_is_used_and_read_again(server: fake.FakeServer, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("first\n")
    as_user(server, tmp_path / "kubeconfig", {"tokenFile": "token"})
    server.token = "first"
    api = await Server.connect(None)

    token.write_text("second\n")
    server.token = "second"

    assert len(await api.clusters()) == 1


async def test_a_certificate_that_is_not_there_is_named(server: fake.FakeServer, tmp_path: Path):
    as_user(server, tmp_path / "kubeconfig", {"client-certificate": "me.crt", "client-key": "me.key"})

    with pytest.raises(KubeClusterError, match=f"its client-certificate {tmp_path / 'me.crt'} is not there"):
        await Server.connect(None)


async def test_a_key_of_the_kubeconfig_is_not_left_in_a_file(
    server: fake.FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    certificate, key = (base64.b64encode(part).decode() for part in a_certificate())
    as_user(server, tmp_path / "kubeconfig", {"client-certificate-data": certificate, "client-key-data": key})
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    found = await Login(Access().choice(), Timing()).read()

    assert found.has_certificate
    assert list(folder.iterdir()) == []


def a_certificate() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    return made.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain
    )


async def test_a_token_in_a_file_that_cannot_be_read_is_one_error(server: fake.FakeServer, tmp_path: Path):
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    as_user(server, tmp_path / "kubeconfig", {"tokenFile": "token"})

    with pytest.raises(KubeClusterError, match=r"context 'lab' .* no credentials that can be used: 'utf-8' codec"):
        await Server.connect(None)
