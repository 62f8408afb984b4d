"""For how long GPU workers have work of their pool's own, and whose: measured on every transition."""

import asyncio
import time
import timeit
from types import SimpleNamespace

import dask
import pytest
from distributed import Event, wait

from gpudask.preload import busy_time
from gpudask.preload.busy_time import BusyTime
from gpudask.preload.pools import Pools

from .cluster import GPU, pod_name, until

GATE = "gate"
FENCED = Pools({"gpu": "annotated", "cpu": "any"}, {"gpu": {}})
OPEN = Pools({"gpu": "any"}, {"gpu": {}})


def hold(_, gate=GATE):
    Event(gate).wait()


def nothing(_):
    return None


def submit(cluster, function, owner=None, **options):
    annotations = {} if owner is None else {"owner": owner}
    with dask.annotate(**annotations):
        return cluster.client.submit(function, 0, pure=False, resources=GPU, **options)


def owners(row):
    return {each["owner"]: each["seconds"] for each in row["owners"]}


async def running(cluster, worker, n=1):
    await until(lambda: len(cluster.state(worker).processing) == n, "it is there")


async def test_a_worker_is_busy_while_a_task_is_there_and_its_owner_has_the_seconds(start):
    cluster = await start()
    gpu, cpu = await cluster.add("gpu-0"), await cluster.add("cpu-0")
    before = time.monotonic()
    future = submit(cluster, hold, "team-a")
    await running(cluster, gpu)
    began = time.monotonic()
    row = await cluster.row(gpu)
    assert [(each["owner"], each["share"]) for each in row["owners"]] == [("team-a", 1.0)]

    await until(lambda: time.monotonic() - began > 0.3)
    await Event(GATE, client=cluster.client).set()
    await wait(future)
    ended = time.monotonic()
    row = await cluster.row(gpu)
    assert ended - before >= row["busy_seconds"] >= 0.3
    assert owners(row) == {"team-a": row["busy_seconds"]}
    assert [each["share"] for each in row["owners"]] == [0.0]
    assert (await cluster.row(gpu))["busy_seconds"] == row["busy_seconds"], "an idle worker gains nothing"
    assert "busy_seconds" not in await cluster.row(cpu), "a pool without GPUs is not counted"


async def test_plain_tasks_are_no_work_of_a_fenced_pools_own_but_of_an_open_ones(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    future = cluster.client.submit(hold, 1, pure=False, workers=[gpu.address], allow_other_workers=False)
    await until(lambda: cluster.scheduler.tasks)
    await cluster.desire(pools={"gpu": "any"})
    await running(cluster, gpu)
    assert (await cluster.row(gpu))["owners"] == [{"owner": "", "seconds": pytest.approx(0, abs=60), "share": 1.0}]

    await cluster.desire(pools={"cpu": "any", "gpu": "annotated"})
    first = (await cluster.row(gpu))["busy_seconds"]
    await asyncio.sleep(0.05)
    assert (await cluster.row(gpu))["busy_seconds"] == first
    await Event(GATE, client=cluster.client).set()
    await wait(future)


async def test_a_worker_that_starts_anew_counts_from_nothing_and_one_that_retires_counts_on(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await wait(submit(cluster, nothing, "team-a"))
    future = submit(cluster, hold, "team-b")
    await running(cluster, gpu)
    await cluster.desire("gpu-0")
    first = (await cluster.row(gpu))["busy_seconds"]
    await until(lambda: _later(cluster, gpu, first), "what it began counts though it drains")
    await gpu.close(executor_wait=False)  # its task waits on
    await until(lambda: cluster.state(gpu) is None)
    again = await cluster.add("gpu-0")
    assert (await cluster.row(again))["name"] == pod_name("gpu-0")
    assert (await cluster.row(again))["busy_seconds"] < first + 60
    assert not cluster.preload.busy_time._row_of or len(cluster.state(again).processing)
    await cluster.desire()
    await Event(GATE, client=cluster.client).set()
    await wait(future)
    assert set(owners(await cluster.row(again))) == {"team-b"}


async def _later(cluster, worker, seconds):
    return (await cluster.row(worker))["busy_seconds"] > seconds


async def test_without_the_part_the_rows_lack_the_fields(start, monkeypatch):
    def fail(self):
        raise RuntimeError("no such hook")

    monkeypatch.setattr(BusyTime, "start", fail)
    cluster = await start()
    cluster.preload.busy_time._rows.clear()
    gpu = await cluster.add("gpu-0")
    await wait(submit(cluster, nothing))
    cluster.preload.busy_time._rows.clear()
    assert "owners" not in await cluster.row(gpu)


# In a scheduler's place, with a clock of the test's own.


class Bench:
    def __init__(self, pools=FENCED, nthreads=1):
        self.now = 100.0
        self.ws = self.worker(nthreads)
        self.scheduler = SimpleNamespace(workers={self.ws.address: self.ws})
        self.part = BusyTime(self.scheduler, pools, clock=lambda: self.now)
        self.part.start()

    @staticmethod
    def worker(nthreads=1, number=0):
        name = pod_name(f"gpu-{number}")
        return SimpleNamespace(address=f"tcp://w{number}", name=name, nthreads=nthreads, processing=set())

    def come(self, key, owner=None, *, to=None, restricted=True, follow=True):
        annotations = None if owner is None else {"owner": owner}
        ts = Task(key, annotations, {"GPU": 1} if restricted else None)
        ts.processing_on = to or self.ws
        ts.processing_on.processing.add(ts)
        if follow:
            self.part.follow(key, ts)
        return ts

    def go(self, ts, *, follow=True):
        ts.processing_on.processing.discard(ts)
        ts.processing_on = None
        if follow:
            self.part.follow(ts.key, ts)

    def row(self, ws=None):
        found = {"address": (ws or self.ws).address}
        self.part.complete_workers([found])
        return found


class Task:
    def __init__(self, key, annotations, resource_restrictions):
        self.key, self.annotations, self.resource_restrictions = key, annotations, resource_restrictions
        self.processing_on = None


def test_of_a_queue_the_first_tasks_owner_has_the_second_and_of_two_threads_both():
    for threads, expected in ((1, {"a": 3.0, "b": 2.0}), (2, {"a": 1.5, "b": 3.5})):
        bench = Bench(nthreads=threads)
        one = bench.come("1", "a")
        bench.come("2", "b")
        bench.come("3", "b")
        bench.now += 3
        bench.go(one)
        bench.now += 2
        assert owners(bench.row()) == expected
        assert bench.row()["busy_seconds"] == 5.0


def test_tasks_that_were_moved_without_a_transition_are_found_by_the_next_answer():
    """As stealing does: it changes where a task is, and tells nobody."""
    bench = Bench()
    other = bench.worker(number=1)
    bench.scheduler.workers[other.address] = other
    bench.part.add_worker(other)
    ts = bench.come("1", "a")
    bench.now += 1
    bench.ws.processing.discard(ts)
    other.processing.add(ts)
    ts.processing_on = other
    bench.row()
    bench.row(other)
    bench.now += 4
    assert (bench.row()["busy_seconds"], bench.row(other)["busy_seconds"]) == (1.0, 4.0)
    bench.go(ts)
    bench.now += 4
    assert bench.row(other)["busy_seconds"] == 4.0


def test_owners_beyond_the_most_count_as_nobodys(monkeypatch):
    bench = Bench()
    for n in range(busy_time.OWNERS + 5):
        ts = bench.come(str(n), f"team-{n}")
        bench.now += 1
        bench.go(ts)
    rows = owners(bench.row())
    assert len(rows) == busy_time.OWNERS + 1
    assert rows[""] == 5.0
    assert sum(rows.values()) == bench.row()["busy_seconds"] == busy_time.OWNERS + 5
    monkeypatch.setattr(busy_time, "ROWS", 1)
    bench = Bench()
    for owner in ("a", "b"):
        ts = bench.come(owner, owner)
        bench.now += 1
        bench.go(ts)
    assert owners(bench.row()) == {"a": 1.0, "": 1.0}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("  team a\n", "team a"),
        ("\x1b[31mred\u202e", "[31mred"),
        ("x" * 10_000_000, "x" * 63),
        (7, ""),
        (["a"], ""),
        (None, ""),
        ("", ""),
        ({"owner": "x"}, ""),
    ],
)
def test_a_name_is_one_short_line_whatever_was_annotated(given, shown):
    bench = Bench()
    ts = bench.come("1", given)
    bench.now += 1
    bench.go(ts)
    assert owners(bench.row()) == {shown: 1.0}


