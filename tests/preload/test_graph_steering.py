"""Which tasks of a graph are GPU work without annotations, and what they then ask for."""

import re
from types import SimpleNamespace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.base import collections_to_expr
from distributed.protocol.pickle import dumps

from distributed import Event, worker_client

from gpudask.preload.graphs.lowering import GpuNames, gpu_work, materialize

from .cluster import GPU, MIXED, in_time, until
from .separate import USER_MODULES

_TOKEN = re.compile("-([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$")
FRAME = pd.DataFrame({"k": [n % 7 for n in range(60)], "v": [float(n) for n in range(60)]})


@pytest.fixture
def device_frames(monkeypatch):
    monkeypatch.syspath_prepend(USER_MODULES)
    import device_frames

    return device_frames


@pytest.fixture
def cannot(monkeypatch):
    monkeypatch.syspath_prepend(USER_MODULES)
    import scheduler_cannot

    return scheduler_cannot


def judged(collection, *modules):
    """Return step -> whether it is GPU work."""
    expr = collections_to_expr([collection], optimize_graph=True)
    expr = expr.optimize() if hasattr(expr, "optimize") else expr
    dsk, _ = materialize(expr, set(dask.core.flatten(expr.__dask_keys__())))
    payloads = {key: dumps(node, buffer_callback=lambda _: None) for key, node in dsk.items()}
    work = set(gpu_work(expr, dsk, payloads.__getitem__, list(modules)))
    return {_step(key): key in work for key in dsk}


def _step(key):
    return _TOKEN.sub("", key[0] if isinstance(key, tuple) else key)


def inc(x):
    return x + 1


def test_frames_of_a_gpu_module_and_what_takes_them_are_gpu_work_and_what_goes_on_on_hosts_is_not(device_frames):
    host = dd.from_pandas(FRAME, npartitions=3)
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        on_gpu = host.shuffle("k").map_partitions(device_frames.to_device, meta=device_frames.DeviceFrame(FRAME[:0]))
        back = on_gpu.groupby("k").v.sum(split_out=2).map_partitions(device_frames.to_host, meta=FRAME.v[:0])
        steps = judged(back.map_partitions(len).sum(), "device_frames")
    assert {step for step, is_gpu in steps.items() if not is_gpu} >= {"frompandas", "split-taskshuffle", "sum-tree"}
    assert {step for step, is_gpu in steps.items() if is_gpu} >= {"to_device", "to_host"}


def test_a_frame_without_any_gpu_module_has_no_gpu_work(device_frames):
    assert not any(judged(dd.from_pandas(FRAME, npartitions=3).shuffle("k"), "device_frames").values())


def test_delayed_functions_of_a_gpu_module_and_what_takes_their_results_are_gpu_work(device_frames):
    made = dask.delayed(device_frames.to_device)(dask.delayed(inc)(1))
    seen = dask.delayed(len)(made)
    assert judged(seen, "device_frames") == {"inc": False, "to_device": True, "len": True}


def test_what_takes_what_was_moved_to_a_host_is_none(device_frames):
    moved = dask.delayed(device_frames.to_device)(1).to_pandas()
    steps = judged(dask.delayed(inc)(moved), "device_frames")
    assert steps == {"to_device": True, "to_pandas": True, "inc": False}


def test_functions_that_import_a_gpu_module_inside_are_gpu_work():
    def inside(x):
        import cupy

        return cupy.sum(x)

    inside.__module__ = "__main__"  # as of a program: it travels by value
    array = da.from_array(np.ones(6), chunks=3)
    assert any(judged(array.map_blocks(inside, dtype=float, meta=np.ones(1)), "cupy").values())
    assert not any(judged(array.map_blocks(inc), "cupy").values())


async def test_what_the_program_says_itself_stands(start, cannot):
    with dask.config.set({"gpudask.graphs.modules": ["scheduler_cannot"]}):
        cluster = await start()
    await cluster.add("cpu-0")
    gpu = await cluster.add("gpu-0", resources={"GPU": 1, "OTHER": 1})
    plain = cluster.client.submit(cannot.read, cannot.Value(5), key="by-itself")
    assert await plain == 5
    said = cluster.client.submit(cannot.read, cannot.Value(6), key="said", resources={"OTHER": 1})
    assert await said == 6
    with dask.annotate(resources={"OTHER": 0.5}):
        layer = dask.delayed(cannot.read)(cannot.Value(7), dask_key_name="layer")
    future = cluster.client.compute(layer, optimize_graph=False)
    assert await future == 7
    asked = {key: ts.resource_restrictions for key, ts in cluster.scheduler.tasks.items()}
    assert (asked["by-itself"], asked["said"], asked["layer"]) == (GPU, {"OTHER": 1}, {"OTHER": 0.5})
    assert {ts.who_has.copy().pop().address for ts in cluster.scheduler.tasks.values() if ts.who_has} == {gpu.address}


