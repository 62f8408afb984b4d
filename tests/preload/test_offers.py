"""A lent offer: tasks of another pool run on workers that do not offer what they want, until it is taken back."""

import asyncio
import subprocess
import sys
from types import SimpleNamespace

import pytest
from distributed import Event, get_worker

from gpudask import has_gpu
from gpudask.preload.drains.gpu_results import examine
from gpudask.preload.offers import begin_waiting, set_offer
from gpudask.preload.workers import run_on_worker

from .cluster import GPU, until


def where(i=0):
    return get_worker().name, has_gpu()


def hold(i, name):
    Event(name).wait()
    return get_worker().name


async def offer(cluster, offers):
    return await cluster.post(
        {
            "protocol": 1,
            "version": f"offers-{next(cluster.versions)}",
            "pools": {name: {"accepts": accepts} for name, accepts in cluster.pools.items()},
            "retiring": [],
            "offers": offers,
        }
    )


async def test_waiting_tasks_run_where_the_offer_is_lent_and_know_that_it_is_no_gpu(start):
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    futures = cluster.client.map(where, range(3), resources=GPU, pure=False)
    await until(lambda: len(cluster.scheduler.unrunnable) == 3)
    await offer(cluster, {"cpu": GPU})
    assert await cluster.client.gather(futures) == [(cpu.name, False)] * 3
    assert (await cluster.demand())["offers"] == {"cpu": {"GPU": 1.0}}


async def test_a_worker_that_joins_gets_what_its_pool_offers_by_now(start):
    cluster = await start()
    await offer(cluster, {"cpu": GPU})
    future = cluster.client.submit(where, resources=GPU)
    cpu = await cluster.add("cpu-0")
    assert await future == (cpu.name, False)


async def test_taken_back_what_has_begun_ends_there_and_the_rest_goes_to_the_pool(start):
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    await offer(cluster, {"cpu": GPU})
    begun = cluster.client.submit(hold, 0, "go", resources=GPU, pure=False)
    await until(lambda: cpu.state.executing_count == 1)
    queued = cluster.client.map(where, range(10), resources=GPU, pure=False)
    await until(lambda: len(cluster.state(cpu).processing) == 11)
    gpu = await cluster.add("gpu-0")
    await offer(cluster, {})
    assert await cluster.client.gather(queued) == [(gpu.name, True)] * 10
    assert not begun.done()
    await Event("go", client=cluster.client).set()
    assert await begun == cpu.name
    assert not cluster.state(cpu).resources["GPU"]
    cluster.scheduler.validate_state()


async def test_what_has_begun_on_a_lent_offer_is_told_apart_from_what_only_waits_there(start):
    cluster = await start()
    cpu = await cluster.add("cpu-0", nthreads=4)
    await offer(cluster, {"cpu": {"GPU": 2}})
    plain = cluster.client.submit(hold, 0, "go", pure=False)
    futures = cluster.client.map(hold, range(5), name="go", resources=GPU, pure=False)
    await until(lambda: cpu.state.executing_count == 3 and len(cluster.state(cpu).processing) == 6)
    entry = await cluster.entry(GPU=1.0)
    assert (entry["processing"], entry["lent"]) == (5, 2)
    await offer(cluster, {})
    await until(lambda: len(cluster.state(cpu).processing) == 3)
    entry = await cluster.entry(GPU=1.0)
    assert (entry["processing"], entry["unrunnable"], entry["lent"]) == (2, 3, 2)
    gpu = await cluster.add("gpu-0")
    await until(lambda: gpu.state.executing_count == 1)
    entry = await cluster.entry(GPU=1.0)
    assert (entry["processing"], entry["lent"]) == (5, 2)
    await Event("go", client=cluster.client).set()
    assert await cluster.client.gather(futures) == [cpu.name] * 2 + [gpu.name] * 3
    await plain


async def test_an_offer_that_ends_and_begins_again_at_once_stands(start):
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    for offers in ({"cpu": GPU}, {}, {"cpu": GPU}, {}, {"cpu": GPU}):
        await offer(cluster, offers)
    assert await cluster.client.submit(where, resources=GPU) == (cpu.name, False)
    await offer(cluster, {})
    await until(lambda: cluster.state(cpu).resources["GPU"] == 0)
    future = cluster.client.submit(where, resources=GPU, pure=False)
    await until(lambda: len(cluster.scheduler.unrunnable) == 1)
    gpu = await cluster.add("gpu-0")
    assert await future == (gpu.name, True)


