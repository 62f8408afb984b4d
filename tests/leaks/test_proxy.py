"""The proxy loses the answer to one creation, and passes nothing on once it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.eventually import eventually_async
from tests.leaks.proxy import LOOPBACK, Proxy
from tests.leaks.ways import Fault

PATH = "/apis/gpudask.dev/v1alpha1/namespaces/lab/gpudaskclusters"
CREATION = f"POST {PATH}?fieldManager=me HTTP/1.1\r\n\r\n".encode()
OTHERS = {
    "read": f"GET {PATH} HTTP/1.1\r\n\r\n",
    "dry run": f"POST {PATH}?fieldManager=me&dryRun=All HTTP/1.1\r\n\r\n",
    "another resource": "POST /api/v1/namespaces/lab/pods HTTP/1.1\r\n\r\n",
}
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """One that answers each request with `done`."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.ends = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1000):
            self.heard.append(chunk)
            writer.write(b"done")
        self.ends += 1
        writer.close()


@asynccontextmanager
async def proxied(loses: Fault = Fault.NONE) -> AsyncIterator[tuple[Server, Proxy]]:
    server = Server()
    listening = await asyncio.start_server(server.serve, LOOPBACK, 0)
    try:
        async with Proxy(listening.sockets[0].getsockname()[:2], loses=loses).listening() as proxy:
            yield server, proxy
    finally:
        listening.close()


async def connect(proxy: Proxy) -> Ends:
    return await asyncio.open_connection(LOOPBACK, proxy.port)


async def ask(ends: Ends, request: bytes) -> bytes:
    """What is answered; nothing where the connection ends.

    Raises:
        TimeoutError: neither comes.
    """
    ends[1].write(request)
    async with asyncio.timeout(60):
        return await ends[0].read(1000)


async def is_silent(ends: Ends, request: bytes) -> bool:
    ends[1].write(request)
    try:
        async with asyncio.timeout(0.3):
            await ends[0].read(1000)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("request_", OTHERS.values(), ids=OTHERS)
async def test_what_is_no_creation_is_answered(request_: str):
    async with proxied(Fault.ANSWER_LOST) as (_, proxy):
        assert await ask(await connect(proxy), request_.encode()) == b"done"
        assert not proxy.lost.is_set()


async def test_the_first_creation_is_done_and_its_connection_ends_instead_of_an_answer():
    async with proxied(Fault.ANSWER_LOST) as (server, proxy):
        ends = await connect(proxy)
        assert await ask(ends, OTHERS["read"].encode()) == b"done"
        assert await ask(ends, CREATION) == b""
        assert server.heard[-1] == CREATION
        assert proxy.lost.is_set()


async def test_the_next_creation_is_answered():
    async with proxied(Fault.ANSWER_LOST) as (_, proxy):
        assert await ask(await connect(proxy), CREATION) == b""
        assert await ask(await connect(proxy), CREATION) == b"done"


async def test_an_answer_that_is_held_never_comes_and_others_do():
    async with proxied(Fault.ANSWER_HELD) as (server, proxy):
        ends = await connect(proxy)
        ends[1].write(CREATION)
        async with asyncio.timeout(60):
            await proxy.lost.wait()  # the server has answered: what comes now is that answer
        assert await is_silent(ends, b"")
        assert server.heard == [CREATION]
        assert await ask(await connect(proxy), OTHERS["read"].encode()) == b"done"


async def test_a_proxy_that_shall_lose_nothing_does_not():
    async with proxied() as (_, proxy):
        assert await ask(await connect(proxy), CREATION) == b"done"


async def test_a_cut_network_is_silent_on_old_connections_and_new_ones():
    async with proxied() as (server, proxy):
        ends = await connect(proxy)
        assert await ask(ends, b"before") == b"done"
        proxy.cut()
        assert await is_silent(ends, b"after")
        assert await is_silent(await connect(proxy), b"new")
        assert server.heard == [b"before"]


async def test_the_end_of_a_program_does_not_pass_a_cut_network():
    async with proxied() as (server, proxy):
        ends = await connect(proxy)
        assert await ask(ends, b"before") == b"done"
        proxy.cut()
        ends[1].close()
        ended, _ = await asyncio.wait(set(proxy._tasks), timeout=0.3)
        assert not ended
        assert server.ends == 0


async def test_the_end_of_a_program_passes_a_network_that_is_whole():
    async with proxied() as (server, proxy):
        ends = await connect(proxy)
        assert await ask(ends, b"before") == b"done"
        ends[1].close()
        await asyncio.wait(set(proxy._tasks), timeout=5)
        await eventually_async(_count(server), bool, "the server hears of the end")


def _count(server: Server) -> Callable[[], Awaitable[int]]:
    async def ends() -> int:
        return server.ends

    return ends