def test_names_that_were_cleaned_are_not_remembered_without_end(monkeypatch):
    monkeypatch.setattr(busy_time, "REMEMBERED", 3)
    bench = Bench()
    for n in range(10):
        bench.go(bench.come(str(n), f"team-{n}"))
    assert len(bench.part._names) <= 3


def test_of_a_worker_that_went_nothing_is_kept():
    bench = Bench()
    ts = bench.come("1", "a")
    bench.come("2", "a", restricted=False)
    bench.part.remove_worker(bench.ws.address)
    assert not bench.part._rows
    assert not bench.part._row_of
    assert bench.part._pairs == 0
    bench.go(ts)  # its transitions may come after it went
    assert bench.row() == {"address": bench.ws.address}


def test_when_the_scheduler_forgets_all_tasks_what_was_counted_stays():
    bench = Bench()
    ts = bench.come("1", "a")
    bench.come("2", "b")
    bench.now += 2
    bench.ws.processing.clear()  # in whichever order it does it
    bench.part.restart()
    bench.now += 2
    bench.go(ts)
    assert bench.row()["busy_seconds"] == 2.0
    bench.come("1", "a")
    bench.now += 1
    assert bench.row()["busy_seconds"] == 3.0


def test_a_task_costs_as_much_whatever_else_is_on_its_worker():
    """Coming and going, in microseconds of CPU; docs/scale-benchmark.md has the figures of an idle machine."""

    def cost(others, owners):
        bench = Bench()
        for n in range(others):
            bench.come(n, f"team-{n % owners}")
        ts = Task("x", {"owner": "team-0"}, {"GPU": 1})

        def come_and_go():
            ts.processing_on = bench.ws
            bench.part.follow("x", ts)
            ts.processing_on = None
            bench.part.follow("x", ts)

        return min(timeit.repeat(come_and_go, timer=time.thread_time, number=2_000, repeat=20)) / 2_000 * 1e6

    alone, one_owner, many_owners = cost(0, 1), cost(20_000, 1), cost(20_000, 50)
    print(f"alone {alone:.2f} us, beside 20,000 of its owner {one_owner:.2f}, of 20 owners {many_owners:.2f}")
    assert one_owner < 3 * alone
    assert many_owners < 10 * alone
