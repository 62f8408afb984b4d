"""Graphs that the scheduler cannot read: who is asked, in which order, what is demanded meanwhile, and what is kept."""

import asyncio
import copy
import sys

import dask
import pytest
from distributed import CancelledError, Client, Variable, fire_and_forget, span, wait

from .cluster import GPU, until
from .separate import USER_MODULES


@pytest.fixture
def cannot(monkeypatch):
    monkeypatch.syspath_prepend(USER_MODULES)
    import scheduler_cannot

    scheduler_cannot.gate.set()
    yield scheduler_cannot
    scheduler_cannot.gate.set()


def submit(cluster, cannot, number, **options):
    """Submit what the scheduler cannot read."""
    return cluster.client.submit(cannot.read, cannot.Value(number), **GPU_TASK | options)


GPU_TASK = {"resources": GPU}


async def is_wanted(cluster, n=1):
    entry = await cluster.entry(**GPU)
    return entry is not None and entry["unrunnable"] == n


async def waits(cluster, n=1):
    await until(lambda: cluster.preload.graphs.waiting == n, f"{n} graphs wait")


async def test_a_graph_that_nobody_can_read_is_demand_for_a_gpu_and_runs_when_a_worker_comes(start, cannot):
    cluster = await start()
    await cluster.add("cpu-0")
    future = submit(cluster, cannot, 5)
    await until(lambda: is_wanted(cluster))
    answer = await cluster.demand()
    assert (answer["tasks"], answer["idle_seconds"], len(cluster.scheduler.tasks)) == (1, 0.0, 0)
    assert (await cluster.entry(**GPU))["unknown"] == 1
    await cluster.add("gpu-0")
    assert await future == 5
    await until(lambda: cluster.preload.graphs.waiting == 0)
    assert (await cluster.demand())["demand"] == []
    cluster.scheduler.validate_state()


async def test_what_is_read_by_a_worker_is_processed_there_until_it_is_done(start, cannot):
    cluster = await start()
    await cluster.add("gpu-0")
    cannot.gate.clear()
    future = submit(cluster, cannot, 5)
    await until(lambda: _is_processed(cluster))
    cannot.gate.set()
    assert await future == 5


async def _is_processed(cluster):
    entry = await cluster.entry(**GPU)
    return entry is not None and (entry["unrunnable"], entry["processing"]) == (0, 1)


async def test_graphs_of_a_client_come_in_the_order_in_which_it_sent_them(start, cannot):
    cluster = await start()
    await cluster.add("cpu-0")
    first = submit(cluster, cannot, 5)
    second = cluster.client.submit(lambda x: x + 1, first)
    third = cluster.client.submit(lambda x: x + 1, second)
    del second
    await waits(cluster, 3)
    async with Client(cluster.scheduler.address, asynchronous=True) as other:
        assert await other.submit(sum, [1, 2]) == 3, "another client waits for none of it"
    await cluster.add("gpu-0")
    assert await third == 7
    assert await first == 5


async def test_what_is_released_or_cancelled_meanwhile_is_no_demand_any_more(start, cannot):
    cluster = await start()
    released, cancelled = submit(cluster, cannot, 5), submit(cluster, cannot, 6)
    kept = submit(cluster, cannot, 7)
    await waits(cluster, 3)
    await kept.cancel()
    await waits(cluster, 2)
    await cancelled.cancel()
    await waits(cluster, 1)
    del released
    await waits(cluster, 0)
    await until(lambda: _demands_nothing(cluster))
    assert not cluster.scheduler.tasks


async def _demands_nothing(cluster):
    return not (await cluster.demand())["demand"]


async def test_what_a_later_graph_depends_on_is_kept(start, cannot):
    cluster = await start()
    first = submit(cluster, cannot, 5)
    second = cluster.client.submit(lambda x: x + 1, first, resources=GPU)
    await waits(cluster, 2)
    del first
    await cluster.add("gpu-0")
    assert await second == 6


async def test_one_that_only_a_cancelled_graph_kept_from_its_turn_runs(start, cannot):
    cluster = await start()
    await cluster.add("cpu-0")
    never = submit(cluster, cannot, 5)
    plain = cluster.client.submit(sum, [1, 2])
    await waits(cluster, 2)
    await never.cancel()
    await cluster.add("gpu-0")
    assert await plain == 3
    assert never.cancelled()


async def test_a_client_that_goes_takes_its_graphs_along(start, cannot):
    cluster = await start()
    async with Client(cluster.scheduler.address, asynchronous=True) as other:
        future = other.submit(cannot.read, cannot.Value(1), resources=GPU)
        await waits(cluster)
    assert future
    await waits(cluster, 0)
    await until(lambda: _demands_nothing(cluster))


