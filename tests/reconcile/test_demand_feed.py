"""The long-poll client of a scheduler's demand: what it knows, and when it reports that nothing is known."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.clients.errors import SchedulerError, SchedulerTrouble
from gpudask.clients.flow_control import FairRateLimiter
from gpudask.desired.scheduler import preload_pools
from gpudask.planning.observed.pods import Retirement
from gpudask.reconcile import demand_feed, supervisor
from gpudask.reconcile.demand_feed import DemandFeed
from gpudask.reconcile.supervisor import Supervisor
from gpudask.planning.drain import retirements
from gpudask.scaling.demand import PROTOCOL, Demand, Requirement, Worker, parse
from tests.builders import a_manifest, a_pool
from tests.documented_protocol import DEMAND, DESIRED
from tests.planning.builders import NOW, cluster, pod, scheduler_pod, seen, stored
from tests.virtual_time import VirtualPolicy, now

POD = scheduler_pod(cluster(a_pool()))


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Waits pass at once, and take exactly as long as they should."""
    return VirtualPolicy()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_context(schedulers: Any, clock: Clock) -> Any:
    return SimpleNamespace(
        clock=clock,
        schedulers=schedulers,
        token=lambda uid: uid,
        supervisor=Supervisor(),
        counts_limiter=FairRateLimiter(100.0),
        answers_limiter=FairRateLimiter(100.0, 20.0),
    )