async def test_nobody_is_steered_to_what_the_reader_does_not_offer(start, cannot):
    with dask.config.set({"gpudask.graphs.modules": ["scheduler_cannot"]}):
        cluster = await start(pools={"gpu": "any"})
    await cluster.add("gpu-0", resources={})
    assert await cluster.client.submit(cannot.read, cannot.Value(5)) == 5


@pytest.mark.parametrize(("steer", "asked"), [({}, GPU), ("unreadable", None), ("all", GPU), ("none", None)])
async def test_graphs_that_the_scheduler_can_read_are_steered_unless_that_is_not_wanted(
    start, device_frames, steer, asked
):
    said = {"gpudask.graphs.steer": steer} if steer else {}
    with dask.config.set({"gpudask.graphs.modules": ["device_frames"]} | said):
        cluster = await start()
    await cluster.add("cpu-0")
    await cluster.add("gpu-0")
    twice = cluster.client.submit(device_frames.twice, 4)
    other = cluster.client.submit(sum, [1, 2])
    assert (await twice, await other) == (8, 3)
    tasks = cluster.scheduler.tasks
    assert (tasks[twice.key].resource_restrictions, tasks[other.key].resource_restrictions) == (asked, None)


@pytest.mark.parametrize(
    ("pools", "offers", "workers", "asked"),
    [
        ({"cpu": "any"}, GPU, {"cpu-0": {}}, None),  # no pool has GPUs
        (MIXED, GPU, {"cpu-0": {}}, GPU),  # from zero
        (MIXED, {"OTHER": 1}, {"cpu-0": {}}, None),  # what it will offer has another name
        (MIXED, {"OTHER": 1}, {"cpu-0": {}, "gpu-0": {"OTHER": 1}}, None),
        (MIXED, {}, {"cpu-0": {}, "gpu-0": {"OTHER": 1, "GPU": 1}}, GPU),  # an older operator does not tell
    ],
)
async def test_a_graph_is_steered_only_where_a_pool_offers_what_it_then_asks_for(
    start, device_frames, *, pools, offers, workers, asked
):
    with dask.config.set({"gpudask.graphs.modules": ["device_frames"]}):
        cluster = await start(pools=pools, offers=offers)
    for name, resources in workers.items():
        await cluster.add(name, resources=resources)
    twice = cluster.client.submit(device_frames.twice, 4)
    await until(lambda: twice.key in cluster.scheduler.tasks)
    assert cluster.scheduler.tasks[twice.key].resource_restrictions == asked


def inside(x):
    import cupy.linalg

    return cupy.linalg.norm(x)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (np.mean, False),
        ("a text on cupy, cudf and cuml", False),
        (pd.Series(["cupy and numpy"] * 3), False),
        (b"cupy", False),
        ("cupyx", False),
        ("my.cupy", False),
        ("a" * 300 + "cupy", False),
        ("cupy", True),
        ("cupy.linalg", True),
        (inside, True),
    ],
)
def test_a_module_is_named_by_whole_names_and_by_no_text(value, named, monkeypatch):
    monkeypatch.setattr(inside, "__module__", "__main__")  # it travels by value
    assert GpuNames(["cupy", "numba.cuda"]).are_in(dumps(value)) is named


@pytest.mark.parametrize(
    "values", [np.zeros((0, 3)), np.zeros((3, 4)).T, np.zeros((4, 4))[::2, ::2], np.array(1.0), np.arange(3), b""]
)
async def test_frames_of_all_shapes_are_looked_at(start, values):
    cluster = await start()
    frames = SimpleNamespace(frames=[values, b"\x8c\x04cupy"])
    assert cluster.preload.graphs._steering.concerns(frames, {})
    assert not cluster.preload.graphs._steering.concerns(SimpleNamespace(frames=[values]), {})


async def test_what_takes_a_result_of_a_device_asks_for_one_and_what_goes_on_does_not(start, device_frames):
    with dask.config.set({"gpudask.graphs.modules": ["device_frames"]}):
        cluster = await start(pools=MIXED)
    cpu, gpu = await cluster.add("cpu-0"), await cluster.add("gpu-0")
    client, tasks = cluster.client, cluster.scheduler.tasks
    made = client.submit(device_frames.to_device, FRAME, key="made", resources=GPU)
    early = client.submit(len, made, key="early")
    await early
    late = client.submit(len, made, key="late")
    there = client.submit(len, made, key="there", workers=[gpu.address])
    total = client.submit(sum, [early, late], key="total")
    boxed = client.submit(dict, part=made)
    unboxed = client.submit(list, boxed, key="unboxed")
    assert await total == 2 * len(FRAME)
    assert await there == len(FRAME)
    assert await unboxed == ["part"]
    asked = {key: tasks[key].resource_restrictions for key in ("early", "late", "there", "total", boxed.key, "unboxed")}
    none = None
    assert asked == {"early": GPU, "late": GPU, "there": none, "total": none, boxed.key: GPU, "unboxed": GPU}
    assert {ws.address for ws in tasks["total"].who_has} == {cpu.address}