async def test_a_restart_forgets_them_and_the_client_hears_it(start, cannot):
    cluster = await start()
    await cluster.add("cpu-0")
    future = submit(cluster, cannot, 5)
    await waits(cluster)
    await cluster.scheduler.restart(stimulus_id="test", wait_for_workers=False, timeout=1)
    with pytest.raises(CancelledError):
        await future
    assert cluster.preload.graphs.waiting == 0


async def test_fire_and_forget_holds_what_is_not_known_yet(start, cannot):
    cluster = await start()
    future = submit(cluster, cannot, 5, key="kept")
    await waits(cluster)
    fire_and_forget(future)
    del future
    await cluster.add("gpu-0")
    await until(lambda: cluster.preload.graphs.waiting == 0)
    await until(lambda: not cluster.scheduler.tasks)
    assert cluster.scheduler.task_prefixes["kept"].state_counts["memory"] == 1


async def test_datasets_are_published_and_variables_set_once_they_are_known(start, cannot):
    cluster = await start()
    persisted = cluster.client.persist(dask.delayed(cannot.Value(5))(1), resources=GPU)
    await waits(cluster)
    future = submit(cluster, cannot, 6)
    both = asyncio.gather(
        cluster.client.publish_dataset(persisted, name="kept"), Variable("v", client=cluster.client).set(future)
    )
    await cluster.add("gpu-0")
    await both
    del persisted, future
    async with Client(cluster.scheduler.address, asynchronous=True) as other:
        assert await other.compute(await other.get_dataset("kept")) == 5
        assert await (await Variable("v", client=other).get()) == 6


async def test_annotations_priorities_and_restrictions_are_as_the_program_has_them(start, cannot):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    cannot.gate.clear()
    with dask.annotate(resources=GPU, priority=7, retries=3, workers=[gpu.address], allow_other_workers=True, own="x"):
        value = dask.delayed(cannot.Value(5), name="five")(1, dask_key_name="annotated")
    plain = dask.delayed(cannot.read)(value, dask_key_name="plain")
    future = cluster.client.compute(plain, optimize_graph=False, priority=2, resources=GPU)
    cannot.gate.set()
    await wait(future)
    ts = cluster.scheduler.tasks["plain"]
    assert (ts.priority[0], ts.resource_restrictions) == (-2, GPU)
    (before,) = ts.dependencies
    assert (before.key, before.priority[0], before.retries) == ("annotated", -7, 3)
    assert (before.worker_restrictions, before.loose_restrictions) == ({gpu.address}, True)
    assert before.annotations["own"] == "x"


async def test_tasks_run_again_when_their_worker_is_lost_and_are_retried(start, cannot):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    future = submit(cluster, cannot, 5)
    await wait(future)
    await gpu.close()
    await cluster.add("gpu-1")
    assert await future == 5


async def test_an_error_of_the_programs_own_reaches_it_with_the_workers_exception(start, cannot):
    cluster = await start()
    await cluster.add("gpu-0")
    with pytest.raises(RuntimeError, match="deserialization of the task graph") as caught:
        await cluster.client.submit(cannot.read, cannot.Broken(1), resources=GPU)
    assert "broken by its author" in str(caught.value.__cause__)
    assert await cluster.client.submit(sum, [1, 2], resources=GPU) == 3


async def test_a_graph_that_waits_too_long_ends_with_words_on_what_to_write(start, cannot):
    with dask.config.set({"gpudask.graphs.timeout": "0.2s"}):
        cluster = await start()
    with pytest.raises(TimeoutError, match=r"lacks a device.*offers GPU: 1.*gpu: \{\}"):
        await submit(cluster, cannot, 5)


async def test_a_reader_that_does_not_answer_holds_nobody_for_longer_than_that(start, cannot):
    with dask.config.set({"gpudask.graphs.timeout": "0.2s"}):
        cluster = await start()
    await cluster.add("gpu-0")
    cannot.gate.clear()
    with pytest.raises(TimeoutError, match="lacks a device"):
        await submit(cluster, cannot, 5)
    cannot.gate.set()
    assert await cluster.client.submit(sum, [1, 2], resources=GPU) == 3
    await until(lambda: _demands_nothing(cluster))


async def test_a_graph_that_is_too_large_ends_with_words_on_what_to_write(start, cannot):
    with dask.config.set({"gpudask.graphs.max-size": "10kB"}):
        cluster = await start()
    await cluster.add("gpu-0")
    with pytest.raises(ValueError, match="max-size"):
        await cluster.client.submit(cannot.read, cannot.Value(5), "x" * 20_000, resources=GPU)
    assert await submit(cluster, cannot, 5) == 5


