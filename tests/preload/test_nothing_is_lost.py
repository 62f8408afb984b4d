"""Orders of events in which tasks or data were lost once, or a pool would never have gone back to zero.

Each test says which of them it is. They are all met by ordinary programs and ordinary autoscaling.
"""

import asyncio
import os
import threading
import time
from types import SimpleNamespace

import dask
import pytest
from distributed import wait
from distributed import scheduler as distributed_scheduler
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from gpudask.preload.drains import recall, result_evacuation
from gpudask.preload.drains.blockers import is_barrier

from .cluster import GPU, pod_name, until
from .test_termination import leave
from .test_offers import offer
from .test_retire import RUNS, hold, image_workers, run, runs_of, set_event

OTHERS_TOO = {"allow_other_workers": True}


@pytest.fixture(autouse=True)
def _no_runs():
    RUNS.clear()


# ---- drains ----


@pytest.mark.parametrize("milliseconds", range(6))
async def test_tasks_that_are_given_back_after_a_drain_was_undone_run(start, milliseconds):
    """The worker had released them, but nobody waited for its answers any more."""
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    futures = [cluster.client.submit(hold, i, "undone", resources=GPU, pure=False) for i in range(21)]
    await until(lambda: RUNS and len(cluster.state(gpu).processing) == 21)
    await cluster.desire("gpu-0")
    await asyncio.sleep(milliseconds / 1000)
    await cluster.desire()
    await set_event(cluster, "undone")
    assert await asyncio.wait_for(cluster.client.gather(futures), 60) == list(range(21))
    assert set(runs_of().values()) == {1}