async def test_results_are_judged_by_what_they_are_now(start, device_frames):
    with dask.config.set({"gpudask.graphs.modules": ["device_frames"]}):
        cluster = await start(pools=MIXED)
    cpu, gpu = await cluster.add("cpu-0"), await cluster.add("gpu-0")
    client, tasks = cluster.client, cluster.scheduler.tasks
    made = client.submit(device_frames.to_device, FRAME, key="made")
    anywhere = client.submit(len, made, key="anywhere", workers=[cpu.address], allow_other_workers=True)
    actor = client.submit(device_frames.DeviceFrame, FRAME, key="actor", actor=True, resources=GPU)
    named = client.submit(str, actor, key="named")
    assert await anywhere == len(FRAME)
    await named
    assert {key: tasks[key].resource_restrictions for key in ("anywhere", "named")} == {"anywhere": GPU, "named": None}
    assert {ws.address for ws in tasks["anywhere"].who_has} == {gpu.address}
    made.release()
    await until(lambda: "made" not in tasks or tasks["made"].state != "memory")
    assert not any(ts.key == "made" for ts in cluster.preload.graphs._device_results._tasks)


async def test_a_task_that_submits_others_does_not_hold_the_device_that_they_wait_for(start, device_frames):
    with dask.config.set({"gpudask.graphs.modules": ["device_frames"]}):
        cluster = await start(pools=MIXED)
    await cluster.add("cpu-0")
    await cluster.add("gpu-0")
    assert await in_time(cluster.client.submit(drive, 4), "the task that waits for another one") == 8


def drive(number):
    import device_frames

    with worker_client() as client:
        return client.submit(device_frames.twice, number).result()


drive.__module__ = "__main__"  # it travels by value, as a program's own


async def test_what_waits_for_a_result_of_a_device_is_demand_for_one(start, device_frames):
    with dask.config.set({"gpudask.graphs.modules": ["device_frames"]}):
        cluster = await start(pools=MIXED)
    await cluster.add("cpu-0")
    gpu = await cluster.add("gpu-0")
    made = cluster.client.submit(device_frames.to_device, FRAME, resources=GPU)
    await made
    opened = Event("opened", client=cluster.client)
    held = [cluster.client.submit(wait_for, made, opened, key=f"held-{n}") for n in range(3)]
    await until(lambda: all(future.key in cluster.scheduler.tasks for future in held))
    entry = await cluster.entry(**GPU)
    assert entry["waiting"] + entry["unrunnable"] + entry["processing"] == 3
    assert {ts.address for ts in (cluster.scheduler.tasks[held[0].key].processing_on,)} == {gpu.address}
    await opened.set()
    assert await cluster.client.gather(held) == [len(FRAME)] * 3


def wait_for(frame, event):
    assert event.wait(60)
    return len(frame)


@pytest.mark.parametrize(("steer", "names"), [("all", {"gpu"}), ("none", {"cpu", "gpu"})])
async def test_what_is_run_on_all_workers_and_needs_a_device_runs_where_one_is(start, device_frames, steer, names):
    with dask.config.set({"gpudask.graphs.modules": ["device_frames"], "gpudask.graphs.steer": steer}):
        cluster = await start(pools=MIXED)
    cpu = await cluster.add("cpu-0")
    if steer == "all":
        assert await cluster.client.run(device_frames.twice, 2) == {}, "none has a device, and a pool will"
    gpu = await cluster.add("gpu-0")
    address = {"cpu": cpu.address, "gpu": gpu.address}
    assert await cluster.client.run(device_frames.twice, 2) == {address[name]: 4 for name in names}
    assert await cluster.client.run(len, "abc") == dict.fromkeys(address.values(), 3)
    assert await cluster.client.run(device_frames.twice, 2, workers=[cpu.address]) == {cpu.address: 4}


@pytest.mark.parametrize(
    "bad", [{"steer": "some"}, {"modules": "cudf"}, {"modules": ["a b"]}, {"modules": []}, {"resources": {"GPU": 0}}]
)
async def test_a_setting_that_is_wrong_is_told_and_nothing_else_is_off(start, bad):
    with dask.config.set({f"gpudask.graphs.{name}": value for name, value in bad.items()}):
        cluster = await start()
    features = (await cluster.demand())["features"]
    assert f"gpudask.graphs.{next(iter(bad))}: expected" in features.pop("graphs")
    assert not any(features.values())
