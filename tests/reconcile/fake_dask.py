"""Dask schedulers that speak docs/preload-protocol.md, each on an address of its own, port 8787."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import contextlib
import errno
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from local.host.ports import is_free
from tests.eventually import eventually_async

PORT = 8787
_NOBODYS = "127.255.255.254"
_TAKEN_SECONDS, _LOOK_SECONDS = 60.0, 0.2
_addresses = itertools.count(2)


def free_address() -> str:
    """A loopback address that no other scheduler of this process has."""
    number = next(_addresses)
    return f"127.{100 + os.getpid() % 100}.{number // 250}.{2 + number % 250}"


async def _until_not_taken_everywhere() -> None:
    """Another program may have the port at all addresses at once: to try them one after the other would use them up.

    Raises:
        TimeoutError: it keeps it.
    """
    deadline = time.monotonic() + _TAKEN_SECONDS
    while not is_free(PORT, _NOBODYS):
        if time.monotonic() > deadline:
            raise TimeoutError(f"port {PORT} of all addresses is taken: `ss -ltnp 'sport = :{PORT}'` says by whom")
        await asyncio.sleep(_LOOK_SECONDS)


_SCALING = ("demand", "fence", "retire", "offers", "sick", "rebalance", "clients")
_FEATURES = (*_SCALING, "history", "report", "listen", "graphs")


@dataclass
class FakeScheduler:
    """One scheduler process. `busy`: Dask names of pods with work; `stuck`: of pods whose drain does not end.

    `protocol`: 0 where there is no preload.
    `lacks`: protocol -> why it cannot listen for it. `rows`: what else a pod's row says, by Dask name.
    `seen`: the version that the last poll said it has.
    """

    address: str = field(default_factory=free_address)
    demand: list[Json] = field(default_factory=list)
    pods: dict[str, str] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    desired: Json = field(default_factory=dict)
    told: list[Json] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    tasks: int = 0
    idle_seconds: float = 1000.0
    unused_seconds: float = 0.0
    clients: Json = field(default_factory=lambda: {"connected": 1, "absent_seconds": 0.0, "ever": True})
    protocol: int = 1
    lacks: dict[str, str] = field(default_factory=dict)
    features: Json = field(default_factory=lambda: dict.fromkeys(_FEATURES, ""))
    rows: dict[str, Json] = field(default_factory=dict)
    erred: int = 0
    history: Json = field(default_factory=lambda: {"tasks": [], "errors": []})
    reports: list[str] = field(default_factory=list)
    on_report: Callable[[], None] = lambda: None
    counter: int = 0
    polls: int = 0
    seen: str = ""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen, at another address where this one is taken.

        Raises:
            TimeoutError: the port is taken at all addresses, and stays so.
        """
        app = web.Application()
        app.router.add_get("/gpudask/v1/demand", self._demand)
        app.router.add_post("/gpudask/v1/desired", self._desire)
        app.router.add_get("/gpudask/v1/history", self._history)
        app.router.add_post("/gpudask/v1/report", self._report)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        while True:
            try:
                await web.TCPSite(self._runner, self.address, PORT).start()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                await _until_not_taken_everywhere()
                self.address = free_address()  # another test run may have this one
            else:
                return

    async def stop(self) -> None:
        """Hang up."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def say(self) -> None:
        """Something changed: answer the polls."""
        async with self._changed:
            self.counter += 1
            self._changed.notify_all()

    async def is_heard(self) -> None:
        """Wait until who polls has taken in what was said last."""

        async def seen() -> str:
            return self.seen

        await eventually_async(seen, lambda seen: seen == self.version, "what was said last is heard")

    async def want(self, unrunnable: int, *, running: int = 0, **resources: float) -> None:
        """The demand is now this, and nothing else."""
        row = {"resources": resources, "waiting": 0, "unrunnable": unrunnable, "processing": running}
        row |= {"seconds": 0.0, "unknown": unrunnable + running, "since_seconds": 0.0}
        self.demand = [row] if unrunnable + running else []
        self.tasks = unrunnable + running
        await self.say()

    async def register(self, dask_name: str, pool: str) -> None:
        """A worker came."""
        self.pods[dask_name] = pool
        await self.say()

    async def leave(self, dask_name: str) -> None:
        """A worker went."""
        if self.pods.pop(dask_name, None) is not None:
            await self.say()

    @property
    def version(self) -> str:
        return f"S-{self.address}/{self.counter}"

    @property
    def retiring(self) -> set[str]:
        """Dask names of the pods that were asked to retire."""
        return {item["pod"] for item in self.desired.get("retiring", ())}

    async def _demand(self, request: web.Request) -> web.Response:
        self.tokens.add(request.headers.get("Authorization", "").removeprefix("Bearer "))
        self.polls += 1
        self.seen = request.query["seen"]
        if not self.protocol:
            raise web.HTTPNotFound
        if request.query["seen"] == self.version:
            async with self._changed:
                before = self.counter
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(float(request.query["wait"])):
                        await self._changed.wait_for(lambda: self.counter != before)
        return web.json_response(
            {
                "protocol": self.protocol,
                "version": self.version,
                "scheduler_id": f"S-{self.address}",
                "desired_version": self.desired.get("version", ""),
                "features": self.features,
                "offers": self.desired.get("offers", {}),
                "listeners": self._listeners(),
                "tasks": self.tasks,
                "erred": self.erred,
                "idle_seconds": self.unused_seconds,
                "clients": self.clients,
                "demand": self.demand,
                "workers": [self._worker(name, pool) for name, pool in sorted(self.pods.items())],
            }
        )

    def _listeners(self) -> Json:
        """Where it listens, as it was asked to, once its preload knows what that is."""
        asked = [pool.get("listen", {}) for pool in self.desired.get("pools", {}).values()]
        known = "listen" in self.features
        return {
            protocol: {"port": port, "why": self.lacks.get(protocol, "")}
            for each in asked
            for protocol, port in each.items()
            if known
        }

    async def _history(self, _: web.Request) -> web.Response:
        about = {"protocol": self.protocol, "scheduler_id": f"S-{self.address}", "erred": self.erred}
        return web.json_response(about | self.history)

    async def _report(self, request: web.Request) -> web.Response:
        self.reports.append(request.query["name"])
        self.on_report()
        path = f"/reports/{request.query['name']}.html"
        return web.json_response({"protocol": self.protocol, "path": path, "bytes": 7, "why": ""})

    def _worker(self, name: str, pool: str) -> Json:
        busy = name in self.busy
        retiring = ""
        if name in self.retiring:
            retiring = "draining" if busy or name in self.stuck else "drained"
        return {
            "name": name,
            "address": f"tcp://{name}",
            "pool": pool,
            "status": "running",
            "nthreads": 1,
            "resources": {},
            "processing": int(busy),
            "own": int(busy),
            "idle_seconds": 0.0 if busy else self.idle_seconds,
            "blockers": ["running"] if busy else [],
            "held_keys": 0,
            "held_bytes": 0,
            "retiring": retiring,
            "detail": "",
            **self.rows.get(name, {}),
        }

    async def _desire(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        refused = [
            {"pod": item["pod"], "why": "it is busy"}
            for item in wanted["retiring"]
            if item["if_idle"] and item["pod"] in self.busy and item["pod"] not in self.retiring
        ]
        self.desired = wanted
        self.told.append(wanted)
        await self.say()
        return web.json_response({"protocol": 1, "desired_version": wanted["version"], "refused": refused})
