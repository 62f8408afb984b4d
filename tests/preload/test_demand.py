"""Demand is counted exactly, and edges wake the poll."""

import asyncio
import math
import random
from collections import Counter
from fractions import Fraction

import dask
import pytest
from distributed import Event, wait

from gpudask.preload import counts, demand, lookahead, requirements, workers
from gpudask.preload.counts import ACTIVE
from gpudask.preload.pools import Pools

from .cluster import GPU, WORKING, until


def inc(x):
    return x + 1


def total(*xs):
    return 0


def fail(x):
    raise ValueError(x)


def hold(name):
    Event(name).wait()
    return 0


def walk(scheduler):
    """The oracle: what a walk over all tasks counts."""
    found = Counter()
    for ts in scheduler.tasks.values():
        if ts.state in ACTIVE:
            state = {"queued": "unrunnable", "no-worker": "unrunnable"}.get(ts.state, ts.state)
            found[tuple(sorted((ts.resource_restrictions or {}).items())), state] += 1
    return found


def counted(preload):
    found = Counter()
    for entry in preload.answer()["demand"]:
        for state in ("waiting", "unrunnable", "processing"):
            if entry[state]:
                found[tuple(sorted(entry["resources"].items())), state] = entry[state]
    return found


def own_walk(cluster):
    scheduler = cluster.scheduler
    return {
        ws.address: sum(1 for ts in ws.processing if ts.resource_restrictions or "-cpu-" in ws.name)
        for ws in scheduler.workers.values()
    }


def assert_exact(cluster):
    assert counted(cluster.preload) == walk(cluster.scheduler)
    assert {row["address"]: row["own"] for row in cluster.preload.answer()["workers"]} == own_walk(cluster)


async def test_a_gpu_task_without_a_gpu_worker_is_unrunnable(start):
    cluster = await start()
    await cluster.add("cpu-0")
    future = cluster.client.submit(inc, 1, resources=GPU)
    await until(lambda: counted(cluster.preload))
    entry = await cluster.entry(GPU=1)
    assert {k: entry[k] for k in ("waiting", "unrunnable", "processing", "seconds", "unknown")} == {
        "waiting": 0, "unrunnable": 1, "processing": 0, "seconds": 0.0, "unknown": 1,
    }  # fmt: skip
    del future
    await until(lambda: not counted(cluster.preload))


async def test_plain_tasks_without_workers_are_unrunnable_whether_queued_or_not(start):
    cluster = await start()
    futures = [*cluster.client.map(inc, range(10)), cluster.client.submit(total, 1, 2)]
    await until(lambda: len(cluster.scheduler.tasks) == 11)
    assert {ts.state for ts in cluster.scheduler.tasks.values()} <= {"queued", "no-worker"}
    assert (await cluster.entry())["unrunnable"] == 11
    del futures


async def test_requirements_are_kept_apart(start):
    cluster = await start()
    many = [cluster.client.submit(inc, i, resources={"GPU": 1 + i % 2, "MEMORY": i % 3}, pure=False) for i in range(6)]
    await until(lambda: len(cluster.scheduler.unrunnable) == 6)
    assert len((await cluster.demand())["demand"]) == 6
    assert_exact(cluster)
    del many


async def test_tasks_whose_inputs_are_missing_wait(start):
    cluster = await start()
    x = cluster.client.submit(inc, 1, resources=GPU)
    y = cluster.client.submit(inc, x, resources=GPU)
    await until(lambda: len(cluster.scheduler.tasks) == 2)
    entry = await cluster.entry(GPU=1)
    assert (entry["waiting"], entry["unrunnable"]) == (1, 1)
    del y


async def test_since_grows_from_the_first_unrunnable_task_and_ends_with_the_last(start):
    cluster = await start()
    one = cluster.client.submit(inc, 1, resources=GPU)
    await until(lambda: cluster.scheduler.unrunnable)
    first = (await cluster.entry(GPU=1))["since_seconds"]
    two = cluster.client.submit(inc, 2, resources=GPU)
    await until(lambda: len(cluster.scheduler.unrunnable) == 2)
    second = (await cluster.entry(GPU=1))["since_seconds"]
    assert 0 <= first < second
    await cluster.add("gpu-0")
    await wait([one, two])
    held = cluster.client.submit(hold, "since", resources=GPU)
    await until(lambda: any(ts.state == "processing" for ts in cluster.scheduler.tasks.values()))
    assert (await cluster.entry(GPU=1))["since_seconds"] == 0
    await Event("since", client=cluster.client).set()
    await held


