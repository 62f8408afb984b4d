"""The drain: nothing is cut, nothing is lost, nothing runs twice, and it can be undone."""

import asyncio
import contextlib
import os
import sys
import time
from collections import Counter as Count
from pathlib import Path

import pytest
from distributed import Event, Worker, get_worker, secede, wait, worker_client

from .cluster import GPU, pod_name, until

USER_MODULES = str(Path(__file__).parent / "user_modules")
RUNS = []  # (task, worker's name); all workers live in this process


def run(i, seconds=0.0):
    RUNS.append((i, get_worker().name))
    time.sleep(seconds)
    return i


def hold(i, name):
    RUNS.append((i, get_worker().name))
    Event(name).wait()
    return i


def hold_seceded(name):
    RUNS.append(("seceded", get_worker().name))
    secede()
    Event(name).wait()
    return "seceded"


def with_client(name):
    RUNS.append(("outer", get_worker().name))
    with worker_client() as client:
        Event(name, client=client).wait()
        return client.gather(client.map(run, ["a", "b"], pure=False))


class Actor:
    def value(self):
        return 1


@pytest.fixture(autouse=True)
def _no_runs():
    RUNS.clear()


def runs_of():
    return Count(i for i, _ in RUNS)


async def set_event(cluster, name):
    await Event(name, client=cluster.client).set()


async def test_each_task_runs_once_and_results_are_moved(start):
    cluster = await start()
    leaving, staying = await cluster.add("gpu-0"), await cluster.add("gpu-1")
    futures = cluster.client.map(run, range(20), seconds=0.02, resources=GPU, pure=False)
    await until(lambda: len(RUNS) > 4)
    await cluster.desire("gpu-0")
    row = await cluster.until_retiring(leaving, "drained")
    assert (row["processing"], row["held_keys"], row["status"], row["blockers"]) == (0, 0, "closing_gracefully", [])
    assert await cluster.client.gather(futures) == list(range(20))
    assert set(runs_of().values()) == {1}
    assert {ws.address for f in futures for ws in cluster.scheduler.tasks[f.key].who_has} >= {staying.address}
    await leaving.close()
    assert await cluster.client.gather(futures) == list(range(20))
    assert set(runs_of().values()) == {1}
    cluster.scheduler.validate_state()


async def test_queued_tasks_are_recalled_and_the_running_one_is_waited_for(start):
    cluster = await start()
    leaving = await cluster.add("gpu-0")
    futures = [cluster.client.submit(hold, i, "queued", resources=GPU, priority=-i) for i in range(5)]
    await until(lambda: RUNS and len(cluster.state(leaving).processing) == 5)
    await cluster.desire("gpu-0")
    await until(lambda: len(cluster.state(leaving).processing) == 1)
    row = await cluster.row(leaving)
    assert (row["retiring"], row["blockers"], row["own"]) == ("draining", ["running"], 1)
    assert "hold" in row["detail"]
    assert (await cluster.entry(GPU=1))["unrunnable"] == 4
    staying = await cluster.add("gpu-1")
    await set_event(cluster, "queued")
    assert await cluster.client.gather(futures) == list(range(5))
    await cluster.until_retiring(leaving, "drained")
    assert Count(name for _, name in RUNS) == {leaving.name: 1, staying.name: 4}


@pytest.mark.parametrize("task", [hold_seceded, with_client])
async def test_seceded_tasks_are_kept_and_do_not_run_twice(start, task):
    cluster = await start()
    leaving = await cluster.add("gpu-0")
    await cluster.add("gpu-1")
    await cluster.add("cpu-0")
    future = cluster.client.submit(task, "seceded", workers=[leaving.address], allow_other_workers=True, pure=False)
    await until(lambda: cluster.state(leaving).long_running)
    await cluster.desire("gpu-0")
    drain = cluster.preload.retirement._drains[leaving.address]
    asked = cluster.preload.retirement.recall._requests[leaving.address]
    await until(lambda: asked.begun, "the worker's word that it keeps the task, after which it could go wrong")
    looks = cluster.count(drain, "step")
    await until(lambda: looks() >= 3, "looks after that word")
    assert (await cluster.row(leaving))["retiring"] == "draining"
    assert set(runs_of().values()) == {1}
    await set_event(cluster, "seceded")
    await future
    await cluster.until_retiring(leaving, "drained")
    assert set(runs_of().values()) == {1}