class PolledFeed:
    """A feed on a scheduler whose answers are given one by one."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.context = a_context(self, self.clock)
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.polls_now = asyncio.Event()
        self.sent: list[Any] = []
        self.wakes = 0
        self.urgent = 0
        self.feed = DemandFeed(self.context, stored(a_manifest()), self.wake)

    async def starts(self) -> None:
        """Start, and wait for the first poll."""
        self.feed.follow(POD)
        await asyncio.wait_for(self.polls_now.wait(), 5)

    def wake(self, *, urgent: bool = True) -> None:
        self.wakes += 1
        self.urgent += urgent

    async def demand(self, *_: str, **__: Any) -> Demand:
        if self.answers.empty():
            self.polls_now.set()
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def desire(self, _base: str, _token: str, desired: Any) -> dict[str, str]:
        self.sent.append(desired)
        return {item["pod"]: "busy" for item in desired["retiring"] if item["if_idle"]}

    async def gets(self, answer: Any) -> None:
        """Give it this answer; the feed has acted on it when it polls for the next."""
        self.polls_now.clear()
        await self.answers.put(answer)
        await asyncio.wait_for(self.polls_now.wait(), 5)


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> PolledFeed:
    monkeypatch.setattr(demand_feed, "_FIRST_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(demand_feed, "_LAST_RETRY_SECONDS", 0.0)
    return PolledFeed()


def unreachable() -> SchedulerError:
    return SchedulerError(SchedulerTrouble.UNREACHABLE, "refused")


async def test_silence_is_reported_once_when_it_has_lasted_longer_than_a_start(polled: PolledFeed):
    await polled.starts()
    for _ in range(3):
        await polled.gets(unreachable())
    assert (polled.wakes, polled.feed.problem) == (1, "")
    polled.clock.now += 21
    for _ in range(3):
        await polled.gets(unreachable())
    assert (polled.wakes, polled.feed.problem) == (2, "refused")
    polled.feed.stop()


async def test_an_answer_ends_the_silence(polled: PolledFeed):
    await polled.starts()
    polled.clock.now += 21
    await polled.gets(unreachable())
    await polled.gets(Demand("s/1", "s"))
    assert (polled.feed.problem, polled.feed.demand) == ("", Demand("s/1", "s"))
    await polled.gets(unreachable())
    assert polled.feed.demand is None, "what was known before is not known now"
    polled.feed.stop()


async def test_a_preload_that_comes_up_after_its_http_server_is_heard_and_can_drain(polled: PolledFeed):
    await polled.starts()
    await polled.gets(SchedulerError(SchedulerTrouble.NO_PRELOAD, "no such route"))
    assert polled.feed.unavailable
    await polled.gets(Demand("s/1", "s"))
    assert (polled.feed.unavailable, polled.feed.problem) == (False, "")
    polled.feed.stop()


async def test_the_same_answer_again_wakes_nobody(polled: PolledFeed):
    await polled.starts()
    for _ in range(3):
        await polled.gets(Demand("s/1", "s"))
    assert polled.wakes == 1
    polled.feed.stop()


async def test_a_worker_process_that_starts_again_in_its_pod_is_no_new_start(polled: PolledFeed):
    await polled.starts()
    worker = Worker("demo-gpu-worker-0-abcde-0")
    await polled.gets(Demand("s/1", "s", workers=(worker,)))
    polled.clock.now += 500
    await polled.gets(Demand("s/2", "s"))  # its nanny restarts it
    await polled.gets(Demand("s/3", "s", workers=(worker,)))
    assert (polled.feed.joined, polled.feed.first_joined) == ({worker.name: 1500.0}, {worker.name: 1000.0})
    polled.feed.keep_workers_of(["demo-gpu-worker-0-abcde"])
    assert polled.feed.first_joined == {worker.name: 1000.0}
    polled.feed.keep_workers_of(["demo-gpu-worker-0-other"])
    assert polled.feed.first_joined == {}
    polled.feed.stop()


async def test_counts_that_moved_are_not_urgent(polled: PolledFeed):
    await polled.starts()
    for version, processing in (("s/1", 10), ("s/2", 12), ("s/3", 50)):
        await polled.gets(Demand(version, "s", requirements=(Requirement((), processing=processing),)))
    assert (polled.wakes, polled.urgent) == (3, 2)
    polled.feed.stop()


async def test_another_scheduler_process_is_noticed(polled: PolledFeed):
    await polled.starts()
    await polled.gets(Demand("s/1", "s"))
    polled.clock.now += 60
    await polled.gets(Demand("s/2", "s"))
    assert polled.feed.scheduler_since == 1000
    await polled.gets(Demand("t/1", "t"))
    assert polled.feed.scheduler_since == 1060
    polled.feed.stop()


async def test_when_a_worker_was_first_heard_of_is_kept_while_it_is_there(polled: PolledFeed):
    await polled.starts()
    await polled.gets(Demand("s/1", "s", workers=(Worker("a"),)))
    polled.clock.now += 5
    await polled.gets(Demand("s/2", "s", workers=(Worker("a"), Worker("b"))))
    assert polled.feed.joined == {"a": 1000, "b": 1005}
    await polled.gets(Demand("s/3", "s", workers=(Worker("b"),)))
    polled.clock.now += 5
    await polled.gets(Demand("s/4", "s", workers=(Worker("a"), Worker("b"))))
    assert polled.feed.joined == {"a": 1010, "b": 1005}
    polled.feed.stop()


async def test_the_desired_state_is_sent_once_and_again_to_a_scheduler_that_forgot(polled: PolledFeed):
    await polled.starts()
    await polled.gets(Demand("s/1", "s"))
    for _ in range(3):
        await polled.feed.send_desired({}, [], {})
    assert len(polled.sent) == 1
    await polled.gets(Demand("s/2", "s", desired_version=polled.sent[0]["version"]))
    await polled.feed.send_desired({}, [], {})
    assert len(polled.sent) == 1
    await polled.gets(Demand("t/1", "t", desired_version=""))
    await polled.feed.send_desired({}, [], {})
    assert len(polled.sent) == 2
    polled.feed.stop()


@pytest.mark.parametrize(("features", "sent"), [({"offers": ""}, True), ({"retire": ""}, False)])
async def test_offers_are_sent_to_a_preload_that_knows_them(polled: PolledFeed, features: dict[str, str], sent: bool):
    await polled.starts()
    await polled.gets(Demand("s/1", "s", features=features))
    await polled.feed.send_desired({}, [], {"cpu": {"GPU": 1.0}})
    assert ("offers" in polled.sent[0]) is sent
    polled.feed.stop()


async def test_a_pod_that_retires_is_sent_as_documented(polled: PolledFeed):
    of = cluster(a_pool(), a_pool("gpu", gpu={}, protocol="ucxx"))
    leaves = pod(of, "gpu", 3, dask_name="demo-gpu-worker-3-77aa0", retirement=Retirement("idle", if_idle=True, at=NOW))
    await polled.starts()
    await polled.gets(parse(DEMAND | {"features": {}}))
    await polled.feed.send_desired(preload_pools(of), retirements(seen(of, leaves)), {})
    assert {"protocol": PROTOCOL} | polled.sent[0] == DESIRED | {"version": polled.sent[0]["version"]}
    polled.feed.stop()


async def test_a_refusal_is_kept_until_the_next_desired_state(polled: PolledFeed):
    await polled.starts()
    await polled.gets(Demand("s/1", "s"))
    await polled.feed.send_desired({}, [{"pod": "p", "data": "move", "if_idle": True}], {})
    assert polled.feed.refused == {"p"}
    await polled.feed.send_desired({}, [], {})
    assert polled.feed.refused == frozenset()
    polled.feed.stop()


@pytest.mark.parametrize("change", [lambda polled: polled.feed.follow(None), lambda polled: polled.feed.stop()])
async def test_without_a_scheduler_nothing_is_known(polled: PolledFeed, change: Callable[[PolledFeed], None]):
    await polled.starts()
    await polled.gets(Demand("s/1", "s"))
    change(polled)
    assert (polled.feed.demand, polled.feed.problem) == (None, "")


async def test_a_defect_does_not_end_the_feed_and_is_reported(polled: PolledFeed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor, "_FIRST_RETRY_SECONDS", 0.0)
    await polled.starts()
    await polled.gets(Demand("s/1", "s"))
    await polled.gets(TypeError("'<' not supported between instances of 'str' and 'int'"))
    assert polled.feed.demand is None, "what was known before is not known now"
    assert polled.feed.problem.startswith("the operator failed to listen (TypeError)")
    assert polled.context.supervisor.restarts == {"demand feed": 1}
    await polled.gets(Demand("s/2", "s"))
    assert (polled.feed.demand, polled.feed.problem) == (Demand("s/2", "s"), "")
    polled.feed.stop()


async def test_after_a_defect_silence_is_reported_as_what_it_is(polled: PolledFeed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor, "_FIRST_RETRY_SECONDS", 0.0)
    await polled.starts()
    await polled.gets(TypeError())
    polled.clock.now += 21
    await polled.gets(unreachable())
    assert polled.feed.problem == "refused"
    polled.feed.stop()


class Chatter:
    """A scheduler with a new version, of so many bytes, whenever it is asked; its polls by the loop's clock."""

    def __init__(self, answer_bytes: int = 0, context: Any = None) -> None:
        self.polls: list[float] = []
        self.wakes = 0
        self._answer_bytes = answer_bytes
        context = SimpleNamespace(**{**vars(context or a_context(None, Clock())), "schedulers": self})
        self.feed = DemandFeed(context, stored(a_manifest()), self.wake)  # type: ignore[arg-type]

    def wake(self, *, urgent: bool = True) -> None:
        self.wakes += urgent

    async def demand(self, *_: str, **__: Any) -> Demand:
        self.polls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        return Demand(f"s/{len(self.polls)}", f"s{len(self.polls)}", answer_bytes=self._answer_bytes)


