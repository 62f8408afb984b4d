"""A forwarded port gives up soon what leads nowhere, and breaks quietly what its websocket breaks."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx_ws
import pytest

from gpudask.kubecluster.forward.port_forward import PortForward
from gpudask.kubecluster.forward.pod_port import open_port
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Clock, Timing
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import until

SCHEDULER = "demo-scheduler-00000"


@pytest.fixture
async def silent(server: fake.FakeServer) -> AsyncIterator[fake.FakeServer]:
    """A scheduler's pod that takes connections and says nothing."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(take, "127.0.0.1", 0)
    server.targets[SCHEDULER] = ("127.0.0.1", listener.sockets[0].getsockname()[1])
    server.pods.append(fake.scheduler_pod(SCHEDULER))
    yield server
    listener.close()


@asynccontextmanager
async def forwarded(*, expects_handshake: bool = False, limit_seconds: float = 5) -> AsyncIterator[PortForward]:
    forward = PortForward(
        await Server.connect(None),
        "demo",
        8786,
        uid="uid-of-demo",
        limit_seconds=limit_seconds,
        expects_handshake=expects_handshake,
    )
    await forward.start()
    try:
        yield forward
    finally:
        await forward.stop()


async def until_cut(forward: PortForward) -> None:
    """Open a connection that somebody greets, and wait until it is cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
    writer.write(b"hello")
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


async def test_a_connection_for_which_there_is_no_pod_is_cut_in_time(silent: fake.FakeServer):
    async with forwarded() as forward:
        silent.pods.clear()
        looks = silent.requests.count(f"GET {fake.PODS}")
        await until_cut(forward)
        assert forward.trouble == "it has no pod that runs"
        assert silent.requests.count(f"GET {fake.PODS}") > looks + 1, "it was looked for again"


async def test_one_that_the_api_server_does_not_open_is_cut_in_time(silent: fake.FakeServer):
    async with forwarded() as forward:
        silent.is_mute = True
        await until_cut(forward)
        assert forward.trouble


async def test_one_to_which_a_scheduler_does_not_answer_is_cut_in_time(silent: fake.FakeServer):
    async with forwarded(expects_handshake=True) as forward:
        await until_cut(forward)
        assert forward.trouble == f"nothing answers at port 8786 of pod {SCHEDULER}"


async def test_one_that_need_not_be_answered_stays_open(silent: fake.FakeServer):
    async with forwarded() as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        await until(lambda: any(forward._connections.values()), "a connection")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 6)
        assert forward.trouble == ""
        writer.close()


async def test_a_pod_that_comes_in_time_is_reached_by_the_same_connection(silent: fake.FakeServer):
    async with forwarded(limit_seconds=120) as forward:
        pods = list(silent.pods)
        silent.pods.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        looks = silent.requests.count(f"GET {fake.PODS}")
        await until(lambda: silent.requests.count(f"GET {fake.PODS}") > looks + 1, "it looks again")
        silent.pods += pods
        await until(lambda: any(forward._connections.values()), "a connection")
        writer.close()


@pytest.fixture
def lost_network(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Once it is set, the network is gone: in a task of the websocket's own, so in a group."""
    lost = asyncio.Event()

    async def receive(*_: object) -> None:
        await lost.wait()
        raise httpx_ws.WebSocketNetworkError

    monkeypatch.setattr(httpx_ws.AsyncWebSocketSession, "_background_receive", receive)
    return lost


async def test_a_connection_whose_network_is_lost_ends_and_no_other(
    silent: fake.FakeServer, lost_network: asyncio.Event, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.ERROR)
    async with forwarded(limit_seconds=120) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        await until(lambda: any(forward._connections.values()), "a connection")
        lost_network.set()
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        await until(lambda: not forward._connections, "it has ended")
        lost_network.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        await until(lambda: any(forward._connections.values()), "another connection")
        writer.close()
    assert caplog.records == []


async def test_what_breaks_a_websocket_is_one_error_and_what_a_program_raises_is_its_own(
    silent: fake.FakeServer, lost_network: asyncio.Event
):
    api = await Server.connect(None)
    with pytest.raises(ExceptionGroup) as raised:
        async with open_port(api, SCHEDULER, 8786):
            raise ZeroDivisionError
    assert isinstance(raised.value.exceptions[0], ZeroDivisionError)
    with pytest.raises(ConnectionError, match=f"the connection to pod {SCHEDULER} broke"):  # noqa: PT012
        async with open_port(api, SCHEDULER, 8786):
            lost_network.set()
            await asyncio.sleep(600)


@asynccontextmanager
async def talking(server: fake.FakeServer, size: int) -> AsyncIterator[None]:
    """A scheduler's pod that sends so many bytes to whoever connects."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * size)
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    server.targets[SCHEDULER] = ("127.0.0.1", listener.sockets[0].getsockname()[1])
    server.pods.append(fake.scheduler_pod(SCHEDULER))
    yield
    listener.close()


@pytest.fixture
def pings(monkeypatch: pytest.MonkeyPatch) -> list[anyio.Event]:
    """The answers to the pings that were sent."""
    sent: list[anyio.Event] = []
    ping = httpx_ws.AsyncWebSocketSession.ping

    async def noted(self: httpx_ws.AsyncWebSocketSession, payload: bytes = b"") -> anyio.Event:
        sent.append(await ping(self, payload))
        return sent[-1]

    monkeypatch.setattr(httpx_ws.AsyncWebSocketSession, "ping", noted)
    return sent


SOON = Timing(forward_ping_seconds=0.05, forward_pong_seconds=0.1)


async def test_a_reader_that_is_slow_for_long_keeps_its_connection(server: fake.FakeServer, pings: list[anyio.Event]):
    """20 s to a ping, and 20 s for its answer, pass at once while nobody reads."""
    size = 64 << 20  # more than all the buffers on the way hold
    is_read = asyncio.Event()

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds if is_read.is_set() else 0.05)

    async with talking(server, size):
        timing = Timing(forward_pong_seconds=120.0, clock=Clock(sleep=sleep))
        forward = PortForward(await Server.connect(None, timing=timing), "demo", 8786, uid="uid-of-demo")
        await forward.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port, limit=1024)
        await until(lambda: len(pings) > 5 and not pings[-2].is_set(), "pings that nobody could answer")

        is_read.set()
        seen = 0
        while seen < size:
            came = await asyncio.wait_for(reader.read(1 << 20), 60)
            assert came, "it was cut"
            seen += len(came)
        await until(pings[-2].is_set, "pings are answered again")
        assert forward._connections, "it is still there"
        writer.close()
        await forward.stop()


async def test_a_connection_that_is_silent_is_cut(silent: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    async def unanswered(*_: object) -> anyio.Event:
        return anyio.Event()

    monkeypatch.setattr(httpx_ws.AsyncWebSocketSession, "ping", unanswered)
    forward = PortForward(await Server.connect(None, timing=SOON), "demo", 8786, uid="uid-of-demo")
    await forward.start()

    await until_cut(forward)
    await forward.stop()


async def test_one_that_answers_pings_stays(silent: fake.FakeServer, pings: list[anyio.Event]):
    timing = Timing(forward_ping_seconds=0.05, forward_pong_seconds=120.0)
    forward = PortForward(await Server.connect(None, timing=timing), "demo", 8786, uid="uid-of-demo")
    await forward.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)

    await until(lambda: len(pings) > 5, "pings")

    assert forward._connections
    assert not reader.at_eof()
    writer.close()
    await forward.stop()