async def test_a_busy_worker_is_refused_with_if_idle_and_stays_open(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    future = cluster.client.submit(hold, 0, "busy", resources=GPU)
    await until(lambda: RUNS)
    answer = await cluster.desire("gpu-0", if_idle=True)
    assert [r["pod"] for r in answer["refused"]] == [pod_name("gpu-0")]
    assert "hold" in answer["refused"][0]["why"]
    row = await cluster.row(gpu)
    assert (row["status"], row["retiring"]) == ("running", "")
    await set_event(cluster, "busy")
    await future
    await until(lambda: _accepted(cluster))
    await cluster.add("gpu-1")
    await cluster.until_retiring(gpu, "drained")


async def _accepted(cluster):
    return not (await cluster.desire("gpu-0", if_idle=True))["refused"]


async def test_a_plain_task_is_not_own_work_of_an_annotated_pool(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    future = cluster.client.submit(hold, 0, "plain", workers=[gpu.address], allow_other_workers=True)
    await until(lambda: RUNS)
    assert (await cluster.row(gpu))["own"] == 0
    assert (await cluster.desire("gpu-0", if_idle=True))["refused"] == []
    await set_event(cluster, "plain")
    await future


async def test_the_workers_of_a_pod_leave_together(start):
    cluster = await start()
    one, two = await cluster.add("gpu-0-0"), await cluster.add("gpu-0-1")
    future = cluster.client.submit(hold, 0, "pod", resources=GPU, workers=[two.address])
    await until(lambda: RUNS)
    assert (await cluster.desire("gpu-0", if_idle=True))["refused"]
    assert cluster.state(one).status.name == "running"
    await cluster.desire("gpu-0")
    await until(lambda: cluster.preload.retirement._drains[one.address].state == "drained")
    assert (await cluster.row(one))["retiring"] == "draining"
    await set_event(cluster, "pod")
    await future
    del future
    await cluster.until_retiring(one, "drained")
    await cluster.until_retiring(two, "drained")


async def test_results_do_not_move_to_a_worker_that_leaves_too(start):
    cluster = await start()
    one, two = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    staying = await cluster.add("cpu-2")
    [x] = await cluster.client.scatter([1], workers=[one.address])
    [y] = await cluster.client.scatter([[2]], workers=[two.address])
    await cluster.desire("cpu-0", "cpu-1")
    await cluster.until_retiring(one, "drained")
    await cluster.until_retiring(two, "drained")
    for future in (x, y):
        assert cluster.state(staying) in cluster.scheduler.tasks[future.key].who_has


async def test_a_result_copied_only_among_leaving_workers_is_moved_on(start):
    cluster = await start()
    one, two = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    [x] = await cluster.client.scatter([[1]], broadcast=True)
    await cluster.desire("cpu-0", "cpu-1")
    await cluster.until_retiring(one, "blocked")
    staying = await cluster.add("cpu-2")
    await cluster.until_retiring(one, "drained")
    await cluster.until_retiring(two, "drained")
    assert cluster.state(staying) in cluster.scheduler.tasks[x.key].who_has


async def test_a_drain_is_undone_when_the_pod_is_no_longer_named(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    running = cluster.client.submit(hold, 0, "undo", resources=GPU)
    await until(lambda: RUNS)
    waiting = cluster.client.submit(run, 1, resources=GPU)
    await until(lambda: waiting.key in cluster.scheduler.tasks)
    await cluster.desire("gpu-0")
    await until(lambda: cluster.scheduler.unrunnable)
    assert [ts.key for ts in cluster.scheduler.unrunnable] == [waiting.key]
    await cluster.desire()
    await until(lambda: cluster.state(gpu).status.name == "running", "the worker says that it is open")
    row = await cluster.row(gpu)
    assert (row["retiring"], row["detail"].startswith("task")) == ("", True)
    await set_event(cluster, "undo")
    assert await cluster.client.gather([running, waiting]) == [0, 1]
    assert gpu.status.name == "running"
    assert set(runs_of().values()) == {1}


async def test_a_drained_worker_takes_no_task_until_it_is_no_longer_named(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await cluster.desire("gpu-0")
    await cluster.until_retiring(gpu, "drained")
    future = cluster.client.submit(run, 1, resources=GPU)
    await until(lambda: cluster.scheduler.unrunnable)
    await cluster.desire("gpu-0")  # sent twice: nothing changes
    assert (await cluster.row(gpu))["retiring"] == "drained"
    await cluster.desire()
    assert await future == 1


async def test_an_actor_blocks_and_is_named(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    actor = await cluster.client.submit(Actor, actor=True, resources=GPU)
    await cluster.desire("gpu-0")
    row = await cluster.until_retiring(gpu, "blocked")
    assert row["blockers"] == ["actor"]
    assert "Actor" in row["detail"]
    assert await actor.value() == 1


async def test_the_last_worker_of_all_is_blocked_by_data_until_the_client_drops_it(start):
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    future = cluster.client.submit(run, 1)
    await wait(future)
    assert (await cluster.row(cpu))["blockers"] == ["data"]
    await cluster.desire("cpu-0")
    row = await cluster.until_retiring(cpu, "blocked")
    assert row["blockers"] == ["data"]
    assert "1 of int" in row["detail"]
    assert f"{row['held_bytes']} bytes" in row["detail"]
    del future
    await cluster.until_retiring(cpu, "drained")


async def test_blocked_data_moves_when_a_worker_joins(start):
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    future = cluster.client.submit(run, 1)
    await wait(future)
    await cluster.desire("cpu-0")
    await cluster.until_retiring(cpu, "blocked")
    await cluster.add("cpu-1")
    await cluster.until_retiring(cpu, "drained")
    await cpu.close()
    assert await future == 1
    assert runs_of() == {1: 1}


async def test_results_that_are_let_go_are_computed_again_when_somebody_asks_and_not_before(start):
    cluster = await start()
    await cluster.add("cpu-0")
    gpu = await cluster.add("gpu-0")
    future = cluster.client.submit(run, 1, resources=GPU)
    await wait(future)
    await cluster.desire("gpu-0", data="release")
    await cluster.until_retiring(gpu, "drained")
    assert await future == 1, "it can be fetched as long as it is there"
    await gpu.close()
    await until(lambda: future.status == "error")
    assert await cluster.entry(GPU=1.0) is None, "a pool would start for what was just let go"
    with pytest.raises(RuntimeError, match=r"was let go with the idle worker demo-gpu-worker-0.* Client\.retry"):
        await future
    assert runs_of() == {1: 1}
    await cluster.client.retry([future])
    await until(lambda: cluster.scheduler.unrunnable)
    await cluster.desire()
    await cluster.add("gpu-1")
    assert await future == 1
    assert runs_of() == {1: 2}


@pytest.mark.parametrize("steps", [1, 2], ids=["itself", "with what it was computed of"])
async def test_what_a_waiting_task_needs_is_computed_again_at_once_also_when_it_was_let_go(start, steps: int):
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    gpu = await cluster.add("gpu-0")
    results = [cluster.client.submit(run, 1, resources=GPU)]
    while len(results) < steps:
        results.append(cluster.client.submit(run, results[-1], resources=GPU))
    await wait(results)
    held = cluster.client.submit(hold, 2, "go", workers=[cpu.address])
    total = cluster.client.submit(sum, [results[-1], held])
    await until(lambda: cluster.state(cpu).processing)
    await cluster.desire("gpu-0", data="release")
    await cluster.until_retiring(gpu, "drained")
    await gpu.close()
    await until(lambda: cluster.scheduler.unrunnable)
    await cluster.desire()
    await cluster.add("gpu-1")
    await set_event(cluster, "go")
    assert await total == 3
    assert await results[0] == 1


async def test_a_result_that_is_lost_later_is_computed_again_of_those_that_were_let_go(start):
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    gpu = await cluster.add("gpu-0")
    first = cluster.client.submit(run, 1, resources=GPU)
    second = cluster.client.submit(run, first, workers=[cpu.address], allow_other_workers=True)
    await wait(second)
    cluster.scheduler.remove_replica(cluster.scheduler.tasks[first.key], cluster.state(cpu))  # its copy of the first
    await cluster.desire("gpu-0", data="release")
    await cluster.until_retiring(gpu, "drained")
    await gpu.close()
    await until(lambda: first.status == "error")
    await cpu.close()
    await cluster.desire()
    await cluster.add("cpu-1")
    await cluster.add("gpu-1")
    assert await second == 1
    assert await first == 1, "it was needed, and so it is there"


async def test_a_pod_that_is_not_known_yet_is_not_refused_and_is_closed_when_it_comes(start):
    cluster = await start()
    assert (await cluster.desire("gpu-0", if_idle=True))["refused"] == []
    future = cluster.client.submit(run, 1, resources=GPU)
    await until(lambda: cluster.scheduler.unrunnable)
    gpu = await cluster.add("gpu-0")
    await cluster.until_retiring(gpu, "drained")
    await until(lambda: gpu.status.name == "closing_gracefully")
    assert RUNS == []
    await cluster.desire()
    assert await future == 1


async def test_a_worker_that_comes_back_is_closed_again(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await cluster.desire("gpu-0")
    await cluster.until_retiring(gpu, "drained")
    await gpu.close()
    await until(lambda: not cluster.scheduler.workers)
    again = await cluster.add("gpu-0")
    await cluster.until_retiring(again, "drained")


async def test_after_a_restart_of_the_scheduler_the_operators_word_is_asked_for_again(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await cluster.desire("gpu-0")
    await cluster.until_retiring(gpu, "drained")
    after = await start(pools=cluster.pools)
    again = await after.add("gpu-0")
    fresh = type(after.preload)(after.scheduler)
    assert fresh.answer()["desired_version"] == ""
    assert fresh.version != cluster.preload.version
    await after.desire("gpu-0")
    await after.until_retiring(again, "drained")


async def test_a_worker_that_dies_in_the_middle_is_simply_gone(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    future = cluster.client.submit(hold, 0, "dies", resources=GPU)
    await until(lambda: RUNS)
    await cluster.desire("gpu-0")
    await cluster.scheduler.remove_worker(gpu.address, stimulus_id="test", close=True)
    assert (await cluster.demand())["workers"] == []
    assert not cluster.preload.retirement._drains
    await set_event(cluster, "dies")
    await cluster.add("gpu-1")
    assert await future == 0


async def test_a_recipient_that_dies_before_the_pod_is_deleted_is_noticed(start):
    cluster = await start()
    leaving, recipient = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    [future] = await cluster.client.scatter([[1]], workers=[leaving.address])
    await cluster.desire("cpu-0")
    await cluster.until_retiring(leaving, "drained")
    await recipient.close()
    row = await cluster.until_retiring(leaving, "blocked")
    assert row["blockers"] == ["data"]
    assert await future == [1]


async def test_copies_on_a_drained_worker_are_none_once_the_other_holder_leaves_too(start):
    """Else the memory manager may drop the other one, and the drained worker's pod is being deleted by then."""
    cluster = await start()
    drained, holder = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    future = cluster.client.submit(run, 1, workers=[drained.address], pure=False)
    assert await future == 1
    await cluster.desire("cpu-0")
    await cluster.until_retiring(drained, "drained")
    await cluster.desire("cpu-0", "cpu-1")
    await cluster.until_retiring(holder, "blocked")
    cluster.scheduler.extensions["amm"].run_once()
    await drained.close()
    assert cluster.scheduler.tasks[future.key].who_has == {cluster.state(holder)}
    assert await future == 1
    assert len(RUNS) == 1


async def test_a_client_restart_does_not_open_a_leaving_worker(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await cluster.desire("gpu-0")
    await cluster.until_retiring(gpu, "drained")
    await cluster.client.restart(wait_for_workers=False, timeout=5)
    await until(lambda: not cluster.scheduler.workers)
    again = await cluster.add("gpu-0")
    assert (await cluster.until_retiring(again, "drained"))["status"] == "closing_gracefully"


async def test_tasks_that_are_being_stolen_towards_a_leaving_worker_are_recalled(start):
    cluster = await start()
    staying, leaving = await cluster.add("gpu-0"), await cluster.add("gpu-1")
    futures = [cluster.client.submit(hold, i, "steal", resources=GPU) for i in range(6)]
    await until(lambda: len(RUNS) == 2)
    stealing = cluster.scheduler.extensions["stealing"]
    for ts in list(cluster.state(staying).processing):
        stealing.move_task_request(ts, cluster.state(staying), cluster.state(leaving))
    await cluster.desire("gpu-1")
    await until(lambda: not stealing.in_flight and len(cluster.state(leaving).processing) == 1)
    await set_event(cluster, "steal")
    await cluster.client.gather(futures)
    assert set(runs_of().values()) == {1}


async def test_a_participant_of_a_shuffle_is_not_closed_before_it_ends(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    shuffling = _Shuffling([gpu.address])
    cluster.scheduler.add_plugin(shuffling, name="shuffling")
    assert (await cluster.row(gpu))["blockers"] == ["shuffle"]
    assert "shuffle" in (await cluster.desire("gpu-0", if_idle=True))["refused"][0]["why"]
    await cluster.desire("gpu-0")
    row = await cluster.row(gpu)
    assert (row["status"], row["retiring"], row["blockers"]) == ("running", "draining", ["shuffle"])
    shuffling.addresses = []
    await cluster.until_retiring(gpu, "drained")


class _Shuffling:
    """A plugin that says who must stay, as the P2P shuffle's does."""

    def __init__(self, addresses):
        self.addresses = addresses

    def valid_workers_downscaling(self, scheduler, workers):
        return [ws for ws in workers if ws.address not in self.addresses]

    def __getattr__(self, name):
        return lambda *_args, **_kwargs: None


# ---- values that cannot be moved ----


class Unsendable:
    def __reduce__(self):
        raise TypeError("cannot pickle a handle")


def _lacks_a_device():
    raise ValueError("no such device here")


class Unreadable:
    def __reduce__(self):
        return _lacks_a_device, ()


def _lacks_a_file():
    raise FileNotFoundError("/no/such/file")


class Unopened:
    """Its error looks like a broken connection to distributed."""

    def __reduce__(self):
        return _lacks_a_file, ()


class ReadAtLast:
    """Unpickles from the second try on."""

    tries = 0

    def __reduce__(self):
        return _read_at_last, ()


def _read_at_last():
    ReadAtLast.tries += 1
    if ReadAtLast.tries < 2:
        raise ValueError("not yet")
    return ReadAtLast()


def make(kind):
    RUNS.append((kind.__name__, get_worker().name))
    return kind()


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (Unsendable, "TypeError: Could not serialize object of type Unsendable"),
        (Unreadable, "ValueError: no such device here"),
        (Unopened, "the connection broke"),
    ],
)
async def test_a_value_that_cannot_be_moved_is_told_with_its_error_and_kept_and_the_others_move(start, kind, error):
    cluster = await start()
    leaving = await cluster.add("gpu-0")
    bad = cluster.client.submit(make, kind, resources=GPU, pure=False)
    good = cluster.client.map(run, range(6), resources=GPU, pure=False)
    await wait([bad, *good])
    staying = await cluster.add("gpu-1")
    await cluster.desire("gpu-0")
    row = await cluster.until_retiring(leaving, "blocked")
    assert row["blockers"] == ["data"]
    assert row["detail"].startswith("1 results (")
    assert f"cannot be moved: {bad.key}: {error}" in row["detail"]
    assert row["held_keys"] == 1
    assert cluster.state(leaving).status.name == "closing_gracefully"
    for future in good:
        assert cluster.state(staying) in cluster.scheduler.tasks[future.key].who_has
    assert [ws.address for ws in cluster.scheduler.tasks[bad.key].who_has] == [leaving.address]
    assert set(runs_of().values()) == {1}
    await cluster.desire("gpu-0", data="release")
    await cluster.until_retiring(leaving, "drained")


async def test_a_value_that_cannot_be_moved_is_not_asked_for_again_and_again(start):
    cluster = await start()
    leaving = await cluster.add("gpu-0")
    bad = cluster.client.submit(make, Unreadable, resources=GPU, pure=False)
    await wait(bad)
    await cluster.add("gpu-1")
    await cluster.desire("gpu-0")
    await cluster.until_retiring(leaving, "blocked")
    asks = cluster.count(cluster.scheduler, "request_acquire_replicas")
    looks = cluster.count(cluster.preload.retirement._drains[leaving.address], "step")
    await until(lambda: looks() >= 5, "looks: one each half a second")
    assert asks() <= 2
    del bad
    await cluster.until_retiring(leaving, "drained")


async def test_a_value_whose_transfer_failed_moves_when_it_can(start):
    cluster = await start()
    ReadAtLast.tries = 0
    leaving = await cluster.add("gpu-0")
    future = cluster.client.submit(make, ReadAtLast, resources=GPU, pure=False)
    await wait(future)
    staying = await cluster.add("gpu-1")
    await cluster.desire("gpu-0")
    await until(lambda: "not yet" in cluster.preload.retirement._drains[leaving.address].detail)
    await cluster.until_retiring(leaving, "drained")
    assert cluster.state(staying) in cluster.scheduler.tasks[future.key].who_has
    assert ReadAtLast.tries >= 2
    assert set(runs_of().values()) == {1}


async def test_a_worker_that_does_not_say_what_its_results_need_is_told(start, monkeypatch):
    from gpudask.preload.drains import gpu_results

    cluster = await start()
    monkeypatch.setattr(gpu_results, "examine", _cannot_examine)
    gpu = await cluster.add("gpu-0")
    await cluster.add("cpu-0")
    future = cluster.client.submit(run, 1, resources=GPU)
    await wait(future)
    await cluster.desire("gpu-0")
    row = await cluster.until_retiring(gpu, "blocked")
    assert row["blockers"] == ["data"]
    assert "the worker does not say what they need: RuntimeError: out of order" in row["detail"]


async def _cannot_examine(keys, seconds, dask_worker):
    raise RuntimeError("out of order")


# ---- what needs a GPU: workers in processes of their own, in an image without gpudask ----


@contextlib.asynccontextmanager
async def image_workers(cluster, *names):
    """Start workers whose environment says whether there is a GPU, and which cannot import gpudask."""
    (cluster.folder / "image").mkdir(exist_ok=True)
    (cluster.folder / "image" / "gpudask.py").write_text("raise ImportError('not in this image')")
    processes = []
    for name in names:
        pool = name.partition("-")[0]
        env = os.environ | {
            "PYTHONPATH": f"{cluster.folder / 'image'}:{USER_MODULES}",
            "KIND": pool,
            "ATTEMPTS": str(cluster.folder / "attempts"),
            "RUNS": str(cluster.folder / "runs"),
        }
        command = [sys.executable, "-m", "dask", "worker", cluster.scheduler.address, "--no-nanny", "--nthreads", "1"]
        command += ["--name", pod_name(name), *(["--resources", "GPU=1"] if pool == "gpu" else [])]
        command += ["--no-dashboard", "--memory-limit", "0"]
        processes.append(await asyncio.create_subprocess_exec(*command, env=env, stderr=asyncio.subprocess.DEVNULL))
    try:
        await until(lambda: len(cluster.scheduler.running) == len(names), "workers")
        yield [next(w for w in cluster.scheduler.workers.values() if w.name == pod_name(n)) for n in names]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@pytest.fixture
def gpu_only(monkeypatch):
    monkeypatch.syspath_prepend(USER_MODULES)
    import gpu_only

    return gpu_only


async def test_what_needs_a_gpu_goes_to_gpu_workers_only_and_is_never_computed_again(start, gpu_only):
    cluster = await start()
    client = cluster.client
    async with image_workers(cluster, "gpu-0", "gpu-1", "cpu-0") as (first, second, cpu):
        makers = [gpu_only.make, gpu_only.make_inside_host_types, gpu_only.make_host_safe]
        on_gpu, deep, safe = [client.submit(f, 5, resources=GPU, workers=[first.address]) for f in makers]
        await wait([on_gpu, deep, safe])
        await cluster.desire("gpu-0")
        await cluster.until_retiring(first, "drained")
        for future in (on_gpu, deep, safe):
            assert second in cluster.scheduler.tasks[future.key].who_has
            assert cpu not in cluster.scheduler.tasks[future.key].who_has
        # the last of its pool: the host-safe result may go to the CPU worker, the others have no place
        await cluster.desire("gpu-0", "gpu-1")
        row = await cluster.until_retiring(second, "blocked")
        assert row["blockers"] == ["data"]
        assert "2 of gpu_only" in row["detail"]
        assert cpu in cluster.scheduler.tasks[safe.key].who_has
        assert cpu not in cluster.scheduler.tasks[on_gpu.key].who_has | cluster.scheduler.tasks[deep.key].who_has
        # a drain undone: the worker serves again
        await cluster.desire("gpu-0")
        assert await client.submit(gpu_only.read, on_gpu, resources=GPU) == 5
        await cluster.desire("gpu-0", "gpu-1")
        await cluster.until_retiring(second, "blocked")
        del on_gpu, deep
        await cluster.until_retiring(second, "drained")
        assert (await safe)["number"] == 5
    assert "cpu" not in (cluster.folder / "attempts").read_text()
    assert (cluster.folder / "runs").read_text().count("run") == 3


@pytest.mark.parametrize("resources", [{}, {"MEMORY": 1}, GPU], ids=["no-offers", "other-offers", "gpu"])
async def test_what_a_gpu_pool_holds_is_examined_whatever_it_offers_and_accepts(start, resources):
    cluster = await start(pools={"cpu": "any", "gpu": "any", "gpu2": "any"})
    gpu = await cluster.add("gpu-0", resources=resources)
    await cluster.add("cpu-0", resources={"MEMORY": 1, "GPU": 1})
    future = cluster.client.submit(make, Actor, workers=[gpu.address], pure=False)
    await wait(future)
    await cluster.desire("gpu-0")
    row = await cluster.until_retiring(gpu, "blocked")
    assert "1 of tests.preload.test_retire.Actor" in row["detail"]
    other = await cluster.add("gpu2-0", resources=resources)
    await cluster.until_retiring(gpu, "drained")
    assert cluster.state(other) in cluster.scheduler.tasks[future.key].who_has


def test_the_allow_list_finds_what_is_deep_inside_and_does_not_copy_arrays():
    import collections
    import datetime as dt
    import decimal
    import json
    import threading

    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from gpudask.preload.drains.gpu_results import gpu_dependency

    frame = pd.DataFrame({"a": [1, 2], "t": pd.to_datetime(["2020", "2021"]), "s": ["x", "y"]})
    safe = [
        1, "x", None, [1, {2: (3.0, b"4")}], {1, 2}, frame, frame.a, np.arange(5), np.float64(1), np.array([None, "x"]),
        dt.datetime.now(dt.UTC), decimal.Decimal(1), collections.OrderedDict(a=1), Path("x"),
        pa.table({"a": [1]}), slice(1), range(3), complex(1), np.random.default_rng(1), pd.Categorical(["a"]),
        frame.set_index("t"), np.sum, dict, collections.defaultdict(list, a=[1]),
    ]  # fmt: skip
    for value in safe:
        assert gpu_dependency(value) == "", value
    own = json.JSONDecoder()
    unsafe = [
        own, [own], {1: own}, pd.Series([own]), np.array([own]), json.JSONDecoder, json.loads, lambda: 1,
        collections.defaultdict(json.JSONDecoder), threading.Lock(), _Cuda(), own.decode,
    ]  # fmt: skip
    for value in unsafe:
        assert gpu_dependency(value) != "", value


class _Cuda:
    __module__ = "numpy.look_alike"
    __cuda_array_interface__ = {}  # noqa: RUF012


async def test_a_stranger_worker_takes_results_too(start):
    cluster = await start()
    cpu = await cluster.add("cpu-0")
    async with Worker(cluster.scheduler.address, name=1, nthreads=1, memory_limit=0) as stranger:
        [future] = await cluster.client.scatter([[1]], workers=[cpu.address])
        await cluster.desire("cpu-0")
        await cluster.until_retiring(cpu, "drained")
        assert cluster.state(stranger) in cluster.scheduler.tasks[future.key].who_has
