"""Plain tasks stay off the pools that accept annotated tasks only, by every way in which distributed picks a worker."""

import dask
import pytest
from distributed import Event, wait

from .cluster import GPU, until


def inc(x):
    return x + 1


def hold(name):
    Event(name).wait()


def total(*xs):
    return len(xs)


class Counter:
    n = 0

    def add(self):
        self.n += 1
        return self.n


def record(cluster):
    """Record where each plain task is put, at the moment when it is."""
    from distributed.diagnostics.plugin import SchedulerPlugin

    class Recorder(SchedulerPlugin):
        name = "recorder"
        plain, restricted = [], []

        def transition(self, key, start, finish, *args, **kwargs):
            ts = cluster.scheduler.tasks[key]
            if finish == "processing" and ts.processing_on is not None:
                pool = ts.processing_on.name.split("-")[1]
                (self.restricted if ts.resource_restrictions else self.plain).append((key, pool))

    recorder = Recorder()
    cluster.scheduler.add_plugin(recorder)
    return recorder


def pools(placed):
    return {pool for _, pool in placed}


@pytest.mark.parametrize("saturation", [1.1, float("inf")])
@pytest.mark.parametrize("n", [3, 40])
async def test_a_mixed_pipeline_runs_plain_steps_on_cpu_workers_only(start, n, saturation):
    with dask.config.set({"distributed.scheduler.worker-saturation": saturation}):
        cluster = await start()
    await cluster.add("gpu-0")
    await cluster.add("cpu-0", nthreads=2)
    await cluster.add("cpu-1", nthreads=2)
    recorder = record(cluster)
    loaded = cluster.client.map(inc, range(n), pure=False)
    heavy = cluster.client.map(inc, loaded, resources=GPU, pure=False)
    summary = cluster.client.map(inc, heavy, pure=False)
    assert sum(await cluster.client.gather(summary)) == sum(range(3, n + 3))
    single = [cluster.client.submit(total, i, pure=False) for i in range(10)]
    await wait(single)
    assert pools(recorder.plain) == {"cpu"}
    assert pools(recorder.restricted) == {"gpu"}
    cluster.scheduler.validate_state()


async def test_without_the_fence_distributed_would_use_the_gpu_worker(start):
    cluster = await start(pools={})
    await cluster.add("gpu-0")
    recorder = record(cluster)
    assert await cluster.client.submit(inc, 1) == 2
    assert pools(recorder.plain) == {"gpu"}


async def test_a_gpu_only_cluster_runs_plain_tasks(start):
    cluster = await start(pools={"gpu": "any"})
    await cluster.add("gpu-0")
    assert sum(await cluster.client.gather(cluster.client.map(inc, range(20)))) == 210


@pytest.mark.parametrize("saturation", [1.1, float("inf")])
async def test_plain_tasks_wait_for_an_accepting_worker_and_then_run(start, saturation):
    with dask.config.set({"distributed.scheduler.worker-saturation": saturation}):
        cluster = await start()
    await cluster.add("gpu-0")
    recorder = record(cluster)
    futures = [cluster.client.submit(total), *cluster.client.map(inc, range(20))]
    actor = cluster.client.submit(Counter, actor=True)
    await until(lambda: len(cluster.scheduler.tasks) == 22)
    assert {ts.state for ts in cluster.scheduler.tasks.values()} <= {"queued", "no-worker"}
    assert (await cluster.entry())["unrunnable"] == 22
    del actor
    await until(lambda: len(cluster.scheduler.tasks) == 21)
    await cluster.add("cpu-0")
    await cluster.client.gather(futures)
    assert pools(recorder.plain) == {"cpu"}


async def test_plain_tasks_run_again_when_their_only_cpu_worker_was_replaced(start):
    cluster = await start()
    await cluster.add("gpu-0")
    cpu = await cluster.add("cpu-0")
    recorder = record(cluster)
    futures = cluster.client.map(inc, range(5))
    await wait(futures)
    await cpu.close()
    await until(lambda: any(ts.state in ("queued", "no-worker") for ts in cluster.scheduler.tasks.values()))
    await cluster.add("cpu-1")
    await cluster.client.gather(futures)
    assert pools(recorder.plain) == {"cpu"}