@pytest.mark.parametrize(("answer_bytes", "most"), [(0, 12 + 4), (500_000, 6), (5_000_000, 2)])
async def test_a_scheduler_with_ever_new_versions_is_asked_a_few_times_a_second(answer_bytes: int, most: int):
    chatter = Chatter(answer_bytes)
    chatter.feed.follow(POD)
    await asyncio.sleep(0.9)
    chatter.feed.stop()
    assert 1 <= len(chatter.polls) <= most
    assert chatter.wakes <= most


async def test_a_dozen_urgent_changes_are_heard_without_a_pause():
    chatter = Chatter()
    chatter.feed.follow(POD)
    async with asyncio.timeout(5):
        while len(chatter.polls) < 12:  # noqa: ASYNC110
            await asyncio.sleep(0)
    chatter.feed.stop()
    assert chatter.polls[11] - chatter.polls[0] < 0.2


class Counting:
    """A scheduler whose counts change `every` so many seconds, and which knows quiet polls if it is `honest`."""

    def __init__(self, context: Any, *, every: float = 0.5, honest: bool = True, namespace: str = "default") -> None:
        self.polls: list[tuple[float, float]] = []  # at, quiet for so many seconds
        self.away: list[float] = []  # how long it waited for each of them
        self.workers: tuple[Worker, ...] = ()
        self._every, self._honest, self._answered = every, honest, 0.0
        self._joined = asyncio.Event()
        cluster = stored(a_manifest())
        cluster["metadata"]["namespace"] = namespace
        mine = SimpleNamespace(**{**vars(context), "schedulers": self})
        self.feed = DemandFeed(mine, cluster, lambda **_: None)  # type: ignore[arg-type]

    async def demand(self, *_: str, known_version: str, wait_seconds: float, quiet_seconds: float, **__: Any) -> Demand:
        began = now()
        self.polls.append((began, quiet_seconds))
        self.away.append(began - self._answered)
        if self._honest:
            await self._wait(quiet_seconds)
        if self._version == known_version:
            to_next = self._every - now() % self._every if self._every < math.inf else math.inf
            await self._wait(min(to_next + 1e-6, max(0.0, began + wait_seconds - now())))
        self._answered = now()
        return Demand(scheduler_id="s", version=self._version, workers=self.workers)

    async def _wait(self, seconds: float) -> None:
        """For a worker that joins, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._joined.wait()
        self._joined.clear()

    @property
    def _version(self) -> str:
        return f"s/{int(now() / self._every)}-{len(self.workers)}"

    async def hears_of_a_worker(self) -> float:
        """A worker joins; how long until it is heard of."""
        began, count = now(), len(self.workers) + 1
        self.workers = tuple(Worker(f"w{number}", f"tcp://w{number}", "cpu") for number in range(count))
        self._joined.set()
        async with asyncio.timeout(60):
            while self.feed.demand is None or len(self.feed.demand.workers) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return now() - began


@pytest.fixture
def crowded() -> Any:
    """The context of a namespace in which other clusters' counts are to be read for minutes."""
    context = a_context(None, Clock())
    for _ in range(20_000):
        context.counts_limiter.reserve("default", 0.0)
    return context


