"""Actors keep their workers, wherever they were moved before they began, and keep no worker on which they are not."""

import dask
import pytest
from distributed import Event, wait

from .cluster import GPU, until
from .test_retire import RUNS, hold, set_event


class Waiting:
    """An actor that takes as long to begin as an event is not set."""

    def __init__(self, name):
        Event(name).wait()

    def value(self):
        return 1


class Model:
    def value(self):
        return 1


def value_of(actor):
    return actor.value().result()


async def one_stolen(start):
    """Start two actors on one worker, of which another one steals one before it begins: all of these."""
    with dask.config.set({"distributed.scheduler.work-stealing-interval": "100ms"}):
        cluster = await start(validate=False)  # distributed's own checks find its mistake, too
    first = await cluster.add("gpu-0")
    actors = [cluster.client.submit(Waiting, "begin", actor=True, resources=GPU, pure=False) for _ in range(2)]
    await until(lambda: len(cluster.state(first).processing) == 2)
    second = await cluster.add("gpu-1")
    await until(lambda: len(cluster.state(second).processing) == 1, "one of them is stolen")
    await set_event(cluster, "begin")
    await wait(actors)
    return cluster, first, second, actors


@pytest.fixture(autouse=True)
def _no_runs():
    RUNS.clear()


async def test_an_actor_that_was_stolen_before_it_began_keeps_the_worker_where_it_lives(start):
    """distributed notes an actor where it was first sent, and stealing does not carry that over."""
    cluster, first, second, actors = await one_stolen(start)

    assert "actor" in (await cluster.row(first))["blockers"]
    assert "actor" in (await cluster.row(second))["blockers"]
    await cluster.desire("gpu-1", if_idle=True)
    row = await cluster.until_retiring(second, "blocked")
    assert row["blockers"] == ["actor"]
    assert "Waiting" in row["detail"]
    assert [await (await actor).value() for actor in actors] == [1, 1]

    del actors
    await cluster.until_retiring(second, "drained")


async def test_a_worker_from_which_an_actor_was_stolen_takes_it_not_along_when_it_goes(start):
    """distributed ends the actors that it noted there, and this one is on both: as itself, and as a reference."""
    cluster, first, second, actors = await one_stolen(start)
    tasks = {actor.key: cluster.scheduler.tasks[actor.key] for actor in actors}
    (stolen,) = [actor for actor in actors if cluster.state(second) in tasks[actor.key].who_has]
    proxy = await stolen
    assert await cluster.client.submit(value_of, proxy, workers=[first.address], pure=False) == 1
    await until(lambda: cluster.state(first) in tasks[stolen.key].who_has, "it has a reference")

    await first.close()
    await until(lambda: first.address not in cluster.scheduler.workers)
    assert await proxy.value() == 1


async def test_an_actor_that_is_recalled_before_it_began_keeps_no_worker_that_it_left(start):
    with dask.config.set({"distributed.scheduler.work-stealing-interval": "1 hour"}):
        cluster = await start()
    leaving = await cluster.add("gpu-0")
    running = cluster.client.submit(hold, 0, "busy", resources=GPU)
    await until(lambda: RUNS)
    actor = cluster.client.submit(Model, actor=True, resources=GPU)
    await until(lambda: len(cluster.state(leaving).processing) == 2)
    staying = await cluster.add("gpu-1")
    await cluster.desire("gpu-0")
    assert await (await actor).value() == 1
    await set_event(cluster, "busy")
    assert await running == 0
    del running
    await cluster.until_retiring(leaving, "drained")
    assert "actor" in (await cluster.row(staying))["blockers"]


async def test_an_actor_that_is_cancelled_while_it_begins_keeps_no_worker(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    actor = cluster.client.submit(Waiting, "begin", actor=True, resources=GPU)
    await until(lambda: cluster.state(gpu).processing)
    actor.release()
    await until(lambda: not cluster.state(gpu).processing)
    await set_event(cluster, "begin")
    assert (await cluster.row(gpu))["blockers"] == []
    await cluster.desire("gpu-0")
    await cluster.until_retiring(gpu, "drained")


async def test_a_worker_that_only_uses_an_actor_is_not_kept_by_it(start):
    """What it holds is a reference, but distributed lists it among those that have the actor."""
    cluster = await start()
    home, user = await cluster.add("gpu-0"), await cluster.add("gpu-1")
    actor = cluster.client.submit(Model, actor=True, resources=GPU, workers=[home.address])
    await wait(actor)
    uses = cluster.client.submit(lambda model: model.value().result(), actor, workers=[user.address])
    assert await uses == 1
    await until(lambda: cluster.scheduler.tasks[actor.key] in cluster.state(user).has_what)
    del uses
    await cluster.desire("gpu-1")
    await cluster.until_retiring(user, "drained")
    assert "actor" in (await cluster.row(home))["blockers"]