async def test_tasks_that_are_given_back_long_after_a_drain_was_undone_run(start, tmp_path):
    """The same while the worker's event loop is held, by a task that does not let go of the GIL."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def hold_the_gil(until_written):
        import ctypes

        if until_written:
            opened = ctypes.PyDLL(None).open(until_written.encode(), 0)  # which waits for a writer
            ctypes.PyDLL(None).close(opened)
        return until_written

    cluster = await start()
    async with image_workers(cluster, "gpu-0") as (gpu,):
        waits = [str(pipe), *[""] * 20]
        futures = [cluster.client.submit(hold_the_gil, w, resources=GPU, priority=len(w), pure=False) for w in waits]
        await until(lambda: len(gpu.processing) == 21)
        await cluster.desire("gpu-0")
        await cluster.desire()
        writer = os.open(pipe, os.O_RDWR)  # which waits for nobody
        assert await asyncio.wait_for(cluster.client.gather(futures), 60) == waits
        os.close(writer)


@pytest.mark.parametrize("asked", [GPU, None], ids=["gpu", "plain"])
async def test_a_worker_stays_open_for_queued_tasks_that_only_it_may_run_and_gets_no_others(start, asked):
    """They were recalled, and `no-worker` for ever; the worker was told to be drained over them."""
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    running = cluster.client.submit(hold, 0, "first", resources=GPU, pure=False)
    await until(lambda: RUNS)
    first = cluster.client.submit(run, 1, workers=[gpu.address], resources=asked, pure=False)
    last = cluster.client.submit(lambda _, i: run(i), first, 2, workers=[gpu.address], resources=asked, pure=False)
    anybody = cluster.client.submit(run, 3, resources=GPU, pure=False)
    await until(lambda: len(cluster.scheduler.tasks) == 4)
    assert "pinned" in (await cluster.row(gpu))["blockers"]
    refused = (await cluster.desire("gpu-0", if_idle=True))["refused"]
    assert [r["pod"] for r in refused] == [pod_name("gpu-0")]
    await cluster.desire("gpu-0")
    await until(lambda: cluster.scheduler.tasks[anybody.key].state == "no-worker", "what others may run is recalled")
    row = await cluster.row(gpu)
    assert (row["status"], row["retiring"], "pinned" in row["blockers"]) == ("running", "draining", True)
    await set_event(cluster, "first")
    assert await cluster.client.gather([running, first, last]) == [0, 1, 2]
    await cluster.add("gpu-1")
    assert await anybody == 3
    await cluster.until_retiring(gpu, "drained")
    assert set(runs_of().values()) == {1}


async def test_a_closed_worker_opens_again_for_a_task_that_only_it_may_run(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await cluster.desire("gpu-0")
    await cluster.until_retiring(gpu, "drained")
    assert await cluster.client.submit(run, 1, workers=[gpu.address], pure=False) == 1
    await cluster.add("gpu-1")
    await cluster.until_retiring(gpu, "drained")


async def test_a_task_is_asked_for_once_and_few_at_a_time(start):
    """100,000 queued tasks were 200,002 requests at once."""
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    futures = cluster.client.map(hold, range(600), name="many", resources=GPU, pure=False)
    await until(lambda: RUNS and len(cluster.state(gpu).processing) == 600)
    comm, requests, most = cluster.scheduler.stream_comms[gpu.address], [], 0
    send, asked = comm.send, cluster.preload.retirement.recall._requests

    def sent(*messages):
        nonlocal most
        requests.extend(m["key"] for m in messages if m["op"] == "steal-request")
        most = max(most, len(asked[gpu.address].unanswered))
        send(*messages)

    comm.send = sent
    await cluster.desire("gpu-0")
    await until(lambda: len(cluster.state(gpu).processing) == 1 and asked[gpu.address].begun)
    assert (len(requests), len(set(requests))) == (600, 600)
    assert most <= recall.REQUESTS
    await set_event(cluster, "many")
    await cluster.add("gpu-1", nthreads=8, resources={"GPU": 8})
    await cluster.client.gather(futures)
    assert set(runs_of().values()) == {1}


async def test_answers_are_acted_on_in_slices_between_which_the_scheduler_goes_on(start, monkeypatch):
    """The answers on 20,000 queued tasks were one block of its loop of a second."""
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    futures = cluster.client.map(hold, range(60), name="slices", resources=GPU, pure=False)
    await until(lambda: RUNS and len(cluster.state(gpu).processing) == 60)
    asking, now, slices = cluster.preload.retirement.recall, 0.0, []
    act, work = asking._process, asking._process_answers

    def act_slowly(*answer):
        nonlocal now
        now += recall.SLICE_SECONDS / 2.5
        slices[-1] += 1
        act(*answer)

    monkeypatch.setattr(recall, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(asking, "_process", act_slowly)
    monkeypatch.setattr(asking, "_process_answers", lambda: slices.append(0) or work())
    await cluster.desire("gpu-0")
    await until(lambda: len(cluster.state(gpu).processing) == 1 and sum(slices) >= 60)
    assert max(slices) <= 3
    await set_event(cluster, "slices")
    await cluster.add("gpu-1", nthreads=8, resources={"GPU": 8})
    await cluster.client.gather(futures)


@pytest.mark.parametrize("state", ["resumed", "cancelled"])
async def test_a_task_that_a_worker_cannot_decide_about_is_asked_for_again(start, state):
    """It was taken for begun, and stayed in the queue of a worker that runs nothing more."""
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    running = cluster.client.submit(hold, 0, "undecided", resources=GPU, pure=False)
    await until(lambda: RUNS)
    queued = cluster.client.submit(run, 1, resources=GPU, pure=False)
    await until(lambda: len(cluster.state(gpu).processing) == 2)
    comm = cluster.scheduler.stream_comms[gpu.address]
    send, held_back = comm.send, []

    def sent(*messages):
        for message in messages:
            if message["op"] == "steal-request" and message["key"] == queued.key and not held_back:
                held_back.append(message)  # the worker would answer so while it still fetches the task's own result
            else:
                send(message)

    comm.send = sent
    await cluster.desire("gpu-0")
    await until(lambda: held_back)
    answer = {"key": queued.key, "state": state, "stimulus_id": held_back[0]["stimulus_id"], "worker": gpu.address}
    cluster.scheduler.stream_handlers["steal-response"](**answer)
    await until(lambda: cluster.scheduler.tasks[queued.key].state == "no-worker")
    await set_event(cluster, "undecided")
    await cluster.add("gpu-1")
    assert await cluster.client.gather([running, queued]) == [0, 1]


async def test_drains_that_are_done_do_not_look_at_all_workers_each(start):
    """1,000 workers, of which 300 were drained and waited for their pods to be deleted, took 77 % of a core."""
    cluster = await start()
    done = [await cluster.add(f"gpu-{i}") for i in range(8)]
    await cluster.add("cpu-0")
    before = await _walks_each_look(cluster)
    await cluster.desire(*(f"gpu-{i}" for i in range(8)))
    for worker in done:
        await cluster.until_retiring(worker, "drained")
    assert await _walks_each_look(cluster) < before + 4, "each drain looked at every worker at every look"


async def _walks_each_look(cluster):
    """Return how often all workers are walked at a look of the preload, while tasks run elsewhere."""
    looks = cluster.count(cluster.preload, "_edges")
    cluster.preload.watch._edges_now = cluster.preload._edges
    walks = cluster.count(cluster.scheduler.workers, "values")
    while looks() < 5:
        await wait(cluster.client.map(time.sleep, [0.01] * 10, pure=False))
    return walks() / looks()


async def test_a_task_whose_binding_changes_is_kept_under_no_old_name(start):
    """A shuffle binds its outputs to workers and frees them again: what was kept by the old name was kept for ever."""
    cluster = await start()
    first, second = await cluster.add("gpu-0"), await cluster.add("gpu-1")
    pinned, states = cluster.preload.pinned, cluster.scheduler.set_restrictions
    futures = [
        cluster.client.submit(time.sleep, 0, workers=[first.address], resources={"NONE": 1}, pure=False) for _ in "ab"
    ]
    await until(lambda: len(pinned.kept) == 2)
    states({futures[0].key: {second.address}, futures[1].key: None})
    for future in futures:
        cluster.client.loop.add_callback(future.release)
    await until(lambda: not cluster.scheduler.tasks)
    assert (pinned.kept, pinned._by_address) == ({}, {})


# ---- shuffles ----


async def test_the_barrier_of_a_shuffle_is_not_taken_back(start):
    """Released, it ended its shuffle, of which the transfers counted as done: it found no active shuffle, and erred."""
    cluster = await start()
    barrier, result = await _shuffle_up_to_its_barrier(cluster)
    looks = cluster.count(cluster.preload.retirement, "_on_timer")
    await cluster.desire(barrier.pod)
    await until(lambda: looks() >= 2)
    assert (await cluster.row(barrier.worker))["blockers"] == ["running", "shuffle"]
    barrier.worker.status = Status.running
    assert await result == sum(range(200))
    assert barrier.sent == 1


async def test_a_shuffle_whose_barrier_was_given_back_begins_anew(start):
    """As an offer that ends takes it back, or a thief that closed meanwhile."""
    cluster = await start()
    barrier, result = await _shuffle_up_to_its_barrier(cluster)
    ws = cluster.state(barrier.worker)
    taking = cluster.preload.retirement.recall.select(ws, lambda _ts: True, lambda: None)
    cluster.preload.retirement.recall.step(taking)
    await until(lambda: not any(is_barrier(ts) for ts in ws.processing))
    cluster.preload.retirement.recall.stop(taking)
    barrier.worker.status = Status.running
    assert await asyncio.wait_for(result, 60) == sum(range(200))
    assert barrier.sent == 2


async def _shuffle_up_to_its_barrier(cluster):
    """Return who holds up the barrier, sent to a worker that takes no task now, and the future of the result."""
    import dask.dataframe as dd
    import pandas as pd

    barrier = _HeldBarrier(cluster.scheduler, {pod: await cluster.add(pod) for pod in ("cpu-0", "cpu-1")})
    cluster.scheduler.add_plugin(barrier, name="held-barrier")
    frame = dd.from_pandas(pd.DataFrame({"a": range(200), "b": range(200)}), npartitions=4)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        result = cluster.client.compute(frame.shuffle("a").b.sum())
    await until(lambda: barrier.worker is not None and barrier.worker.state.tasks.keys() & {barrier.key})
    return barrier, result


class _HeldBarrier(SchedulerPlugin):
    """Pauses the worker that the barrier of a shuffle is sent to, in that moment and the first time."""

    def __init__(self, scheduler, workers):
        self.scheduler, self.workers = scheduler, workers
        self.worker, self.pod, self.key, self.sent = None, "", "", 0

    def transition(self, key, start, finish, *_args, **_kwargs):
        ts = self.scheduler.tasks[key]
        if finish != "processing" or not is_barrier(ts):
            return
        self.sent, self.key = self.sent + 1, key
        if self.worker is None:
            self.pod = next(pod for pod, each in self.workers.items() if each.address == ts.processing_on.address)
            self.worker = self.workers[self.pod]
            self.worker.status = Status.paused


# ---- results ----


async def test_scattered_data_is_moved_where_results_are_let_go(start):
    """It was lost with the idle worker: no recipe brings it back."""
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    [data] = await cluster.client.scatter([[1, 2]], workers=[gpu.address])
    made = cluster.client.submit(len, data, resources=GPU, pure=False)
    assert await made == 2
    await cluster.desire("gpu-0", data="release")
    row = await cluster.until_retiring(gpu, "blocked")
    assert row["blockers"] == ["data"]
    assert row["detail"].startswith("1 results ("), "the data that was scattered, not what was made of it"
    cpu = await cluster.add("cpu-0")
    await cluster.until_retiring(gpu, "drained")
    assert cluster.scheduler.tasks[data.key].who_has >= {cluster.state(cpu)}
    await gpu.close()
    assert await data == [1, 2]
    await until(lambda: made.status == "error")


async def test_what_was_made_of_forgotten_data_is_moved_where_results_are_let_go(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    [data] = await cluster.client.scatter([[1, 2]], workers=[gpu.address])
    made = cluster.client.submit(len, data, resources=GPU, pure=False)
    assert await made == 2
    data.release()
    del data
    await until(lambda: len(cluster.state(gpu).has_what) == 1)
    await cluster.add("cpu-0")
    await cluster.desire("gpu-0", data="release")
    await cluster.until_retiring(gpu, "drained")
    await gpu.close()
    assert await made == 2


@pytest.mark.parametrize("direct", [False, True])
async def test_scattered_data_keeps_off_fenced_workers(start, direct):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    [alone] = await cluster.client.scatter([0], direct=direct)
    assert cluster.scheduler.tasks[alone.key].who_has == {cluster.state(gpu)}, "there is no other"
    cpu = await cluster.add("cpu-0")
    futures = await cluster.client.scatter([[i] for i in range(6)], direct=direct)
    assert {ws for f in futures for ws in cluster.scheduler.tasks[f.key].who_has} == {cluster.state(cpu)}
    [everywhere] = await cluster.client.scatter([{"x"}], broadcast=True)
    assert cluster.scheduler.tasks[everywhere.key].who_has == {cluster.state(cpu), cluster.state(gpu)}


async def test_a_worker_is_not_drained_while_data_is_on_its_way_there(start, monkeypatch):
    """The scheduler hears of scattered data once it is there: a pod deleted before that takes it along."""
    cluster = await start()
    leaving, staying = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    scatter_to_workers, may_go_on = distributed_scheduler.scatter_to_workers, asyncio.Event()

    async def scatter_slowly(*args, **kwargs):
        await may_go_on.wait()
        return await scatter_to_workers(*args, **kwargs)

    monkeypatch.setattr(distributed_scheduler, "scatter_to_workers", scatter_slowly)
    scattering = asyncio.ensure_future(cluster.client.scatter([[1]], workers=[leaving.address]))
    await until(lambda: cluster.preload.fence.scatters)
    await cluster.desire("cpu-0")
    drain = cluster.preload.retirement._drains[leaving.address]
    steps = cluster.count(drain, "step")
    await until(lambda: steps() >= 3)
    assert drain.state == "draining"
    may_go_on.set()
    [future] = await scattering
    await cluster.until_retiring(leaving, "drained")
    assert cluster.scheduler.tasks[future.key].who_has >= {cluster.state(staying)}


class SlowToPickle:
    """Any worker could hold it, but to find that out takes a while."""

    __module__ = "numpy.look_alike"

    def __reduce__(self):
        time.sleep(0.3)
        return dict, ()


def make_slow():
    return SlowToPickle()


async def test_results_that_take_longer_to_pickle_than_a_worker_may_take_for_an_answer_are_moved(start, monkeypatch):
    """All were asked about at once, and no answer in time was none at all: they held the last GPU pod for ever."""
    monkeypatch.setattr(result_evacuation, "EXAMINE_SECONDS", 1.0)
    cluster = await start()
    gpu, cpu = await cluster.add("gpu-0"), await cluster.add("cpu-0")
    futures = [cluster.client.submit(make_slow, resources=GPU, pure=False) for _ in range(6)]
    await wait(futures)
    await cluster.desire("gpu-0")
    await cluster.until_retiring(gpu, "drained")
    assert all(cluster.state(cpu) in cluster.scheduler.tasks[f.key].who_has for f in futures)


async def test_what_a_drained_worker_computes_when_it_is_opened_again_is_moved_before_it_counts_as_drained(
    start, monkeypatch
):
    """What the last look at all its results had shown was believed until the next one had ended."""
    monkeypatch.setattr(result_evacuation, "LOOK_AT", 10)
    cluster = await start()
    leaving, staying = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    data = await cluster.client.scatter(list(range(25)), workers=[leaving.address])
    await cluster.desire("cpu-0")
    await cluster.until_retiring(leaving, "drained")
    future = cluster.client.submit(run, 1, workers=[leaving.address], pure=False)
    assert await future == 1
    await cluster.until_retiring(leaving, "drained")
    assert cluster.state(staying) in cluster.scheduler.tasks[future.key].who_has
    assert await cluster.client.gather(data) == list(range(25))


async def test_results_are_moved_in_windows_and_all_of_them(start, monkeypatch):
    monkeypatch.setattr(result_evacuation, "WINDOW", 7)
    monkeypatch.setattr(result_evacuation, "LOOK_AT", 10)
    cluster = await start()
    leaving, staying = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    futures = await cluster.client.scatter([[i] for i in range(100)], workers=[leaving.address])
    asks = []
    ask = cluster.scheduler.request_acquire_replicas
    monkeypatch.setattr(
        cluster.scheduler, "request_acquire_replicas", lambda a, keys, **k: asks.append(len(keys)) or ask(a, keys, **k)
    )
    await cluster.desire("cpu-0")
    await cluster.until_retiring(leaving, "drained")
    assert max(asks) <= 7
    assert all(cluster.state(staying) in cluster.scheduler.tasks[f.key].who_has for f in futures)


# ---- lent offers ----


async def test_a_task_that_is_stolen_towards_an_offer_which_is_taken_back_meanwhile_runs(start):
    """The worker had it, and no longer what it asks for."""
    cluster = await start()
    giver, taker = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    await offer(cluster, {"cpu": GPU})
    await until(lambda: cluster.state(giver).resources.get("GPU") and cluster.state(taker).resources.get("GPU"))
    held = [
        cluster.client.submit(hold, i, "steal", resources=GPU, workers=[w.address])
        for i, w in enumerate((giver, taker))
    ]
    await until(lambda: len(RUNS) == 2)
    queued = cluster.client.submit(run, 2, resources=GPU, workers=[giver.address], **OTHERS_TOO)
    await until(lambda: len(cluster.state(giver).processing) == 2)
    answers, handlers = [], cluster.scheduler.stream_handlers
    answered = handlers["steal-response"]

    def hold_back(**answer):
        if answer["stimulus_id"].startswith(recall.PREFIX):
            answered(**answer)
        else:
            answers.append(answer)

    handlers["steal-response"] = hold_back
    ts = cluster.scheduler.tasks[queued.key]
    ts.worker_restrictions = None
    cluster.scheduler.extensions["stealing"].move_task_request(ts, cluster.state(giver), cluster.state(taker))
    await until(lambda: answers)
    await offer(cluster, {})
    await until(lambda: cluster.state(taker).resources["GPU"] == 0)
    await until(lambda: taker.address not in cluster.preload.offers._changes, "what it has by then is recalled")
    handlers["steal-response"] = answered
    for answer in answers:
        answered(**answer)
    await until(lambda: ts.state == "no-worker")
    await cluster.add("gpu-0")
    assert await queued == 2
    await set_event(cluster, "steal")
    await wait(held)


async def test_a_task_that_waits_behind_those_which_an_offer_kept_begins_when_they_are_recalled(start):
    """Dask's worker looks at the first that waits alone, and not again when that one is taken from it."""
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    await offer(cluster, {"cpu": GPU})
    await until(lambda: cluster.state(cpu).resources.get("GPU"))
    recall = cluster.preload.retirement.recall
    step, recall.step = recall.step, lambda _taking: False  # nothing is recalled before the thread is free
    running = cluster.client.submit(hold, 0, "behind", pure=False)
    await until(lambda: RUNS)
    first = cluster.client.submit(run, 1, resources=GPU, priority=1, pure=False)
    behind = cluster.client.submit(run, 2, resources={"GPU": 0}, workers=[cpu.address], pure=False)
    await until(lambda: len(cpu.state.constrained) == 2)
    await offer(cluster, {})
    await until(lambda: cluster.state(cpu).resources["GPU"] == 0)
    await set_event(cluster, "behind")
    assert await running == 0
    recall.step = step
    assert await asyncio.wait_for(behind, 60) == 2
    await until(lambda: cluster.scheduler.tasks[first.key].state == "no-worker")