async def test_what_many_tasks_share_is_kept_once(start, cannot):
    import numpy as np

    cluster = await start()
    await cluster.add("gpu-0")
    shared = np.zeros(1_000_000, dtype="u1")
    values = [dask.delayed(cannot.read, pure=False)(cannot.Value(i), shared) for i in range(20)]
    total = cluster.client.compute(dask.delayed(sum)(values), resources=GPU, optimize_graph=False)
    assert await total == sum(range(20))
    nbytes = sum({id(b): len(b) for ts in cluster.scheduler.tasks.values() for b in _buffers(ts)}.values())
    assert nbytes < 2_000_000


def _buffers(ts):
    return getattr(ts.run_spec, "buffers", ())


async def test_turned_off_all_is_as_distributed_has_it(start, cannot):
    with dask.config.set({"gpudask.graphs.lower": False}):
        cluster = await start()
    await cluster.add("gpu-0")
    assert "graphs" not in (await cluster.demand())["features"]
    assert await cluster.client.submit(sum, [1, 2], resources=GPU) == 3


async def test_a_bad_setting_switches_it_off_alone_and_says_so(start, cannot):
    with dask.config.set({"gpudask.graphs.timeout": "soon"}):
        cluster = await start()
    features = (await cluster.demand())["features"]
    assert "soon" in features.pop("graphs")
    assert not any(features.values())


async def test_what_it_needs_of_distributed_is_checked_at_the_start(start, monkeypatch):
    monkeypatch.delattr("distributed.shuffle._core.P2PBarrierTask")
    monkeypatch.delitem(sys.modules, "gpudask.preload.graphs.opaque", raising=False)
    monkeypatch.delattr("gpudask.preload.graphs.opaque", raising=False)
    cluster = await start()
    features = (await cluster.demand())["features"]
    assert "P2PBarrierTask" in features.pop("graphs")
    assert not any(features.values())
    await cluster.add("cpu-0")
    assert await cluster.client.submit(sum, [1, 2]) == 3


async def test_code_spans_and_what_clients_ask_for_again_are_as_ever(start, cannot):
    cluster = await start()
    await cluster.add("gpu-0")
    client = cluster.client
    await client.get_task_stream()  # begins it
    with dask.config.set({"distributed.diagnostics.computations.nframes": 1}), span("here"):
        future = submit(cluster, cannot, 5)
        assert await future == 5
    (computation,) = cluster.scheduler.computations
    assert computation.code
    assert ("here",) in cluster.scheduler.extensions["spans"].spans_search_by_name
    stream = await client.get_task_stream()
    assert [row["key"] for row in stream] == [future.key]
    spec = cluster.scheduler.handlers["get_runspec"](key=future.key)
    assert repr(spec.data) == f"OpaqueTask({future.key!r})"
    assert copy.copy(spec.data).key == future.key


async def test_a_task_that_fails_is_retried_and_its_error_is_its_own(start, cannot):
    cluster = await start()
    await cluster.add("gpu-0")
    future = cluster.client.submit(cannot.fail_twice, cannot.Value(5), resources=GPU)
    with pytest.raises(ZeroDivisionError):
        await future
    await future.retry()
    with pytest.raises(ZeroDivisionError):
        await future
    await future.retry()
    assert await future == 5


async def test_a_client_with_too_much_waiting_is_not_heard_until_there_is_room(start, cannot, monkeypatch):
    monkeypatch.setattr("gpudask.preload.graphs.intake.WAITING_MESSAGES", 2)
    cluster = await start()
    futures = [submit(cluster, cannot, number) for number in range(5)]
    await waits(cluster, 2)
    await cluster.add("gpu-0")
    assert await cluster.client.gather(futures) == [0, 1, 2, 3, 4]
    await waits(cluster, 0)


async def test_a_client_whose_graph_waits_is_heard(start, cannot):
    cluster = await start()
    future = submit(cluster, cannot, 5)
    await waits(cluster)
    seen = cluster.scheduler.clients[cluster.client.id].last_seen
    cluster.client._heartbeat()
    await until(lambda: cluster.scheduler.clients[cluster.client.id].last_seen > seen)
    assert not future.done()


@pytest.mark.parametrize("wanted", [None, ["pickle", "error"]], ids=["by itself", "as the client wants it"])
async def test_results_that_pass_through_the_scheduler_are_sent_by_way_of_the_host(start, wanted):
    """By itself UCX sends those of a device to the device of who asks, and a scheduler has none."""
    cluster = await start()
    worker = await cluster.add("gpu-0")
    sent, get_data = [], worker.handlers["get_data"]

    async def noting(comm, *, serializers=None, **options):
        sent.append(serializers)
        return await get_data(comm, serializers=serializers, **options)

    worker.handlers["get_data"] = noting
    future = cluster.client.submit(int, 5, **GPU_TASK)
    await wait(future)
    if wanted is None:
        assert await future == 5
    else:
        answer = await cluster.scheduler.handlers["gather"](keys=[future.key], serializers=wanted)
        assert answer["status"] == "OK"
    assert [list(each) for each in sent] == [wanted or ["dask", "pickle", "error"]]
