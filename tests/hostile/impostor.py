"""A hostile scheduler: HTTP by hand, whose answers are what an attack needs. Standard library only.

As a module it serves within the process of the attacks. As a program it is what a pod's container would run on a real
cluster: `python impostor.py ANSWERS [ADDRESS]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # no gpudask is where it runs as a program
    from gpudask.api import Json

Talk = Callable[[asyncio.StreamWriter, str], Awaitable[None]]
PORT = 8787
MARK = "mallory-was-here"
ASKED = "somebody asked"  # what the program prints then
_PROBE = "/health"
ELSEWHERE = "127.99.99.99"  # where redirects lead: nobody should ever come there
# More than any honest peer sends; a reader that goes on after so much would go on for ever.
_FLOOD_BYTES = 300_000_000
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_versions = itertools.count()
_FORGED = f"{MARK}\n[2026-01-01 00:00:00,000] gpudask [ERROR] forged\x1b[31m\u202e\x00"


def worker(name: str, **fields: Any) -> Json:
    """A worker of an answer."""
    known: Json = {"name": name, "address": f"tcp://{name}", "pool": "cpu", "status": "running", "nthreads": 1}
    known |= {"processing": 0, "own": 0, "idle_seconds": 9.0, "blockers": [], "held_keys": 0, "held_bytes": 0}
    return known | {"retiring": "", "detail": ""} | fields


def wants(**fields: Any) -> Json:
    """A requirement of an answer: one GPU, for one task."""
    known: Json = {"resources": {"GPU": 1.0}, "waiting": 0, "unrunnable": 1, "processing": 0, "seconds": 0.0}
    return known | {"unknown": 1, "since_seconds": 0.0} | fields


def answer(**fields: Any) -> Json:
    """An answer in the protocol's shape, with a version that nobody has seen."""
    known: Json = {"protocol": 1, "version": f"{MARK}/{next(_versions)}", "scheduler_id": MARK, "desired_version": ""}
    known |= {"features": {"retire": "", "demand": "", "offers": ""}, "tasks": 0, "demand": [], "workers": []}
    return known | fields


def says(make: Callable[[], Json | bytes], status: str = "200 OK", *headers: str) -> Talk:
    """One whole answer, made anew each time."""

    async def talk(writer: asyncio.StreamWriter, _path: str) -> None:
        made = make()
        body = made if isinstance(made, bytes) else json.dumps(made).encode()
        lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    return talk


def floods(part: bytes, head: bytes = b"") -> Talk:
    """As much as it gets rid of."""

    async def talk(writer: asyncio.StreamWriter, _path: str) -> None:
        writer.write(head)
        for _ in range(_FLOOD_BYTES // len(part)):
            writer.write(part)
            await writer.drain()

    return talk


def trickles(head: bytes) -> Talk:
    """A byte now and then, for ever."""

    async def talk(writer: asyncio.StreamWriter, _path: str) -> None:
        writer.write(head)
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.2)

    return talk


async def _closes(writer: asyncio.StreamWriter, _path: str) -> None:
    writer.transport.abort()


async def _missing(writer: asyncio.StreamWriter, path: str) -> None:
    """No preload, and a health route that tells a story."""
    made = says(lambda: {"error": f"Traceback\n{_FORGED * 50}"})
    await (made if "health" in path else says(lambda: b"", "404 Not Found"))(writer, path)


async def _refuses_drains(writer: asyncio.StreamWriter, path: str) -> None:
    rows = [{"pod": f"keeper-cpu-worker-{n}", "why": _FORGED} for n in range(50)]
    honest = says(lambda: answer(workers=[worker("keeper-cpu-worker-0", retiring="drained", own=0)]))
    await (says(lambda: {"protocol": 1, "refused": rows}) if "desired" in path else honest)(writer, path)


def _flapping() -> Json:
    """Everything is wanted, then nothing, and so on."""
    return answer(demand=[wants(unrunnable=4000, unknown=4000)] if next(_versions) % 2 else [], tasks=4000)


def _deep(levels: int) -> bytes:
    return b'{"protocol": 1, "x": ' + b"[" * levels + b"]" * levels + b"}"


