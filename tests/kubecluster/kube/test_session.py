"""Credentials that end, and servers that do not answer: what is open stays open, and every wait has a limit."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from distributed import Client

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.kube.credentials import Credentials
from gpudask.kubecluster.forward.port_forward import PortForward
from gpudask.kubecluster.forward.pod_port import open_port
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Timing
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import until

SCHEDULER = "demo-scheduler-00000"


def rotate(server: fake.FakeServer, path: Path, token: str) -> None:
    """From now on the server takes `token` alone, which the kubeconfig has."""
    config = server.kubeconfig()
    config["users"][0]["user"]["token"] = token
    path.write_text(yaml.safe_dump(config))
    server.token = token


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """A port that gives back what it gets."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1024):
            writer.write(data)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()[1]


@asynccontextmanager
async def forwarded(server: fake.FakeServer) -> AsyncIterator[tuple[Server, PortForward]]:
    """A forwarded port behind which is an echo."""
    server.pods.append(fake.scheduler_pod(SCHEDULER))
    async with echo() as port:
        server.targets[SCHEDULER] = ("127.0.0.1", port)
        api = await Server.connect(None)
        forwarding = PortForward(api, "demo", 8786, uid="uid-of-demo")
        await forwarding.start()
        try:
            yield api, forwarding
        finally:
            await forwarding.stop()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, word: bytes) -> bytes:
    writer.write(word)
    return await asyncio.wait_for(reader.read(100), 60)


async def test_bytes_go_on_through_a_forwarded_port_while_a_token_ends(server: fake.FakeServer, tmp_path: Path):
    rotate(server, tmp_path / "kubeconfig", "first")
    async with forwarded(server) as (api, forwarding):
        stream = await asyncio.open_connection("127.0.0.1", forwarding.local_port)
        assert await ask(*stream, b"before") == b"before"

        rotate(server, tmp_path / "kubeconfig", "second")
        assert [body["metadata"]["name"] for body in await api.clusters()] == ["demo"]

        assert await ask(*stream, b"after") == b"after"
        stream[1].close()


async def test_bytes_go_on_through_a_forwarded_port_when_something_is_forbidden(server: fake.FakeServer):
    server.forbidden.add("GET nodes")
    async with forwarded(server) as (api, forwarding):
        stream = await asyncio.open_connection("127.0.0.1", forwarding.local_port)
        assert await ask(*stream, b"before") == b"before"

        with pytest.raises(KubeClusterError):
            await api.call("list", "nodes", namespace="")

        assert await ask(*stream, b"after") == b"after"
        assert server.requests.count("GET /api/v1/nodes") == 1
        stream[1].close()


async def test_a_new_connection_takes_the_new_token(server: fake.FakeServer, tmp_path: Path):
    rotate(server, tmp_path / "kubeconfig", "first")
    async with forwarded(server) as (api, _):
        rotate(server, tmp_path / "kubeconfig", "second")
        async with open_port(api, SCHEDULER, 8786) as opened:
            await opened.send(b"word")
            assert await asyncio.wait_for(opened.receive(), 60) == b"word"

    assert server.forwarded_as == ["Bearer first", "Bearer second"]


async def test_a_watch_goes_on_while_a_token_ends(server: fake.FakeServer, tmp_path: Path):
    rotate(server, tmp_path / "kubeconfig", "first")
    api = await Server.connect(None)
    changes = api.changes("1", name="demo")
    change = asyncio.create_task(anext(changes))
    await until(lambda: bool(server.watchers), "a watch")

    rotate(server, tmp_path / "kubeconfig", "second")
    await api.clusters()
    server.tell("MODIFIED", server.clusters["demo"])

    assert (await asyncio.wait_for(change, 60))[0] == "MODIFIED"
    await changes.aclose()


async def test_many_requests_that_are_refused_at_once_read_the_credentials_once(
    server: fake.FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rotate(server, tmp_path / "kubeconfig", "first")
    api = await Server.connect(None)
    reads, read = [], api.session.login.read

    async def counted(**options: bool) -> Credentials:
        reads.append(1)
        return await read(**options)

    monkeypatch.setattr(api.session.login, "read", counted)
    rotate(server, tmp_path / "kubeconfig", "second")

    answers = await asyncio.gather(*(api.find("demo") for _ in range(10)))

    assert all(answers)
    assert len(reads) == 1


async def test_credentials_that_stay_refused_are_one_error_that_says_to_log_in(server: fake.FakeServer, tmp_path: Path):
    rotate(server, tmp_path / "kubeconfig", "first")
    api = await Server.connect(None)
    server.token = "another"

    with pytest.raises(KubeClusterError, match=r"Unauthorized\. Log in again") as raised:
        await api.clusters()

    assert raised.value.status == 401


def test_a_task_that_runs_while_a_token_ends_gives_its_result(demo: fake.FakeServer, tmp_path: Path):
    timing = Timing(forward_look_seconds=0.05)
    rotate(demo, tmp_path / "kubeconfig", "first")
    with KubeCluster.from_name("demo", timing=timing) as cluster, Client(cluster) as client:
        before = len(demo.forwards)
        future = client.submit(time.sleep, 1, pure=False)
        rotate(demo, tmp_path / "kubeconfig", "second")
        cluster.scale(1, pool="cpu")

        assert future.result(timeout=60) is None
        assert len(demo.forwards) == before


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A host that takes packets and says nothing, and a kubeconfig that leads to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        config = fake.FakeServer(port=port).kubeconfig()
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield port


async def test_a_host_that_swallows_what_is_asked_is_given_up(silent: int):
    said = f"cannot reach the API server of context 'lab': http://127.0.0.1:{silent} did not answer within 0.3 s"

    with pytest.raises(KubeClusterError, match=said):
        await asyncio.wait_for(Server.connect(None, timing=Timing(answer_seconds=0.3)), 60)


async def test_a_host_that_swallows_a_greeting_is_given_up(silent: int, tmp_path: Path):
    path = tmp_path / "kubeconfig"
    path.write_text(path.read_text().replace("http:", "https:"))

    with pytest.raises(KubeClusterError, match=f"https://127.0.0.1:{silent} does not answer: no connection within"):
        await asyncio.wait_for(Server.connect(None, timing=Timing(connect_seconds=0.3)), 60)


async def test_a_port_that_is_not_opened_in_time_is_given_up(server: fake.FakeServer):
    server.pods.append(fake.scheduler_pod(SCHEDULER))
    server.is_mute = True
    api = await Server.connect(None)

    with pytest.raises(KubeClusterError, match=r"did not open it within 0.3 s. Check that `kubectl port-forward`"):
        async with open_port(api, SCHEDULER, 8786, limit_seconds=0.3):
            pass


async def test_a_watch_over_a_network_that_went_away_ends(server: fake.FakeServer):
    api = await Server.connect(None, timing=Timing(watch_seconds=0.1, answer_seconds=0.2))

    with pytest.raises(KubeClusterError) as raised:
        await asyncio.wait_for(anext(api.changes("1", name="demo")), 60)
    assert raised.value.may_pass, "it is worth to ask again"


async def test_a_scheduler_without_a_pod_cannot_be_forwarded_to(server: fake.FakeServer):
    with pytest.raises(KubeClusterError, match="scheduler of cluster 'demo': it has no pod that runs"):
        await PortForward(await Server.connect(None), "demo", 8786, uid="uid-of-demo").start()