async def test_an_offer_is_taken_back_although_the_answer_to_giving_it_was_lost(start, monkeypatch):
    """It looked like the worker's own, which stands."""
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    broadcast, lost = cluster.scheduler.broadcast, []

    async def lose_the_first(**message):
        answers = await broadcast(**message)
        if lost:
            return answers
        lost.append(answers)
        return {cpu.address: OSError("the connection broke")}

    monkeypatch.setattr(cluster.scheduler, "broadcast", lose_the_first)
    await offer(cluster, {"cpu": GPU})
    await until(lambda: lost)
    assert cluster.state(cpu).resources["GPU"] == 1
    await offer(cluster, {})
    await until(lambda: cluster.state(cpu).resources["GPU"] == 0)
    assert await cluster.client.submit(run, 1) == 1, "the worker is well"


async def test_a_worker_that_goes_in_the_middle_of_a_recall_leaves_nothing_behind(start):
    """Questions kept its tasks and itself for ever, and who waited for an answer was left waiting."""
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    await offer(cluster, {"cpu": GPU})
    futures = cluster.client.map(hold, range(5), name="go", resources=GPU, pure=False)
    await until(lambda: RUNS and len(cluster.state(cpu).processing) == 5)
    cluster.scheduler.stream_comms[cpu.address].send = lambda *_: None  # nothing reaches it any more
    await offer(cluster, {})
    await until(lambda: cluster.preload.retirement.recall._requests)
    [taking] = cluster.preload.retirement.recall._requests[cpu.address].selections
    heard = taking.progress.__self__  # the event that is set by an answer
    await until(lambda: heard._waiters)
    await cluster.scheduler.remove_worker(cpu.address, stimulus_id="test", close=False)
    await until(lambda: not cluster.preload.offers._changes)
    await until(lambda: not heard._waiters, "nobody waits for an answer any more")
    assert not cluster.preload.retirement.recall._requests
    assert not cluster.preload.offers._loans
    await set_event(cluster, "go")
    await cluster.add("gpu-0")
    await wait(futures)


