"""A scheduler that answers whatever it likes: one error in few words, in time, in little memory, and nobody waits."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gpudask.api.untrusted_text import quote
from gpudask.clients import scheduler as under_test
from gpudask.clients.errors import SchedulerError, SchedulerTrouble
from gpudask.clients.scheduler import ANSWER_BYTES, SchedulerClient
from gpudask.preload import busy_time
from gpudask.scaling.demand import Demand
from tests.scaling.test_demand import ANSWER

DEADLINE_SECONDS = 1.0  # of what trickles, which nothing else ends
HANGS_SECONDS = 120.0  # what takes so long has no end; what ends for its own reasons has no other deadline
PROTOCOL, UNREACHABLE = SchedulerTrouble.PROTOCOL, SchedulerTrouble.UNREACHABLE
Talk = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Hostile:
    """HTTP by hand. `talk` writes whatever it likes, once a request was read; `paths` were asked for."""

    def __init__(self) -> None:
        self.talk: Talk = says(b"")
        self.paths: list[str] = []
        self.base = ""
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            self.paths.append((await reader.readuntil(b"\r\n\r\n")).split()[1].decode())
            await self.talk(writer)
            await writer.drain()
        with contextlib.suppress(ConnectionError):
            await reader.read()  # until it hangs up
        writer.close()


def says(*parts: bytes) -> Talk:
    async def talk(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)

    return talk


def answers(body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json") -> Talk:
    """One whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers, "", ""]
    return says("\r\n".join(lines).encode(), body)


def floods(part: bytes, head: bytes = b"") -> Talk:
    """As much as it gets rid of, for ever."""

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(part)
            await writer.drain()

    return talk


def trickles(head: bytes) -> Talk:
    """A byte now and then, for ever."""

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    return talk


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    server = Hostile()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client() -> AsyncIterator[SchedulerClient]:
    client = SchedulerClient(silence_seconds=10 * HANGS_SECONDS)
    yield client
    await client.close()


async def error_of(client: SchedulerClient, hostile: Hostile) -> SchedulerError:
    with pytest.raises(SchedulerError) as caught:
        async with asyncio.timeout(HANGS_SECONDS):
            await client.demand(hostile.base, "t", known_version="", wait_seconds=0)
    said = str(caught.value)
    assert said == quote(said, 500), "it is not clean"
    return caught.value


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = OK + b"Content-Length: 4000000\r\n\r\n"
HINT = b"HTTP/1.1 103 Early Hints\r\n\r\n"


