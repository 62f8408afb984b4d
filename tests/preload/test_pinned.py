"""Tasks that name workers keep the last of them that may run them, at a cost that does not grow with their number."""

import time

import pytest

from gpudask.preload.drains import blockers

from .cluster import GPU, until
from .test_retire import RUNS, hold, run, set_event


@pytest.fixture(autouse=True)
def _no_runs():
    RUNS.clear()


async def test_tasks_that_name_the_same_workers_are_judged_once_an_answer(start):
    """With 100 workers and 10,000 tasks that name all of them an answer took more than a second."""
    cluster = await start()
    workers = [await cluster.add(f"cpu-{i}") for i in range(20)]
    addresses = [worker.address for worker in workers]
    running = [cluster.client.submit(hold, i, "go", workers=[a], pure=False) for i, a in enumerate(addresses)]
    await until(lambda: len(RUNS) == 20)
    await until(lambda: all(ws.executing for ws in cluster.scheduler.workers.values()), "all say what they began")
    named = cluster.client.map(run, range(200), workers=addresses, pure=False)
    await until(lambda: len(cluster.preload.pinned.kept) == 220)
    judged = cluster.count(cluster.scheduler, "valid_workers")
    rows = cluster.preload.workers.rows(time.monotonic())
    assert judged() <= 21
    assert {tuple(row["blockers"]) for row in rows} == {("running",)}

    asking = cluster.client.map(run, range(20), workers=addresses, resources=GPU, pure=False)
    await until(lambda: len(cluster.preload.pinned.kept) == 240)
    rows = cluster.preload.workers.rows(time.monotonic())
    assert {tuple(row["blockers"]) for row in rows} == {("running", "pinned")}, "nobody offers a GPU"
    del asking
    await until(lambda: len(cluster.preload.pinned.kept) == 220)
    rows = cluster.preload.workers.rows(time.monotonic())
    assert {tuple(row["blockers"]) for row in rows} == {("running",)}
    await set_event(cluster, "go")
    assert await cluster.client.gather(running) == list(range(20))
    assert await cluster.client.gather(named) == list(range(200))


async def test_of_very_many_that_a_worker_might_have_begun_one_counts_as_pinned(start, monkeypatch):
    """So that the cost of an answer is bounded."""
    monkeypatch.setattr(blockers, "LOOK_AT", 5)
    cluster = await start()
    one, other = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    both = [one.address, other.address]
    futures = [
        cluster.client.submit(hold, i, "go", workers=both, resources={"NONE": i}, pure=False) for i in range(1, 9)
    ]
    await until(lambda: len(cluster.preload.pinned.kept) == 8)
    judged = cluster.count(cluster.scheduler, "valid_workers")
    assert cluster.preload.pinned.only_on(cluster.state(one), {cluster.state(one)}) is not None
    assert judged() <= 5
    del futures