# ---- who may run what ----


async def test_rebalancing_gives_a_worker_nothing_that_it_does_not_offer_not_even_none_of_it(start):
    """A task with `GPU: 0` closed the worker that it was moved to: it knows no such resource."""
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    futures = cluster.client.map(hold, range(40), name="none", resources={"GPU": 0}, pure=False)
    await until(lambda: RUNS and len(cluster.state(gpu).processing) == 40)
    cpus = [await cluster.add(f"cpu-{i}", resources={"MEMORY": 1}) for i in range(2)]
    loads = cluster.preload.rebalance._loads((("GPU", 0),))
    assert set(loads) == {cluster.state(gpu)}
    other = await cluster.add("gpu-1")
    await until(lambda: cluster.state(other).processing, "it goes to those that know it")
    await set_event(cluster, "none")
    await wait(futures)
    assert {name for _, name in RUNS} == {gpu.name, other.name}
    assert all(cluster.state(cpu) for cpu in cpus)


async def test_stealing_keeps_loose_plain_tasks_off_fenced_workers(start):
    """16 of 40 ended there."""
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    futures = [
        cluster.client.submit(hold, i, "loose", workers=[cpu.address], **OTHERS_TOO, pure=False) for i in range(40)
    ]
    await until(lambda: RUNS and len(cluster.state(cpu).processing) == 40)
    gpu = await cluster.add("gpu-0")
    _assert_nothing_is_stolen(cluster)
    await set_event(cluster, "loose")
    await wait(futures)
    assert gpu.name not in {name for _, name in RUNS}


