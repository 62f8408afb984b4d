"""Fake Dask schedulers, of one light HTTP server: docs/preload-protocol.md, each on a loopback address of its own.

What a real one would count from tasks is said by the benchmark: demand, and workers that registered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from aiohttp import web

from benchmarks.testbed.manifests import GPU

Json = dict[str, Any]
_PORT = 8787
LONG_TASK_SECONDS = 3600.0
"""So long that every GPU task asks for a pod of its own."""
# The preload looks for changes at most this often (preload/watch.py).
_LOOK_SECONDS = 0.01


class FakeScheduler:
    """One scheduler: what it says, and who waits for it to say something new."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.polls = 0
        self._counter = 0
        self._demand: list[Json] = []
        self._workers: dict[str, str] = {}
        self._busy: set[str] = set()
        self._desired_version = ""
        self._urgent_counter = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._waiting_for_urgent: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def want(self, unrunnable: int, *, seconds_a_task: float, **resources: float) -> None:
        """The demand is now so many tasks, of known duration, and nothing else. Said at once: it is an edge.

        The GPU workers that are there have one each.
        """
        runs = min(unrunnable, len(self._busy))
        row = {"resources": resources, "waiting": 0, "unrunnable": unrunnable - runs, "processing": runs, "unknown": 0}
        row |= {"seconds": unrunnable * seconds_a_task, "since_seconds": 0.0}
        self._demand = [row] if unrunnable else []
        self.say()

    def count(self, processing: int) -> None:
        """Plain tasks come and go: a count changes and nothing else, which answers no quiet poll."""
        row = {"resources": {}, "waiting": 0, "unrunnable": 0, "processing": processing, "unknown": 0}
        row |= {"seconds": float(processing), "since_seconds": 0.0}
        self._demand = [row, *(item for item in self._demand if item["resources"])]
        self.say(urgent=False)

    def register(self, dask_name: str, pool: str) -> None:
        """A worker came, and a GPU worker takes a task that waits: said with those that come within the same look."""
        self._workers[dask_name] = pool
        waiting = next((row for row in self._demand if row["resources"] and row["unrunnable"]), None)
        if pool == GPU and waiting is not None:
            waiting["unrunnable"] -= 1
            waiting["processing"] += 1
            self._busy.add(dask_name)
        self._say_soon()

    def leave(self, dask_name: str) -> None:
        """A worker went with its pod, and what it ran waits again. Said with the next news."""
        if self._workers.pop(dask_name, "") == GPU and dask_name in self._busy:
            self._busy.remove(dask_name)
            row = next(row for row in self._demand if row["resources"])
            row["processing"] -= 1
            row["unrunnable"] += 1
        self._say_soon()

    def say(self, *, urgent: bool = True) -> None:
        """Something changed: answer the polls; only the `urgent` answers quiet ones."""
        self._counter += 1
        _answer(self._waiting)
        if urgent:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._urgent_counter = self._counter
            _answer(self._waiting_for_urgent)

    async def demand(self, seen: str, wait_seconds: float, quiet_seconds: float = 0.0) -> Json:
        """The answer of the long poll."""
        self.polls += 1
        _, _, counter = seen.rpartition("/")
        if quiet_seconds and counter and int(counter) >= self._urgent_counter:
            await _wait(self._waiting_for_urgent, quiet_seconds)
            wait_seconds = max(0.0, wait_seconds - quiet_seconds)
        if seen == self._version:
            await _wait(self._waiting, wait_seconds)
        return {
            "protocol": 1,
            "version": self._version,
            "scheduler_id": f"fake-{self.address}",
            "desired_version": self._desired_version,
            "features": {"demand": "", "fence": "", "retire": ""},
            "tasks": sum(row["unrunnable"] + row["processing"] for row in self._demand),
            "demand": self._demand,
            "workers": [_worker(name, pool, busy=name in self._busy) for name, pool in self._workers.items()],
        }

    def desire(self, wanted: Json) -> Json:
        """Take in what the operator wants; no benchmark has it retire anything."""
        self._desired_version = wanted["version"]
        return {"protocol": 1, "desired_version": wanted["version"], "refused": []}

    def _say_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self.say)

    @property
    def _version(self) -> str:
        return f"fake-{self.address}/{self._counter}"


class FakeSchedulers:
    """All fake schedulers: one web server that listens on all their addresses."""

    def __init__(self, addresses: list[str]) -> None:
        self.by_address = {address: FakeScheduler(address) for address in addresses}
        self._server = web.Server(self._handle, access_log=None)
        self._listening: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: an address is taken: another benchmark or test is there.
        """
        loop = asyncio.get_running_loop()
        for address in self.by_address:
            self._listening.append(await loop.create_server(self._server, address, _PORT))

    async def stop(self) -> None:
        """Hang up."""
        for server in self._listening:
            server.close()
        await self._server.shutdown(0.1)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None, "a request that is being handled has a connection"
        scheduler = self.by_address[request.transport.get_extra_info("sockname")[0]]
        if request.method == "POST":
            answer = scheduler.desire(await request.json())
        else:
            seen, wait, quiet = (request.query.get(name, "0") for name in ("seen", "wait", "quiet"))
            answer = await scheduler.demand(seen, float(wait), float(quiet))
        return web.Response(body=json.dumps(answer).encode(), content_type="application/json")


async def _wait(waiting: set[asyncio.Future[None]], seconds: float) -> None:
    future = asyncio.get_running_loop().create_future()
    waiting.add(future)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await future
    waiting.discard(future)


def _answer(waiting: set[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()


def addresses(count: int) -> list[str]:
    """So many loopback addresses that no test uses."""
    return [f"127.66.{number // 250}.{1 + number % 250}" for number in range(count)]


def _worker(name: str, pool: str, *, busy: bool) -> Json:
    return {
        "name": name,
        "address": f"tcp://{name}",
        "pool": pool,
        "status": "running",
        "nthreads": 1,
        "resources": {"GPU": 1.0} if pool == GPU else {},
        "processing": int(busy),
        "own": int(busy),
        "idle_seconds": 0.0 if busy else 1.0,
        "blockers": ["running"] if busy else [],
        "held_keys": 0,
        "held_bytes": 0,
        "retiring": "",
        "detail": "",
    }
