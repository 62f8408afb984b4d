"""One history: drawn from a seed or given as moves, played, settled, judged. A failing one is made shorter."""

from __future__ import annotations

import asyncio
import gc
import random
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dask
import distributed.client
import distributed.core
import distributed.scheduler
import distributed.utils
from tornado.ioloop import IOLoop

from . import tasks
from .cluster import ACCEPTS, Cluster, seed_everything
from .loop import CLOCK, REAL_TIME, START, IdleError, Loop, within
from .moves import Generator, Move, World, play
from .network import BACKEND
from .oracle import LOGS, Failure, Oracle
from .threads import Threads

SETTLE_SECONDS = 90.0  # virtual: what is not there by then hangs
QUIET_SECONDS = 1.0
CALM_SECONDS = 3.0  # after all is let go, until what is kept is a leak
FRESH = ("cpu-90", "gpu-90", "himem-90")


@dataclass(frozen=True)
class Outcome:
    """What came of a history."""

    seed: int
    moves: tuple[Move, ...]
    failures: tuple[Failure, ...]
    events: int
    digest: int
    seconds: float  # real ones
    notes: tuple[str, ...] = field(default=(), compare=False)


def run(seed: int, moves: Sequence[Move] | None = None, *, stock: bool = False) -> Outcome:
    """Play one history; without `moves` the seed draws them. Nothing of it is left for the next one."""
    gc.disable()
    outcome = _run(seed, moves, stock=stock)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of coroutines that dead processes began
        while gc.collect():  # what is collected may end coroutines, which then are garbage themselves
            pass
    return outcome


def _run(seed: int, moves: Sequence[Move] | None, *, stock: bool) -> Outcome:
    started = REAL_TIME()
    seed_everything(seed)
    CLOCK.now = START
    tasks.Current.record = tasks.Record()
    loop = Loop(seed)
    loop.inline_executors.add(id(distributed.utils._offload_executor))
    loop.set_exception_handler(_on_exception)
    asyncio.set_event_loop(loop)
    threads = Threads(loop)
    story = Story(seed, moves, has_preload=not stock)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loop.run_until_complete(story.tell())
    except IdleError:
        story.oracle.fail("hung", "nothing is left to happen, and somebody waits")
    except Exception as error:  # noqa: BLE001 (the next history may still be told)
        at = traceback.extract_tb(error.__traceback__)[-1]
        story.oracle.fail("errors", f"the simulation fails: {type(error).__name__}: {error} in {at.name}")
    finally:
        threads.kill()
        asyncio.set_event_loop(None)
        loop.close()  # tornado forgets those alone that are closed
        _forget()
    return Outcome(
        seed=seed,
        moves=tuple(story.played),
        failures=tuple(story.oracle.failures.values()),
        events=story.cluster.network.events,
        digest=story.cluster.network.digest,
        seconds=REAL_TIME() - started,
    )