def _assert_nothing_is_stolen(cluster):
    stealing = cluster.scheduler.extensions["stealing"]
    for _ in range(5):
        stealing.balance()
    assert not stealing.in_flight


async def test_a_loose_task_runs_on_the_first_worker_that_comes(start):
    """It waited for ever where nothing was fenced: the worker was none of those that it names."""
    cluster = await start()
    future = cluster.client.submit(run, 1, workers=["tcp://127.0.0.1:9"], **OTHERS_TOO)
    await until(lambda: cluster.scheduler.unrunnable)
    await cluster.add("cpu-0")
    assert await future == 1


async def test_a_loose_task_that_asks_for_a_gpu_waits_for_one(start):
    """Recalled from a worker that leaves it went to one without, and the one that leaves was closed for it."""
    cluster = await start()
    gpu, cpu = await cluster.add("gpu-0"), await cluster.add("cpu-0")
    running = cluster.client.submit(hold, 0, "loose", resources=GPU, pure=False)
    await until(lambda: RUNS)
    queued = cluster.client.submit(run, 1, resources=GPU, workers=[gpu.address], **OTHERS_TOO, pure=False)
    await until(lambda: len(cluster.state(gpu).processing) == 2)
    await cluster.desire("gpu-0")
    await until(lambda: cluster.scheduler.tasks[queued.key].state == "no-worker")
    await set_event(cluster, "loose")
    assert await running == 0
    await cluster.until_retiring(gpu, "drained")
    await cluster.add("gpu-1")
    assert await queued == 1
    assert cluster.state(cpu) is not None
    assert cluster.state(gpu) is not None


