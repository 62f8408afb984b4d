"""A pod that Kubernetes ends waits until nothing is lost with it, and for nothing else."""

import asyncio
import subprocess
import sys
from collections import Counter as Count

import aiohttp
import pytest
from distributed import Event, get_worker

from gpudask.desired import disruption
from gpudask.preload.drains import termination

from .cluster import GPU, pod_name, until

pytestmark = pytest.mark.dask
RUNS = []
HANGS_SECONDS = 120  # who has not heard by then waits for ever


@pytest.fixture(autouse=True)
def _no_runs():
    RUNS.clear()


def run(i):
    RUNS.append((i, get_worker().name))
    return i


def hold(i, name):
    RUNS.append((i, get_worker().name))
    Event(name).wait()
    return i


def home(cluster):
    """The address of this machine by which the workers are known: who calls it, calls from it."""
    return cluster.scheduler.address.rpartition("/")[2].rpartition(":")[0]


async def leave(cluster, pod):
    """Ask for leave as the hook does, without the token; the reason once it is given."""
    url = cluster.url("leaving").replace("127.0.0.1", home(cluster))
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, params={"pod": pod_name(pod)}, timeout=aiohttp.ClientTimeout(HANGS_SECONDS)) as response,
    ):
        assert response.status == 200, await response.text()
        return (await response.json())["why"]


async def two_looks(cluster, monkeypatch):
    """Wait until the waiting pods were looked at twice from now on."""
    looks, look = [], termination.Termination._why_may_end
    monkeypatch.setattr(termination.Termination, "_why_may_end", lambda *a, **k: looks.append(1) or look(*a, **k))
    await until(lambda: len(looks) >= 2, "two looks")


async def test_a_pod_that_ends_is_drained_by_its_own_word(start, monkeypatch):
    cluster = await start()
    ending, staying = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    held = cluster.client.submit(run, "held", workers=[ending.address], pure=False)
    await held
    running = cluster.client.submit(hold, "running", "go", workers=[ending.address], pure=False)
    await until(lambda: len(RUNS) == 2)
    asked = asyncio.create_task(leave(cluster, "cpu-0"))
    await until(lambda: cluster.state(ending).status.name == "closing_gracefully")
    await two_looks(cluster, monkeypatch)
    assert not asked.done()
    await Event("go", client=cluster.client).set()
    assert await asked == "it is drained"
    await ending.close()
    assert await cluster.client.gather([held, running]) == ["held", "running"]
    assert set(Count(i for i, _ in RUNS).values()) == {1}
    assert cluster.state(staying).status.name == "running"


async def test_all_workers_of_a_pod_are_drained_before_it_goes(start, monkeypatch):
    cluster = await start()
    first, second = await cluster.add("gpu-0-0"), await cluster.add("gpu-0-1")
    await cluster.add("gpu-1-0")
    busy = cluster.client.submit(hold, 0, "go", workers=[second.address], resources=GPU, pure=False)
    await until(lambda: RUNS)
    asked = asyncio.create_task(leave(cluster, "gpu-0"))
    await until(lambda: cluster.preload.retirement.state_of(cluster.state(first)) == "draining")
    await two_looks(cluster, monkeypatch)
    assert not asked.done()
    await Event("go", client=cluster.client).set()
    assert await asked == "it is drained"
    assert await busy == 0


async def test_a_pod_that_the_operator_drained_or_nobody_knows_waits_for_nothing(start, monkeypatch):
    monkeypatch.setattr(termination, "LISTED_SECONDS", 3600.0)  # longer than anybody waits here
    cluster = await start()
    drained = await cluster.add("cpu-0")
    await cluster.desire("cpu-0")
    await cluster.until_retiring(drained, "drained")
    assert await leave(cluster, "cpu-0") == "it is drained"
    assert await leave(cluster, "cpu-7") == "no worker of it is known"


