"""A history of a seed, and the oracle: a new operator, which finds nothing to do when the old one has done all."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import random
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any
from unittest import mock

from gpudask.api import Json
from gpudask.api.resource import ANNOTATION_ENDED, ANNOTATION_UID, RECORD_KIND
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.transport import ApiServer
from gpudask.reconcile import operator as production
from gpudask.reconcile.election import Election, Timing
from gpudask.reconcile.loop import Registry
from gpudask.reconcile.operator import Operator
from gpudask.reconcile.supervisor import Supervisor
from gpudask.settings import Settings
from tests.orders.api_server import NAMESPACE, Connection, Event, SlowApiServer, delay
from tests.orders.ledger import COUNTED, Ledger, is_count, without
from tests.orders.node import Node
from tests.orders.people import CLUSTERS, CRON_JOBS, JOBS, People
from tests.orders.schedulers import Schedulers
from tests.reconcile.fake_dask import FakeScheduler
from tests.virtual_time import in_virtual_time, now

MOVES = 25
# Nothing changes for so long, which no back-off of the operator's outlasts: it waits for nothing but its resync.
CALM_SECONDS, LONGEST_SECONDS = 130.0, 550.0
_NEW_SECONDS = 70.0  # in which a new operator finds what there is to do
_IGNORED = ("/leases/", "/events/", "/secrets/")  # not part of what has to be so
_FLEETING = {
    *("resourceVersion", "countedAt", "machineCountedAt", "podsKnownAt"),
    *("startSeconds", "heldSeconds", "lastTransitionTime"),
    *("lastScaleTime", "lastScaleReason", "leaving"),  # a new operator may size a pool anew until it knows the demand
}
_RARELY = Timing(lease_seconds=90.0, renew_seconds=60.0, retry_seconds=15.0)  # who leads is not what this is about
_NO_TLS = ssl.create_default_context()  # to make one for each client takes longer than most of what is done with them
_SETTINGS = Settings(watch_namespaces=(NAMESPACE,))


@dataclass
class _Process:
    """An operator's process: its tasks, and whether it reaches the API server."""

    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    is_cut: asyncio.Event = field(default_factory=asyncio.Event)


# Of the operator that runs; None: of what is beside it.
_PROCESS: contextvars.ContextVar[_Process | None] = contextvars.ContextVar("process", default=None)


@dataclass
class Outcome:
    """What became of a history. `problems`: empty where all ended as it should."""

    seed: int
    problems: list[str] = field(default_factory=list)
    course: list[tuple[float, str]] = field(default_factory=list)
    changes: int = 0  # of objects

    def told(self, at_most: int = 400) -> str:
        """The problems, and the course of events up to them."""
        lines = [f"{at:8.3f} {text}" for at, text in self.course[-at_most:]]
        return "\n".join([f"seed {self.seed}:", *lines, *self.problems])


def play(seed: int, moves: int = MOVES) -> Outcome:
    """Play the history of a seed, and judge it."""
    outcome = Outcome(seed)
    random.seed(seed)  # the operator's jitter
    with _repeatable(seed):
        in_virtual_time(_History(outcome, moves).run())
    return outcome


@contextlib.contextmanager
def _repeatable(seed: int) -> Iterator[None]:
    """No name differs between two plays of one seed."""
    nonces = random.Random(seed)  # noqa: S311 - no secret
    with (
        mock.patch("secrets.token_hex", lambda length: nonces.randbytes(length).hex()),
        mock.patch("secrets.token_bytes", nonces.randbytes),
        mock.patch("ssl.create_default_context", return_value=_NO_TLS),
    ):
        yield


