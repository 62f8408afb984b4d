"""Takes in graphs: one that the scheduler cannot read, for want of a device or a module, is read by a worker.

1. Each graph is deserialized here once, as distributed does it, which gets the result. What fails is looked at.
2. A worker that may have what is missing deserializes and lowers the graph (`lowering`); another one if it dies, or
   lacks it too (`reading`). Where there is none that is demand, for which the operator starts a pod.
3. distributed takes in what comes back as it does any graph: the tasks are `opaque`.

Meanwhile the client is heard, its heartbeats above all, and whatever names keys waits its turn, in the order in which
the client sent it (`ClientLine`): a later graph may depend on an earlier one, and a release that came too soon would
forget what a graph still needs. What nobody wants any more leaves: nothing is started for it. An error of the program's
own reaches it as from any graph.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import inspect
import logging
from collections import Counter, deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dask
from dask.utils import parse_bytes, parse_timedelta
from distributed.protocol.serialize import deserialize
from distributed.utils import offload

from ..part import Part
from ..requirements import requirement_from
from .failures import Failure, GraphReadError
from .reading import Reading
from .steering import Steering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from distributed.scheduler import Scheduler, WorkerState

    from ..pools import Pools
    from ..watch import Watch
    from .device_results import DeviceResults

logger = logging.getLogger("gpudask.preload")

WAITING_MESSAGES = 10_000  # of one client; with more, or more bytes, it is not heard
WAITING_BYTES = 2**30
STATUS = "worker-status-change"
# How workers send results to a scheduler, which may have no device to receive those of one: as over tcp, by way of the
# host. By itself UCX has them go from device to device; Dask then asks for them again and again.
_BY_HOST = ("dask", "pickle", "error")


class Does(enum.Enum):
    """What a message is about."""

    UPDATES = "updates"  # a graph, of which it wants keys
    WANTS = "wants"
    GIVES_UP = "gives up"  # by release or cancellation
    ELSE = "else"


# What a client sends that names keys, or asks whether all that it has sent was processed
ORDERED = MappingProxyType(
    {
        "client-desires-keys": Does.WANTS,
        "client-releases-keys": Does.GIVES_UP,
        "cancel-keys": Does.GIVES_UP,
        "report-key": Does.ELSE,
        "publish_flush_batched_send": Does.ELSE,
    }
)


class Graphs(Part):
    """Narrows the handlers of what clients send. A graph that the scheduler can read costs two small objects more.

    In Dask's configuration `gpudask.graphs` has `lower` (true), `timeout` (30 minutes) and `max-size` (1 GiB).
    """

    feature = "graphs"
    attributes = ("stream_handlers", "handlers", "clients", "running", "workers")
    methods = MappingProxyType(
        {
            "update_graph": ("client", "expr_ser", "keys", "internal_priority"),
            "broadcast": ("msg", "workers", "on_error"),
            "gather": ("keys", "serializers"),
        }
    )

    def __init__(
        self,
        scheduler: Scheduler,
        pools: Pools,
        watch: Watch,
        device_results: DeviceResults,
        may_get_work: Callable[[WorkerState], bool],
    ) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._device_results = device_results
        self._reading = Reading(scheduler, pools, watch, may_get_work)
        self._lines: dict[str, ClientLine] = {}
        self._suspects: set[str] = set()  # clients of whom a graph could not be read

    @staticmethod
    def is_wanted() -> bool:
        """Return whether Dask's configuration leaves it on."""
        return bool(dask.config.get("gpudask.graphs.lower", True))

    def start(self) -> None:
        """Follow the clients' messages."""
        from . import opaque  # noqa: PLC0415 (what it needs of distributed may be missing)

        self._opaque = opaque
        self._reading.limit_seconds = parse_timedelta(dask.config.get("gpudask.graphs.timeout", "30m"))
        self._reading.limit_bytes = parse_bytes(dask.config.get("gpudask.graphs.max-size", "1GiB"))
        self._steering = Steering(self._scheduler, self._pools)
        self._reading.gpu = requirement_from(self._steering.resources)
        self._reading.modules = self._steering.modules if self._steering.is_on else ()
        handlers: Any = self._scheduler.stream_handlers
        self._update_graph, handlers["update-graph"] = handlers["update-graph"], self.update_graph
        self._change_status, handlers[STATUS] = handlers[STATUS], self.change_status
        calls: Any = self._scheduler.handlers
        self._broadcast, calls["broadcast"] = calls["broadcast"], self.broadcast
        self._gather, calls["gather"] = calls["gather"], self.gather
        for op, does in ORDERED.items():
            if op in handlers:
                handlers[op] = self._in_order(handlers[op], does, is_also_now=op == "cancel-keys")
        self._device_results.begin(self._steering)

    def stop(self) -> None:
        """Read no more."""
        for client in list(self._lines):
            self._drop(client)

    def restart(self) -> None:
        """Forget what waits, as the scheduler just did with all tasks: its clients hear that."""
        self.stop()

    def change_status(self, **message: Any) -> None:
        """Follow the handler `worker-status-change`: a worker that has come runs only then."""
        self._change_status(**message)
        self._reading.look_again()

    async def gather(self, *, keys: Any, serializers: Any = None) -> Any:
        """Narrow the handler `gather`: results that pass through here come as the host's bytes."""
        return await self._gather(keys=keys, serializers=serializers or _BY_HOST)

    async def broadcast(self, *, msg: Any, workers: Any = None, **options: Any) -> Any:
        """Narrow the handler `broadcast`: what `Client.run` runs on all, and needs a device, runs where one is."""
        is_of_all = workers is None and options.get("hosts") is None and not options.get("nanny")
        if is_of_all and isinstance(msg, dict) and msg.get("op") == "run":
            workers = self._steering.workers_for(msg.get("function"))
        return await self._broadcast(msg=msg, workers=workers, **options)

    def remove_client(self, client: str) -> None:
        """Forget what a client that has gone wanted."""
        self._suspects.discard(client)
        self._drop(client)

    def complete_demand(self, entries: list[dict[str, Any]]) -> None:
        """Add the graphs that wait for a worker, or are read by one."""
        self._reading.complete_demand(entries)

    @property
    def waiting(self) -> int:
        """How many graphs are not taken in yet: they would be lost with the scheduler."""
        return sum(message.does is Does.UPDATES for line in self._lines.values() for message in line.messages)

    async def update_graph(self, *, client: str, expr_ser: Any, keys: Iterable[Any], **message: Any) -> None:
        """Narrow the handler `update-graph`: hand on what can be read here; what cannot waits in its client's line."""
        keys = set(keys)
        failure = None
        if client not in self._lines:
            expr, failure = await self._deserialize(client, expr_ser)
            if failure is None:
                await self._take_in_readable(expr, expr_ser, client=client, keys=keys, **message)
                return
        while (line := self._line(client)).is_full(WAITING_MESSAGES, WAITING_BYTES):
            await line.until_shorter()  # unheard: its messages come one after the other
        update = Message(Does.UPDATES, keys, nbytes=_nbytes(expr_ser))
        update.apply = lambda: self._update(failure, client=client, expr_ser=expr_ser, keys=keys, **message)
        self._append(line, update)

    def _in_order(self, handler: Any, does: Does, *, is_also_now: bool) -> Any:
        """Return a handler for what is to wait behind the graphs that came before.

        `is_also_now`: it is processed at once, too, as far as it is about tasks that are known.
        """

        async def ordered(**message: Any) -> None:
            keys = message.get("keys", ())
            line = self._lines.get(message.get("client", "")) or self._line_with(keys)
            if line is None or is_also_now:
                await _result(handler(**message))
            if line is not None:
                self._append(line, Message(does, keys, lambda: handler(**message)))

        return ordered

    def _line(self, client: str) -> ClientLine:
        return self._lines.setdefault(client, ClientLine(client))

    def _line_with(self, keys: Iterable[Any]) -> ClientLine | None:
        """Return the line with a graph that has one of these keys: another client, or nobody's, may name them."""
        return next((line for line in self._lines.values() if line.brings_any(keys)), None) if self._lines else None

    def _append(self, line: ClientLine, message: Message) -> None:
        line.add(message)
        if line.task is None:
            line.task = asyncio.ensure_future(self._serve(line))

    def _drop(self, client: str) -> None:
        line = self._lines.pop(client, None)
        if line is not None:
            line.close()

    async def _serve(self, line: ClientLine) -> None:
        """Process a client's messages one after the other, until none is left."""
        while line.messages:
            message = line.messages[0]
            message.work = asyncio.ensure_future(_result(message.apply()))
            try:
                await message.work
            except asyncio.CancelledError:
                if not message.is_unwanted:
                    message.work.cancel()
                    raise
            except Exception:
                logger.exception("gpudask: a message of client %s could not be processed", line.client)
            line.remove(message)
        if self._lines.get(line.client) is line:
            del self._lines[line.client]

    async def _update(self, failure: Failure | None, *, client: str, expr_ser: Any, **message: Any) -> None:
        """Take in a graph whose turn it is. `failure`: why it could not be read here; None where nobody has tried."""
        if failure is None:
            expr, failure = await self._deserialize(client, expr_ser)
            if failure is None:
                await self._take_in_readable(expr, expr_ser, client=client, **message)
                return
        with _counted_as_update(self._scheduler):
            get, order = await self._read(failure, expr_ser, message)
        if order is not None:
            message["internal_priority"] = order
        if client in self._scheduler.clients:  # else distributed would make it known again
            await self._take_in(get, client=client, **message)

    async def _read(
        self, failure: Failure, expr_ser: Any, message: dict[str, Any]
    ) -> tuple[Callable[[], Any], dict[Any, int] | None]:
        """Have a worker read a graph; return a function that returns it, or raises why not, and its tasks' order."""
        is_ordered = bool(message.get("internal_priority"))
        try:
            read, reader = await self._reading.read(expr_ser, message["keys"], failure, is_ordered=is_ordered)
            graph, on_gpu, order = await offload(self._opaque.LoweredGraph.read, read)
            self._steering.steer(graph, on_gpu, reader, message)
        except GraphReadError as unread:
            failed = self._opaque.FailedGraph(unread.error)
            return (lambda: failed) if unread.is_of_program else _raises(unread.error), None
        except Exception as error:
            logger.exception("gpudask: a graph that a worker has read could not be taken in")
            return _raises(error), None
        return lambda: graph, order

    async def _deserialize(self, client: str, expr_ser: Any) -> tuple[Any, Failure | None]:
        """Deserialize a graph here: in a thread where the client's last one failed, which may have taken seconds."""
        try:
            if client in self._suspects:
                return await offload(deserialize, expr_ser.header, expr_ser.frames), None
            return deserialize(expr_ser.header, expr_ser.frames), None  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 (whatever the user's types raise)
            self._suspects.add(client)
            failure = Failure.here(error)
            logger.info("gpudask: the scheduler lacks %s to read a graph: %s", failure.kind.value, failure.text)
            return None, failure

    async def _take_in_readable(self, expr: Any, expr_ser: Any, **message: Any) -> None:
        """Have distributed take in a graph that was read here, steered where it is to be."""
        graph = expr
        try:
            if self._steering.concerns(expr_ser, message):
                lower, lowered = self._steering.lower_and_steer, self._opaque.LoweredGraph
                with _counted_as_update(self._scheduler):
                    graph = await offload(lower, expr, message["keys"], lowered)
        except Exception as error:  # noqa: BLE001 (the program's own; distributed would tell it the same)
            graph = self._opaque.FailedGraph(error)
        await self._take_in(lambda: graph, **message)

    async def _take_in(self, get: Callable[[], Any], **message: Any) -> None:
        """Have distributed take in what `get` returns as a graph, or what it raises as an error of reading it."""
        await self._update_graph(expr_ser=self._opaque.hand_over(get), **message)


class Message:
    """One message that waits.

    Args:
        does: what it is about.
        keys: that it names.
        apply: hands it to the scheduler; what it returns may have to be awaited.
        nbytes: how large it is.
    """

    def __init__(
        self, does: Does, keys: Iterable[Any], apply: Callable[[], Any] = lambda: None, *, nbytes: int = 0
    ) -> None:
        self.does = does
        self.keys = frozenset(keys)
        self.apply = apply
        self.nbytes = nbytes
        self.work: asyncio.Future[Any] | None = None  # while it is applied
        self.is_unwanted = False


class ClientLine:
    """What waits of one client; the first of it is applied."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.messages: deque[Message] = deque()
        self.task: asyncio.Task[None] | None = None  # applies them
        self._nbytes = 0
        self._brings: Counter[Any] = Counter()  # key -> graphs that have it
        self._last: Message | None = None  # of the graphs
        self._given_up: set[Any] = set()  # after that
        self._shorter = asyncio.Event()

    def is_full(self, most: int, most_bytes: int) -> bool:
        """Return whether so many messages wait, or so many bytes."""
        return len(self.messages) >= most or self._nbytes >= most_bytes

    async def until_shorter(self) -> None:
        """Wait until a message has left."""
        self._shorter.clear()
        await self._shorter.wait()

    def brings_any(self, keys: Iterable[Any]) -> bool:
        """Return whether a graph that waits makes any of these keys known."""
        return any(key in self._brings for key in keys)

    def add(self, message: Message) -> None:
        """Add a message at the end; take out the graphs that nobody wants since."""
        self.messages.append(message)
        self._nbytes += message.nbytes
        if message.does is Does.UPDATES:
            self._brings.update(message.keys)
            self._last, self._given_up = message, set()
        elif message.does is Does.GIVES_UP:
            self._given_up |= message.keys
            if self._last is not None and self._last.keys <= self._given_up:  # else none is unwanted
                self._take_out_unwanted()

    def remove(self, message: Message) -> None:
        """Take out a message that was applied, or that nobody wants."""
        self.messages.remove(message)
        self._nbytes -= message.nbytes
        if message.does is Does.UPDATES:
            self._brings -= Counter(message.keys)
        self._shorter.set()

    def close(self) -> None:
        """Apply no more: its client has gone."""
        self.messages.clear()
        self._shorter.set()
        if self.task is not None:
            self.task.cancel()

    def _take_out_unwanted(self) -> None:
        found, self._last, self._given_up = unwanted(self.messages)
        for message in found:
            message.is_unwanted = True
            if message.work is None:
                self.remove(message)
            else:
                message.work.cancel()  # it is the first one, and is taken out then


def unwanted(messages: Iterable[Message]) -> tuple[list[Message], Message | None, set[Any]]:
    """Return the graphs all of whose keys were given up later, and on which no later graph could depend.

    And the last graph that is none of these, with the keys that were given up after it. What somebody says to want is
    wanted: it may be another than who gives it up, as with `fire_and_forget`.
    """
    given_up: set[Any] = set()
    wanted: set[Any] = set()
    found: list[Message] = []
    for message in reversed(list(messages)):
        if message.does is Does.GIVES_UP:
            given_up |= message.keys
        elif message.does is Does.WANTS:
            wanted |= message.keys
        elif message.does is Does.UPDATES:
            if not message.keys <= given_up or message.keys & wanted:
                return found, message, given_up
            found.append(message)
    return found, None, given_up


async def _result(of: Any) -> Any:
    return await of if inspect.isawaitable(of) else of


def _raises(error: Exception) -> Callable[[], Any]:
    def get() -> Any:
        raise error

    return get


@contextlib.contextmanager
def _counted_as_update(scheduler: Any) -> Iterator[None]:
    """Let distributed know of a graph that has no tasks yet, so that it is not idle."""
    if not hasattr(scheduler, "_active_graph_updates"):
        yield
        return
    scheduler._active_graph_updates += 1  # noqa: SLF001
    try:
        yield
    finally:
        scheduler._active_graph_updates -= 1  # noqa: SLF001


def _nbytes(expr_ser: Any) -> int:
    return sum(memoryview(frame).nbytes for frame in expr_ser.frames)
