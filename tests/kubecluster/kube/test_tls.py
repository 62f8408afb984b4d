"""TLS to the API server as kubectl does it: whom it trusts, what it shows, and that nothing stays behind on disk."""

import asyncio
import base64
import socket
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpudask import KubeClusterError
from gpudask.kubecluster.kube import credentials
from gpudask.kubecluster.kube.config import Access
from gpudask.kubecluster.kube.credentials import Login
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.kube.session import Session
from gpudask.kubecluster.timing import Timing

Pair = tuple[bytes, bytes]


class Authority:
    """A certificate authority as simple as kubeadm's: without the extensions that Python 3.13 would want."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self._certificate = self._signed("authority", self._key, is_authority=True)
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def pair(self, name: str = "me", *, ended: bool = False) -> Pair:
        """A certificate for 127.0.0.1 and the DNS name `name`, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(name, key, ended=ended).public_bytes(serialization.Encoding.PEM)
        plain = serialization.NoEncryption()
        return certificate, key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain
        )

    def _signed(self, name: str, key: Any, *, is_authority: bool = False, ended: bool = False) -> x509.Certificate:
        now = datetime.now(UTC)
        names = [x509.DNSName(name)] if name != "me" else [x509.IPAddress(ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=-1 if ended else 1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )


@dataclass
class TlsServer:
    """An API server that answers every request, with who asks: the common name, and the header `Authorization`."""

    port: int = 0
    seen: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("peercert") or {}
        subject = {key: value for part in shown.get("subject", ()) for key, value in part}
        while head := (await reader.readuntil(b"\r\n\r\n")).decode():
            headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            self.seen.append(
                (subject.get("commonName", ""), headers.get("authorization", headers.get("Authorization", "")))
            )
            body = b'{"gitVersion": "v1.36.3", "items": []}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()


@asynccontextmanager
async def serving(pair: Pair, folder: Path, clients: Authority | None = None) -> AsyncIterator[TlsServer]:
    """A server that shows `pair`, and wants certificates of `clients` where that is given."""
    server, context = TlsServer(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (folder / "server.pem").write_bytes(b"".join(pair))
    context.load_cert_chain(folder / "server.pem")
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.pem.decode())
    context.sni_callback = lambda _socket, name, _context: server.names.append(name)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await server.serve(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a kubeconfig that leads to a server."""
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def write(port: int, user: dict[str, Any], **cluster: Any) -> Path:
        config = {
            "current-context": "lab",
            "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{port}"} | cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    return write


def data(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def test_nothing_stays_in_the_folder_for_temporary_files(
    kubeconfig: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    authority = Authority()
    certificate, key = authority.pair()
    async with serving(authority.pair(), tmp_path, authority) as server:
        user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
        kubeconfig(server.port, user, **{"certificate-authority-data": data(authority.pem)})
        await Server.connect(None)

    assert server.seen == [("me", "")]
    assert list(folder.iterdir()) == []


async def test_a_client_certificate_is_shown_where_the_kubeconfig_names_no_authority(
    kubeconfig: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Then the system's authorities are trusted: here those of SSL_CERT_FILE."""
    authority = Authority()
    (tmp_path / "system.pem").write_bytes(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    certificate, key = authority.pair()
    (tmp_path / "me.crt").write_bytes(certificate)
    (tmp_path / "me.key").write_bytes(key)
    async with serving(authority.pair(), tmp_path, authority) as server:
        kubeconfig(server.port, {"client-certificate": "me.crt", "client-key": "me.key"})
        await Server.connect(None)

    assert server.seen == [("me", "")]


async def test_an_authority_that_is_not_the_server_s_is_said(kubeconfig: Any, tmp_path: Path):
    async with serving(Authority().pair(), tmp_path) as server:
        kubeconfig(server.port, {"token": "t"}, **{"certificate-authority-data": data(Authority().pem)})
        with pytest.raises(
            KubeClusterError, match=r"cannot reach the API server of context 'lab': .*CERTIFICATE_VERIFY"
        ):
            await Server.connect(None)
    assert server.seen == []


async def test_a_server_s_certificate_may_bear_another_name(kubeconfig: Any, tmp_path: Path):
    authority = Authority()
    async with serving(authority.pair("api.example"), tmp_path) as server:
        cluster = {"certificate-authority-data": data(authority.pem), "tls-server-name": "api.example"}
        kubeconfig(server.port, {"token": "t"}, **cluster)
        await Server.connect(None)

    assert server.names == ["api.example"]


async def test_nothing_is_checked_where_the_kubeconfig_says_so(kubeconfig: Any, tmp_path: Path):
    async with serving(Authority().pair("other"), tmp_path) as server:
        kubeconfig(server.port, {"token": "t"}, **{"insecure-skip-tls-verify": True})
        await Server.connect(None)

    assert server.seen == [("", "Bearer t")]


async def test_a_name_and_a_password_are_used(kubeconfig: Any, tmp_path: Path):
    async with serving(Authority().pair(), tmp_path) as server:
        kubeconfig(server.port, {"username": "jörg", "password": "a:b"}, **{"insecure-skip-tls-verify": True})
        await Server.connect(None)

    assert server.seen == [("", f"Basic {data('jörg:a:b'.encode())}")]


async def test_a_certificate_that_tls_refuses_is_renewed(kubeconfig: Any, tmp_path: Path):
    """A proxy before the server ends expired certificates in the handshake: there is no 401."""
    authority = Authority()
    ended, fresh = authority.pair(ended=True), authority.pair()
    with refusing(authority, tmp_path) as (port, refused):
        (tmp_path / "me.pem").write_bytes(b"".join(ended))
        cluster = {"certificate-authority-data": data(authority.pem)}
        kubeconfig(port, {"client-certificate": "me.pem", "client-key": "me.pem"}, **cluster)
        login = Login(Access().choice(), Timing())
        api = Server(await Session.open(login, Timing()), "lab")
        (tmp_path / "me.pem").write_bytes(b"".join(fresh))

        assert (await api.version())["gitVersion"] == "v1"
        assert refused == ["CERTIFICATE_VERIFY_FAILED"]


@contextmanager
def refusing(authority: Authority, folder: Path) -> Iterator[tuple[int, list[str]]]:
    """A server that says in TLS why it takes no certificate, as Go's and Envoy do; asyncio's just hangs up."""
    context, refused = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
    (folder / "server.pem").write_bytes(b"".join(authority.pair()))
    context.load_cert_chain(folder / "server.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority.pem.decode())

    def serve() -> None:
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return
            with context.wrap_socket(taken, server_side=True, do_handshake_on_connect=False) as connection:
                try:
                    connection.do_handshake()
                    connection.recv(65536)
                    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"gitVersion": "v1"}')
                except ssl.SSLError as error:
                    refused.append(error.reason or "")
                    connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], refused


async def test_an_authority_s_file_may_have_notes_in_any_language(kubeconfig: Any, tmp_path: Path):
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes("# Prüfstelle\n".encode() + authority.pem)
    kubeconfig(1, {"token": "t"}, **{"certificate-authority": "ca.crt"})

    assert len((await Login(Access().choice(), Timing()).read()).tls.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({}, {"certificate-authority-data": data(b"hello")}, "holds no certificate in PEM format. Log in again"),
        ({}, {"certificate-authority": "gone.crt"}, "its certificate-authority .*gone.crt is not there. Put the file"),
        ({"client-certificate-data": "eA==", "client-key-data": "eA=="}, {}, "no credentials that can be used: "),
        ({"client-certificate-data": "eA", "client-key-data": "eA=="}, {}, "client-certificate-data is no base64"),
        (
            {"auth-provider": {"name": "gcp"}},
            {},
            "its user's auth-provider 'gcp' is a kind of login that Kubernetes has given up.*gke-gcloud-auth-plugin",
        ),
        ({}, {"server": ""}, "its cluster's server is ''. Write the server's URL there"),
    ],
)
async def test_what_cannot_be_used_is_one_sentence(
    kubeconfig: Any, user: dict[str, Any], cluster: dict[str, Any], said: str
):
    kubeconfig(1, user, **cluster)

    with pytest.raises(KubeClusterError, match=rf"context 'lab' of the kubeconfig .*{said}"):
        await Server.connect(None)


async def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(kubeconfig: Any):
    certificate, _ = Authority().pair()
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    kubeconfig(1, {"client-certificate-data": data(certificate), "client-key-data": data(key)})

    with pytest.raises(KubeClusterError, match="its client key is encrypted: write one that is not"):
        await Server.connect(None)


async def test_a_pod_s_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "token").write_text("mine\n")
    async with serving(authority.pair(), tmp_path) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        await Server.connect("lab")

    assert server.seen == [("", "Bearer mine")]