class Story:
    """The history that is played."""

    def __init__(self, seed: int, moves: Sequence[Move] | None, *, has_preload: bool) -> None:
        self._seed = seed
        self._moves = moves
        self._has_preload = has_preload
        self._random = random.Random(f"story {seed}")
        self.played: list[Move] = []
        self.oracle: Oracle = None  # type: ignore[assignment]
        self.cluster: Cluster = None  # type: ignore[assignment]

    async def tell(self) -> None:
        """Play, settle, judge."""
        draw = self._random
        interval, validates = draw.choice(("100ms", "1s")), draw.random() < 0.3
        completes = draw.random() < 0.5
        heartbeat_seconds = draw.choice((0.5, 2.0, 2.0, 2.0))
        dask.config.set({"distributed.scheduler.work-stealing-interval": interval})
        distributed.scheduler.heartbeat_interval = lambda _workers: heartbeat_seconds
        self.cluster = cluster = Cluster(self._seed, has_preload=self._has_preload, validates=validates)
        self.world = world = World(cluster)
        self.oracle = Oracle(world, has_preload=self._has_preload)
        await cluster.start()
        if self._has_preload:
            cluster.spawn(cluster.scheduler_host, self._poll())
        if self._moves is None:
            generator = Generator(world, self._seed, has_preload=self._has_preload, has_actors=not validates)
            for move in generator.first():
                await self._play(move)
            while len(self.played) < generator.length:
                await self._play(generator.next())
        else:
            for move in self._moves:
                await self._play(move)
        await self._settle(completes=completes)
        await self._judge()

    async def _play(self, move: Move) -> None:
        self.played.append(move)
        await asyncio.sleep(move.after)
        self.oracle.look()
        play(self.world, move)

    async def _poll(self) -> None:
        """Be the operator's long poll."""
        cluster, world = self.cluster, self.world
        while True:
            waiter = cluster.preload.watch.next_version()
            await asyncio.wait([waiter], timeout=30)
            waiter.cancel()
            if world.polls_from > CLOCK.now:
                await asyncio.sleep(world.polls_from - CLOCK.now)
            self.oracle.look()

    async def _settle(self, *, completes: bool) -> None:
        """Let everybody work: gates open, drains undone or completed, fresh workers, until nothing is missing."""
        cluster, operator = self.cluster, self.cluster.operator
        for pod in cluster.living():
            cluster.set_paused(pod, paused=False)
        for name in FRESH:
            cluster.add_pod(name, 4)
        operator.offers = {}
        operator.accepts = dict(ACCEPTS)
        if not completes:
            operator.retiring = {}
        operator.say()
        work_seconds = sum(w.spec.get("seconds", 0.0) * (w.spec.get("fails", 0) + 1) for w in self.world.wants.values())
        quiet_since, deadline = None, CLOCK.now + SETTLE_SECONDS + work_seconds
        give_up_at = CLOCK.now + 25.0  # on drains that are blocked
        while CLOCK.now < deadline:
            await asyncio.sleep(0.25)
            self.oracle.look()
            if CLOCK.now > give_up_at and operator.retiring:
                operator.retiring = {}
                operator.say()
            if operator.retiring and self._reap():
                operator.say()
            for pod in cluster.living():
                cluster.set_paused(pod, paused=False)
            if self.oracle.pending() or operator.retiring or self._ending():
                quiet_since = None
            elif quiet_since is None:
                quiet_since = CLOCK.now
            elif CLOCK.now - quiet_since >= QUIET_SECONDS:
                break
        self.oracle.look()
        self.oracle.judge_hung(self.oracle.pending())
        if self._ending():
            self.oracle.fail("hung", "a process is still on its way, in or out")

    def _ending(self) -> bool:
        """Return whether a process is on its way, out or in."""
        known = {self.cluster.state(pod) for pod in self.cluster.living()}
        return (
            not known.issuperset(self.cluster.scheduler.workers.values())
            or any(not task.done() for task in self.world.ending.values())
            or any(
                pod.process is None or pod.process.host.held_until or self.cluster.state(pod) is None
                for pod in self.cluster.living()
            )
        )

    def _reap(self) -> bool:
        drained = self.cluster.operator.drained()
        for pod in drained:
            self.reap(pod)
        gone = [name for name in self.cluster.operator.retiring if self.cluster.pods[name].is_deleted]
        for name in gone:
            if self.cluster.pods[name].process is None:
                del self.cluster.operator.retiring[name]
        return bool(drained or gone)

    def reap(self, pod: Any) -> None:
        """Delete a pod that is drained."""
        self.oracle.on_reap(pod)
        self.cluster.terminate(pod)

    async def _judge(self) -> None:
        oracle, cluster = self.oracle, self.cluster
        await self._offers_settle()
        results = await self._results()
        again = [key for key, (status, value) in results.items() if status == "error" and "was let go" in str(value)]
        if again:  # as documented, `Client.retry` computes it again
            # A scheduler that validates itself fails where a task and one that it needs are both tried again
            cluster.scheduler.validate = False
            for name, client in cluster.clients.items():
                futures = [self.world.wants[key].future for key in again if self.world.wants[key].client == name]
                try:
                    await cluster.spawn(cluster.client_hosts[name], client._retry(futures))
                except Exception as error:  # noqa: BLE001 (whatever comes back)
                    # The client's own: an input is tried again too, of which it has no future any more
                    has_no_future = isinstance(error, KeyError) and error.args[0] not in client.futures
                    if not has_no_future:
                        oracle.fail("errors", f"Client.retry fails: {type(error).__name__}")
            await asyncio.sleep(10)
            results = await self._results()
        oracle.judge_results(results)
        oracle.judge_runs()
        oracle.judge_fence()
        oracle.judge_workers()
        if any(failure.kind in ("hung", "errors") for failure in oracle.failures.values()):
            oracle.judge_logs()
            return
        for name in cluster.clients:
            for want in self.world.wants.values():
                if want.client == name and want.future is not None:
                    cluster.run_in_client(name, want.future.release)
                    want.future = None
        await asyncio.sleep(0.1)
        for name, client in cluster.clients.items():
            cluster.spawn(cluster.client_hosts[name], client._close())
        cluster.operator.say()
        await asyncio.sleep(CALM_SECONDS)
        if self._has_preload and cluster.preload.rebalance is not None:
            # What is put right at the next look is kept no longer than until then
            within(cluster.scheduler_host).run(cluster.preload.rebalance.schedule)
            within(cluster.scheduler_host).run(cluster.preload.fence._allowed_now)
            await asyncio.sleep(0.5)
        if oracle.kept():  # errors keep the frames, and so the futures, of tasks that had a client
            gc.collect()
            await asyncio.sleep(1)
        oracle.look()
        oracle.judge_leaks()
        oracle.judge_logs()

    async def _offers_settle(self) -> None:
        """Let workers whose answers were lost be told again what they offer."""
        if self._has_preload and (changes := self.cluster.preload.offers._changes.values()):
            await asyncio.wait(changes, timeout=CALM_SECONDS)

    async def _results(self) -> dict[str, tuple[str, Any]]:
        """Return what the clients' futures say: key -> (status, result or error)."""
        found: dict[str, tuple[str, Any]] = {}
        for name, client in self.cluster.clients.items():
            wants = [w for w in self.world.wanted() if w.client == name and not w.is_actor and w.future is not None]
            ready = []
            for want in wants:
                if want.future.status == "finished":
                    ready.append(want)
                elif want.future.status == "error":
                    state = want.future._state
                    found[want.key] = "error", state.exception
                elif want.future.status != "pending":
                    found[want.key] = want.future.status, None
            if not ready:
                continue
            futures = [want.future for want in ready]
            gathering = self.cluster.spawn(self.cluster.client_hosts[name], client._gather(futures, errors="skip"))
            await asyncio.wait([gathering], timeout=30)
            if not gathering.done():
                gathering.cancel()
                self.oracle.fail("hung", "results that are there do not come")
                continue
            if gathering.exception() is not None:
                for want in ready:
                    found[want.key] = "gather", gathering.exception()
                continue
            values = gathering.result()
            if len(values) == len(ready):
                found.update({want.key: ("finished", value) for want, value in zip(ready, values, strict=True)})
                continue
            for want in ready:  # some are lost: which?
                one = self.cluster.spawn(self.cluster.client_hosts[name], client._gather([want.future], errors="skip"))
                await asyncio.wait([one], timeout=30)
                value = one.result() if one.done() and one.exception() is None else []
                found[want.key] = ("finished", value[0]) if value else ("lost", None)
        return found


