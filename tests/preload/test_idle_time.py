"""How long the scheduler has had nothing to do: too short at times, never too long."""

import asyncio
import time

from distributed import Event

from .cluster import until


def hold(name):
    Event(name).wait()
    return 0


async def test_a_task_that_runs_long_leaves_no_time_without_work(start):
    cluster = await start()
    await cluster.add("cpu-0")
    task = cluster.client.submit(hold, "long", pure=False)
    await until(lambda: cluster.preload.answer()["demand"])
    await asyncio.sleep(0.2)  # the time that must not count

    assert cluster.preload.answer()["idle_seconds"] == 0.0
    await Event("long", client=cluster.client).set()
    await task


async def test_what_began_and_ended_unseen_counts_as_ended_now(start):
    cluster = await start()
    await cluster.add("cpu-0")
    await until(lambda: cluster.preload.answer()["idle_seconds"] > 0.2)
    began = time.monotonic()
    await cluster.client.submit(sum, [1, 2], pure=False)

    idle_seconds = cluster.preload.answer()["idle_seconds"]  # the watch may have asked a moment before us
    assert idle_seconds <= time.monotonic() - began
    await until(lambda: cluster.preload.answer()["idle_seconds"] > 0.2)