@pytest.mark.parametrize(
    ("talk", "trouble", "words"),
    [
        (answers(b'{"protocol": 1, "tasks": NaN}'), PROTOCOL, "NaN"),
        (answers(json.dumps(ANSWER).replace("21", "1e999").encode()), PROTOCOL, "tasks"),
        (answers(json.dumps(ANSWER).replace("5.2", "1e999").encode()), PROTOCOL, "demand.0.seconds"),
        (answers(json.dumps(ANSWER).replace("21", "9" * 4_000).encode()), PROTOCOL, "tasks"),
        (answers(json.dumps(ANSWER).replace("21", "9" * 5_000).encode()), PROTOCOL, "expected JSON"),
        (answers(json.dumps(ANSWER)[:-1].encode() + b', "tasks": "x"}'), PROTOCOL, "tasks"),
        (answers(b"[" * 100_000), PROTOCOL, "deep"),
        (answers(b"[" + b"{}," * 300_000 + b"{}]"), PROTOCOL, "at most 200000 values"),
        (answers(b"null"), PROTOCOL, "speaks protocol None"),
        (answers(b"<html>", kind="text/html"), PROTOCOL, "application/json"),
        (answers(b"{}", kind="\x1b[31m/\u202e"), PROTOCOL, "application/json"),
        (answers(b" " * (ANSWER_BYTES + 1)), PROTOCOL, "at most 5000000 bytes"),
        (says(OK, b"Content-Length: 1000000000000\r\n\r\n"), PROTOCOL, "at most 5000000 bytes"),
        (says(OK, b"\r\n", json.dumps(ANSWER).encode()), PROTOCOL, "Content-Length"),
        (says(CHUNKED, b"2\r\n{}\r\n0\r\n\r\n"), PROTOCOL, "Content-Length"),
        (answers(gzip.compress(b" " * 10**7), "Content-Encoding: gzip"), PROTOCOL, "Content-Encoding"),
        (answers(b"x\n\x1b[31mforged" * 1000, status="500 Oops"), SchedulerTrouble.REFUSED, "500: x forged"),
        (answers(b"", status="200 O\x00K"), None, ""),
        (says(b"HTTP/1.1 200 OK\r\nX: a\nforged: line\r\n\x00\x1b[31m\r\n\r\n"), None, ""),
        (says(b"SSH-2.0-OpenSSH\r\n\r\n"), UNREACHABLE, "does not answer"),
        (says(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), PROTOCOL, "101"),
        (trickles(b"HTTP/1.1 500 Oops\r\nContent-Length: 100000\r\n\r\n"), SchedulerTrouble.REFUSED, "500"),
    ],
    ids=range(22),
)
async def test_it_is_one_error_in_few_words(
    client: SchedulerClient, hostile: Hostile, talk: Talk, trouble: SchedulerTrouble | None, words: str
):
    hostile.talk = talk
    error = await error_of(client, hostile)
    assert words in str(error)
    assert trouble in (None, error.trouble)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX:",
        OK + b"Content-Length: 100000\r\n\r\n",
    ],
    ids=["nothing", "header", "body"],
)
async def test_what_trickles_ends_with_the_deadline(hostile: Hostile, head: bytes):
    hostile.talk = trickles(head)
    client = SchedulerClient(silence_seconds=DEADLINE_SECONDS)
    error = await error_of(client, hostile)
    assert error.trouble == UNREACHABLE
    assert "does not answer" in str(error)
    await client.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(client: SchedulerClient, hostile: Hostile, status: int):
    other = Hostile()
    await other.start()
    hostile.talk = answers(b"", f"Location: {other.base}/secret", status=f"{status} Elsewhere")
    assert (await error_of(client, hostile)).trouble == PROTOCOL
    with pytest.raises(SchedulerError):
        await client.desire(hostile.base, "t", {})
    assert other.paths == []
    await other.stop()


