"""A simulated cluster: scheduler with the preload, pods with workers, a kubelet that restarts them, clients, operator.

`calm()` takes out of distributed what costs time and decides nothing: HTTP servers, system monitors, scratch folders.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import itertools
import json
import logging
import random
import sys
import uuid
from collections.abc import Coroutine, Iterator
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

import dask
import distributed.client
import distributed.core
import distributed.metrics
import distributed.scheduler
import distributed.threadpoolexecutor
import distributed.utils
import distributed.utils_comm
import distributed.versions
import distributed.worker
import distributed.worker_client
import distributed.worker_state_machine
from distributed import Client, Scheduler, Status, Worker
from distributed.shuffle._core import ShuffleRun
from tornado.ioloop import PeriodicCallback

from gpudask.preload import routes, setup
from gpudask.preload.desired import parse_desired

from . import threads
from .loop import CLOCK, HOST, Host, Loop, within
from .network import BACKEND, Network

RESTART_SECONDS = (0.3, 1.0)  # until a container that ended runs again
POOLS: dict[str, dict[str, float]] = {"cpu": {}, "gpu": {"GPU": 1}, "himem": {"MEMORY": 10}}
ACCEPTS = {"cpu": "any", "gpu": "annotated", "himem": "annotated"}


class _Nothing:
    """Stands for a part of distributed that is taken out."""

    applications: tuple[Any, ...] = ()
    port = 0
    gpu_name = None

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.base_dir = self.dir_path = "/nowhere"

    def recent(self) -> dict[str, float]:
        return {"cpu": 0.0, "memory": 0.0}

    def new_work_dir(self, **_kwargs: Any) -> _Nothing:
        return self

    def update(self) -> None:
        """Do nothing."""

    close = release = stop = add_handlers = update


class OfProcess:
    """What distributed keeps once for a process: here each simulated one has its own, in the order of coming."""

    def __init__(self) -> None:
        self._items: dict[Host | None, list[Any]] = {}

    def add(self, item: Any) -> None:
        """Keep it for the process that runs."""
        self._items.setdefault(HOST.get(None), []).append(item)

    def clear(self) -> None:
        """Forget those of all processes."""
        self._items.clear()

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self._items.get(HOST.get(None), ())))


_UNIT_TEST = _Nothing()


def calm() -> None:
    """Make distributed cheap and deterministic. Once a process."""
    assert distributed.metrics.time == CLOCK.read, "tests.histories.loop has to be imported before distributed"
    dask.config.set(
        {
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
            "distributed.worker.profile.enabled": False,
            "distributed.admin.tick.interval": "1h",
            "distributed.admin.tick.cycle": "1h",
            "distributed.admin.system-monitor.interval": "1h",
            "distributed.client.heartbeat": "1h",
            "distributed.client.scheduler-info-interval": "1h",
            "distributed.worker.memory.pause": False,
            "distributed.worker.memory.spill": False,
            "distributed.worker.memory.target": False,
            "distributed.worker.memory.terminate": False,
            "distributed.diagnostics.nvml": False,
        }
    )
    nothing: Any = lambda *_args, **_kwargs: None  # noqa: E731

    def start_http_server(self: Any, *_args: Any, **_kwargs: Any) -> None:
        self.http_application = self.http_server = _Nothing()

    node: Any = distributed.core.Server
    for module in (distributed.core, distributed.worker, distributed.scheduler):
        for name in ("SystemMonitor", "WorkSpace"):
            if hasattr(module, name):
                setattr(module, name, _Nothing)
        for name in ("enable_gc_diagnosis", "disable_gc_diagnosis", "setproctitle"):
            if hasattr(module, name):
                setattr(module, name, nothing)
    for kind in (Scheduler, Worker):
        kind.start_http_server = start_http_server
        kind._setup_logging = nothing
    periodic: Any = PeriodicCallback
    periodic._run = _run_periodic
    assert issubclass(Worker, node)
    versions = distributed.versions.get_versions()
    for module in (distributed.versions, distributed.worker):
        module.get_versions = lambda *_args, **_kwargs: versions
    prefix: Any = distributed.scheduler.TaskPrefix
    add_duration = prefix.add_duration
    # No task takes no time. In virtual time those of distributed itself do, and work stealing asserts that none does.
    prefix.add_duration = lambda self, action, start, stop: add_duration(self, action, start, max(stop, start + 1e-4))
    original = distributed.utils.sync
    for name, module in list(sys.modules.items()):
        if name.startswith("distributed") and getattr(module, "sync", None) is original:
            module.sync = threads.sync
    distributed.worker.tpe_secede = nothing
    shadowed: Any = sys.modules["distributed.worker_client"]  # a function has the module's name
    shadowed.secede = shadowed.rejoin = nothing
    atexit.unregister(distributed.client._close_global_client)
    distributed.threadpoolexecutor.secede = distributed.threadpoolexecutor.rejoin = nothing
    # A worker makes a client of its own: here it would take that of another simulated process
    distributed.client.default_client = _no_default_client
    Client.__del__ = nothing  # clients of dead processes close nothing
    Worker._instances, Worker._initialized_clients = OfProcess(), OfProcess()
    Scheduler._instances.add(_UNIT_TEST)  # a worker that cannot close would end this process where there is none
    # Sets of tasks have the same order in each run
    for keyed in (distributed.worker_state_machine.TaskState, distributed.client.Future):
        keyed.__hash__ = lambda self: hash(self.key)
    begin = ShuffleRun.__init__
    ShuffleRun.__init__ = lambda self, **kwargs: begin(self, **{**kwargs, "disk": False})
    sys.unraisablehook = nothing  # what dead processes leave behind is collected in any order
    routes.add_routes = setup.add_routes = nothing
    logging.getLogger("distributed").setLevel(logging.WARNING)
    logging.getLogger("gpudask").setLevel(logging.WARNING)
    logging.getLogger("tornado").setLevel(logging.CRITICAL)  # clients of workers that die


def _run_periodic(timer: Any) -> None:
    """Do what `PeriodicCallback._run` does, without a coroutine, a task and three callbacks where nobody waits."""
    if not timer._running:
        return
    try:
        waiting = timer.callback()
    except Exception:
        logging.getLogger("distributed").exception("Exception in callback %r", timer.callback)
        waiting = None
    if inspect.isawaitable(waiting):
        asyncio.ensure_future(_then_schedule_next(timer, waiting))  # noqa: RUF006 (it lives while its callbacks do)
    else:
        timer._schedule_next()


async def _then_schedule_next(timer: Any, waiting: Any) -> None:
    try:
        await waiting
    except Exception:
        logging.getLogger("distributed").exception("Exception in callback %r", timer.callback)
    timer._schedule_next()


def _no_default_client(*_args: Any, **_kwargs: Any) -> Any:
    raise ValueError("each simulated process has clients of its own")


@dataclass(eq=False)
class Process:
    """One life of a worker's container."""

    host: Host
    worker: Worker | None = None
    reason: str = ""  # why it closed, in its own words
    is_explained: bool = False  # whether the history let it end
    ended: float | None = None


