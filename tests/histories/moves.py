"""The moves of a history: what clients do, what the operator wants, and what befalls pods and connections.

A move is data: when (seconds after the one before), what, and with which arguments. So a history can be printed,
repeated, and shortened: a move that names what is not there (any more) does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dask
import dask.dataframe
import pandas as pd
from distributed import fire_and_forget

from . import tasks
from .cluster import ACCEPTS, POOLS, Cluster, Pod
from .loop import CLOCK

GAPS = (0.0, 0.0, 0.001, 0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.03, 0.1, 0.3, 1.0)
SECONDS = (0.0, 0.001, 0.003, 0.01, 0.05, 0.2, 1.0)
MALFORMED = ({"GPU": "1"}, {1: 1}, {"GPU": None}, {"GPU": [1]})


@dataclass(frozen=True)
class Move:
    """One move. `after`: virtual seconds since the move before."""

    after: float
    name: str
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        args = " ".join(f"{name}={value!r}" for name, value in self.args.items() if value not in (None, [], {}, False))
        return f"+{self.after * 1000:g} ms {self.name} {args}"


@dataclass(eq=False)
class Want:
    """What a client submitted. `expected` is its result; `may_fail` says why it need not come."""

    key: str
    client: str
    future: Any
    expected: Any = None
    raises: bool = False
    spec: dict[str, Any] = field(default_factory=dict)
    is_let_go: bool = False  # the client wants it no longer
    is_scattered: bool = False
    is_actor: bool = False
    is_shuffle: bool = False
    only_once_run: bool = False  # fire and forget: it is to have run
    may_fail: str = ""


class World:
    """What the moves act upon."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.wants: dict[str, Want] = {}
        self.numbers = 0
        self.changed_accepts: set[str] = set()
        self.is_malformed = False
        self.actor_results: list[str] = []
        self.on_reap: Callable[[Pod], None] = lambda _pod: None  # called before a drained pod is deleted
        self.polls_from = 0.0
        self.offered_at = 0.0
        self.ending: dict[str, asyncio.Task[Any]] = {}
        self.cut_off: dict[str, float] = {}  # client -> until when what it submits may be gone

    def wanted(self) -> list[Want]:
        return [want for want in self.wants.values() if not want.is_let_go]

    def pod(self, name: str) -> Pod | None:
        pod = self.cluster.pods.get(name)
        return pod if pod is not None and not pod.is_deleted else None

    def is_connected(self, client: str) -> bool:
        """Return whether a client can submit, and has not just been cut off without knowing it."""
        found = self.cluster.clients.get(client)
        return found is not None and found.status == "running" and self.cut_off.get(client, 0.0) < CLOCK.now

    def give_up(self, why: str, client: str | None = None) -> None:
        """Let all results of a client, or of all, be such as may be gone."""
        for want in self.wants.values():
            if client in (None, want.client):
                want.may_fail = want.may_fail or why


def play(world: World, move: Move) -> None:
    """Do a move, now."""
    MOVES[move.name](world, **move.args)


# What clients do


