"""The metrics' port: plain or TLS, with a token or without; certificates and tokens may be renewed while it listens."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpudask.api.status import Status
from gpudask.metrics.clusters import ClusterMetrics, Report
from gpudask.metrics.operator import Metrics
from gpudask.metrics.server import MetricsServer, Options
from tests.eventually import eventually_async, steadily_async
from tests.metrics.reading import read, value


@contextlib.asynccontextmanager
async def serving(
    metrics: Metrics | None = None, clock: Callable[[], float] = time.monotonic, **options: str
) -> AsyncIterator[MetricsServer]:
    server = MetricsServer(metrics or Metrics(), Options(0, **options), look_seconds=0.02, clock=clock)
    task = asyncio.create_task(server.run())
    try:
        yield server
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def get(
    server: MetricsServer,
    token: str = "",
    *,
    path: str = "/metrics",
    trust: Path | None = None,
    encoding: str = "identity",
) -> tuple[int, str]:
    """Ask on a connection of its own; the status and the text."""
    await server.listens.wait()
    context = ssl.create_default_context(cafile=str(trust)) if trust is not None else None
    scheme = "https" if trust is not None else "http"
    headers = {"Accept-Encoding": encoding} | ({"Authorization": token} if token else {})
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{scheme}://localhost:{server.port}{path}", ssl=context or True) as got,
    ):
        return got.status, await got.text()


@contextlib.asynccontextmanager
async def asked(server: MetricsServer, headers: bytes = b"", *, address: str = "127.0.0.1") -> AsyncIterator[int]:
    """The status of the answer to one who reads no more than that while it is open."""
    await server.listens.wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0), limit=1024)
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: metrics\r\n" + headers + b"\r\n")
        async with asyncio.timeout(60):
            yield int((await reader.readline()).split()[1])
    finally:
        writer.transport.abort()


class Endless(Metrics):
    """More than any socket takes from a server whose reader waits."""

    def exposition(self) -> Iterator[bytes]:
        while True:
            yield b"#" * 65536


def write_certificate(directory: Path) -> Path:
    """A certificate for localhost that signs itself, with its key, as cert-manager's Secret has them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (directory / "tls.key").write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    )
    (directory / "tls.crt").write_bytes(made.public_bytes(encoding))
    trusted = directory / f"ca-{made.serial_number}.crt"
    trusted.write_bytes(made.public_bytes(encoding))
    return trusted


async def _answers(server: MetricsServer, trust: Path) -> bool:
    """Whether it answers with the certificate that is trusted."""
    try:
        return (await get(server, trust=trust))[0] == HTTPStatus.OK
    except aiohttp.ClientError:
        return False


async def test_everybody_reads_where_no_token_is_asked_for():
    async with serving() as server:
        status, text = await get(server)
        assert status == 200
        assert value(read([text.encode()]), "gpudask_leader") == 0


async def test_nothing_else_is_served_there():
    async with serving() as server:
        assert (await get(server, path="/"))[0] == 404
        assert (await get(server, path="/healthz"))[0] == 404


async def test_who_asks_for_gzip_gets_the_same_in_less():
    metrics = Metrics()
    metrics.leads = lambda: True
    for number in range(200):
        cluster = ClusterMetrics("team-a", f"cluster-{number}")
        cluster.set_report(Report(Status(), 0.0))
        metrics.keep(str(number), cluster)
    async with serving(metrics) as server:
        status, text = await get(server, encoding="gzip")
        assert status == 200
        assert value(read([text.encode()]), "gpudask_cluster_info", cluster="cluster-199") == 1


@pytest.mark.parametrize("sent", ["", "Bearer wrong", "Basic secret", "Bearer", "Bearer s\u00e9cret", "secret"])
async def test_without_the_token_nobody_reads(sent: str, tmp_path: Path):
    (tmp_path / "token").write_text("secret\n")
    async with serving(token=str(tmp_path / "token")) as server:
        assert await get(server, sent) == (401, "")


async def test_a_token_that_is_no_text_opens_nothing_and_is_no_error(tmp_path: Path):
    (tmp_path / "token").write_text("secret\n")
    async with (
        serving(token=str(tmp_path / "token")) as server,
        asked(server, b"Authorization: Bearer s\xe9cret\r\n") as status,
    ):
        assert status == 401


async def test_a_token_that_is_no_text_can_be_the_right_one(tmp_path: Path):
    (tmp_path / "token").write_bytes(b"s\xe9cret\n")
    async with (
        serving(token=str(tmp_path / "token")) as server,
        asked(server, b"Authorization: Bearer s\xe9cret\r\n") as status,
    ):
        assert status == 200


async def test_a_token_that_is_renewed_counts_at_once(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    async with serving(token=str(token)) as server:
        assert (await get(server, "Bearer secret"))[0] == 200
        token.write_text("another")
        assert (await get(server, "Bearer secret"))[0] == 401
        assert (await get(server, "Bearer another"))[0] == 200


@pytest.mark.parametrize("content", ["", " \n", None])
async def test_a_token_that_is_empty_or_missing_opens_nothing(content: str | None, tmp_path: Path):
    if content is not None:
        (tmp_path / "token").write_text(content)
    async with serving(token=str(tmp_path / "token")) as server:
        assert (await get(server, "Bearer "))[0] == 401


async def test_a_certificate_that_is_renewed_is_used_by_the_next_connection(tmp_path: Path):
    before = write_certificate(tmp_path)
    async with serving(tls=str(tmp_path)) as server:
        assert (await get(server, trust=before))[0] == 200
        after = write_certificate(tmp_path)

        await eventually_async(lambda: _answers(server, after), bool, "the new certificate is used")


async def test_a_renewal_that_cannot_be_read_leaves_the_one_before(tmp_path: Path):
    trusted = write_certificate(tmp_path)
    async with serving(tls=str(tmp_path)) as server:
        assert (await get(server, trust=trusted))[0] == 200
        (tmp_path / "tls.crt").write_text("no certificate")
        await steadily_async(lambda: _answers(server, trusted), wanted=True, seconds=0.3)


async def test_until_there_is_a_certificate_nothing_is_served(tmp_path: Path):
    async with serving(tls=str(tmp_path)) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await server.listens.wait()
        trusted = write_certificate(tmp_path)
        assert (await get(server, trust=trusted))[0] == 200


def no_time_passes() -> float:
    """The clock of readers without a pause, however long their readings take."""
    return 100.0


async def test_who_reads_without_pause_is_told_to_wait():
    async with serving(clock=no_time_passes) as server:
        seen = [(await get(server))[0] for _ in range(20)]
        assert seen[0] == 200
        assert 429 in seen


async def test_one_who_reads_without_pause_keeps_nobody_else_out():
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(clock=no_time_passes))
        fast = [await stack.enter_async_context(asked(server)) for _ in range(20)]
        assert 429 in fast
        assert await stack.enter_async_context(asked(server, address="127.0.0.2")) == 200


async def test_one_who_reads_slowly_keeps_nobody_else_out():
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(Endless()))
        slow = [await stack.enter_async_context(asked(server)) for _ in range(3)]
        assert slow == [200, 200, 429]
        assert await stack.enter_async_context(asked(server, address="127.0.0.2")) == 200


async def test_who_has_read_slowly_may_read_again():
    async with serving(Endless()) as server:
        async with asked(server), asked(server):
            pass

        async def status() -> int:
            async with asked(server) as answer:
                return answer

        await eventually_async(status, lambda answer: answer == 200, "the readings that were broken off are over")
