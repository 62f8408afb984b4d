"""The ear of a cluster: what it knows, and when it says that it knows nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.clients.errors import SchedulerError, SchedulerTrouble
from gpudask.desired.scheduler import fence
from gpudask.planning.observed.pods import Retirement
from gpudask.reconcile import demand_feed, supervisor
from gpudask.reconcile.demand_feed import DemandFeed
from gpudask.reconcile.supervisor import Supervisor
from gpudask.planning.drain import retirements
from gpudask.scaling.demand import PROTOCOL, Demand, Requirement, Worker, parse
from tests.builders import a_manifest, a_pool
from tests.documented_protocol import DEMAND, DESIRED
from tests.planning.builders import NOW, cluster, pod, scheduler_pod, seen, stored

POD = scheduler_pod(cluster(a_pool()))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Ear:
    """A feed on a scheduler whose answers are given one by one."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.asks = asyncio.Event()
        self.told: list[Any] = []
        self.wakes = 0
        self.urgent = 0
        self.supervisor = Supervisor()
        context: Any = SimpleNamespace(
            clock=self.clock, schedulers=self, token=lambda uid: uid, supervisor=self.supervisor
        )
        self.feed = DemandFeed(context, stored(a_manifest()), self.wake)

    async def listens(self) -> None:
        """Begin, and wait for the first question."""
        self.feed.follow(POD)
        await asyncio.wait_for(self.asks.wait(), 5)

    def wake(self, *, urgent: bool = True) -> None:
        self.wakes += 1
        self.urgent += urgent

    async def demand(self, *_: str, **__: Any) -> Demand:
        if self.answers.empty():
            self.asks.set()
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def desire(self, _base: str, _token: str, desired: Any) -> dict[str, str]:
        self.told.append(desired)
        return {item["pod"]: "busy" for item in desired["retiring"] if item["if_idle"]}

    async def hears(self, answer: Any) -> None:
        """Give it this answer; the feed has acted on it when it asks for the next."""
        self.asks.clear()
        await self.answers.put(answer)
        await asyncio.wait_for(self.asks.wait(), 5)


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> Ear:
    monkeypatch.setattr(demand_feed, "_FIRST_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(demand_feed, "_LAST_RETRY_SECONDS", 0.0)
    return Ear()


def unreachable() -> SchedulerError:
    return SchedulerError(SchedulerTrouble.UNREACHABLE, "refused")


async def test_silence_is_told_once_when_it_has_lasted_longer_than_a_start(ear: Ear):
    await ear.listens()
    for _ in range(3):
        await ear.hears(unreachable())
    assert (ear.wakes, ear.feed.problem) == (1, "")
    ear.clock.now += 21
    for _ in range(3):
        await ear.hears(unreachable())
    assert (ear.wakes, ear.feed.problem) == (2, "refused")
    ear.feed.stop()


async def test_an_answer_ends_the_silence(ear: Ear):
    await ear.listens()
    ear.clock.now += 21
    await ear.hears(unreachable())
    await ear.hears(Demand("s/1", "s"))
    assert (ear.feed.problem, ear.feed.demand) == ("", Demand("s/1", "s"))
    await ear.hears(unreachable())
    assert ear.feed.demand is None, "what was known before is not known now"
    ear.feed.stop()


async def test_a_preload_that_comes_up_after_its_http_server_is_heard_and_can_drain(ear: Ear):
    await ear.listens()
    await ear.hears(SchedulerError(SchedulerTrouble.NO_PRELOAD, "no such route"))
    assert ear.feed.unavailable
    await ear.hears(Demand("s/1", "s"))
    assert (ear.feed.unavailable, ear.feed.problem) == (False, "")
    ear.feed.stop()


async def test_the_same_answer_again_wakes_nobody(ear: Ear):
    await ear.listens()
    for _ in range(3):
        await ear.hears(Demand("s/1", "s"))
    assert ear.wakes == 1
    ear.feed.stop()


async def test_a_worker_process_that_starts_again_in_its_pod_is_no_new_start(ear: Ear):
    await ear.listens()
    worker = Worker("demo-gpu-worker-0-abcde-0")
    await ear.hears(Demand("s/1", "s", workers=(worker,)))
    ear.clock.now += 500
    await ear.hears(Demand("s/2", "s"))  # its nanny restarts it
    await ear.hears(Demand("s/3", "s", workers=(worker,)))
    assert (ear.feed.joined, ear.feed.first_joined) == ({worker.name: 1500.0}, {worker.name: 1000.0})
    ear.feed.keep_workers_of(["demo-gpu-worker-0-abcde"])
    assert ear.feed.first_joined == {worker.name: 1000.0}
    ear.feed.keep_workers_of(["demo-gpu-worker-0-other"])
    assert ear.feed.first_joined == {}
    ear.feed.stop()


async def test_counts_that_moved_are_not_urgent(ear: Ear):
    await ear.listens()
    for version, processing in (("s/1", 10), ("s/2", 12), ("s/3", 50)):
        await ear.hears(Demand(version, "s", requirements=(Requirement((), processing=processing),)))
    assert (ear.wakes, ear.urgent) == (3, 2)
    ear.feed.stop()


async def test_another_scheduler_process_is_noticed(ear: Ear):
    await ear.listens()
    await ear.hears(Demand("s/1", "s"))
    ear.clock.now += 60
    await ear.hears(Demand("s/2", "s"))
    assert ear.feed.scheduler_since == 1000
    await ear.hears(Demand("t/1", "t"))
    assert ear.feed.scheduler_since == 1060
    ear.feed.stop()


async def test_when_a_worker_was_first_heard_of_is_kept_while_it_is_there(ear: Ear):
    await ear.listens()
    await ear.hears(Demand("s/1", "s", workers=(Worker("a"),)))
    ear.clock.now += 5
    await ear.hears(Demand("s/2", "s", workers=(Worker("a"), Worker("b"))))
    assert ear.feed.joined == {"a": 1000, "b": 1005}
    await ear.hears(Demand("s/3", "s", workers=(Worker("b"),)))
    ear.clock.now += 5
    await ear.hears(Demand("s/4", "s", workers=(Worker("a"), Worker("b"))))
    assert ear.feed.joined == {"a": 1010, "b": 1005}
    ear.feed.stop()


async def test_what_is_wanted_is_told_once_and_again_to_a_scheduler_that_forgot(ear: Ear):
    await ear.listens()
    await ear.hears(Demand("s/1", "s"))
    for _ in range(3):
        await ear.feed.send_desired({}, [], {})
    assert len(ear.told) == 1
    await ear.hears(Demand("s/2", "s", desired_version=ear.told[0]["version"]))
    await ear.feed.send_desired({}, [], {})
    assert len(ear.told) == 1
    await ear.hears(Demand("t/1", "t", desired_version=""))
    await ear.feed.send_desired({}, [], {})
    assert len(ear.told) == 2
    ear.feed.stop()


@pytest.mark.parametrize(("features", "sent"), [({"offers": ""}, True), ({"retire": ""}, False)])
async def test_offers_are_told_to_a_preload_that_knows_the_word(ear: Ear, features: dict[str, str], sent: bool):
    await ear.listens()
    await ear.hears(Demand("s/1", "s", features=features))
    await ear.feed.send_desired({}, [], {"cpu": {"GPU": 1.0}})
    assert ("offers" in ear.told[0]) is sent
    ear.feed.stop()


async def test_a_pod_that_retires_is_told_in_the_documented_words(ear: Ear):
    of = cluster(a_pool(), a_pool("gpu", gpu={}))
    leaves = pod(of, "gpu", 3, dask_name="demo-gpu-worker-3-77aa0", retirement=Retirement("idle", if_idle=True, at=NOW))
    await ear.listens()
    await ear.hears(parse(DEMAND | {"features": {}}))
    await ear.feed.send_desired(fence(of), retirements(seen(of, leaves)), {})
    assert {"protocol": PROTOCOL} | ear.told[0] == DESIRED | {"version": ear.told[0]["version"]}
    ear.feed.stop()


async def test_a_refusal_is_kept_until_the_next_word(ear: Ear):
    await ear.listens()
    await ear.hears(Demand("s/1", "s"))
    await ear.feed.send_desired({}, [{"pod": "p", "data": "move", "if_idle": True}], {})
    assert ear.feed.refused == {"p"}
    await ear.feed.send_desired({}, [], {})
    assert ear.feed.refused == frozenset()
    ear.feed.stop()


@pytest.mark.parametrize("change", [lambda ear: ear.feed.follow(None), lambda ear: ear.feed.stop()])
async def test_without_a_scheduler_nothing_is_known(ear: Ear, change: Callable[[Ear], None]):
    await ear.listens()
    await ear.hears(Demand("s/1", "s"))
    change(ear)
    assert (ear.feed.demand, ear.feed.problem) == (None, "")


async def test_a_defect_does_not_end_the_feed_and_is_told(ear: Ear, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor, "_FIRST_RETRY_SECONDS", 0.0)
    await ear.listens()
    await ear.hears(Demand("s/1", "s"))
    await ear.hears(TypeError("'<' not supported between instances of 'str' and 'int'"))
    assert ear.feed.demand is None, "what was known before is not known now"
    assert ear.feed.problem.startswith("the operator failed to listen (TypeError)")
    assert ear.supervisor.restarts == {"demand feed": 1}
    await ear.hears(Demand("s/2", "s"))
    assert (ear.feed.demand, ear.feed.problem) == (Demand("s/2", "s"), "")
    ear.feed.stop()


async def test_after_a_defect_silence_is_told_as_what_it_is(ear: Ear, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor, "_FIRST_RETRY_SECONDS", 0.0)
    await ear.listens()
    await ear.hears(TypeError())
    ear.clock.now += 21
    await ear.hears(unreachable())
    assert ear.feed.problem == "refused"
    ear.feed.stop()


class Chatter:
    """A scheduler with a new version, of so many bytes, whenever it is asked; its polls by the loop's clock."""

    def __init__(self, answer_bytes: int = 0) -> None:
        self.polls: list[float] = []
        self.wakes = 0
        self._answer_bytes = answer_bytes
        self.clock = Clock()
        self.supervisor = Supervisor()
        context: Any = SimpleNamespace(
            clock=self.clock, schedulers=self, token=lambda uid: uid, supervisor=self.supervisor
        )
        self.feed = DemandFeed(context, stored(a_manifest()), self.wake)

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