def _submit(
    world: World,
    *,
    client: str,
    keys: list[str],
    function: str = "work",
    seconds: float = 0.0,
    fails: int = 0,
    inputs: list[str] | None = None,
    workers: list[str] | None = None,
    loose: bool = False,
    resources: dict[str, Any] | None = None,
    retries: int = 0,
    priority: int = 0,
    forget: bool = False,
    malformed: int | None = None,
) -> None:
    cluster = world.cluster
    if not world.is_connected(client):
        return
    given = [world.wants.get(key) for key in inputs or ()]
    if any(want is None or want.is_let_go or want.future is None or want.future.cancelled() for want in given):
        return
    ready: list[Want] = [want for want in given if want is not None]
    if any(want.client != client or want.raises or want.is_actor or want.is_shuffle for want in ready):
        return
    kwargs: dict[str, Any] = {}
    if workers:
        found = [cluster.state(pod) for name in workers if (pod := world.pod(name)) is not None]
        addresses = [ws.address for ws in found if ws is not None]
        if not addresses:
            return
        kwargs["workers"], kwargs["allow_other_workers"] = addresses, loose
    if resources:
        kwargs["resources"] = resources
    if malformed is not None:
        world.is_malformed = True
        kwargs["resources"] = MALFORMED[malformed]
    if retries:
        kwargs["retries"] = retries
    if priority:
        kwargs["priority"] = priority
    spec = {"resources": resources or {}, "workers": kwargs.get("workers", []), "loose": loose, "pods": workers or []}
    spec |= {"inputs": [want.key for want in ready], "seconds": seconds, "fails": fails}
    spec["function"] = function
    of_client = cluster.clients[client]
    futures = []
    if len(keys) > 1 and not inputs:
        futures = cluster.run_in_client(
            client,
            of_client.map,
            tasks.FUNCTIONS[function],
            keys,
            *[[value] * len(keys) for value in (seconds, fails, 1)],
            key=keys,
            pure=False,
            **kwargs,
        )
    else:
        for key in keys:
            arguments = (key, seconds, fails, 1, *[want.future for want in ready])
            submit, run = of_client.submit, tasks.FUNCTIONS[function]
            futures.append(cluster.run_in_client(client, submit, run, *arguments, key=key, pure=False, **kwargs))
    for key, future in zip(keys, futures, strict=True):
        want = world.wants[key] = Want(
            key, client, future, 1 + sum(want.expected for want in ready), fails > retries, spec
        )
        want.may_fail = next((other.may_fail for other in ready if other.may_fail), "")
        if any(CLOCK.now - at < 5 for at in cluster.restarted):  # clients drop what they have when they hear of it
            want.may_fail = "the cluster was restarted just before"
        if malformed is not None:
            want.may_fail = "its annotation is malformed"
        if forget:
            cluster.run_in_client(client, fire_and_forget, future)
            want.only_once_run, want.is_let_go, want.future = True, True, None
            cluster.loop.call_later(0.1, cluster.run_in_client, client, future.release)


def _scatter(world: World, *, client: str, key: str, broadcast: bool) -> None:
    cluster = world.cluster
    if not world.is_connected(client):
        return

    began, deaths = CLOCK.now, len(cluster.deaths)

    async def scatter() -> None:
        with contextlib.suppress(Exception):
            futures = await cluster.clients[client].scatter({key: 1}, broadcast=broadcast, timeout=2)
            want = world.wants[key] = Want(key, client, futures[key], 1, is_scattered=True)
            if world.cut_off.get(client, 0.0) > began or any(at > began for at in cluster.restarted):
                want.may_fail = "its client was cut off meanwhile"
            if deaths != len(cluster.deaths):
                want.may_fail = "a process died while data was on its way there: the scheduler knows of it only later"

    cluster.spawn(cluster.client_hosts[client], scatter())


