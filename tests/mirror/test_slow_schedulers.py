"""An old scheduler that is slow to answer, or does not want to, holds up nobody but its own cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.reasons import Reason
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.serving import Serving
from gpudask.mirror.takeover import SETTLE_SECONDS, Takeover
from tests.mirror.test_leftovers import CLUSTER, SCHEDULER, a_pod
from tests.virtual_time import VirtualPolicy


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """A pass waits for a part of a second, and that passes at once."""
    return VirtualPolicy()


class Slow:
    """What `Takeover` reads: a cluster with its scheduler alone, which answers after `answers`. `asked`: how often."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.answers = asyncio.Event()
        self.asked = 0
        self.api = self.schedulers = self

    def clock(self) -> float:
        return self.now

    def know(self, _: str) -> bool:
        return True

    def owned(self, _: str) -> tuple[()]:
        return ()

    async def list_labelled(self, path: str, *_: Any, **__: Any) -> list[Json]:
        found = {"deployments": SCHEDULER, "pods": a_pod("scheduler")}
        return [body for name, body in found.items() if path.endswith(name)]

    async def counts(self, *_: Any, **__: Any) -> tuple[int, int]:
        self.asked += 1
        await self.answers.wait()
        return 3, 1


async def look(takeover: Takeover) -> Any:
    async with asyncio.timeout(5):  # far below the deadline of an answer
        return await takeover.look(CLUSTER, (CLUSTER,))


async def test_a_pass_does_not_wait_for_an_answer_and_the_next_one_finds_it() -> None:
    slow: Any = Slow()
    takeover = Takeover(slow, Definitions())
    await look(takeover)
    slow.now += SETTLE_SECONDS
    for _ in range(2):
        assert (await look(takeover)).conditions is None
    assert slow.asked == 1
    slow.answers.set()
    (condition,) = (await look(takeover)).conditions
    assert condition.reason == Reason.WORK_IN_PROGRESS


async def test_an_answer_that_is_old_decides_nothing() -> None:
    slow: Any = Slow()
    takeover = Takeover(slow, Definitions())
    await look(takeover)
    slow.now += SETTLE_SECONDS
    await look(takeover)
    slow.answers.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=30)
    slow.now += 30
    assert (await look(takeover)).conditions is None, "passes failed for a while, and work may have begun"
    assert (await look(takeover)).conditions is not None
    assert slow.asked == 2


async def test_a_cluster_that_is_forgotten_is_not_asked_any_more() -> None:
    slow: Any = Slow()
    takeover = Takeover(slow, Definitions())
    await look(takeover)
    slow.now += SETTLE_SECONDS
    await look(takeover)
    takeover.forget(CLUSTER.owner)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(others, timeout=30) if others else None
    assert all(task.done() for task in others)


async def test_of_clusters_that_are_gone_nothing_is_kept() -> None:
    slow: Any = Slow()
    takeover = Takeover(slow, Definitions())
    served = Serving(slow, Definitions(caches={CLUSTER.kind: slow}), lambda _: None, lambda _: None)
    served._takeover = takeover
    for number in range(3):
        cluster = replace(CLUSTER, uid=str(number))
        await takeover.look(cluster, (cluster,))
    assert list(takeover._released) == ["2"], "those before it are gone"
    await served._pass(CLUSTER.owner)
    assert not takeover._released