async def test_durations_become_known_by_prefix(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await cluster.client.gather(cluster.client.map(inc, range(5), resources=GPU))
    await until(lambda: not cluster.scheduler.tasks)  # else they are lost with the worker, and wait to run again
    await gpu.close()
    waiting = [*cluster.client.map(inc, range(100, 104), resources=GPU), cluster.client.submit(total, resources=GPU)]
    await until(lambda: len(cluster.scheduler.unrunnable) == 5)
    entry = await cluster.entry(GPU=1)
    assert entry["unknown"] == 1
    assert entry["seconds"] > 0
    del waiting


async def test_a_running_task_counts_at_least_its_age(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await Event("age", client=cluster.client).set()
    await cluster.client.submit(hold, "age", resources=GPU, pure=False)
    await Event("age", client=cluster.client).clear()
    future = cluster.client.submit(hold, "age", resources=GPU, pure=False)
    await until(lambda: cluster.state(gpu).processing)
    await until(lambda: cluster.state(gpu).executing)
    ts = next(iter(cluster.state(gpu).executing))
    cluster.state(gpu).executing = {ts: 100.0}  # the next heartbeat says otherwise: nobody waits in between
    (entry,) = cluster.preload.answer()["demand"]
    assert entry["seconds"] == pytest.approx(100.0)
    await Event("age", client=cluster.client).set()
    await future


async def test_tasks_from_before_the_preload_are_counted(start):
    cluster = await start()
    futures = [cluster.client.submit(inc, i, resources=GPU) for i in range(3)]
    await until(lambda: len(cluster.scheduler.unrunnable) == 3)
    later = type(cluster.preload)(cluster.scheduler)
    later.demand.start()
    assert counted(later) == walk(cluster.scheduler)
    del futures


async def test_counts_stay_exact_through_whatever_happens(start):
    cluster = await start()
    client, chance = cluster.client, random.Random(7)
    workers = [
        await cluster.add("cpu-0", nthreads=2),
        await cluster.add("gpu-0"),
        await cluster.add("cpu-1", nthreads=2),
    ]
    futures = []

    async def submit():
        kind = chance.choice([inc, fail, total])
        inputs = chance.sample(futures, min(len(futures), 3)) if kind is total else [chance.random()]
        resources = chance.choice([None, None, GPU, {"GPU": 2}])
        futures.append(client.submit(kind, *inputs, resources=resources, pure=False, retries=chance.choice([0, 2])))

    async def release():
        if futures:
            futures.pop(chance.randrange(len(futures)))

    async def cancel():
        if futures:
            await client.cancel([futures.pop()], force=True)

    async def replace_worker():
        worker = workers.pop(0)
        await worker.close()
        workers.append(await cluster.add(f"{chance.choice(['cpu', 'gpu'])}-{len(cluster.workers) + 10}"))

    for step in range(150):
        await chance.choices([submit, release, cancel, replace_worker], [20, 4, 2, 1])[0]()
        if step % 3 == 0:
            await asyncio.sleep(0)
        assert_exact(cluster)
    await asyncio.wait([asyncio.ensure_future(wait(f)) for f in futures], timeout=0.3)
    assert_exact(cluster)
    await client.restart(wait_for_workers=False)
    assert_exact(cluster)
    futures.clear()
    # A graph that was on its way when the restart came leaves tasks that the client has forgotten and the
    # scheduler keeps for it: they go when the client does.
    await client.close()
    await until(lambda: not cluster.scheduler.tasks)
    assert_exact(cluster)


async def test_counts_follow_stealing(start):
    cluster = await start(pools={"cpu": "any", "gpu": "annotated"})
    first = await cluster.add("gpu-0")
    futures = cluster.client.map(hold, ["steal"] * 6, resources=GPU, pure=False)
    await until(lambda: len(cluster.state(first).processing) == 6)
    second = await cluster.add("gpu-1")
    stealing = cluster.scheduler.extensions["stealing"]
    for ts in list(cluster.state(first).processing):
        stealing.move_task_request(ts, cluster.state(first), cluster.state(second))
    await until(lambda: len(cluster.state(second).processing) >= 2)
    assert_exact(cluster)
    await Event("steal", client=cluster.client).set()
    await cluster.client.gather(futures)
    assert_exact(cluster)


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"GPU": "1"}, requirements.NO_NUMBER),
        ({"GPU": None}, requirements.NO_NUMBER),
        ({"GPU": [1]}, requirements.NO_NUMBER),
        ({"GPU": {"a": 1}}, requirements.NO_NUMBER),
        ({"GPU": math.nan}, requirements.NO_NUMBER),
        ({"GPU": math.inf}, requirements.NO_NUMBER),
        ({"GPU": -1}, requirements.NO_NUMBER),
        ({"GPU": 10**400}, requirements.NO_NUMBER),
        ({"GPU": 1j}, requirements.NO_NUMBER),
        ({"GPU": 1, 1: 1}, requirements.NO_NAME),
        ({("GPU", 0): 1}, requirements.NO_NAME),
        ({None: 1}, requirements.NO_NAME),
        ({"G" * 10_000: 1}, requirements.TOO_LONG),
        ({f"R{i}": 1 for i in range(1000)}, requirements.TOO_MANY_NAMES),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_what_is_no_number_is_no_demand_and_is_told_while_all_others_count(start, resources, why):
    cluster = await start()
    good = cluster.client.submit(inc, 1, resources=GPU)
    bad = cluster.client.map(inc, range(2, 4), resources=resources)
    plain = cluster.client.submit(inc, 4)
    await until(lambda: len(cluster.scheduler.tasks) == 4)
    answer = await cluster.demand()
    assert {tuple(entry["resources"].items()): entry["unrunnable"] for entry in answer["demand"]} == {
        (("GPU", 1),): 1,
        (): 1,
    }
    [ignored] = answer["ignored"]
    assert (ignored["tasks"], ignored["why"]) == (2, why)
    assert len(ignored["resources"]) <= requirements.NAME_LENGTH
    assert answer["features"] == WORKING
    del bad
    await until(lambda: len(cluster.scheduler.tasks) == 2)
    assert (await cluster.demand())["ignored"] == []
    del good, plain