def _actor(world: World, *, client: str, key: str, resources: dict[str, Any] | None = None) -> None:
    cluster = world.cluster
    if not world.is_connected(client):
        return
    kwargs = {"resources": resources} if resources else {}
    submit = cluster.clients[client].submit
    future = cluster.run_in_client(client, submit, tasks.Counter, 0, key=key, actor=True, pure=False, **kwargs)
    want = world.wants[key] = Want(key, client, future, is_actor=True)

    async def use() -> None:
        deaths = len(cluster.deaths)
        try:
            counter = await future
            counted = [await counter.add(1) for _ in range(2)]
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (whatever an actor's end brings)
            if not (want.is_let_go or want.may_fail or len(cluster.deaths) > deaths):
                world.actor_results.append(f"{key}: {error!r}")
        else:
            if counted != [1, 2]:
                world.actor_results.append(f"{key}: {counted}")

    cluster.spawn(cluster.client_hosts[client], use())


def _shuffle(world: World, *, client: str, rows: int) -> None:
    """Shuffle a data frame by P2P: 3 partitions, each of which goes to each worker."""
    cluster = world.cluster
    if not world.is_connected(client):
        return

    def build() -> Any:
        frame = pd.DataFrame({"x": range(rows), "y": 1})
        with dask.config.set({"dataframe.shuffle.method": "p2p"}):
            shuffled = dask.dataframe.from_pandas(frame, npartitions=3, sort=False).shuffle("x", npartitions=3)
            return cluster.clients[client].compute(shuffled.y.sum())

    future = cluster.run_in_client(client, build)
    if future.key not in world.wants:
        world.wants[future.key] = Want(future.key, client, future, rows, is_shuffle=True)


def _release(world: World, *, key: str) -> None:
    want = world.wants.get(key)
    if want is not None and not want.is_let_go:
        want.is_let_go = True
        world.cluster.run_in_client(want.client, want.future.release)
        want.future = None


def _cancel(world: World, *, key: str) -> None:
    want = world.wants.get(key)
    if want is None or want.is_let_go:
        return
    cluster = world.cluster
    ts = cluster.scheduler.tasks.get(key)
    if ts is None or not _are_wanted(world, ts):
        return
    want.is_let_go = True
    future, want.future = want.future, None
    for other in world.wants.values():  # what needs it is cancelled with it
        other.may_fail = other.may_fail or f"{key} was cancelled"

    async def cancel() -> None:
        with contextlib.suppress(Exception):
            await cluster.clients[want.client].cancel([future])

    cluster.spawn(cluster.client_hosts[want.client], cancel())


def _are_wanted(world: World, ts: Any) -> bool:
    """Return whether somebody wants all that needs a task: else distributed drops the client that cancels it.

    What was released counts as released, although the scheduler may hear of it just before it hears of the cancelling.
    """
    want = world.wants.get(ts.key)
    is_wanted = bool(ts.who_wants) and not (want is not None and want.is_let_go)
    return is_wanted and all(_are_wanted(world, other) for other in ts.dependents)


def _disconnect(world: World, *, client: str) -> None:
    if client in world.cluster.clients:
        world.cut_off[client] = CLOCK.now + (6.0 if world.cluster.taking_in else 1.5)
        world.give_up("its client was disconnected", client)
        world.cluster.disconnect(client)


def _restart(world: World, *, client: str) -> None:
    cluster = world.cluster
    if not world.is_connected(client):
        return
    world.give_up("the cluster was restarted")
    cluster.restarted.append(CLOCK.now)

    async def restart() -> None:
        try:
            with contextlib.suppress(Exception):
                await cluster.clients[client].restart(timeout=5, wait_for_workers=False)
        finally:
            world.give_up("the cluster was restarted")
            cluster.restarted.append(CLOCK.now)

    cluster.spawn(cluster.client_hosts[client], restart())


def _join_client(world: World, *, client: str) -> None:
    if client not in world.cluster.client_hosts:
        world.cluster.spawn(world.cluster.host(client), world.cluster.add_client(client))


# What the operator wants


def _say(world: World, how: str) -> None:
    """Send the operator's word: once, twice (it got no answer), or later (it was lost on the way)."""
    operator, loop = world.cluster.operator, world.cluster.loop
    if how != "late":
        operator.say()
    if how == "late":
        loop.call_later(0.4, operator.say)
    elif how == "twice":
        loop.call_later(0.005, operator.say)


def _drain(world: World, *, pods: list[str], data: str = "move", if_idle: bool = False, how: str = "once") -> None:
    for name in pods:
        if world.pod(name) is not None:
            world.cluster.operator.retiring[name] = {"data": data, "if_idle": if_idle}
    _say(world, how)


def _undo(world: World, *, pods: list[str], how: str = "once") -> None:
    for name in pods:
        world.cluster.operator.retiring.pop(name, None)
    _say(world, how)


def _offer(world: World, *, pool: str, how: str = "once") -> None:
    world.offered_at = CLOCK.now
    world.cluster.operator.offers = {**world.cluster.operator.offers, pool: {"GPU": 1.0}}
    _say(world, how)


def _take_back(world: World, *, how: str = "once") -> None:
    world.offered_at = CLOCK.now
    world.cluster.operator.offers = {}
    _say(world, how)


def _accepts(world: World, *, pool: str, accepts: str, how: str = "once") -> None:
    world.changed_accepts.add(pool)
    world.cluster.operator.accepts[pool] = accepts
    _say(world, how)


def _reap(world: World) -> None:
    """Delete the pods that are drained, as the operator does when it sees it."""
    cluster = world.cluster
    for pod in cluster.operator.drained():
        world.on_reap(pod)
        cluster.terminate(pod)


def _deaf(world: World, *, seconds: float) -> None:
    """Let the operator's polls be lost for a while."""
    world.polls_from = max(world.polls_from, CLOCK.now + seconds)


# What befalls pods and connections


def _join(world: World, *, pod: str, nthreads: int) -> None:
    if pod not in world.cluster.pods:
        world.cluster.add_pod(pod, nthreads)


def _kill(world: World, *, pod: str, deletes: bool) -> None:
    found = world.pod(pod)
    if found is not None:
        world.cluster.kill(found, deletes=deletes)


def _pause(world: World, *, pod: str, paused: bool) -> None:
    found = world.pod(pod)
    if found is not None:
        world.cluster.set_paused(found, paused=paused)


def _hold(world: World, *, pod: str, seconds: float) -> None:
    found = world.pod(pod)
    if found is not None and found.process is not None:
        found.process.host.hold(world.cluster.loop, seconds)


def _break(world: World, *, pod: str, other: str) -> None:
    found, peer = world.pod(pod), world.pod(other)
    if found is None:
        return
    for want in world.wants.values():  # what needs others comes after them
        inputs = [world.wants[key] for key in want.spec.get("inputs", ()) if key in world.wants]
        if want.spec.get("function") == "client" or want.is_shuffle or any(other.may_fail for other in inputs):
            want.may_fail = want.may_fail or "a call of its own client, or of the shuffle, may have been cut"
    if other == "scheduler":
        world.cluster.break_calls(found, world.cluster.scheduler_host)
    elif peer is not None and peer.process is not None:
        world.cluster.break_calls(found, peer.process.host)


def _end(world: World, *, pod: str, dies: bool) -> None:
    """Let Kubernetes end a pod: its hook asks the preload, and waits. `dies`: its container fails meanwhile."""
    cluster, found = world.cluster, world.pod(pod)
    if found is None or not cluster.has_preload or pod in world.ending:
        return

    async def wait() -> None:
        process = found.process
        why = asyncio.ensure_future(cluster.preload.wait_until_drained(found.dask_name, found.ip))
        await asyncio.wait([why], timeout=20)  # the grace period
        why.cancel()
        if not dies and found.process is process:
            if why.done() and not why.cancelled() and why.result() == "it is drained":
                world.on_reap(found)
            else:
                cluster.kill(found, deletes=True)
            cluster.terminate(found)
        elif not dies:
            cluster.kill(found, deletes=True)

    found.is_ending = not dies
    world.ending[pod] = cluster.spawn(cluster.scheduler_host, wait())
    if dies:
        cluster.loop.call_later(0.05, _kill_quietly, world, found)


def _kill_quietly(world: World, pod: Pod) -> None:
    if not pod.is_deleted:
        world.ending[pod.name].cancel()
        world.cluster.kill(pod, deletes=False)


MOVES: dict[str, Callable[..., None]] = {
    "submit": _submit,
    "scatter": _scatter,
    "actor": _actor,
    "shuffle": _shuffle,
    "release": _release,
    "cancel": _cancel,
    "disconnect": _disconnect,
    "restart": _restart,
    "join_client": _join_client,
    "drain": _drain,
    "undo": _undo,
    "offer": _offer,
    "take_back": _take_back,
    "accepts": _accepts,
    "reap": _reap,
    "deaf": _deaf,
    "join": _join,
    "kill": _kill,
    "pause": _pause,
    "hold": _hold,
    "break": _break,
    "end": _end,
}


class Generator:
    """Draws moves that make sense now. `flavour` weighs them, so that rare things meet each other in some histories."""

    def __init__(self, world: World, seed: int, *, has_preload: bool, has_actors: bool) -> None:
        self._world = world
        self._random = random.Random(f"moves {seed}")
        self._has_preload = has_preload
        self._numbers = 0
        draw = self._random
        self.length = draw.randint(8, 36)
        self._rare = draw.choice((0.3, 1.0, 1.0, 2.0))  # weight of what ends processes
        self._tight = draw.random() < 0.6  # moves follow each other closely
        # Loose tasks with resources: distributed itself fails on them where the workers that they name are gone
        self._is_odd = has_preload and draw.random() < 0.03
        self._weights = {
            "submit": 10.0,
            "scatter": 0.8,
            # Where no worker can take one at once, a scheduler that validates itself says that an actor never waits
            "actor": 0.25 if has_actors else 0.0,
            "shuffle": 0.12,
            "release": 1.0,
            "cancel": 0.3,
            "disconnect": 0.1 * self._rare,
            "restart": 0.08 * self._rare,
            "join_client": 0.2,
            "join": 1.2,
            "kill": 0.4 * self._rare,
            "pause": 0.7,
            "hold": 0.8,
            "break": 0.5,
        }
        if self._is_odd:
            ends = ("disconnect", "restart", "kill", "pause")
            self._weights |= dict.fromkeys(ends, 0.0)
        if has_preload:
            self._weights |= {
                "drain": 3.0,
                "undo": 4.0,
                "offer": 1.5,
                "take_back": 2.5,
                "accepts": 0.4,
                "reap": 1.5,
                "deaf": 0.2,
                "end": 0.0 if self._is_odd else 0.3,
            }

    def first(self) -> list[Move]:
        """Return the moves that build the cluster."""
        draw = self._random
        moves = [Move(0.0, "join_client", {"client": "a"})]
        pods = [f"cpu-{i}" for i in range(draw.randint(0, 2))] + [f"gpu-{i}" for i in range(draw.randint(0, 2))]
        if draw.random() < 0.2:
            pods.append("himem-0")
        moves += [Move(0.0, "join", {"pod": pod, "nthreads": draw.choice((1, 1, 2))}) for pod in pods]
        return [*moves, Move(draw.choice((0.0, 0.5, 0.5)), "deaf", {"seconds": 0.0})]

    def next(self) -> Move:
        """Return the next move."""
        names = list(self._weights)
        while True:
            name = self._random.choices(names, [self._weight(name) for name in names])[0]
            args = getattr(self, f"_{name}", dict)()
            if args is not None:
                gaps = GAPS[:10] if self._tight else GAPS
                return Move(self._random.choice(gaps), name, args)

    def _weight(self, name: str) -> float:
        world = self._world
        if name == "undo" and not world.cluster.operator.retiring:
            return 0.0
        if name == "take_back" and not world.cluster.operator.offers:
            return 0.0
        if name == "reap" and not world.cluster.operator.retiring:
            return 0.0
        weight = self._weights[name]
        if name == "break" and CLOCK.now - world.offered_at < 0.1:
            return 3.0  # answers to a change of offers are on their way
        if any(pod.process and pod.process.host.held_until for pod in world.cluster.living()):
            return weight * {"take_back": 3.0, "drain": 2.0, "undo": 2.0, "kill": 4.0}.get(name, 1.0)  # nobody answers
        return weight

    def _key(self) -> str:
        self._numbers += 1
        return f"t-{self._numbers}"

    def _client(self) -> str:
        return self._random.choice(list(self._world.cluster.clients) or ["a"])

    def _some_pod(self) -> str | None:
        pods = [pod.name for pod in self._world.cluster.living()]
        return self._random.choice(pods) if pods else None

    def _how(self) -> str:
        return self._random.choices(("once", "twice", "late"), (8, 1, 1))[0]

    def _submit(self) -> dict[str, Any] | None:
        draw, world = self._random, self._world
        client = self._client()
        few = draw.random() < 0.5
        n = 1 if few else draw.randint(2, 7)
        args: dict[str, Any] = {"client": client, "keys": [self._key() for _ in range(n)]}
        args["function"] = draw.choices(("work", "thread", "hold", "secede", "client"), (10, 2, 0.7, 0.7, 0.4))[0]
        args["seconds"] = draw.choice(SECONDS)
        if args["function"] == "hold":
            args["seconds"] = draw.choice((0.01, 0.1, 0.5, 6.0))
        if draw.random() < 0.06:
            args["fails"] = draw.randint(1, 2)
            args["retries"] = draw.randint(0, 3)
        if draw.random() < 0.3:
            known = [
                w.key for w in world.wanted() if w.client == client and not (w.raises or w.is_actor or w.is_shuffle)
            ]
            if known:
                args["inputs"] = draw.sample(known, min(len(known), draw.randint(1, 3)))
        kind = draw.random()
        if kind < 0.5:
            args["resources"] = {"GPU": draw.choices((1, 0.5, 0), (8, 1, 1))[0]}
        elif kind < 0.56:
            args["resources"] = {"MEMORY": draw.choice((1, 10))}
        if draw.random() < 0.18:
            pods = [pod.name for pod in world.cluster.living()]
            if pods:
                args["workers"] = draw.sample(pods, min(len(pods), draw.choice((1, 1, 2))))
                is_served = all(args.get("resources", {}).keys() <= POOLS[pod.partition("-")[0]].keys() for pod in pods)
                args["loose"] = draw.random() < 0.5 and ((self._is_odd and is_served) or not args.get("resources"))
        if draw.random() < 0.1:
            args["priority"] = draw.choice((-1, 1))
        if draw.random() < 0.04 and args["function"] == "work" and not args.get("fails"):
            args["forget"] = True
        if draw.random() < 0.003:
            args["malformed"] = draw.randrange(len(MALFORMED))
        return args

    def _scatter(self) -> dict[str, Any]:
        return {"client": self._client(), "key": self._key(), "broadcast": self._random.random() < 0.3}

    def _actor(self) -> dict[str, Any]:
        args: dict[str, Any] = {"client": self._client(), "key": self._key()}
        if self._random.random() < 0.6:
            args["resources"] = {"GPU": 0.5}
        return args

    def _shuffle(self) -> dict[str, Any]:
        self._numbers += 1
        return {"client": self._client(), "rows": 20 + self._numbers}

    def _release(self) -> dict[str, Any] | None:
        wanted = [want.key for want in self._world.wanted()]
        return {"key": self._random.choice(wanted)} if wanted else None

    _cancel = _release

    def _disconnect(self) -> dict[str, Any]:
        return {"client": self._client()}

    _restart = _disconnect

    def _join_client(self) -> dict[str, Any] | None:
        return {"client": "b"} if "b" not in self._world.cluster.client_hosts else None

    def _drain(self) -> dict[str, Any] | None:
        draw = self._random
        pods = [pod.name for pod in self._world.cluster.living()]
        if not pods:
            return None
        gpus = [pod for pod in pods if pod.startswith("gpu")]
        chosen = draw.sample(gpus if gpus and draw.random() < 0.6 else pods, 1)
        if draw.random() < 0.15:
            chosen = pods
        return {
            "pods": chosen,
            "data": "release" if draw.random() < 0.15 else "move",
            "if_idle": draw.random() < 0.15,
            "how": self._how(),
        }

    def _undo(self) -> dict[str, Any]:
        pods = list(self._world.cluster.operator.retiring)
        return {"pods": pods if self._random.random() < 0.5 else [self._random.choice(pods)], "how": self._how()}

    def _offer(self) -> dict[str, Any]:
        return {"pool": self._random.choices(("cpu", "himem"), (5, 1))[0], "how": self._how()}

    def _take_back(self) -> dict[str, Any]:
        return {"how": self._how()}

    def _accepts(self) -> dict[str, Any]:
        pool = self._random.choice(list(ACCEPTS))
        return {"pool": pool, "accepts": self._random.choice(("any", "annotated")), "how": self._how()}

    def _deaf(self) -> dict[str, Any]:
        return {"seconds": self._random.choice((0.5, 3.0))}

    def _join(self) -> dict[str, Any] | None:
        if len(self._world.cluster.living()) >= 6:
            return None
        pool = self._random.choices(("cpu", "gpu", "himem"), (4, 4, 1))[0]
        number = sum(pod.pool == pool for pod in self._world.cluster.pods.values())
        return {"pod": f"{pool}-{number}", "nthreads": self._random.choice((1, 1, 2))}

    def _kill(self) -> dict[str, Any] | None:
        pod = self._some_pod()
        return {"pod": pod, "deletes": self._random.random() < 0.4} if pod else None

    def _pause(self) -> dict[str, Any] | None:
        pod = self._some_pod()
        return {"pod": pod, "paused": self._random.random() < 0.5} if pod else None

    def _hold(self) -> dict[str, Any] | None:
        pod = self._some_pod()
        return {"pod": pod, "seconds": self._random.choice((0.005, 0.02, 0.3, 2.0, 6.0))} if pod else None

    def _break(self) -> dict[str, Any] | None:
        pod, other = self._some_pod(), self._some_pod()
        if pod is None:
            return None
        return {"pod": pod, "other": "scheduler" if self._random.random() < 0.6 or other == pod else other}

    def _end(self) -> dict[str, Any] | None:
        pod = self._some_pod()
        return {"pod": pod, "dies": self._random.random() < 0.4} if pod else None
