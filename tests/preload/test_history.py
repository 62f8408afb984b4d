"""What tasks leave behind: counts by prefix, errors with tracebacks, and a performance report where it is wanted."""

import asyncio
import importlib.util
import os
import signal
from pathlib import Path

import dask
import pytest
from distributed import Nanny, wait
from distributed.diagnostics.task_stream import TaskStreamPlugin

from gpudask.preload import performance_report
from gpudask.preload.history import ERRORS, PREFIXES

from .cluster import until


def inc(x):
    return x + 1


def fail(x):
    raise ValueError(f"no {x}")


def flaky(path):
    if not Path(path).exists():
        Path(path).touch()
        raise ValueError("the first time")
    return 1


def die():
    os.kill(os.getpid(), signal.SIGKILL)


async def history(cluster, status=200):
    async with cluster.http.get(cluster.url("history")) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def test_tasks_are_counted_by_prefix_with_their_seconds(start):
    cluster = await start()
    await cluster.add("cpu-0")
    await wait(cluster.client.map(inc, range(5), pure=False))
    answer = await history(cluster)
    (row,) = [row for row in answer["tasks"] if row["prefix"] == "inc"]
    assert (row["tasks"], row["erred"]) == (5, 0)
    assert row["seconds"] >= 0
    assert (answer["scheduler_id"], answer["errors"], answer["erred"]) == (cluster.scheduler.id, [], 0)


async def test_counts_stay_when_the_tasks_are_forgotten(start):
    cluster = await start()
    await cluster.add("cpu-0")
    futures = cluster.client.map(inc, range(5), pure=False)
    await wait(futures)
    del futures
    await until(lambda: not cluster.scheduler.tasks)
    rows = {row["prefix"]: row["tasks"] for row in (await history(cluster))["tasks"]}
    assert rows["inc"] == 5


async def test_an_error_has_its_traceback_and_its_worker_and_makes_a_version(start):
    cluster = await start()
    worker = await cluster.add("cpu-0")
    before = await cluster.demand()
    assert before["erred"] == 0
    future = cluster.client.submit(fail, 3, pure=False)
    dependent = cluster.client.submit(inc, future)
    await wait([future, dependent])
    await until(lambda: cluster.scheduler.tasks[dependent.key].state == "erred")
    answer = await history(cluster)
    (error,) = answer["errors"]
    assert error["key"] == future.key
    assert "no 3" in error["exception"]
    assert "in fail" in error["traceback"]
    assert error["worker"] == worker.name
    assert 0 <= error["age_seconds"] < 60
    while (after := await cluster.demand(seen=before["version"], wait=10))["erred"] == 0:
        before = after
    assert after["erred"] == 1, "the one that needed it is none of its own"


async def test_one_that_is_tried_again_and_succeeds_is_none(start, tmp_path):
    cluster = await start()
    await cluster.add("cpu-0")
    assert await cluster.client.submit(flaky, str(tmp_path / "seen"), retries=1) == 1
    assert (await history(cluster))["errors"] == []


async def test_a_task_whose_workers_die_is_an_error(start):
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        cluster = await start()
        async with Nanny(cluster.scheduler.address, nthreads=1, name="demo-cpu-worker-0-00000"):
            future = cluster.client.submit(die, pure=False)
            await wait(future)
            (error,) = (await history(cluster))["errors"]
    assert error["key"] == future.key
    assert error["exception"].startswith("KilledWorker")


async def test_as_many_as_are_promised_are_kept(start):
    cluster = await start()
    await cluster.add("cpu-0")
    await wait(cluster.client.map(fail, range(ERRORS + 5), pure=False))
    for n in range(PREFIXES + 5):
        await cluster.client.submit(inc, n, key=f"prefix{chr(97 + n // 26)}{chr(97 + n % 26)}-{n}")
    answer = await history(cluster)
    assert (len(answer["errors"]), answer["erred"]) == (ERRORS, ERRORS + 5)
    assert len(answer["tasks"]) == PREFIXES


async def test_without_the_hook_the_part_is_off_and_the_rest_works(start, monkeypatch):
    monkeypatch.delattr("distributed.scheduler.SchedulerState._propagate_erred", raising=True)
    cluster = await start()
    answer = await cluster.demand()
    assert "_propagate_erred is missing" in answer["features"]["history"]
    assert answer["features"]["demand"] == ""
    await history(cluster, status=404)


async def desire_stream(cluster, *, wanted):
    body = {"protocol": 1, "version": f"stream-{wanted}", "pools": {}, "retiring": [], "task_stream": wanted}
    await cluster.post(body)


async def report(cluster, name="demo"):
    async with cluster.http.post(cluster.url("report"), params={"name": name}) as response:
        assert response.status == 200
        return await response.json()


async def test_the_task_stream_is_kept_only_while_it_is_wanted(start):
    cluster = await start()
    assert TaskStreamPlugin.name not in cluster.scheduler.plugins
    await desire_stream(cluster, wanted=True)
    assert TaskStreamPlugin.name in cluster.scheduler.plugins
    await desire_stream(cluster, wanted=False)
    assert TaskStreamPlugin.name not in cluster.scheduler.plugins


async def test_one_that_somebody_else_began_is_left_alone(start):
    cluster = await start()
    cluster.scheduler.add_plugin(TaskStreamPlugin(cluster.scheduler))
    await desire_stream(cluster, wanted=True)
    await desire_stream(cluster, wanted=False)
    assert TaskStreamPlugin.name in cluster.scheduler.plugins


async def test_a_task_stream_that_is_no_boolean_is_refused(start):
    cluster = await start()
    body = {"protocol": 1, "version": "v", "pools": {}, "retiring": [], "task_stream": 1}
    assert "task_stream" in (await cluster.post(body, status=400))["error"]


@pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="bokeh is not installed: no report can be drawn")
async def test_a_report_is_written_where_the_configuration_says(start, tmp_path):
    cluster = await start()
    await cluster.add("cpu-0")
    await desire_stream(cluster, wanted=True)
    await wait(cluster.client.map(inc, range(3), pure=False))
    with dask.config.set({performance_report.DIRECTORY: str(tmp_path / "reports")}):
        answer = await report(cluster, "../de mo")
    assert answer["why"] == ""
    assert answer["path"] == str(tmp_path / "reports" / "..-de-mo.html")
    written = await asyncio.to_thread(Path(answer["path"]).read_bytes)
    assert b"Dask Performance Report" in written
    assert answer["bytes"] == len(written)


async def test_without_bokeh_it_is_said_why_there_is_none(start, monkeypatch):
    cluster = await start()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    answer = await report(cluster)
    assert (answer["path"], answer["bytes"]) == ("", 0)
    assert "bokeh" in answer["why"]


async def test_the_routes_take_the_token(start):
    cluster = await start()
    for method, route in (("get", "history"), ("post", "report")):
        async with cluster.http.request(method, cluster.url(route), headers={"Authorization": "Bearer no"}) as response:
            assert response.status == 401