@pytest.mark.parametrize("gpus", [1, 0])
async def test_stealing_brings_no_loose_task_that_asks_for_a_gpu_to_a_worker_without(start, gpus):
    """So does distributed's own: the worker closes."""
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    futures = [
        cluster.client.submit(
            hold, i, "loose", resources={"GPU": gpus}, workers=[gpu.address], **OTHERS_TOO, pure=False
        )
        for i in range(10)
    ]
    await until(lambda: RUNS and len(cluster.state(gpu).processing) == 10)
    cpu = await cluster.add("cpu-0")
    _assert_nothing_is_stolen(cluster)
    await set_event(cluster, "loose")
    await wait(futures)
    assert cluster.state(cpu) is not None


async def test_a_group_goes_on_elsewhere_when_its_worker_is_fenced(start):
    """distributed remembers the worker of a group's last root task, and does not ask who may have the next."""
    import dask

    with dask.config.set({"distributed.scheduler.worker-saturation": float("inf")}):
        cluster = await start(pools={"cpu": "any", "gpu": "any"})
    gpu = await cluster.add("gpu-0")
    futures = cluster.client.map(hold, range(60), name="group", pure=False)
    await until(lambda: len(cluster.state(gpu).processing) == 60)
    group = cluster.scheduler.tasks[futures[0].key].group
    cpu = await cluster.add("cpu-0")
    await cluster.desire(pools={"cpu": "any", "gpu": "annotated"})
    group.last_worker, group.last_worker_tasks_left = cluster.state(gpu), 50
    ws = cluster.scheduler.decide_worker_rootish_queuing_disabled(cluster.scheduler.tasks[futures[0].key])
    assert ws is cluster.state(cpu)
    await set_event(cluster, "group")
    await wait(futures)