@pytest.mark.parametrize(
    "talk",
    [
        floods(HINT * 2_000),
        floods(b"\r\n" * 30_000),
        floods(b"X: " + b"y" * 4_000 + b"\r\n", b"HTTP/1.1 200 OK\r\n"),
        floods(b"y" * 60_000, b"HTTP/1.1 200 OK\r\nX: "),
        floods(b"1\r\n1\r\n" * 10_000, CHUNKED),
        floods(b"x" * 60_000, CHUNKED + b"1;"),
        floods(b"X: y\r\n" * 10_000, CHUNKED + b"0\r\n"),
        floods(b"x" * 60_000, b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
        floods(b"x" * 60_000, b"HTTP/1.1 500 Oops\r\n\r\n"),
        floods(OK + b"Content-Length: 2\r\n\r\n{}" * 1_000),
    ],
    ids=["hints", "blank", "headers", "header", "chunks", "extension", "trailers", "upgrade", "error", "pipeline"],
)
async def test_a_flood_ends_soon_and_holds_nobody_up(client: SchedulerClient, hostile: Hostile, talk: Talk):
    hostile.talk = talk
    tracemalloc.start()
    await error_of(client, hostile)  # else it is read until the deadline
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


async def test_what_comes_on_an_open_connection_after_the_answer_is_not_read(client: SchedulerClient, hostile: Hostile):
    body = json.dumps(ANSWER).encode()
    ended = asyncio.Event()

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        try:
            while True:
                writer.write(b"x" * 60_000)
                await writer.drain()
        except ConnectionError:
            ended.set()

    hostile.talk = talk
    with contextlib.suppress(SchedulerError):  # what came with the answer itself may spoil it
        await client.demand(hostile.base, "t", known_version="", wait_seconds=0)
    async with asyncio.timeout(HANGS_SECONDS):
        await ended.wait()


async def test_cookies_are_not_kept(client: SchedulerClient, hostile: Hostile):
    hostile.talk = answers(json.dumps(ANSWER).encode(), "Set-Cookie: a=b; Domain=127.0.0.1")
    await client.demand(hostile.base, "t", known_version="", wait_seconds=0)
    assert client._session is not None
    assert not list(client._session.cookie_jar)


async def test_a_broken_preload_is_quoted_by_its_last_line(client: SchedulerClient, hostile: Hostile):
    error = json.dumps({"error": "Traceback\n  x\nImportError: \x1b[31mno\u202e" + "y" * 9_000}).encode()

    async def talk(writer: asyncio.StreamWriter) -> None:
        missing = "demand" in hostile.paths[-1]
        await (answers(b"", status="404 No") if missing else answers(error))(writer)

    hostile.talk = talk
    found = await error_of(client, hostile)
    assert found.trouble == SchedulerTrouble.NO_PRELOAD
    assert re.search("ImportError: no", str(found))
    assert len(str(found)) < 300


async def test_refusals_that_are_none_are_an_error(client: SchedulerClient, hostile: Hostile):
    for body in (b"[]", b'{"refused": {"a": 1}}', b'{"refused": [{"pod": 1, "why": 2}]}'):
        hostile.talk = answers(body)
        with pytest.raises(SchedulerError) as caught:
            await client.desire(hostile.base, "t", {})
        assert caught.value.trouble == PROTOCOL


def honest(workers: int, requirements: int) -> bytes:
    """What a scheduler with so many talkative workers and requirements says."""
    detail = "task ('read-parquet-fused-assign-0123456789abcdef', 12345) and 136 more, actor A-0123 and 2 more"
    sick = "3 tasks in a row failed: " + "CUDA error: an illegal memory access was encountered " * 3
    row = ANSWER["workers"][0] | {"detail": detail, "sick": sick, "blockers": ["running", "actor", "shuffle", "data"]}
    need = ANSWER["demand"][0] | {"next_seconds": 123.45678901234567, "next_tasks": 1234, "lent": 12}
    rows = [row | {"name": f"a-long-name-of-a-cluster-gpu-worker-{i}-1f3a9-0"} for i in range(workers)]
    owner = {"owner": "team-" + 58 * "x", "seconds": 123456.78901234567, "share": 0.3333333333333333}
    for i, each in enumerate(rows):  # as many as a preload keeps apart
        owners = (i + 1) * busy_time.ROWS // workers - i * busy_time.ROWS // workers
        each |= {"busy_seconds": 123456.78901234567, "owners": [owner] * min(owners, busy_time.OWNERS + 1)}
    needs = [need | {"resources": {"GPU": 1.0, f"licence-of-{i}": 1.0, "MEMORY": 1e9 + i}} for i in range(requirements)]
    return json.dumps(ANSWER | {"workers": rows, "demand": needs}).encode()


async def test_an_honest_answer_of_thousands_of_workers_is_within_the_bounds(client: SchedulerClient, hostile: Hostile):
    body = honest(4_000, 1_000)
    hostile.talk = answers(body)
    demand = await client.demand(hostile.base, "t", known_version="", wait_seconds=20)
    assert (len(demand.workers), len(demand.requirements)) == (4_000, 1_000)
    assert demand.answer_bytes == len(body)


async def test_long_answers_that_trickle_hold_up_their_own_namespace_alone(client: SchedulerClient, hostile: Hostile):
    """Each may have megabytes in memory, so few of a namespace are read at a time."""
    good = Hostile()
    await good.start()
    good.talk = answers(honest(300, 10))
    hostile.talk = trickles(LONG)

    def poll(server: Hostile, namespace: str) -> asyncio.Task[Demand]:
        return asyncio.create_task(
            client.demand(server.base, "t", known_version="", wait_seconds=0, namespace=namespace)
        )

    slow: list[asyncio.Task[Any]] = [poll(hostile, "a") for _ in range(2)]
    async with asyncio.timeout(HANGS_SECONDS):
        while not client._large or not client._large["a"].locked():  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # until both have their turn
        mine = poll(good, "a")
        while not client._large["a"]._waiters and not mine.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert len((await poll(good, "b")).workers) == 300
        assert not mine.done(), "it did not wait for its turn"
        slow.pop().cancel()
        assert len((await mine).workers) == 300
        slow.pop().cancel()
    await good.stop()


async def test_a_long_answer_that_trickles_is_read_for_only_so_long(
    client: SchedulerClient, hostile: Hostile, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(under_test, "_BODY_SECONDS", 0.5)
    hostile.talk = trickles(LONG)
    assert (await error_of(client, hostile)).trouble == UNREACHABLE