async def test_a_task_that_dask_itself_cannot_place_stops_nobody(start):
    """Where a worker offers the resource, distributed fails to compare the two, also when such a worker joins."""
    cluster = await start()
    bad = cluster.client.submit(inc, 1, resources={"GPU": "1"})
    await until(lambda: cluster.scheduler.unrunnable)
    gpu = await cluster.add("gpu-0")
    worse = cluster.client.submit(inc, 3, resources={"GPU": None})
    await until(lambda: len(cluster.scheduler.unrunnable) == 2)
    assert [ignored["tasks"] for ignored in (await cluster.demand())["ignored"]] == [2]
    assert await cluster.client.submit(inc, 2, resources=GPU) == 3
    assert (await cluster.row(gpu))["own"] == 0
    assert (await cluster.demand())["demand"] == []
    del bad, worse


async def test_numbers_of_any_kind_count(start):
    cluster = await start()
    futures = [cluster.client.submit(inc, i, resources={"GPU": n}) for i, n in enumerate((1, 1.0, True, Fraction(1)))]
    await until(lambda: len(cluster.scheduler.tasks) == 4)
    assert [(e["resources"], e["unrunnable"]) for e in (await cluster.demand())["demand"]] == [({"GPU": 1.0}, 4)]
    del futures


async def test_beyond_many_different_requirements_the_others_count_together_until_there_is_room(start, monkeypatch):
    monkeypatch.setattr(counts, "REQUIREMENTS", 10)
    monkeypatch.setattr(counts, "RECOUNT_BELOW", 8)
    cluster = await start()
    futures = [cluster.client.submit(inc, i, resources={"GPU": 1 + i}) for i in range(30)]
    await until(lambda: len(cluster.scheduler.tasks) == 30)
    answer = await cluster.demand()
    assert len(answer["demand"]) == 10
    assert [(ignored["tasks"], ignored["why"]) for ignored in answer["ignored"]] == [(20, requirements.TOO_MANY)]
    kept = {entry["resources"]["GPU"] for entry in answer["demand"]}
    gone = [i for i in range(30) if 1 + i in kept]
    for i in gone:
        futures[i] = None
    await until(lambda: len(cluster.scheduler.tasks) == 20)

    async def room_is_taken():
        return [ignored["tasks"] for ignored in (await cluster.demand())["ignored"]] == [11]  # they are a kind, too

    await until(room_is_taken)
    del futures