# ---- pods ----


async def test_a_pod_whose_container_starts_anew_is_open_although_the_one_before_said_that_it_ends(start):
    """The same name: it stayed closed, and the operator could not undo it."""
    cluster = await start()
    ending = await cluster.add("gpu-0")
    assert await leave(cluster, "gpu-0") == "it is drained"
    await ending.close()
    await until(lambda: not cluster.scheduler.workers)
    again = await cluster.add("gpu-0")
    assert await asyncio.wait_for(cluster.client.submit(run, 1, resources=GPU), 60) == 1
    row = await cluster.row(again)
    assert (row["status"], row["retiring"]) == ("running", "")
    assert not cluster.preload.termination._terminating


async def test_a_process_that_comes_back_in_a_pod_that_still_ends_is_closed(start):
    cluster = await start()
    first, second = await cluster.add("gpu-0-0"), await cluster.add("gpu-0-1")
    await cluster.add("gpu-1-0")
    future = cluster.client.submit(hold, 0, "go", workers=[second.address], resources=GPU, pure=False)
    await until(lambda: RUNS)
    asked = asyncio.create_task(leave(cluster, "gpu-0"))
    await until(lambda: cluster.preload.termination._terminating)
    await first.close()
    again = await cluster.add("gpu-0-0")
    await until(lambda: cluster.state(again).status == Status.closing_gracefully)
    await set_event(cluster, "go")
    assert await asked == "it is drained"
    assert await future == 0


# ---- idle clusters ----


async def test_a_cluster_is_not_idle_while_a_graph_is_taken_in(start, monkeypatch):
    """A large one takes a minute: the cluster would have been deleted with it."""
    materialize, may_go_on = distributed_scheduler._materialize_graph, threading.Event()

    def materialize_slowly(**graph):
        may_go_on.wait(60)
        return materialize(**graph)

    monkeypatch.setattr(distributed_scheduler, "_materialize_graph", materialize_slowly)
    cluster = await start()
    await cluster.add("cpu-0")
    await cluster.demand()
    future = cluster.client.submit(run, 1, pure=False)
    await until(lambda: cluster.scheduler._active_graph_updates)
    assert not cluster.scheduler.tasks
    assert (await cluster.demand())["idle_seconds"] == 0.0
    may_go_on.set()
    assert await future == 1
