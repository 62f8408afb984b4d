"""Connections between simulated processes, `sim://<ip>:<port>`: a seed delays what is sent.

As with TCP, one connection keeps its order, and two know nothing of each other. A connection that breaks loses what is
on its way, and both ends learn of it later. What is sent is copied and pickled as the wire would do it: lists arrive as
tuples, tasks and data as bytes where the receiver does not unpack them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from contextvars import Context, copy_context
from enum import Enum
from typing import Any

from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector
from distributed.comm.registry import Backend, backends
from distributed.protocol import pickle
from distributed.protocol.serialize import Pickled, Serialize, Serialized, ToPickle, deserialize, serialize

from .loop import CLOCK, HOST, Host, Loop

_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})
_EOF = object()
_HANDSHAKE = {"compression": None, "python": (3, 11, 0), "pickle-protocol": 5}


class _Pickle:
    """Something that is unpickled on arrival, whoever the receiver is."""

    __slots__ = ("data",)

    def __init__(self, value: Any) -> None:
        self.data = pickle.dumps(value)


class _Message:
    """What is on its way, and whether something in it has to be unpacked."""

    __slots__ = ("body", "is_packed")

    def __init__(self, body: Any) -> None:
        self.is_packed = False
        self.body = self._pack(body)

    def open(self, *, unpack_data: bool) -> Any:
        return _unpack(self.body, unpack_data=unpack_data) if self.is_packed else self.body

    def _pack(self, value: Any) -> Any:
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind is dict:
            pack = self._pack
            return {
                (pack(key) if type(key) not in _ATOMS else key): (pack(item) if type(item) not in _ATOMS else item)
                for key, item in value.items()
            }
        if kind is list or kind is tuple:
            return tuple([self._pack(item) for item in value])
        if kind is set or kind is frozenset:
            return {self._pack(item) for item in value}
        if isinstance(value, Enum):
            return value
        if isinstance(value, dict):
            return self._pack(dict(value))
        self.is_packed = True
        if kind is Serialize:
            return Serialized(*serialize(value.data, on_error="message"))
        if kind is Serialized or kind is Pickled:
            return value
        return _Pickle(value.data if kind is ToPickle else value)


def _unpack(value: Any, *, unpack_data: bool) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: _unpack(item, unpack_data=unpack_data) for key, item in value.items()}
    if kind is tuple:
        return tuple([_unpack(item, unpack_data=unpack_data) for item in value])
    if kind is _Pickle:
        return pickle.loads(value.data)
    if kind is Serialized and unpack_data:
        return deserialize(value.header, value.frames)
    return value


class End(Comm):  # type: ignore[misc]
    """One end of a connection."""

    def __init__(self, connection: Connection, host: Host, local: str, peer: str, *, unpack_data: bool) -> None:
        self._hash = next(connection.network.numbers)
        super().__init__(deserialize=unpack_data)
        self.host = host
        self._connection = connection
        self._local_addr, self._peer_addr = local, peer
        self._inbox: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._is_closed = False

    def __hash__(self) -> int:
        return self._hash  # sets of connections have the same order in each run

    def __eq__(self, other: object) -> bool:
        return self is other

    local_address = property(lambda self: self._local_addr)
    peer_address = property(lambda self: self._peer_addr)
    same_host = property(lambda self: False)

    def handshake_info(self) -> dict[str, Any]:
        return dict(_HANDSHAKE)

    async def read(self, deserializers: Any = None) -> Any:
        while not self._inbox:
            if self._is_closed:
                raise CommClosedError("closed")
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if self._is_closed:
            raise CommClosedError("closed")
        message = self._inbox.popleft()
        if message is _EOF:
            self._is_closed = True
            self._connection.closed(self)
            raise CommClosedError("the other side closed")
        return message.open(unpack_data=self.deserialize)

    async def write(self, msg: Any, serializers: Any = None, on_error: Any = None) -> int:
        if self.closed():
            raise CommClosedError("closed")
        self._connection.send(self, _Message(msg))
        return 1

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._inbox.clear()
            self._connection.closed(self)
            self._connection.send(self, _EOF)
            self.wake()

    def closed(self) -> bool:
        return self._is_closed or (bool(self._inbox) and self._inbox[0] is _EOF)

    def receive(self, message: Any) -> None:
        if not self._is_closed:
            self._inbox.append(message)
            self.wake()

    def wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Connection:
    """Two ends, each with a delay of its own."""

    def __init__(self, network: Network, client: Host, server: Host, address: str, *, unpack_data: bool) -> None:
        self.network = network
        self.number = next(network.numbers)
        client.ports += 1
        from_ = f"sim://{client.ip}:{50_000 + client.ports}"
        self.client = End(self, client, from_, address, unpack_data=unpack_data)
        self.server = End(self, server, address, from_, unpack_data=True)
        self.hosts = (client, server)
        self._latest = {self.client: 0.0, self.server: 0.0}  # sender -> when its last message arrives
        self._open = 2
        self._is_broken = False
        self.in_flight = 0

    def send(self, sender: End, message: Any) -> None:
        """Deliver a message after a while, never before the one that was sent earlier."""
        if self._is_broken or sender.host.is_dead:
            return
        receiver = self.server if sender is self.client else self.client
        at = max(self._latest[sender] + 1e-6, CLOCK.now + self.network.delay())
        self._latest[sender] = at
        self.in_flight += 1
        self.network.loop.call_at(at, self._deliver, receiver, message, context=Context())

    def break_(self, after: float, *, client_after: float = 0.0) -> None:
        """Lose what is on its way; both ends learn of it after a while, who connected even later."""
        if self._is_broken:
            return
        self._is_broken = True
        for end, later in ((self.server, 0.0), (self.client, client_after)):
            self.network.loop.call_later(after + later + self.network.delay(), end.receive, _EOF, context=Context())

    def closed(self, _end: End) -> None:
        """Forget the connection when both ends are closed."""
        self._open -= 1
        if not self._open:
            self.network.connections.pop(self.number, None)

    def _deliver(self, receiver: End, message: Any) -> None:
        self.in_flight -= 1
        if not self._is_broken and not receiver.host.is_dead:
            if message is not _EOF:
                self.network.delivered(self, receiver)
            receiver.receive(message)


class Network:
    """All connections of one history. `slow` is the share of messages that take long."""

    def __init__(self, loop: Loop, seed: int) -> None:
        self.loop = loop
        self.random = random.Random(f"network {seed}")
        self.numbers = itertools.count(1)
        self.listeners: dict[str, Listener] = {}
        self.connections: dict[int, Connection] = {}
        self.events = 0
        self.digest = 0
        self._usual = self.random.choice((0.0001, 0.001, 0.003))
        self._slow = self.random.choice((0.0, 0.02, 0.1))

    def delay(self) -> float:
        """Return the seconds that a message takes."""
        draw = self.random.random()
        if draw < self._slow:
            return self._usual + self.random.choice((0.004, 0.01, 0.03, 0.2)) * self.random.random()
        return self._usual * (0.5 + draw)

    def delivered(self, connection: Connection, receiver: End) -> None:
        """Count a message; the digest tells two runs apart."""
        self.events += 1
        self.digest = hash((self.digest, connection.number, receiver.host.name, CLOCK.now))

    def kill(self, host: Host, *, noticed_after: float) -> None:
        """Stop a process at once, without a word to anybody."""
        host.is_dead = True
        # A task that nobody holds would be collected: what stands in its `finally` would run, outside of the process
        host.remains = asyncio.all_tasks(self.loop)
        for address in [address for address, listener in self.listeners.items() if listener.host is host]:
            del self.listeners[address]
        for connection in list(self.connections.values()):
            if host in connection.hosts:
                connection.break_(noticed_after)

    def break_between(self, one: Host, other: Host, *, spare: set[Any]) -> int:
        """Break the connections between two processes, but for those with an end in `spare`; return how many."""
        broken = 0
        for connection in list(self.connections.values()):
            is_spared = connection.client in spare or connection.server in spare
            if set(connection.hosts) == {one, other} and not is_spared:
                connection.break_(0.0)
                broken += 1
        return broken


class Listener(BaseListener):  # type: ignore[misc]
    """What a server listens on."""

    prefix = "sim"

    def __init__(self, network: Network, location: str, handle: Any, *, unpack_data: bool) -> None:
        super().__init__()
        self.host = HOST.get()
        if not location or location.endswith(":0"):
            self.host.ports += 1
            location = f"{self.host.ip}:{10_000 + self.host.ports}"
        self._location = location
        self._network = network
        self._handle = handle
        self._unpack_data = unpack_data
        self._tasks: set[asyncio.Task[None]] = set()

    listen_address = property(lambda self: f"sim://{self._location}")
    contact_address = listen_address

    async def start(self) -> None:
        self._context = copy_context()
        self._network.listeners[self._location] = self

    def stop(self) -> None:
        if self._network.listeners.get(self._location) is self:
            del self._network.listeners[self._location]

    def accept(self, end: End) -> None:
        """Take a connection that somebody opened."""
        end.deserialize = self._unpack_data
        self._network.loop.call_soon(self._begin, end, context=self._context.copy())

    def _begin(self, end: End) -> None:
        task = asyncio.ensure_future(self._serve(end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, end: End) -> None:
        try:
            await self.on_connection(end)
        except CommClosedError:
            return
        await self._handle(end)


class _Connector(Connector):  # type: ignore[misc]
    def __init__(self, network: Network) -> None:
        self._network = network

    async def connect(self, address: str, deserialize: bool = True, **_kwargs: Any) -> End:
        network = self._network
        await asyncio.sleep(2 * network.delay())
        listener = network.listeners.get(address)
        if listener is None or listener.host.is_dead:
            raise CommClosedError(f"nobody listens at {address}")
        connection = Connection(network, HOST.get(), listener.host, f"sim://{address}", unpack_data=deserialize)
        network.connections[connection.number] = connection
        listener.accept(connection.server)
        return connection.client


class SimulatedBackend(Backend):  # type: ignore[misc]
    """`sim://` for distributed. `network` is that of the history which runs."""

    network: Network

    def get_connector(self) -> _Connector:
        return _Connector(self.network)

    def get_listener(self, loc: str, handle_comm: Any, deserialize: bool, **_kwargs: Any) -> Listener:
        return Listener(self.network, loc, handle_comm, unpack_data=deserialize)

    def get_address_host(self, loc: str) -> str:
        return loc.rpartition(":")[0]

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        host, _, port = loc.rpartition(":")
        return host, int(port)

    def resolve_address(self, loc: str) -> str:
        return loc

    def get_local_address_for(self, loc: str) -> str:
        return HOST.get().ip


BACKEND = SimulatedBackend()
backends["sim"] = BACKEND