_MANY_WORKERS = [worker(f"own-cpu-worker-{n}-zzzzz", detail=MARK * 4) for n in range(9_000)]
_WRONG = {"version": 1, "tasks": "x", "demand": {"a": 1}, "workers": [None, 1, "x"], "features": []}
ANSWERS: dict[str, Talk] = {
    "redirect": says(lambda: b"", "307 Temporary Redirect", f"Location: http://{ELSEWHERE}:{PORT}/"),
    "redirect-to-itself": says(lambda: b"", "302 Found", "Location: /gpudask/v1/demand"),
    "gigabytes": floods(b" " * 65_536, _HEAD + b"Content-Length: 100000000000\r\n\r\n"),
    "chunks": floods(b"1\r\n1\r\n" * 8_000, _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"),
    "slow-bytes": trickles(_HEAD + b"Content-Length: 4000000\r\n\r\n"),
    "slow-head": trickles(b"HTTP/1.1 200 OK\r\nX: "),
    "garbage": floods(bytes(range(256)) * 64),
    "deep": says(lambda: _deep(500_000)),
    "wrong-types": says(lambda: answer(**_WRONG)),
    "not-a-number": says(lambda: json.dumps(answer(tasks=1, idle_seconds=float("nan"))).encode()),
    "wrong-clients": says(lambda: answer(clients={"connected": -1, "absent_seconds": [_FORGED], "ever": 0})),
    "deserted-for-ever": says(lambda: answer(clients={"connected": 0, "absent_seconds": 1e300, "ever": True})),
    "new-versions": says(lambda: answer(demand=[wants(waiting=next(_versions))])),
    "flapping": says(_flapping),
    "negative": says(lambda: answer(demand=[wants(unrunnable=-(10**9), seconds=-1e300)], tasks=-1)),
    "endless-demand": says(lambda: answer(demand=[wants(resources={"GPU": 1e308}, seconds=1e15)], tasks=10**15)),
    "infinite-demand": says(lambda: json.dumps(answer(demand=[wants(seconds=0.5)])).replace("0.5", "1e999").encode()),
    "digits": says(lambda: json.dumps(answer(tasks=77)).replace("77", "9" * 5_000).encode()),
    "many-demands": says(lambda: answer(demand=[wants(resources={f"r{n}": 1.0}) for n in range(1_990)])),
    "workers-of-others": says(
        lambda: answer(workers=[worker(f"keeper-gpu-worker-{n}", pool="gpu", retiring="drained") for n in range(99)])
    ),
    "refused-drains": _refuses_drains,
    "many-workers": says(lambda: answer(workers=_MANY_WORKERS)),
    "control-characters": says(
        lambda: answer(
            version="v1", features={"demand": _FORGED, _FORGED: ""}, workers=[worker(_FORGED, detail=_FORGED, pool="x")]
        )
    ),
    "endless-header": floods(b"y" * 60_000, b"HTTP/1.1 200 OK\r\nX: "),
    "endless-headers": floods(b"X: " + b"y" * 4_000 + b"\r\n", b"HTTP/1.1 200 OK\r\n"),
    "endless-hints": floods(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2_000),
    "closes": _closes,
    "gzip-bomb": says(lambda: _BOMB, "200 OK", "Content-Encoding: gzip"),
    "error-500": says((_FORGED * 1_000).encode, "500 Internal Server Error"),
    "error-401": says(_FORGED.encode, "401 Unauthorized"),
    "error-418": says(_FORGED.encode, "418 I'm a teapot"),
    "no-preload": _missing,
    "pipeline": floods((_HEAD + b"Content-Length: 2\r\n\r\n{}") * 1_000),
}
SILENT = "never-accepts"  # listens, and takes no connection
_BOMB = gzip.compress(b" " * 50_000_000)


class Impostor:
    """A hostile scheduler that listens. `asked`: how often; `tokens`: what it was shown."""

    def __init__(self, answers: str, address: str, on_first_request: Callable[[], None] = lambda: None) -> None:
        self.answers = answers
        self.address = address
        self.on_first_request = on_first_request
        self.asked = 0
        self.tokens: set[str] = set()
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None

    async def start(self) -> None:
        """Listen."""
        if self.answers == SILENT:
            self._socket = socket.socket()
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((self.address, PORT))
            self._socket.listen(0)
        else:
            self._server = await asyncio.start_server(self._serve, self.address, PORT)

    async def stop(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        errors = ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        with contextlib.closing(writer), contextlib.suppress(*errors):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split()[1]
            if path == _PROBE:  # the kubelet's: an honest answer, or the pod is never ready
                await says(lambda: b"ok")(writer, path)
                return
            self.asked += 1
            if self.asked == 1:
                self.on_first_request()
            self.tokens |= {line[22:] for line in head.splitlines() if line.startswith("Authorization: Bearer ")}
            await ANSWERS[self.answers](writer, path)
            await writer.drain()
            await reader.read()  # until it hangs up


async def _main() -> None:
    address = sys.argv[2] if len(sys.argv) > 2 else "0.0.0.0"  # noqa: S104 - a pod's own
    impostor = Impostor(sys.argv[1], address, lambda: print(ASKED, flush=True))
    await impostor.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
