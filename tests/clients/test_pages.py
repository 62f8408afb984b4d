"""Lists come page by page; a page that is too large is asked for again with fewer objects."""

from __future__ import annotations

from gpudask.api import Json

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from kubernetes.aio import client

from gpudask.clients import json_parser, transport
from gpudask.clients.errors import ApiError
from gpudask.clients.pages import pages
from gpudask.clients.transport import ApiServer


class Server:
    """A server of objects of these sizes in bytes. `asked`: the limit of each request."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.asked: list[int] = []

    async def answer(self, request: web.Request) -> web.Response:
        begin, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        self.asked.append(limit)
        end = begin + limit
        items = [{"n": begin + n, "text": "x" * size} for n, size in enumerate(self.sizes[begin:end])]
        metadata = {"continue": str(end)} if end < len(self.sizes) else {}
        return web.json_response({"metadata": metadata, "items": items})


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, ApiServer]]:
    server, app = Server(), web.Application()
    app.router.add_get("/pods", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = ApiServer(client.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    yield server, api
    await api.close()
    await runner.cleanup()


async def listed(api: ApiServer) -> list[int]:
    found: list[Json] = [page async for page in pages(api, "/pods", query={}, accept="application/json")]
    return [item["n"] for page in found for item in page["items"]]


async def test_usual_objects_come_a_hundred_at_a_time(server: tuple[Server, ApiServer]):
    of, api = server
    of.sizes = [5_000] * 250
    assert await listed(api) == [*range(250)]
    assert of.asked == [100, 100, 100]


async def test_of_large_objects_no_more_is_parsed_at_once_than_the_event_loop_can_wait_for(
    server: tuple[Server, ApiServer], monkeypatch: pytest.MonkeyPatch
):
    parsed: list[int] = []
    loads = json_parser.loads
    monkeypatch.setattr(json_parser, "loads", lambda text: (parsed.append(len(text)), loads(text))[1])
    of, api = server
    of.sizes = [700_000] * 60
    assert await listed(api) == [*range(60)]
    assert max(parsed) <= 4_000_000


async def test_one_object_is_read_whatever_its_size(server: tuple[Server, ApiServer]):
    of, api = server
    of.sizes = [5_000_000, 10, 6_000_000]
    assert await listed(api) == [0, 1, 2]


async def test_what_is_larger_than_any_object_is_not(server: tuple[Server, ApiServer], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "_LONGEST_LINE_BYTES", 6_000_000)
    of, api = server
    of.sizes = [7_000_000]
    with pytest.raises(ApiError) as caught:
        await listed(api)
    assert caught.value.status != 0, "it is no lost connection"


async def test_after_a_few_large_objects_the_others_come_in_large_pages_again(server: tuple[Server, ApiServer]):
    of, api = server
    of.sizes = [700_000] * 30 + [1_000] * 3_000
    assert await listed(api) == [*range(3_030)]
    assert of.asked[-1] == 100
    assert len(of.asked) < 120