async def test_where_many_counts_are_to_be_read_polls_are_quiet_and_what_is_urgent_is_heard_at_once(crowded: Any):
    scheduler = Counting(crowded)
    scheduler.feed.follow(POD)
    await asyncio.sleep(2)
    assert scheduler.polls == [(0.0, 0.0), (0.0, 0.0), pytest.approx((0.5, 30.0), abs=0.01)]
    for seconds in (0.0, 10.0, 35.0):  # the last one beyond one poll's wait
        await asyncio.sleep(seconds)
        assert await scheduler.hears_of_a_worker() < 0.01
    await asyncio.sleep(10)
    assert len(scheduler.polls) < 10, "its counts are read in their turn"
    scheduler.feed.stop()


async def test_a_scheduler_that_answers_quiet_polls_with_counts_waits_for_its_share_of_all_answers(crowded: Any):
    crowded.answers_limiter = FairRateLimiter(1.0)
    scheduler = Counting(crowded, honest=False)
    scheduler.feed.follow(POD)
    await asyncio.sleep(20)
    assert 10 <= len(scheduler.polls) <= 24
    assert max(scheduler.away) < 2.1, "it is not left alone until its turn comes"
    scheduler.feed.stop()


async def test_schedulers_that_rest_keep_nobody_from_being_heard():
    context = a_context(None, Clock())
    resting = [Counting(context, every=math.inf) for _ in range(2_000)]
    busy = [Counting(context) for _ in range(10)]
    for scheduler in (*resting, *busy):
        scheduler.feed.follow(POD)
    await asyncio.sleep(100)
    assert max(max(scheduler.away[5:]) for scheduler in busy) < 0.5
    assert max(max(scheduler.away[2:]) for scheduler in resting) == 0.0
    for scheduler in (*resting, *busy):
        scheduler.feed.stop()


async def test_many_busy_schedulers_are_listened_to_all_the_time_and_their_counts_are_read_in_turn():
    context = a_context(None, Clock())
    many = [Counting(context) for _ in range(300)]
    few = [Counting(context, namespace="another") for _ in range(5)]
    for scheduler in (*many, *few):
        scheduler.feed.follow(POD)
    await asyncio.sleep(60)
    before = sum(len(scheduler.polls) for scheduler in (*many, *few))
    await asyncio.sleep(60)
    answers = sum(len(scheduler.polls) for scheduler in (*many, *few)) - before
    assert answers <= 60 * 100 * 1.05, "of 36,600"
    assert max(max(scheduler.away[20:], default=0.0) for scheduler in (*many, *few)) < 0.5
    assert await many[0].hears_of_a_worker() < 0.01
    assert await few[0].hears_of_a_worker() < 0.01
    for scheduler in (*many, *few):
        scheduler.feed.stop()


async def test_schedulers_with_ever_new_versions_take_turns_and_others_wait_for_none_of_them():
    context = a_context(None, Clock())
    context.answers_limiter = FairRateLimiter(50.0, 20.0)
    chatters = [Chatter(context=context) for _ in range(100)]
    for chatter in chatters:
        chatter.feed.follow(POD)
    victim = Counting(context, namespace="another")
    victim.feed.follow(POD)
    await asyncio.sleep(5)
    assert await victim.hears_of_a_worker() < 0.01
    assert await victim.hears_of_a_worker() < 0.5
    await asyncio.sleep(5)
    assert sum(len(chatter.polls) for chatter in chatters) <= 100 + 2 * 20 + 10 * 50
    for feed in (*(chatter.feed for chatter in chatters), victim.feed):
        feed.stop()


async def test_another_scheduler_is_not_held_to_the_turn_of_the_one_before(crowded: Any):
    scheduler = Counting(crowded)
    scheduler.feed.follow(POD)
    await asyncio.sleep(2)
    assert scheduler.polls[-1][1] > 0
    scheduler.feed.follow(replace(POD, uid="another", ip="10.0.0.77"))
    await asyncio.sleep(0.01)
    assert scheduler.polls[-1][1] == 0
    scheduler.feed.stop()


async def test_a_namespace_may_have_its_burst_however_many_others_there_are():
    limiter = FairRateLimiter(100.0, 20.0)
    for number in range(50):
        for _ in range(5):
            limiter.reserve(f"another-{number}", 0.0)
    assert [limiter.reserve("default", 0.0) for _ in range(20)] == [0.0] * 20
    assert limiter.reserve("default", 0.0) == pytest.approx(51 / 100), "and then its share"