@pytest.fixture
def small_slices(monkeypatch):
    """Count ten tasks at one go, and leave a while for everything else."""
    monkeypatch.setattr(counts, "BATCH", 10)
    monkeypatch.setattr(demand, "BATCH", 10)
    monkeypatch.setattr(counts, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(counts.Counts.count, "__defaults__", (-1.0,))


async def test_a_large_graph_is_counted_slice_by_slice_and_exactly_in_the_end(start, small_slices):
    cluster = await start()
    await cluster.add("cpu-0")
    futures = cluster.client.map(inc, range(300), resources=GPU)
    await until(lambda: len(cluster.scheduler.unrunnable) == 300)
    slices = cluster.count(cluster.preload.demand._counts, "count")
    assert counted(cluster.preload)[(("GPU", 1.0),), "unrunnable"] < 300
    assert cluster.preload.answer()["idle_seconds"] == 0
    assert await cluster.entry() is None, "what is not counted yet is not taken for plain tasks"
    await until(lambda: counted(cluster.preload) == walk(cluster.scheduler))
    assert slices() > 20
    del futures
    await until(lambda: not cluster.scheduler.tasks and not counted(cluster.preload))
    await until(lambda: not cluster.preload.demand.is_behind)
    assert_exact(cluster)


async def test_what_nobody_asked_for_before_is_told_at_once_while_others_are_counted(start, small_slices, monkeypatch):
    monkeypatch.setattr(demand, "REST_SECONDS", 3600.0)
    cluster = await start()
    waits = asyncio.create_task(cluster.demand(seen=(await cluster.demand())["version"], wait=30))
    await until(lambda: cluster.preload.watch._waiters)
    with dask.annotate(resources={"MEMORY": 1}):
        many = [dask.delayed(inc)(i) for i in range(100)]
    with dask.annotate(resources=GPU):
        one = dask.delayed(inc)(1)
    with dask.annotate(resources={"MEMORY": 1}):
        more = [dask.delayed(inc)(i) for i in range(100)]
    futures = cluster.client.compute([*many, one, *more], optimize_graph=False)
    answer = await waits
    while not any(entry["resources"] == GPU for entry in answer["demand"]):
        answer = await cluster.demand(seen=answer["version"], wait=30)
    assert cluster.preload.demand.is_behind
    del futures


async def test_a_restart_leaves_nothing_that_was_not_counted_yet(start, small_slices):
    cluster = await start()
    futures = cluster.client.map(inc, range(300), resources=GPU)
    await until(lambda: len(cluster.scheduler.unrunnable) == 300)
    assert counted(cluster.preload)
    await cluster.client.restart(wait_for_workers=False)
    await until(lambda: not counted(cluster.preload) and not cluster.preload.demand.is_behind)
    assert_exact(cluster)
    del futures


async def test_a_worker_with_many_tasks_seems_busy_rather_than_idle(start, monkeypatch):
    monkeypatch.setattr(workers, "LOOKED_AT", 5)
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    futures = cluster.client.map(hold, ["many"] * 8, workers=[gpu.address], pure=False)
    await until(lambda: len(cluster.state(gpu).processing) == 8)
    assert (await cluster.row(gpu))["own"] == 3  # the plain ones that nobody looked at
    assert (await cluster.row(gpu))["idle_seconds"] == 0
    await Event("many", client=cluster.client).set()
    await cluster.client.gather(futures)


def test_means_of_vanished_prefixes_are_dropped_when_there_are_many(monkeypatch):
    monkeypatch.setattr(lookahead, "PREFIXES", 10)
    known = lookahead.Durations(Pools({}))
    for i in range(100):
        known.learn(f"prefix-{i}", "", [{"action": "compute", "start": 0.0, "stop": 1.0}])
        known.forget_vanished({f"prefix-{j}" for j in range(50, i + 1)})
    assert known.mean("prefix-0", restricted=False) is None
    assert known.mean("prefix-99", restricted=False) == 1.0


async def test_a_task_that_asks_for_none_of_a_resource_is_demand_and_runs_where_it_is_offered(start):
    cluster = await start()
    await cluster.add("cpu-0")
    future = cluster.client.submit(sum, [1, 2], resources={"GPU": 0})
    await until(lambda: cluster.scheduler.tasks and cluster.scheduler.tasks[future.key].state == "no-worker")
    assert (await cluster.entry(GPU=0))["unrunnable"] == 1
    worker = await cluster.add("gpu-0")
    assert await future == 3
    assert set(await cluster.client.who_has([future]))
    assert cluster.state(worker) in cluster.scheduler.tasks[future.key].who_has