class _History:
    """One history, while it is played. In some there is a mirror, and in some a second operator stands by."""

    def __init__(self, outcome: Outcome, moves: int) -> None:
        self._outcome = outcome
        self._moves = moves
        self.server = SlowApiServer(random.Random(outcome.seed), self._note)  # noqa: S311 - no secret
        self._node = Node(self.server)
        self._ledger = Ledger(self.server)
        self._changed_at = 0.0
        self._settings = replace(_SETTINGS, mirror=outcome.seed % 3 == 0)
        self._identities = ("operator", "another")[: 1 + outcome.seed // 3 % 2]
        self._running: dict[str, _Process] = {}  # by identity
        self._schedulers: dict[str, FakeScheduler] = {}

    def _note(self, text: str) -> None:
        self._outcome.course.append((now(), text))

    async def run(self) -> None:
        asyncio.get_running_loop().set_task_factory(_of_process)
        self.server.listeners.append(self._note_change)
        with _in_memory(self.server, self._schedulers, _RARELY if len(self._identities) == 1 else Timing()):
            await self._trouble()
            await self._becomes_calm()
            before = self._state()
            self._judge(before)
            for identity in self._identities:
                await self._kill(identity)
            self._begin("new")
            await asyncio.sleep(_NEW_SECONDS)
            self._compare(before, self._state())
            await self._kill("new")
            self._outcome.problems += self._ledger.problems()
        await self.server.close()

    async def _trouble(self) -> None:
        """Let people work, while operators are killed now and then, and requests fail."""
        chance = self.server.chance
        all_people = People(self.server, self._node, self._schedulers, has_mirror=self._settings.mirror)
        people = asyncio.create_task(all_people.work(self._moves))
        for identity in self._identities:
            self._begin(identity)
        while not people.done():
            await asyncio.wait([people], timeout=chance.expovariate(1 / 30.0))
            if people.done():
                break
            identity = chance.choice(self._identities)
            if len(self._identities) > 1 and chance.random() < 0.5:
                await self._cut_off(identity, chance.uniform(1.0, 20.0))
            else:
                await self._kill(identity)
                self._begin(identity)
        people.result()
        self._note("people rest")
        self.server.is_faulty = False

    def _note_change(self, event: Event) -> None:
        if not any(part in event.path for part in _IGNORED) and not is_count(event):
            self._changed_at = now()
            self._outcome.changes += 1

    async def _becomes_calm(self) -> None:
        began = now()
        while now() - max(began, self._changed_at) < CALM_SECONDS:
            if now() - began > LONGEST_SECONDS:
                self._outcome.problems.append(f"it changes for longer than {LONGEST_SECONDS:g} s")
                return
            await asyncio.sleep(5.0)

    def _begin(self, identity: str) -> None:
        self._note(f"an operator begins: {identity}")
        context, process = contextvars.copy_context(), _Process()
        context.run(_PROCESS.set, process)
        self._running[identity] = process
        process.tasks.add(asyncio.create_task(self._operate(identity), context=context))

    async def _cut_off(self, identity: str, seconds: float) -> None:
        """Let an operator reach nothing for so long: the other may lead meanwhile."""
        self._note(f"{identity} is cut off")
        self._running[identity].is_cut.set()
        await asyncio.sleep(seconds)
        self._running[identity].is_cut.clear()
        self._note(f"{identity} is not cut off any more")

    async def _operate(self, identity: str) -> None:
        """Run an operator, which has to try to start until the API server lets it."""
        while True:
            operator = Operator(replace(self._settings, identity=identity))
            operator.election_clock = now
            try:
                await operator.start()
            except ApiError as error:  # kopf tries again, too
                self._note(f"{identity} could not begin: {error}")
                await asyncio.sleep(1.0)
            else:
                await _Kopf(self.server, operator).run()

    async def _kill(self, identity: str) -> None:
        """End an operator in the middle of whatever it does; what it has sent takes effect."""
        self._note(f"an operator is killed: {identity}")
        while tasks := set(self._running[identity].tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _state(self) -> dict[str, Json]:
        """All that has to be so, by path."""
        objects = self.server.objects.items()
        lasting = {path: _lasting(body) for path, body in objects if not any(part in path for part in _IGNORED)}
        return {path: body if _is_over(body) else {"kind": RECORD_KIND} for path, body in lasting.items()}

    def _judge(self, state: dict[str, Json]) -> None:
        problems = self._outcome.problems
        problems += self.server.wrong + self._ledger.problems()
        problems += [f"{name} ran {len(uids)} times" for (_, name), uids in self._node.runs.items() if len(uids) > 1]
        uids = {body["metadata"]["uid"] for path, body in self.server.objects.items() if path.startswith(CLUSTERS)}
        problems += [
            f"{path} goes on, though its cluster is gone"
            for path, body in self.server.objects.items()
            if not _is_over(body) and body["metadata"]["annotations"][ANNOTATION_UID] not in uids
        ]
        for path, body in state.items():
            if not path.startswith((f"{CLUSTERS}/", f"{JOBS}/", f"{CRON_JOBS}/")):
                continue
            generation, observed = body["metadata"]["generation"], body.get("status", {}).get("observedGeneration")
            if generation != observed:
                problems.append(f"{path}: generation {generation}, observed {observed}: {body.get('status')}")

    def _compare(self, before: dict[str, Json], after: dict[str, Json]) -> None:
        for path in sorted({*before, *after}):
            if before.get(path) != after.get(path):
                changes = _differences(before.get(path), after.get(path))
                self._outcome.problems.append(f"a new operator changed {path}: {'; '.join(changes)}")


@contextlib.contextmanager
def _in_memory(server: SlowApiServer, schedulers: dict[str, FakeScheduler], timing: Timing) -> Iterator[None]:
    """Operators are put together as in production, but for their connections and their clocks."""

    async def connect(_: Any = None) -> Connection:
        return _connection(server)

    with (
        mock.patch("asyncio.to_thread", _at_once),
        mock.patch.object(Kubernetes, "connect", connect),
        mock.patch.object(ApiServer, "connect", connect),
        mock.patch.object(production, "SchedulerClient", partial(Schedulers, server, schedulers)),
        mock.patch.object(production, "files", return_value={"entry.py": b""}),
        mock.patch.object(production, "Election", partial(Election, timing=timing)),
        mock.patch.object(production, "Registry", partial(Registry, now)),
        mock.patch.object(production, "Supervisor", partial(Supervisor, clock=now)),
    ):
        yield


async def _at_once(work: Callable[..., Any], *of: Any) -> Any:
    """In virtual time nothing waits for a thread."""
    return work(*of)


def _of_process(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """A task, which ends with the process that begins it."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    context = options.get("context")
    process = _PROCESS.get() if context is None else context.get(_PROCESS)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
    return task


def _connection(server: SlowApiServer) -> Connection:
    process = _PROCESS.get()
    assert process is not None, "operators connect, and nobody else"
    return Connection(server, process.is_cut)


class _Kopf:
    """Hands on clusters as kopf does: those of a list, then a watch's events; each cluster's by itself, in order."""

    def __init__(self, server: SlowApiServer, operator: Operator) -> None:
        self._api = _connection(server)
        self._chance = server.chance
        self._registry = operator.registry
        self._events: dict[str, asyncio.Queue[Json]] = {}  # by uid
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Only where the version that was reached is too old it lists again: it tells of no deletion then."""
        version = ""
        while True:
            with contextlib.suppress(ApiError):
                version = await self._follow(version or await self._list())
            await asyncio.sleep(delay(self._chance))

    async def _list(self) -> str:
        page = await self._api.list_page(CLUSTERS, query={"limit": "500"}, accept="")
        for body in page["items"]:
            self._put({"type": None, "object": body})
        return str(page["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> str:
        """Watch from `version` on; the version reached, empty: it is too old."""
        with contextlib.suppress(ApiError):
            async for event in self._api.stream(CLUSTERS, query={"watch": "true", "resourceVersion": version}):
                if event["type"] == "ERROR":
                    return "" if event["object"]["code"] == HTTPStatus.GONE else version
                version = event["object"]["metadata"]["resourceVersion"]
                self._put(event)
        return version

    def _put(self, event: Json) -> None:
        uid = event["object"]["metadata"]["uid"]
        if uid not in self._events:
            self._events[uid] = asyncio.Queue()
            self._tasks.append(asyncio.create_task(self._hand_on(self._events[uid])))
        self._events[uid].put_nowait(event)

    async def _hand_on(self, events: asyncio.Queue[Json]) -> None:
        while True:
            event = await events.get()
            await asyncio.sleep(self._chance.uniform(0.0, 0.2))
            while not events.empty():  # of those that came meanwhile kopf hands on the last one
                event = events.get_nowait()
            if event["type"] == "DELETED":
                self._registry.cluster_deleted(event["object"]["metadata"])
            else:
                self._registry.cluster_changed(event["object"])


def _is_over(body: Json) -> bool:
    """Whether nothing is added to an object any more: of a record that goes on each operator adds its samples."""
    return body.get("kind") != RECORD_KIND or ANNOTATION_ENDED in body["metadata"].get("annotations", {})


def _lasting(body: Json) -> Json:
    """An object without what every write changes, what time changes, and what an operator has learnt by itself."""
    fields = _FLEETING if body.get("kind") == RECORD_KIND else _FLEETING | COUNTED
    lasting: Json = without(body, fields)
    return lasting


def _differences(before: Any, after: Any, at: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after})
        return [each for key in keys for each in _differences(before.get(key), after.get(key), f"{at}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [each for number, (one, other) in pairs for each in _differences(one, other, f"{at}[{number}]")]
    if before == after:
        return []
    return [f"{at}: {_short(before)} -> {_short(after)}"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 300 else f"{text[:300]}..."