@dataclass(eq=False)
class Pod:
    """A worker pod of one container: after each end of its process the kubelet starts another one."""

    name: str
    pool: str
    ip: str
    nthreads: int
    processes: list[Process] = field(default_factory=list)
    is_deleted: bool = False
    is_ending: bool = False  # Kubernetes ends it: its hook waits for the preload's word

    @property
    def dask_name(self) -> str:
        return f"demo-{self.pool}-worker-{self.name.rpartition('-')[2]}-00000"

    @property
    def process(self) -> Process | None:
        """Return the life that is under way."""
        return self.processes[-1] if self.processes and self.processes[-1].ended is None else None

    @property
    def worker(self) -> Worker | None:
        process = self.process
        return process.worker if process else None


class Cluster:
    """Everything that runs in one history."""

    def __init__(self, seed: int, *, has_preload: bool, validates: bool) -> None:
        self.loop: Loop = asyncio.get_running_loop()  # type: ignore[assignment]
        self.random = random.Random(f"cluster {seed}")
        self.network = BACKEND.network = Network(self.loop, seed)
        self.has_preload = has_preload
        self.validates = validates
        self.pods: dict[str, Pod] = {}
        self.clients: dict[str, Client] = {}
        self.client_hosts: dict[str, Host] = {}
        self.restarted: list[float] = []  # when a client restarted the cluster
        self.deaths: list[tuple[float, Host]] = []  # processes that died with what they held
        self.reaped: set[Host] = set()  # workers that were deleted when they were drained: nothing is lost with them
        self.released: set[Host] = set()  # the same, but what they held may be computed again
        self.unexplained: list[str] = []  # processes that ended by themselves
        self.background: set[asyncio.Task[Any]] = set()
        self.taking_in = 0  # graphs that the scheduler is taking in at present
        self.operator = Operator(self)
        self.preload: Any = None
        self._ips = 0

    def host(self, name: str) -> Host:
        self._ips += 1
        return Host(name, f"10.0.0.{self._ips}")

    def spawn(self, host: Host, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as part of a process."""
        task = self.loop.create_task(work, context=within(host))
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        return task

    async def start(self) -> None:
        """Start the scheduler, the preload, and the operator's first word."""
        self.scheduler_host = self.host("scheduler")
        await self.spawn(self.scheduler_host, self._start_scheduler())
        if self.has_preload:
            self.operator.say()

    async def _start_scheduler(self) -> None:
        self.scheduler = Scheduler(protocol="sim://", dashboard=False, validate=self.validates)
        update_graph = self.scheduler.update_graph

        async def counted(*args: Any, **kwargs: Any) -> None:
            self.taking_in += 1
            try:
                await update_graph(*args, **kwargs)
            finally:
                self.taking_in -= 1

        self.scheduler.stream_handlers["update-graph"] = counted
        for name in ("idle-timeout", "no-workers-timeout"):  # neither has a limit
            self.scheduler.periodic_callbacks.pop(name, None)
        await self.scheduler
        if self.has_preload:
            self.preload = await setup.install(self.scheduler)

    # Pods

    def add_pod(self, name: str, nthreads: int = 1) -> Pod:
        pod = self.pods.get(name)
        assert pod is None
        self._ips += 1
        pod = self.pods[name] = Pod(name, name.rpartition("-")[0], f"10.0.0.{self._ips}", nthreads)
        self._start_container(pod)
        return pod

    def _start_container_soon(self, pod: Pod) -> None:
        """Be the kubelet, which outlives what runs here: its timer belongs to no process."""
        seconds = self.random.uniform(*RESTART_SECONDS)
        self.loop.call_later(seconds, self._start_container, pod, context=Context())

    def _start_container(self, pod: Pod) -> None:
        if pod.is_deleted:
            return
        process = Process(Host(f"{pod.name}#{len(pod.processes)}", pod.ip))
        process.host.ports = 100 * len(pod.processes)
        pod.processes.append(process)
        self.spawn(process.host, self._live(pod, process))

    async def _live(self, pod: Pod, process: Process) -> None:
        """Be a worker's process until it ends by itself; a killed one never comes to the end of this."""
        assert isinstance(self.scheduler.address, str)
        worker = process.worker = Worker(
            self.scheduler.address,
            nthreads=pod.nthreads,
            name=pod.dask_name,
            resources=dict(POOLS[pod.pool]),
            memory_limit=0,
            validate=self.validates,
            heartbeat_interval="2s",
        )
        close = worker.close

        async def close_for(*args: Any, **kwargs: Any) -> Any:
            process.reason = process.reason or kwargs.get("reason", "?")
            self.deaths.append((CLOCK.now, process.host))
            return await close(*args, **kwargs)

        worker.close = close_for
        with contextlib.suppress(Exception):
            await worker
            await worker.finished()
        # The name of its predecessor is still taken: it exits, and tries again, as in Kubernetes
        is_registered = worker.status is not Status.failed
        just_restarted = any(CLOCK.now - at < 60 for at in self.restarted)
        if is_registered and not process.is_explained and not just_restarted:
            self.unexplained.append(f"{pod.name} ended by itself: {process.reason}")
        self.end_process(pod, process)

    def end_process(self, pod: Pod, process: Process) -> None:
        """Let a process be no more; its container starts again unless its pod is deleted."""
        if process.ended is not None:
            return
        process.ended = CLOCK.now
        self.deaths.append((CLOCK.now, process.host))
        self.network.kill(process.host, noticed_after=0.0)
        self._start_container_soon(pod)

    def kill(self, pod: Pod, *, deletes: bool) -> None:
        """Kill a pod's process; `deletes`: its node is lost with it."""
        pod.is_deleted = pod.is_deleted or deletes
        process = pod.process
        if process is None:
            return
        process.is_explained = True
        process.ended = CLOCK.now
        self.deaths.append((CLOCK.now, process.host))
        noticed_after = self.random.choice((0.0, 0.001, 0.01, 0.5, 3.0))
        self.network.kill(process.host, noticed_after=noticed_after)
        self._start_container_soon(pod)

    def terminate(self, pod: Pod) -> None:
        """Delete a pod: SIGTERM, on which a worker closes."""
        pod.is_deleted = True
        process = pod.process
        if process is None or process.worker is None:
            if process is not None:
                self.kill(pod, deletes=True)
            return
        process.is_explained = True
        wish = self.operator.retiring.get(pod.name, {})
        (self.released if wish.get("data") == "release" else self.reaped).add(process.host)
        self.spawn(process.host, process.worker.close(reason="sigterm"))

    def set_paused(self, pod: Pod, *, paused: bool) -> None:
        """Pause a worker, or let it go on, as its memory manager does."""
        worker, process = pod.worker, pod.process
        if worker is None or process is None:
            return
        old, new = (Status.running, Status.paused) if paused else (Status.paused, Status.running)
        if worker.status == old:
            within(process.host).run(setattr, worker, "status", new)

    def state(self, pod: Pod) -> Any:
        """Return the scheduler's picture of a pod's worker, None without one."""
        worker = pod.worker
        if worker is None or not worker._address:
            return None
        return self.scheduler.workers.get(worker._address)

    def living(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if not pod.is_deleted]

    # Clients

    async def add_client(self, name: str) -> None:
        host = self.client_hosts[name] = self.host(name)

        async def connect() -> None:
            self.clients[name] = await Client(self.scheduler.address, asynchronous=True, set_as_default=False)

        await self.spawn(host, connect())

    def run_in_client(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function as part of a client's process."""
        return within(self.client_hosts[name]).run(function, *args, **kwargs)

    def disconnect(self, name: str) -> None:
        """Break a client's connection; it connects again by itself."""
        comm = self.clients[name].scheduler_comm
        if comm is not None and comm.comm is not None:
            # Where the client is back before the scheduler has noticed that it was gone, distributed drops it later.
            # The scheduler notices nothing while it takes in a graph of the client's.
            comm.comm._connection.break_(0.0, client_after=5.0 if self.taking_in else 0.5)

    def break_calls(self, pod: Pod, other: Host) -> int:
        """Break what a pod's worker and another process have open, but for streams: answers are lost."""
        process = pod.process
        if process is None or process.worker is None or process.worker.status == Status.init:
            return 0  # with what it registers by becomes its stream
        spare: set[Any] = {process.worker.batched_stream.comm}
        clients = [*self.clients.values(), *([process.worker._client] if process.worker._client else [])]
        spare |= {client.scheduler_comm.comm for client in clients if client.scheduler_comm}
        return self.network.break_between(process.host, other, spare=spare)


class Operator:
    """The operator's side: its word, which it sends whole again and again, and what it does once pods are drained."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.retiring: dict[str, dict[str, Any]] = {}  # pod -> wish
        self.offers: dict[str, dict[str, float]] = {}
        self.accepts = dict(ACCEPTS)
        self.refused: set[str] = set()
        self._version = 0

    def say(self) -> None:
        """Send the whole word, as one pass does."""
        cluster = self._cluster
        if not cluster.has_preload:
            return
        self._version += 1
        body = {
            "protocol": 1,
            "version": f"v{self._version}",
            "pools": {name: {"accepts": what, "gpu": name == "gpu"} for name, what in self.accepts.items()},
            "retiring": [
                {"pod": cluster.pods[pod].dask_name, **wish}
                for pod, wish in self.retiring.items()
                if not cluster.pods[pod].is_deleted or cluster.state(cluster.pods[pod]) is not None
            ],
            "offers": self.offers,
        }
        apply, desired = cluster.preload.apply, parse_desired(json.dumps(body).encode())
        try:
            refused = within(cluster.scheduler_host).run(apply, desired)
        except Exception:  # the HTTP server would answer 500
            logging.getLogger("gpudask.preload").exception("the desired route fails")
            refused = {}
        for pod in list(self.retiring):
            if cluster.pods[pod].dask_name in refused:
                del self.retiring[pod]

    def drained(self) -> list[Pod]:
        """Return the pods that may be deleted now."""
        cluster = self._cluster
        found = []
        for name in self.retiring:
            pod = cluster.pods[name]
            ws = cluster.state(pod)
            if not pod.is_deleted and ws is not None and cluster.preload.retirement.state_of(ws) == "drained":
                found.append(pod)
        return found


def seed_everything(seed: int) -> None:
    """Let all that draws at random draw from the seed."""
    random.seed(seed)
    distributed.utils_comm._round_robin_counter[0] = 0
    distributed.scheduler.TaskState._run_id_iterator = itertools.count()
    draws = random.Random(f"uuid {seed}")
    uuid.uuid4 = uuid.uuid1 = lambda *_args, **_kwargs: uuid.UUID(int=draws.getrandbits(128))  # type: ignore[assignment]
