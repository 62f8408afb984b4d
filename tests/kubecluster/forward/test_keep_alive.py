"""Requests to a dashboard share a connection to its pod, by however many they come; all else is as it was."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from gpudask.kubecluster.forward.port_forward import PortForward
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Timing
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import until

SCHEDULER = "demo-scheduler-00000"
_SECONDS = 30


class Dashboard:
    """What the scheduler's pod serves; `said` is what it calls itself."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.release = asyncio.Event()
        self.waiting = 0

    async def serve(self) -> tuple[web.AppRunner, int]:
        application = web.Application()
        application.router.add_get("/plots", self._plots)
        application.router.add_post("/plots", self._take)
        application.router.add_get("/slow", self._slow)
        application.router.add_get("/chunks", self._chunks)
        application.router.add_get("/last", self._last)
        application.router.add_get("/ws", self._echo)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, runner.addresses[0][1]

    async def _plots(self, request: web.Request) -> web.Response:
        return web.json_response({"said": self.said, "asked": dict(request.query)})

    async def _take(self, request: web.Request) -> web.Response:
        return web.Response(text=f"{self.said} took {await request.text()}")

    async def _slow(self, _: web.Request) -> web.Response:
        self.waiting += 1
        await self.release.wait()
        return web.Response(text="slow")

    async def _chunks(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        for number in range(100):
            await answer.write(str(number).encode() * 5000)
        await answer.write_eof()
        return answer

    async def _last(self, _: web.Request) -> web.Response:
        answer = web.Response(text="the last" * 10000)
        answer.force_close()
        return answer

    async def _echo(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{self.said} heard {message.data}")
        return socket


@pytest.fixture
async def dashboard(server: fake.FakeServer) -> AsyncIterator[Dashboard]:
    dashboard = Dashboard("the first")
    runner, port = await dashboard.serve()
    server.pods.append(fake.scheduler_pod(SCHEDULER))
    server.dashboards[SCHEDULER] = ("127.0.0.1", port)
    yield dashboard
    dashboard.release.set()
    await runner.cleanup()


@asynccontextmanager
async def forwarded(timing: Timing | None = None) -> AsyncIterator[PortForward]:
    forward = PortForward(
        await Server.connect(None, timing=timing or Timing()), "demo", 8787, uid="uid-of-demo", serves_http=True
    )
    await forward.start(check=False)
    try:
        yield forward
    finally:
        await forward.stop()


async def ask(forward: PortForward, path: str = "plots", method: str = "GET", **options: str) -> str:
    """One request by a connection of its own, as the extension's server makes it."""
    limit = aiohttp.ClientTimeout(total=_SECONDS)
    headers = {"Connection": "close"}
    url = f"http://127.0.0.1:{forward.local_port}/{path}"
    async with (
        aiohttp.ClientSession(timeout=limit) as session,
        session.request(method, url, headers=headers, **options) as answer,  # type: ignore[arg-type]
    ):
        assert answer.status == 200
        return await answer.text()


async def test_programs_that_connect_for_each_request_cost_the_api_server_one_connection(
    server: fake.FakeServer, dashboard: Dashboard
):
    async with forwarded() as forward:
        before = len(server.requests)
        answers = [await ask(forward, f"plots?number={number}") for number in range(20)]
        asked = Counter(server.requests[before:])

    assert answers == [f'{{"said": "the first", "asked": {{"number": "{number}"}}}}' for number in range(20)]
    assert asked[f"GET {fake.PODS}/{SCHEDULER}/portforward"] == 1, asked
    assert asked[f"GET {fake.PODS}"] <= 2, asked  # one is of those who watch over the pods
    assert sum(asked.values()) <= 4, asked


async def test_one_connection_may_ask_several_times(server: fake.FakeServer, dashboard: Dashboard):
    url = "http://127.0.0.1:{}/{}"
    async with forwarded() as forward, aiohttp.ClientSession() as session:
        for path in ("plots", "chunks", "plots", "last", "plots"):
            async with session.get(url.format(forward.local_port, path)) as answer:
                assert answer.status == 200
                assert await answer.read()
    assert len(server.forwards) == 2, "what the pod ends after its answer is made anew"


@pytest.mark.parametrize("path", ["chunks", "last"])
async def test_an_answer_is_whole_whichever_way_its_end_is_marked(
    server: fake.FakeServer, dashboard: Dashboard, path: str
):
    wanted = {"chunks": "".join(str(number) * 5000 for number in range(100)), "last": "the last" * 10000}[path]
    async with forwarded() as forward:
        for _ in range(3):
            assert await ask(forward, path) == wanted


async def test_one_that_asks_while_another_waits_has_a_connection_of_its_own(
    server: fake.FakeServer, dashboard: Dashboard
):
    async with forwarded() as forward:
        slow = asyncio.create_task(ask(forward, "slow"))
        await until(lambda: dashboard.waiting == 1, "the slow request")
        assert "the first" in await ask(forward)
        dashboard.release.set()
        assert await slow == "slow"
    assert len(server.forwards) == 2


async def test_the_answer_to_one_who_has_left_is_nobody_else_s(server: fake.FakeServer, dashboard: Dashboard):
    async with forwarded() as forward:
        slow = asyncio.create_task(ask(forward, "slow"))
        await until(lambda: dashboard.waiting == 1, "the slow request")
        slow.cancel()
        await until(lambda: not forward._connections, "its connection is cut")
        dashboard.release.set()
        assert "the first" in await ask(forward)


async def test_what_may_not_be_asked_twice_goes_as_it_is(server: fake.FakeServer, dashboard: Dashboard):
    async with forwarded() as forward, aiohttp.ClientSession() as session:
        assert await ask(forward, method="POST", data="x" * 100_000) == f"the first took {'x' * 100_000}"
        async with session.ws_connect(f"http://127.0.0.1:{forward.local_port}/ws") as socket:
            for word in ("one", "two"):
                await socket.send_str(word)
                assert await socket.receive_str(timeout=_SECONDS) == f"the first heard {word}"


async def test_requests_that_come_at_once_are_answered_in_their_order(server: fake.FakeServer, dashboard: Dashboard):
    async with forwarded() as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        writer.write(b"".join(b"GET /plots?n=%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(3)))
        seen = b""
        while seen.count(b'"asked"') < 3:
            seen += await asyncio.wait_for(reader.read(65536), _SECONDS)
        writer.close()
    places = [seen.index(b'{"n": "%d"}' % number) for number in range(3)]
    assert places == sorted(places)


async def test_what_is_no_http_goes_as_it_is(server: fake.FakeServer):
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    listener = await asyncio.start_server(echo, "127.0.0.1", 0)
    server.pods.append(fake.scheduler_pod(SCHEDULER))
    server.dashboards[SCHEDULER] = ("127.0.0.1", listener.sockets[0].getsockname()[1])
    async with forwarded() as forward:
        for said in (b"\x16\x03\x01 a greeting of TLS", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"junk\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
            writer.write(said)
            assert await asyncio.wait_for(reader.readexactly(len(said)), _SECONDS) == said
            writer.close()
    listener.close()


async def test_after_a_connection_broke_the_next_request_is_answered(server: fake.FakeServer, dashboard: Dashboard):
    async with forwarded() as forward:
        for times in range(1, 4):
            assert "the first" in await ask(forward)
            assert len(server.forwards) == times
            await asyncio.to_thread(server.cut_connections)


async def test_the_pod_is_looked_up_again_once_it_is_gone(server: fake.FakeServer, dashboard: Dashboard):
    other = Dashboard("the second")
    runner, port = await other.serve()
    async with forwarded() as forward:
        assert "the first" in await ask(forward)
        server.pods[:] = [fake.scheduler_pod("demo-scheduler-11111")]
        server.dashboards["demo-scheduler-11111"] = ("127.0.0.1", port)
        await asyncio.to_thread(server.cut_connections)

        assert "the second" in await ask(forward)
    await runner.cleanup()


async def test_one_that_nobody_uses_is_closed(server: fake.FakeServer, dashboard: Dashboard):
    async with forwarded(Timing(forward_keep_seconds=0.2)) as forward:
        assert "the first" in await ask(forward)
        await until(lambda: not forward._connections, "it is closed")
        assert "the first" in await ask(forward)
    assert len(server.forwards) == 2


async def test_a_request_for_which_there_is_no_pod_waits_for_one(server: fake.FakeServer, dashboard: Dashboard):
    pods = list(server.pods)
    server.pods.clear()
    async with forwarded() as forward:
        asked = asyncio.create_task(ask(forward))
        looks = server.requests.count(f"GET {fake.PODS}")
        await until(lambda: server.requests.count(f"GET {fake.PODS}") > looks + 1, "it looks again")
        server.pods += pods
        assert "the first" in await asked
        assert forward.trouble == ""