def _on_exception(_loop: Any, context: dict[str, Any]) -> None:
    """Note what a callback of the preload raised; what dead processes leave behind is nobody's business."""
    error = context.get("exception")
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    if isinstance(error, KeyError) and [frame.name for frame in frames[-3:-1]] == ["scatter", "replicate"]:
        return  # distributed's own, which the fence passes on: the worker of scattered data was gone before its copies
    if any("gpudask" in frame.filename for frame in frames):
        LOGS.lines.append(f"gpudask: a callback raised {error!r} in {frames[-1].name}")


def _forget() -> None:
    """Drop what distributed keeps for the process."""
    distributed.client._global_clients.clear()
    distributed.Worker._initialized_clients.clear()
    distributed.Worker._instances.clear()
    tasks.Current.record = tasks.Record()
    del BACKEND.network
    # These would keep every scheduler and worker that there ever was
    distributed.core._expects_comm.cache_clear()
    IOLoop._pending_tasks.clear()
    dask.config.config.pop("scheduler", None)


def shorten(outcome: Outcome, sign: str, *, stock: bool, until: Callable[[], bool]) -> Outcome:
    """Return the shortest history found that fails in the same way: pieces are left out, ever smaller ones."""
    best = outcome
    size = max(1, len(best.moves) // 2)
    while size and not until():
        at, has_shrunk = 0, False
        while at < len(best.moves) and not until():
            moves = best.moves[:at] + best.moves[at + size :]
            tried = run(best.seed, moves, stock=stock)
            if any(failure.sign == sign for failure in tried.failures):
                best, has_shrunk = tried, True
            else:
                at += size
        if not has_shrunk or size > 1:
            size //= 2
    return _simplify(best, sign, stock=stock, until=until)


def _simplify(best: Outcome, sign: str, *, stock: bool, until: Callable[[], bool]) -> Outcome:
    """Leave out tasks and arguments of the moves that stay."""
    for at in range(len(best.moves)):
        move = best.moves[at]
        tries: list[dict[str, Any]] = []
        if move.name == "submit":
            if len(move.args["keys"]) > 1:
                tries.append({**move.args, "keys": move.args["keys"][:1]})
            tries += [
                {name: value for name, value in move.args.items() if name != dropped}
                for dropped in ("inputs", "priority", "retries", "workers", "function", "fails")
                if dropped in move.args
            ]
        for args in tries:
            if until():
                return best
            moves = (*best.moves[:at], Move(move.after, move.name, args), *best.moves[at + 1 :])
            tried = run(best.seed, moves, stock=stock)
            if any(failure.sign == sign for failure in tried.failures):
                best, move = tried, moves[at]
    return best