async def test_a_task_that_asks_for_none_of_it_runs_though_an_answer_was_lost(start, monkeypatch):
    """It waited for ever: its worker has the resource from then on, none of it, and nobody looked again."""
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    future = cluster.client.submit(where, resources={"GPU": 0}, workers=[cpu.address])
    await until(lambda: len(cluster.scheduler.unrunnable) == 1)
    offers = cluster.preload.offers
    do = offers._run

    async def without_the_first_answer(*args, **kwargs):
        await do(*args, **kwargs)
        monkeypatch.setattr(offers, "_run", do)
        offers.lend({})

    monkeypatch.setattr(offers, "_run", without_the_first_answer)
    offers.lend({"cpu": GPU})
    assert await asyncio.wait_for(future, 60) == (cpu.name, False)
    assert cluster.state(cpu).resources == {"GPU": 0}


async def test_a_workers_own_offer_is_not_taken_from_it(start):
    cluster = await start()
    cpu = await cluster.add("cpu-0", resources={"GPU": 2})
    other = await cluster.add("cpu-1")
    await offer(cluster, {"cpu": GPU})
    await until(lambda: cluster.state(other).resources.get("GPU") == 1)
    await offer(cluster, {})
    await until(lambda: cluster.state(other).resources["GPU"] == 0)
    assert cluster.state(cpu).resources["GPU"] == 2
    assert (await cluster.client.submit(where, resources={"GPU": 2}))[1]


async def test_a_worker_that_dies_meanwhile_leaves_nothing_behind(start):
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    posted = asyncio.create_task(offer(cluster, {"cpu": GPU}))
    await cpu.close()
    await posted
    await until(lambda: not cluster.preload.offers._changes)
    assert cluster.preload.offers._loans == {}


async def test_a_task_that_waits_on_the_worker_begins_when_what_it_asks_for_is_lent_again(start):
    """Dask's worker looks at what waits when a task comes or ends, and at no other time."""
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    await offer(cluster, {"cpu": GPU})
    await until(lambda: cluster.state(cpu).resources.get("GPU"))
    recall = cluster.preload.retirement.recall
    recall.step = lambda _taking: False  # it is lent again before anything was recalled
    held = cluster.client.submit(hold, 0, "go", resources=GPU, pure=False)
    await until(lambda: cpu.state.executing_count == 1)
    waiting = cluster.client.submit(where, resources=GPU, pure=False)
    await until(lambda: len(cluster.state(cpu).processing) == 2)
    await offer(cluster, {})
    await until(lambda: not cluster.state(cpu).resources["GPU"])
    await Event("go", client=cluster.client).set()
    await held
    await offer(cluster, {"cpu": GPU})
    assert await asyncio.wait_for(waiting, 60) == (cpu.name, False)


@pytest.mark.parametrize("function", [set_offer, begin_waiting, examine])
def test_what_runs_on_a_worker_needs_nothing_of_ours_there(function):
    sent = []

    async def broadcast(msg, workers, on_error):
        sent.append(msg)
        return {"tcp://worker": "no answer"}

    scheduler, worker = SimpleNamespace(broadcast=broadcast), SimpleNamespace(address="tcp://worker")
    assert asyncio.run(run_on_worker(scheduler, worker, function, key=1)) == "no answer"
    code = "import sys, pickle; sys.modules['gpudask'] = None; print(pickle.load(sys.stdin.buffer).__name__)"
    done = subprocess.run([sys.executable, "-c", code], input=sent[0]["function"], capture_output=True, check=True)
    assert done.stdout.decode().strip() == function.__name__


@pytest.mark.parametrize(
    ("offers", "named"),
    [([], "offers"), ({"cpu": 1}, "offers.cpu"), ({"cpu": {"GPU": 0}}, "offers.cpu.GPU")],
)
async def test_a_wrong_word_is_refused_with_the_field(start, offers, named):
    cluster = await start()
    body = {"protocol": 1, "version": "x", "pools": {}, "retiring": [], "offers": offers}
    import json

    answer = await cluster.post(json.dumps(body).encode(), status=400)
    assert answer["error"].startswith(f"{named}: ")
