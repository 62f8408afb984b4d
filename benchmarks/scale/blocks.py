"""The longest time for which the preload holds the scheduler's loop, with very many tasks and workers.

    python -m benchmarks.scale.blocks [--tasks 1000000] [--workers 1000]

A real scheduler in this process; its workers are connections that say nothing, and what they would say is said for
them. Every call of the preload's code from outside is timed: callbacks of the loop, steps of its coroutines and of the
HTTP routes, its plugin, the handlers of workers' messages, and the methods of the scheduler that it stands in for.
What distributed itself does within such a call is taken off. Times are CPU time of the loop's thread, so that others
on the machine do not lengthen them; Python's cyclic garbage collector is off, whose pauses meet whoever allocates next.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import hashlib
import itertools
import json
import operator
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from dask._task_spec import Task, TaskRef
from distributed import Scheduler
from distributed.scheduler import ClientState

from benchmarks.scale.stopwatch import Clock, install, timed_routes, watch_loop

TOKEN = "blocks"  # noqa: S105 (of a scheduler on this machine's loopback)
CLIENT = "blocks"
TOKEN_FILE = "GPUDASK_TOKEN_SHA256_FILE"  # noqa: S105 (a name)
GPU, NOBODYS = {"GPU": 1}, {"TPU": 1}
THREADS = 4
FEW = 16  # workers that GPU tasks are given to: more would make distributed's own choice the longest part of the turn
SHARE_SECONDS = 0.005  # for each worker
SETTLE_SECONDS = 0.02  # for each worker, until hundreds of them that leave have got as far as they can
QUIET_SECONDS = 2.0  # after each step, for what comes later
HEARTBEAT: dict[str, Any] = {
    **dict.fromkeys(("cpu", "memory", "time", "in_memory", "ready", "in_flight", "event_loop_interval"), 0),
    **dict.fromkeys(("managed_bytes", "num_fds", "read_bytes", "write_bytes"), 0),
    **{name: {} for name in ("executing", "host", "task_counts", "digests_total_since_heartbeat")},
    "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
    "spilled_bytes": {"memory": 0, "disk": 0},
    "transfer": {"incoming_bytes": 0, "outgoing_bytes": 0, "incoming_count": 0},
}


@dataclass(frozen=True)
class Longest:
    """The longest block of each entry point, in seconds of CPU, and how often each was called."""

    tasks: int
    workers: int
    seconds: dict[str, float]
    calls: dict[str, int]

    @property
    def worst(self) -> tuple[str, float]:
        """Of all: entry point, seconds."""
        return max(self.seconds.items(), key=operator.itemgetter(1))


class Silent:
    """A connection on which nothing comes. `hear` gets what is sent to the worker."""

    local_address = peer_address = "inproc://nobody"
    name = ""

    def __init__(self, hear: Callable[[list[dict[str, Any]]], None]) -> None:
        self._hear = hear
        self._closed = asyncio.Event()

    async def read(self, deserializers: Any = None) -> Any:  # noqa: ARG002
        """Wait until it is closed."""
        await self._closed.wait()
        raise OSError

    async def write(self, msg: Any, serializers: Any = None, on_error: Any = None) -> int:  # noqa: ARG002
        """Take messages."""
        if isinstance(msg, list):
            self._hear(msg)
        return 0

    def closed(self) -> bool:
        """Return whether it is."""
        return self._closed.is_set()

    def abort(self) -> None:
        """Close it."""
        self._closed.set()

    async def close(self) -> None:
        """Close it."""
        self.abort()


class SilentCluster:
    """A scheduler whose workers and client are silent: what they would say is said for them."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self._numbers = itertools.count()
        self._connections: list[asyncio.Task[None]] = []
        scheduler.clients[CLIENT] = ClientState(CLIENT)

    async def join(self, pool: str, *, offers: dict[str, float]) -> str:
        """Let a worker come; return its address."""
        i = next(self._numbers)
        address = f"tcp://127.0.{i // 250}.{1 + i % 250}:9000"
        words: dict[str, Any] = dict.fromkeys(("local_directory", "nanny"), "") | {
            "services": {},
            "versions": {},
            "extra": {},
        }
        coming = self.scheduler.add_worker(
            Silent(functools.partial(self._give_back, address)),
            address=address,
            status="running",
            server_id=f"worker-{i}",
            nthreads=THREADS,
            name=f"bench-{pool}-worker-{i}-00000",
            now=time.time(),
            resources=offers,
            memory_limit=2**34,
            metrics=HEARTBEAT,
            stimulus_id=f"join-{i}",
            **words,
        )
        self._connections.append(asyncio.ensure_future(coming))
        while address not in self.scheduler.stream_comms:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0)
        return address

    def _give_back(self, address: str, messages: list[dict[str, Any]]) -> None:
        """Answer for a worker that it has begun none of the tasks that it is asked for."""
        asked = [message for message in messages if message["op"] == "steal-request"]

        def answer() -> None:
            handler = self.scheduler.stream_handlers["steal-response"]
            for message in asked:
                handler(key=message["key"], state="ready", stimulus_id=message["stimulus_id"], worker=address)

        if asked:
            asyncio.get_running_loop().call_later(0.001, answer)

    def submit(self, prefix: str, n: int, resources: Any = None, after: str = "") -> list[str]:
        """Bring a graph of `n` tasks, which all wait for the task `after` if there is one."""
        keys = [f"{prefix}-{i:032x}" for i in range(n)]
        function, argument = operator.truth, 1
        graph: dict[str, Any] = {key: Task(key, function, argument) for key in keys}
        if after:
            graph = {key: Task(key, function, TaskRef(after)) for key in keys}
            graph[after] = Task(after, function, argument)
        self.scheduler._create_taskstate_from_graph(  # noqa: SLF001
            start=time.time(),
            dsk=graph,
            keys=set(keys),
            ordered={key: i for i, key in enumerate(graph)},
            client=CLIENT,
            annotations_by_type={"resources": dict.fromkeys(graph, resources)} if resources else {},
            global_annotations=None,
            stimulus_id=f"graph-{prefix}",
            submitting_task=None,
            span_metadata={"collections": []},
        )
        return keys

    async def finish(self, keys: Iterable[str]) -> None:
        """Say for the workers that they have done what they were given of these, and what they are given then."""
        wanted = set(keys)
        tasks = self.scheduler.tasks
        while wanted:
            now = [key for key in wanted if tasks[key].processing_on is not None][:20_000]
            if not now:
                raise RuntimeError(f"{len(wanted)} tasks were given to no worker")
            for key in now:
                self._finish(tasks[key])
            wanted.difference_update(now)
            await asyncio.sleep(0)

    def _finish(self, ts: Any) -> None:
        now = time.time()
        self.scheduler.handle_task_finished(
            key=ts.key,
            worker=ts.processing_on.address,
            stimulus_id="finish",
            run_id=ts.run_id,
            metadata={},
            nbytes=28,
            type=b"",
            typename="bool",
            thread=1,
            startstops=[{"action": "compute", "start": now - 0.1, "stop": now}],
            status="OK",
        )

    def copy(self, keys: Iterable[str]) -> None:
        """Let another worker hold each of these results, too."""
        workers = itertools.cycle(list(self.scheduler.workers.values()))
        for key, ws in zip(keys, workers, strict=False):
            ts = self.scheduler.tasks[key]
            if ws not in ts.who_has:
                self.scheduler.add_replica(ts, ws)

    def release(self, keys: list[str]) -> None:
        """Let the client forget these."""
        self.scheduler.client_releases_keys(keys=keys, client=CLIENT, stimulus_id="release")

    async def close(self) -> None:
        """End the connections."""
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


