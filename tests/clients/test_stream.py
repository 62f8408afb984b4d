"""The events of a watch as they come over the wire, from a server that sends what a real one would not."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from kubernetes.aio import client

from gpudask.clients import transport
from gpudask.clients.transport import ApiServer
from gpudask.clients.errors import ApiError


class Wire:
    """A server that answers every request with these bytes, in pieces."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.status = 200

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        for piece in self.pieces:
            await response.write(piece)
        return response


@pytest.fixture
async def wire() -> AsyncIterator[tuple[Wire, ApiServer]]:
    wire, app = Wire(), web.Application()
    app.router.add_get("/pods", wire.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    api = ApiServer(client.Configuration(host=f"http://127.0.0.1:{port}"))
    yield wire, api
    await api.close()
    await runner.cleanup()


async def events(api: ApiServer) -> list[Json]:
    async with asyncio.timeout(60):
        return [event async for event in api.stream("/pods", query={"timeoutSeconds": "5"})]


async def test_events_come_whole_however_they_were_cut_into_pieces(wire: tuple[Wire, ApiServer]):
    of, api = wire
    of.pieces = [b'{"a"', b': 1}\n{"a": 2}\n\n{"a', b'": 3}', b"\n", b'{"a": 4}']
    assert [event["a"] for event in await events(api)] == [1, 2, 3, 4]


async def test_an_object_as_large_as_any_can_be_is_an_event(wire: tuple[Wire, ApiServer]):
    of, api = wire
    of.pieces = [b'{"a": "' + b"\\u003c" * 1_500_000 + b'"}\n', b'{"a": "next"}\n']
    assert [len(event["a"]) for event in await events(api)] == [1_500_000, 4]


async def test_an_event_that_is_nested_deep_is_read_without_its_depth(wire: tuple[Wire, ApiServer]):
    of, api = wire
    of.pieces = [b'{"a": 1, "b": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", b'{"a": 2}\n']
    assert [event["a"] for event in await events(api)] == [1, 2]


@pytest.mark.parametrize("line", [b"no json\n", b"\xff\xfe\n", b"x" * 200_000], ids=["words", "bytes", "endless"])
async def test_what_is_no_event_is_an_error_after_which_a_list_is_read(
    wire: tuple[Wire, ApiServer], line: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transport, "_LONGEST_LINE_BYTES", 100_000)
    of, api = wire
    of.pieces = [line]
    with pytest.raises(ApiError) as caught:
        await events(api)
    assert caught.value.status != 0, "else the watch would go on from the same version, and meet it again"


@pytest.mark.parametrize("answer", [b"[1]", b"null", b"text", b'"a"', b'{"reason": [], "message": {}}'])
@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_that_is_no_object_is_no_defect(wire: tuple[Wire, ApiServer], answer: bytes, status: int):
    of, api = wire
    of.pieces, of.status = [answer], status
    if status == 200:
        assert isinstance(await api.request("GET", "/pods"), dict)
    else:
        with pytest.raises(ApiError):
            await api.request("GET", "/pods")


@pytest.mark.parametrize("name", ["../../theirs/pods/x", "..", ".", "x/../../y", "", "?limit=1", "%2e%2e", "x#y"])
async def test_what_is_no_name_leads_to_no_other_object(wire: tuple[Wire, ApiServer], name: str):
    """The HTTP client resolves `..` in a path, and a name may be what somebody without rights there wrote."""
    of, api = wire
    told: list[tuple[str, int]] = []
    api.on_answer = lambda verb, status: told.append((verb, status))
    of.pieces = [b"{}"]
    with pytest.raises(ApiError) as caught:
        await api.request("GET", f"/pods/{name}")
    assert caught.value.object_not_found
    assert not told


async def test_each_request_is_told_of_with_its_verb_and_the_status_of_its_answer(wire: tuple[Wire, ApiServer]):
    of, api = wire
    told: list[tuple[str, int]] = []
    api.on_answer = lambda verb, status: told.append((verb, status))
    of.pieces = [b"{}"]
    await api.request("GET", "/pods")
    await api.list_page("/pods", query={}, accept="application/json")
    await events(api)
    with pytest.raises(ApiError):
        await api.request("DELETE", "/pods")
    assert told == [("GET", 200), ("LIST", 200), ("WATCH", 200), ("DELETE", 405)]


async def test_a_request_without_an_answer_is_told_of_as_such():
    told: list[tuple[str, int]] = []
    api = ApiServer(client.Configuration(host="http://127.0.0.1:1"))
    api.on_answer = lambda verb, status: told.append((verb, status))
    with pytest.raises(ApiError):
        await api.request("POST", "/pods", body={})
    await api.close()
    assert told == [("POST", 0)]
