"""In how long the first waiting GPU task can run."""

import pytest
from distributed import Event

from .cluster import GPU, until

HOUR = 3600.0


def first(name):
    Event(name).wait()
    return 0


def second(x):
    return x


def heavy(x, i):
    return i


def about(hours):
    """So many hours, less what they count down while a slow machine gets there."""
    return pytest.approx(hours * HOUR, abs=HOUR / 10)


def know(cluster, **seconds):
    """Let the scheduler know how long tasks of a prefix take on CPU workers."""
    for prefix, mean in seconds.items():
        cluster.preload.demand._durations.learn(prefix, "cpu", [{"action": "compute", "start": 0.0, "stop": mean}])


async def phase(cluster, firsts):
    """Submit a CPU phase with a barrier, and three GPU tasks behind it."""
    inputs = [cluster.client.submit(first, "ahead", key=f"first-{i}") for i in range(firsts)]
    barrier = cluster.client.submit(second, inputs, key="second-0")
    keys = [f"heavy-{i}" for i in range(3)]  # in one message: an estimate in between would stand for a second
    futures = cluster.client.map(heavy, [barrier] * 3, range(3), key=keys, resources=GPU)
    await until(lambda: len(cluster.scheduler.tasks) == firsts + 4)
    return inputs, barrier, futures


async def test_the_estimate_is_the_work_left_over_the_threads_that_serve_it(start):
    cluster = await start()
    await cluster.add("cpu-0", nthreads=2)
    know(cluster, first=10 * HOUR, second=4 * HOUR)
    held = await phase(cluster, firsts=8)
    entry = await cluster.entry(GPU=1)
    assert entry["next_seconds"] == about((8 * 10 + 4) / 2)
    assert entry["next_tasks"] == 3
    await Event("ahead", client=cluster.client).set()
    del held


async def test_the_estimate_is_the_longest_chain_where_threads_abound(start):
    cluster = await start()
    await cluster.add("cpu-0", nthreads=20)
    know(cluster, first=10 * HOUR, second=4 * HOUR)
    held = await phase(cluster, firsts=8)
    assert (await cluster.entry(GPU=1))["next_seconds"] == about(14), "and not the work over the threads, 4.2"
    await Event("ahead", client=cluster.client).set()
    del held


async def test_what_nobody_knows_is_null(start):
    cluster = await start()
    await cluster.add("cpu-0")
    know(cluster, second=10 * HOUR)
    held = await phase(cluster, firsts=2)
    entry = await cluster.entry(GPU=1)
    assert (entry["next_seconds"], entry["next_tasks"]) == (None, 0)
    await Event("ahead", client=cluster.client).set()
    del held


@pytest.mark.parametrize("budget", [5_000, 20])
async def test_a_later_step_that_never_ran_is_taken_to_be_short(start, monkeypatch, budget):
    monkeypatch.setattr("gpudask.preload.lookahead.BUDGET", budget)
    cluster = await start()
    await cluster.add("cpu-0", nthreads=2)
    know(cluster, first=10 * HOUR)
    held = await phase(cluster, firsts=30)
    entry = await cluster.entry(GPU=1)
    assert entry["next_seconds"] == about(30 * 10 / 2)
    assert entry["next_tasks"] == 3
    await Event("ahead", client=cluster.client).set()
    del held


async def test_a_task_over_its_time_is_taken_to_need_as_long_again(start):
    cluster = await start()
    await cluster.add("cpu-0")
    know(cluster, first=0.01, second=0.01)
    held = await phase(cluster, firsts=1)

    async def estimate_has_grown():
        return (await cluster.entry(GPU=1))["next_seconds"] > 1.5

    await until(estimate_has_grown)
    await Event("ahead", client=cluster.client).set()
    del held


async def test_too_many_ancestors_are_estimated_by_their_groups(start, monkeypatch):
    monkeypatch.setattr("gpudask.preload.lookahead.BUDGET", 20)
    cluster = await start()
    await cluster.add("cpu-0", nthreads=2)
    know(cluster, first=10 * HOUR, second=4 * HOUR)
    held = await phase(cluster, firsts=50)
    assert (await cluster.entry(GPU=1))["next_seconds"] == about((50 * 10 + 4) / 2)
    await Event("ahead", client=cluster.client).set()
    del held
