"""A scheduler that does not answer: sizes stay, the status says why and since when, and all goes on by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.planning.builders import gpu_pool
from tests.reconcile.fake_dask import FakeScheduler
from tests.reconcile.stage import Stage, eventually, stays

pytestmark = pytest.mark.api


def later(operator: Operator, seconds: float) -> None:
    """Let the operator's clock run ahead."""
    assert operator._context is not None
    clock = operator._context.clock
    operator._context.clock = lambda: clock() + seconds


async def busy_gpus(stage: Stage, **spec: Any) -> FakeScheduler:
    """A cluster with a GPU pod at work."""
    await stage.apply(a_pool(replicas=1), gpu_pool(idle="1s"), **spec)
    scheduler = await stage.scheduler()
    await scheduler.want(1, GPU=1)
    await stage.becomes(lambda: stage.names(pool="gpu"), ["demo-gpu-worker-0"])

    async def registered() -> list[str]:
        return [name for name, pool in scheduler.pods.items() if pool == "gpu"]

    (name,) = await eventually(registered, bool, "its worker is registered")
    scheduler.busy = {name}
    await scheduler.want(0, running=1, GPU=1)
    return scheduler


async def hang_up(scheduler: FakeScheduler) -> None:
    await scheduler.stop()


async def lose_the_preload(scheduler: FakeScheduler) -> None:
    scheduler.protocol = 0
    await scheduler.say()


async def speak_a_newer_protocol(scheduler: FakeScheduler) -> None:
    scheduler.protocol = 2
    await scheduler.say()


async def lose_a_hook(scheduler: FakeScheduler) -> None:
    scheduler.features = {"demand": "Scheduler.add_plugin is missing", "fence": "", "retire": "without demand"}
    await scheduler.say()


async def come_back(scheduler: FakeScheduler) -> None:
    scheduler.protocol, scheduler.features = 1, {"demand": "", "fence": "", "retire": "", "offers": ""}
    await scheduler.say()


@pytest.mark.parametrize(
    ("fails", "returns", "words"),
    [
        (hang_up, FakeScheduler.start, "SchedulerUnreachable"),
        (lose_the_preload, come_back, "PreloadFailed: the scheduler runs without the preload"),
        (speak_a_newer_protocol, come_back, "PreloadFailed: the preload speaks protocol 2, this operator 1"),
        (lose_a_hook, come_back, "Frozen: pool gpu holds 1 GPUs"),
    ],
)
async def test_sizes_stay_the_status_says_why_and_it_ends_by_itself(
    stage: Stage,
    operator: Operator,
    fails: Callable[[FakeScheduler], Awaitable[None]],
    returns: Callable[[FakeScheduler], Awaitable[None]],
    words: str,
) -> None:
    scheduler = await busy_gpus(stage)
    await fails(scheduler)
    await eventually(lambda: _size_reason(stage), lambda why: "not known" in why, "the demand is not known")
    later(operator, 25)
    await stage.patch("pods", "demo-gpu-worker-0", {"metadata": {"labels": {"look": "again"}}})
    await stage.shows("Degraded", f"True {words}")
    await stage.shows("Degraded", "since 20")
    assert (await stage.status())["pools"][1]["frozenSince"]
    await stays(lambda: stage.names(pool="gpu"), ["demo-gpu-worker-0"], 1.0)
    scheduler.busy.clear()
    scheduler.demand, scheduler.tasks = [], 0
    await returns(scheduler)
    await stage.becomes(lambda: stage.names(pool="gpu"), [], "the pool follows the demand again")
    await stage.shows("Degraded", "False Healthy")
    assert (await stage.status())["pools"][1]["frozenSince"] == ""


async def test_gpus_of_a_frozen_pool_are_given_up_after_the_time_that_was_set(stage: Stage, operator: Operator) -> None:
    # It holds them for an hour, of which this test takes little.
    scheduler = await busy_gpus(stage, idle={"frozenFor": "1h"})
    await hang_up(scheduler)
    await eventually(lambda: _size_reason(stage), lambda why: "not known" in why, "the demand is not known")
    later(operator, 3000)
    await stage.patch("pods", "demo-gpu-worker-0", {"metadata": {"labels": {"look": "again"}}})
    await stage.shows("Degraded", "True SchedulerUnreachable")  # so it was looked at since then
    assert await stage.names(pool="gpu") == ["demo-gpu-worker-0"]
    later(operator, 700)
    await stage.patch("pods", "demo-gpu-worker-0", {"metadata": {"labels": {"look": "once-more"}}})
    await stage.becomes(lambda: stage.names(pool="gpu"), [], "its GPU is given back")
    assert await stage.names(pool="cpu") == ["demo-cpu-worker-0"]

    async def forced() -> str:
        return str((await stage.status())["pools"][1]["forced"])

    await eventually(forced, lambda words: "idle.frozenFor is over" in words, "the status says so")

    async def reasons() -> set[str]:
        return {event["reason"] for event in await stage.list("events", "events.k8s.io/v1")}

    await eventually(reasons, lambda found: "DrainForced" in found, "an event says so")


async def test_an_older_preload_freezes_nothing_and_the_status_says_what_it_lacks(
    stage: Stage, operator: Operator
) -> None:
    del operator
    await stage.apply(a_pool(replicas=1), gpu_pool(fallback={"to": ["cpu"]}))
    scheduler = await stage.scheduler()
    scheduler.features = {"demand": "", "fence": "", "retire": ""}
    await scheduler.want(1, GPU=1)
    await stage.shows("SchedulerReady", "the scheduler's preload is older than fallback")
    await stage.becomes(lambda: stage.names(pool="gpu"), ["demo-gpu-worker-0"])
    assert "offers" not in scheduler.desired


async def _size_reason(stage: Stage) -> str:
    return str((await stage.status()).get("pools", [{}, {}])[1].get("reason", ""))
