"""The preload's routes as the operator reads them: each failure has a kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from gpudask.clients.errors import SchedulerError, SchedulerTrouble
from gpudask.clients.scheduler import SchedulerClient
from tests.scaling.test_demand import ANSWER


@pytest.fixture
async def client() -> AsyncIterator[SchedulerClient]:
    client = SchedulerClient()
    yield client
    await client.close()


Answers = Callable[[web.Request], web.Response]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Answers], asyncio.Future[str]]]:
    runners: list[web.AppRunner] = []

    async def start(handler: Answers) -> str:
        async def handle(request: web.Request) -> web.Response:
            answer = handler(request)
            return await answer if asyncio.iscoroutine(answer) else answer

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start  # type: ignore[misc]
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("response", "trouble", "words"),
    [
        (lambda _: web.Response(status=401), SchedulerTrouble.UNAUTHORIZED, "refuses the token"),
        (lambda _: web.Response(status=404), SchedulerTrouble.NO_PRELOAD, "preload"),
        (lambda _: web.Response(status=400, text="retiring: a list"), SchedulerTrouble.REFUSED, "retiring: a list"),
        (lambda _: web.json_response({"protocol": 2}), SchedulerTrouble.PROTOCOL, "speaks protocol 2"),
        (lambda _: web.Response(text="<html>"), SchedulerTrouble.PROTOCOL, "expected application/json, got text/plain"),
    ],
)
async def test_a_trouble_is_named(client: SchedulerClient, serve, response: Answers, trouble: str, words: str):  # noqa: ANN001
    base = await serve(response)
    with pytest.raises(SchedulerError, match=words) as caught:
        await client.demand(base, "t", known_version="", wait_seconds=1)
    assert caught.value.trouble == trouble


async def test_nobody_there_is_unreachable(client: SchedulerClient):
    with pytest.raises(SchedulerError) as caught:
        await client.demand("http://127.0.0.1:9", "t", known_version="", wait_seconds=1)
    assert caught.value.trouble == SchedulerTrouble.UNREACHABLE


async def test_a_poll_carries_the_token_and_what_was_seen(client: SchedulerClient, serve):  # noqa: ANN001
    asked: list[tuple[str, str, str]] = []

    def handler(request: web.Request) -> web.Response:
        asked.append((request.headers["Authorization"], request.query["seen"], request.query["wait"]))
        return web.json_response(ANSWER)

    demand = await client.demand(await serve(handler), "secret", known_version="S/3", wait_seconds=30)
    assert demand.version == "S-1/17"
    assert asked == [("Bearer secret", "S/3", "30")]


async def test_refused_pods_are_handed_on(client: SchedulerClient, serve):  # noqa: ANN001
    base = await serve(lambda _: web.json_response({"refused": [{"pod": "p", "why": "busy"}]}))
    assert await client.desire(base, "t", {"pools": {}, "retiring": []}) == {"p": "busy"}


async def test_hundreds_of_polls_stay_open_side_by_side(client: SchedulerClient, serve):  # noqa: ANN001
    """Connection pools stop at 100 by default: the 101st cluster would never be heard."""
    waiting = 0
    everybody = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        nonlocal waiting
        waiting += 1
        if waiting == 150:
            everybody.set()
        await asyncio.wait_for(everybody.wait(), 60)
        return web.json_response(ANSWER)

    base = await serve(handler)
    await asyncio.gather(*(client.demand(base, "t", known_version="", wait_seconds=60) for _ in range(150)))