def measure(tasks: int, workers: int, tell: Callable[[str], None] = print) -> Longest:
    """Return the longest blocks of one turn."""
    clock = Clock()
    with _token(), _without_collector(), timed_routes(clock):
        return asyncio.run(_measure(clock, tasks, workers, tell))


@contextlib.contextmanager
def _token() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get(TOKEN_FILE)
        os.environ[TOKEN_FILE] = f"{folder}/token"
        Path(os.environ[TOKEN_FILE]).write_text(hashlib.sha256(TOKEN.encode()).hexdigest())
        try:
            yield
        finally:
            del os.environ[TOKEN_FILE]
            if before is not None:
                os.environ[TOKEN_FILE] = before


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def _measure(clock: Clock, tasks: int, workers: int, tell: Callable[[str], None]) -> Longest:
    watch_loop(clock)
    options: Any = {"port": 0, "dashboard_address": ":0", "dashboard": False, "host": "127.0.0.1"}
    async with Scheduler(**options) as scheduler:
        cluster = SilentCluster(scheduler)
        for i in range(workers):  # first: each that joins has distributed look at all tasks which find no worker
            await cluster.join("gpu" if i % 2 else "cpu", offers={"GPU": 4.0} if i % 2 and i < 2 * FEW else {})
        before = cluster.submit("before", tasks // 10, NOBODYS)  # clients may come before the preload, too
        preload = await install(scheduler, clock)
        poll = asyncio.ensure_future(_poll(scheduler.http_server.port))
        try:
            await _act(cluster, tasks, preload, functools.partial(_told, tell, clock))
        finally:
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
            cluster.release(before)
            preload.stop()
            await cluster.close()
    return Longest(tasks, workers, dict(clock.seconds), dict(clock.calls))


def _told(tell: Callable[[str], None], clock: Clock, what: str) -> None:
    name, seconds = max(clock.seconds.items(), key=operator.itemgetter(1))
    tell(f"blocks: {what}; the longest so far {seconds * 1000:.1f} ms by {name}")


async def _act(cluster: SilentCluster, tasks: int, preload: Any, tell: Callable[[str], None]) -> None:
    """Bring tasks in all states, let some end, and let all go."""
    scheduler = cluster.scheduler
    port = scheduler.http_server.port
    await _desire(port, [])
    await _rest(preload)
    tell("installed")
    held = cluster.submit("held", tasks // 4)
    await cluster.finish(held)
    cluster.copy(held[: tasks // 10])
    await _rest(preload)
    tell(f"{len(held)} results are held")
    nowhere = cluster.submit("nowhere", tasks // 4, NOBODYS)
    await _rest(preload)
    waiting = cluster.submit("waiting", tasks // 10, NOBODYS, after="last")
    given = cluster.submit("given", tasks // 10, GPU)
    queued = cluster.submit("queued", tasks // 5)
    await _rest(preload)
    tell(f"{len(scheduler.tasks)} tasks are there")
    await cluster.finish(given[::2])
    leaving = [str(ws.name) for ws in list(scheduler.workers.values())[: len(scheduler.workers) * 3 // 10]]
    await _desire(port, leaving)
    await asyncio.sleep(SETTLE_SECONDS * len(scheduler.workers))
    share = await _share(preload, SHARE_SECONDS * len(scheduler.workers))
    await _desire(port, [])
    await asyncio.sleep(SETTLE_SECONDS * len(scheduler.workers))
    share -= await _share(preload, SHARE_SECONDS * len(scheduler.workers))
    tell(f"{len(leaving)} workers were to leave; while they wait, they take {share:.1%} of a core")
    await scheduler.remove_worker(next(iter(scheduler.workers)), stimulus_id="gone")
    await cluster.join("gpu", offers={"GPU": 4.0})
    await _rest(preload)
    for keys in (nowhere, waiting, given):
        cluster.release(keys)
        await _rest(preload)
    tell("the restricted tasks were let go")
    for plugin in list(scheduler.plugins.values()):
        if plugin is preload:
            plugin.restart(scheduler)
    for keys in (held, queued):
        cluster.release(keys)
    await _rest(preload)
    tell("all was let go")


async def _share(preload: Any, seconds: float) -> float:
    """Return how much of a core the loop's thread takes while the preload looks as often as it ever does."""
    cpu_seconds, started = time.thread_time(), time.monotonic()
    while time.monotonic() < started + seconds:
        preload.watch.touch()
        await asyncio.sleep(0.01)
    return (time.thread_time() - cpu_seconds) / (time.monotonic() - started)


async def _rest(preload: Any) -> None:
    """Wait until all is counted, and a while longer for all that comes later."""
    ends = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < ends or preload.demand.is_behind:  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.05)


async def _poll(port: int) -> None:
    """Hold the long poll, as the operator does."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        seen = ""
        while True:
            url = f"http://127.0.0.1:{port}/gpudask/v1/demand"
            async with http.get(url, params={"seen": seen, "wait": "5"}) as response:
                seen = (await response.json())["version"]


async def _desire(port: int, leaving: list[str]) -> None:
    pools = {"cpu": {"accepts": "any"}, "gpu": {"accepts": "annotated", "gpu": True}}
    retiring = [{"pod": name, "data": "move", "if_idle": False} for name in leaving]
    body = {"protocol": 1, "version": f"{len(leaving)}", "pools": pools, "retiring": retiring}
    url = f"http://127.0.0.1:{port}/gpudask/v1/desired"
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
        http.post(url, data=json.dumps(body)) as response,
    ):
        response.raise_for_status()


def describe(longest: Longest) -> Iterator[str]:
    """Return a line for each entry point that ever took a millisecond, the worst first, and one for machines."""
    for name, seconds in sorted(longest.seconds.items(), key=operator.itemgetter(1), reverse=True):
        if seconds >= 0.001:  # noqa: PLR2004
            yield f"  {seconds * 1000:8.1f} ms  {name} ({longest.calls[name]} calls)"
    name, seconds = longest.worst
    yield f"blocks: tasks={longest.tasks} workers={longest.workers} longest={seconds * 1000:.1f}ms by {name}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="how long the preload ever holds the scheduler's loop")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=1_000)
    given = parser.parse_args()
    print("\n".join(describe(measure(given.tasks, given.workers, lambda words: print(words, flush=True)))))


if __name__ == "__main__":
    main()
