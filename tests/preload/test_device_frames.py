"""Programs with frames that need a device, as those of cuDF do, run unchanged beside a scheduler that has none."""

import asyncio
import contextlib

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client

from .cluster import DEADLINE_SECONDS, GPU, until
from .separate import USER_MODULES, Separate

FRAME = pd.DataFrame({"k": [n % 7 for n in range(300)], "v": [float(n) for n in range(300)]})
METHODS = ("tasks", "p2p")  # of shuffles
OTHER = pd.DataFrame({"k": range(7), "w": [n * n for n in range(7)]})


@pytest.fixture
def device_frames(monkeypatch):
    monkeypatch.syspath_prepend(USER_MODULES)
    import device_frames

    return device_frames


@pytest.fixture
async def separate(tmp_path):
    """A cluster that was not started yet; all its processes end after the test."""
    async with contextlib.AsyncExitStack() as stack:
        yield Separate(tmp_path, stack)


@pytest.fixture
def frame(device_frames):
    return dd.from_pandas(device_frames.DeviceFrame(FRAME), npartitions=4)


def groupby(frame, other):
    return frame.groupby("k").v.sum(), lambda got: got.sort_index().tolist() == FRAME.groupby("k").v.sum().tolist()


def merge(frame, other):
    return frame.merge(other, on="k"), lambda got: got.w.sum() == FRAME.merge(OTHER, on="k").w.sum()


def shuffle(frame, other):
    return frame.shuffle("k"), lambda got: sorted(got.v) == sorted(FRAME.v)


def set_index(frame, other):
    return frame.set_index("k"), lambda got: got.index.tolist() == sorted(FRAME.k)


def map_partitions(frame, other):
    return frame.map_partitions(len), lambda got: got.sum() == len(FRAME)


def filter_and_mean(frame, other):
    return frame[frame.v > 10].v.mean(), lambda got: got == FRAME[FRAME.v > 10].v.mean()


def run_programs(address, frame, other, method, annotations):
    """Run all as users write them, with the client in this thread."""
    config = {"dataframe.shuffle.method": method}
    with Client(address) as client, client.as_current(), dask.config.set(config), dask.annotate(**annotations):
        for program in (groupby, merge, shuffle, set_index, map_partitions, filter_and_mean):
            collection, is_right = program(frame, other)
            got = collection.compute()
            assert is_right(got), (program.__name__, got)


async def test_programs_run_unchanged_and_are_right(separate, device_frames, frame):
    await separate.start()
    await separate.add("cpu-0", "gpu-0")
    other = dd.from_pandas(device_frames.DeviceFrame(OTHER), npartitions=2)
    for method in METHODS:
        await asyncio.to_thread(run_programs, separate.address, frame, other, method, {"resources": GPU})
    assert separate.read_by() == {"", "gpu-0"}


async def test_modules_that_the_scheduler_lacks_are_no_matter(separate, device_frames):
    await separate.start(modules="", pools={"cpu": "any"})
    await separate.add("cpu-0", DEVICES="")
    assert await separate.client.submit(device_frames.twice, 21) == 42
    frame = dd.from_pandas(FRAME, npartitions=3).map_partitions(device_frames.doubled)
    assert await separate.client.compute(frame.v.sum()) == 2 * FRAME.v.sum()
    assert await separate.client.compute(dask.delayed(device_frames.twice)(4)) == 8


async def test_where_no_worker_has_what_is_missing_the_client_gets_the_workers_error(separate, device_frames):
    await separate.start(modules="", pools={"cpu": "any"})
    await separate.add("cpu-0", modules="")
    with pytest.raises(RuntimeError, match="deserialization of the task graph") as caught:
        await separate.client.submit(device_frames.twice, 21)
    assert "No module named 'device_frames'" in repr(caught.value.__cause__)


async def test_a_reader_that_lacks_its_device_or_dies_is_followed_by_another_one(separate, frame):
    await separate.start(pools={"gpu": "any"})
    await separate.add("gpu-0", DEVICES="none")
    got = separate.client.compute(frame.v.sum())
    await until(lambda: "gpu-0" in separate.read_by())
    await until(lambda: _is_wanted(separate))
    await separate.kill("gpu-0")
    await separate.launch("gpu-1", DEADLY="1")
    await until(lambda: "gpu-1" in separate.read_by())
    await separate.add("gpu-2")
    assert await got == FRAME.v.sum()
    assert separate.read_by() == {"", "gpu-0", "gpu-1", "gpu-2"}


async def _is_wanted(separate):
    entry = await separate.entry(**GPU)
    return entry is not None and entry["unrunnable"] == 1


STEERED = {"DASK_GPUDASK__GRAPHS__MODULES": "['device_frames']"}


async def test_without_annotations_what_needs_a_device_runs_where_one_is(separate, device_frames, frame):
    await separate.start(**STEERED)
    await separate.add("cpu-0", "gpu-0")
    other = dd.from_pandas(device_frames.DeviceFrame(OTHER), npartitions=2)
    for method in METHODS:
        await asyncio.to_thread(run_programs, separate.address, frame, other, method, {})
    assert separate.read_by() == {"", "gpu-0"}
    pool_of = {row["address"]: row["pool"] for row in (await separate.demand())["workers"]}
    host_steps, pools = await asyncio.to_thread(run_mixed, separate.address, frame, device_frames, pool_of)
    assert host_steps == {"cpu"}
    assert pools == {"cpu", "gpu"}


async def test_plain_functions_of_what_lies_on_a_device_come_to_their_end(separate, device_frames):
    """On a worker without a device they never would: it asks again and again for what it cannot receive."""
    await separate.start(**STEERED)
    await separate.add("cpu-0", "gpu-0")
    made = separate.client.map(device_frames.to_device, [FRAME + n for n in range(4)])
    parts = [separate.client.submit(dict, frame=each) for each in made]
    numbers = separate.client.map(len, parts)
    assert await asyncio.wait_for(separate.client.submit(sum, numbers), DEADLINE_SECONDS) == 4


def run_mixed(address, frame, device_frames, pool_of):
    """Shuffle a frame of pandas, then merge it with one that needs a device, then shuffle the result as pandas' again.

    Return the pools that ran the first part, and all.
    """
    with Client(address) as client, client.as_current(), dask.config.set({"dataframe.shuffle.method": "tasks"}):
        on_host = dd.from_pandas(FRAME + 0.5, npartitions=4).shuffle("k")  # another name than of `frame`
        on_gpu = on_host.map_partitions(device_frames.to_device, meta=device_frames.DeviceFrame(FRAME[:0]))
        merged = on_gpu.merge(frame + 0.5, on="k")
        back = merged.map_partitions(device_frames.to_host, meta=pd.DataFrame(merged._meta)).shuffle("k")
        client.get_task_stream()  # begins it
        assert back.map_partitions(len).sum().compute() == len((FRAME + 0.5).merge(FRAME + 0.5, on="k"))
        pools = {row["key"]: pool_of[row["worker"]] for row in client.get_task_stream()}
    first = {key: pool for key, pool in pools.items() if key in on_host.optimize().dask}
    return set(first.values()), set(pools.values())