async def test_the_operators_list_does_not_call_back_a_pod_that_ends(start):
    cluster = await start()
    ending = await cluster.add("cpu-0")
    await cluster.add("cpu-1")
    future = cluster.client.submit(hold, 0, "go", workers=[ending.address], pure=False)
    await until(lambda: RUNS)
    asked = asyncio.create_task(leave(cluster, "cpu-0"))
    await until(lambda: cluster.state(ending).status.name == "closing_gracefully")
    await cluster.desire("cpu-0", if_idle=True)
    await cluster.desire()
    assert cluster.state(ending).status.name == "closing_gracefully"
    await Event("go", client=cluster.client).set()
    assert await asked == "it is drained"
    assert await future == 0


async def test_a_stranger_drains_nobody_and_is_sent_away_when_the_operator_says_nothing(start, monkeypatch):
    monkeypatch.setattr(termination, "LISTED_SECONDS", 0.2)
    cluster = await start()
    worker = await cluster.add("cpu-0")
    assert await cluster.preload.wait_until_drained(pod_name("cpu-0"), "10.9.9.9") == "it is not retiring"
    assert cluster.state(worker).status.name == "running"


async def test_a_pod_whose_address_is_translated_waits_for_the_drain_that_the_operator_began(start):
    cluster = await start()
    ending = await cluster.add("cpu-0")
    await cluster.add("cpu-1")
    future = cluster.client.submit(hold, 0, "go", workers=[ending.address], pure=False)
    await until(lambda: RUNS)
    asked = asyncio.create_task(cluster.preload.wait_until_drained(pod_name("cpu-0"), "10.9.9.9"))
    await cluster.desire("cpu-0")
    await Event("go", client=cluster.client).set()
    assert await asked == "it is drained"
    assert await future == 0


async def test_a_pod_that_the_operator_forces_out_waits_no_longer(start):
    cluster = await start()
    ending = await cluster.add("cpu-0")
    _kept = cluster.client.submit(hold, 0, "never", workers=[ending.address], pure=False)
    await until(lambda: RUNS)
    asked = asyncio.create_task(leave(cluster, "cpu-0"))
    await until(lambda: cluster.state(ending).status.name == "closing_gracefully")
    wish = {"pod": pod_name("cpu-0"), "data": "move", "if_idle": False, "forced": True}
    pools = {name: {"accepts": accepts} for name, accepts in cluster.pools.items()}
    await cluster.post({"protocol": 1, "version": "forced", "pools": pools, "retiring": [wish]})
    assert await asked == "the operator waits no longer"
    await Event("never", client=cluster.client).set()


async def test_a_pod_that_hangs_up_is_forgotten(start):
    cluster = await start()
    ending = await cluster.add("cpu-0")
    _kept = cluster.client.submit(hold, 0, "go", workers=[ending.address], pure=False)
    await until(lambda: RUNS)
    asked = asyncio.create_task(leave(cluster, "cpu-0"))
    await until(lambda: cluster.preload.termination._waiting)
    asked.cancel()
    await until(lambda: not cluster.preload.termination._waiting)
    await Event("go", client=cluster.client).set()


async def test_the_hook_itself_waits_for_the_drain_and_then_ends_in_a_blink(start):
    cluster = await start()
    ending = await cluster.add("cpu-0")
    await cluster.add("cpu-1")
    future = cluster.client.submit(hold, 0, "go", workers=[ending.address], pure=False)
    await until(lambda: RUNS)
    path = f"/gpudask/v1/leaving?pod={pod_name('cpu-0')}"
    arguments = [home(cluster), str(cluster.scheduler.http_server.port), path, str(HANGS_SECONDS)]
    hook = subprocess.Popen([sys.executable, "-IS", "-c", disruption.SCRIPT, *arguments])  # noqa: ASYNC220
    await until(lambda: cluster.state(ending).status.name == "closing_gracefully")
    assert hook.poll() is None
    await Event("go", client=cluster.client).set()
    await until(lambda: hook.poll() is not None, "the hook has ended")
    assert hook.returncode == 0
    assert await future == 0
    assert cluster.preload.retirement.state_of(cluster.state(ending)) == "drained"