async def test_when_a_pool_starts_to_accept_plain_tasks_those_that_wait_run_at_once(start):
    cluster = await start()
    await cluster.add("gpu-0")
    futures = [cluster.client.submit(total), *cluster.client.map(inc, range(20))]
    await until(lambda: len(cluster.scheduler.tasks) == 21)
    await cluster.desire(pools={"cpu": "any", "gpu": "any"})
    await cluster.client.gather(futures)


async def test_when_a_pool_stops_to_accept_plain_tasks_no_more_go_there(start):
    cluster = await start(pools={"gpu": "any"})
    await cluster.add("gpu-0")
    await cluster.client.submit(inc, 1)
    await cluster.desire(pools={"gpu": "annotated"})
    future = cluster.client.submit(inc, 2)
    await until(lambda: future.key in cluster.scheduler.tasks)
    assert cluster.scheduler.tasks[future.key].state in ("queued", "no-worker")


async def test_a_fenced_worker_that_the_user_names_is_honoured(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await cluster.add("cpu-0")
    recorder = record(cluster)
    assert await cluster.client.submit(inc, 1, workers=[gpu.address]) == 2
    assert pools(recorder.plain) == {"gpu"}


async def test_loose_restrictions_fall_back_to_accepting_workers_only(start):
    cluster = await start()
    await cluster.add("gpu-0")
    recorder = record(cluster)
    future = cluster.client.submit(inc, 1, workers=["tcp://127.0.0.1:9"], allow_other_workers=True)
    await until(lambda: cluster.scheduler.unrunnable)
    await cluster.add("cpu-0")
    assert await future == 2
    assert pools(recorder.plain) == {"cpu"}


async def test_actors_without_resources_are_plain_and_with_resources_are_not(start):
    cluster = await start()
    await cluster.add("gpu-0")
    await cluster.add("cpu-0")
    recorder = record(cluster)
    plain = await cluster.client.submit(Counter, actor=True)
    annotated = await cluster.client.submit(Counter, actor=True, resources=GPU, pure=False)
    assert (await plain.add(), await annotated.add()) == (1, 1)
    assert (pools(recorder.plain), pools(recorder.restricted)) == ({"cpu"}, {"gpu"})


async def test_stealing_does_not_bring_plain_tasks_over(start):
    with dask.config.set({"distributed.scheduler.worker-saturation": float("inf")}):
        cluster = await start()
    cpu = await cluster.add("cpu-0")
    futures = cluster.client.map(hold, ["fence"] * 12, pure=False)
    await until(lambda: len(cluster.state(cpu).processing) == 12)
    gpu = await cluster.add("gpu-0")
    stealing = cluster.scheduler.extensions["stealing"]
    for _ in range(5):
        stealing.balance()
    assert not cluster.state(gpu).processing
    assert not stealing.in_flight
    await Event("fence", client=cluster.client).set()
    await wait(futures)


async def test_with_many_workers_plain_tasks_are_spread(start):
    cluster = await start()
    await cluster.add("gpu-0")
    for i in range(22):
        await cluster.add(f"cpu-{i}")
    recorder = record(cluster)
    futures = [cluster.client.submit(hold, "many", pure=False) for _ in range(22)]
    await until(lambda: len(recorder.plain) == 22)
    assert pools(recorder.plain) == {"cpu"}
    assert max(len(ws.processing) for ws in cluster.scheduler.workers.values()) <= 3
    await Event("many", client=cluster.client).set()
    await wait(futures)


async def test_a_shuffle_of_plain_tasks_pins_its_output_to_accepting_workers(start):
    import dask.dataframe as dd
    import pandas as pd

    cluster = await start()
    for name in ("gpu-0", "cpu-0", "cpu-1"):
        await cluster.add(name)
    recorder = record(cluster)
    frame = dd.from_pandas(pd.DataFrame({"a": range(200), "b": range(200)}), npartitions=10)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        result = await cluster.client.compute(frame.shuffle("a").b.sum())
    assert result == sum(range(200))
    assert any("p2p" in str(key) or "shuffle" in str(key) for key, _ in recorder.plain)
    assert pools(recorder.plain) == {"cpu"}
