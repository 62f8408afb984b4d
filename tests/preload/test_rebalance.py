"""Waiting tasks that ask for something spread over the workers that offer it, as soon as one joins."""

import time
import collections
from dataclasses import dataclass

import dask
import pytest
from distributed import Event, get_worker, wait

from gpudask.preload import rebalance

from .cluster import GPU, until

ILLEGAL = "cudaErrorIllegalAddress: an illegal memory access was encountered"
ran = []  # (what, where) of each start of a task; workers live in this process


@pytest.fixture(autouse=True)
def nobody_else_steals():
    """Leave all moving to the preload, and forget what earlier tests ran."""
    ran.clear()
    with dask.config.set({"distributed.scheduler.work-stealing-interval": "1 hour"}):
        yield


def held(i, name="go"):
    ran.append((i, get_worker().address))
    Event(name).wait()


def short(i):
    ran.append((i, get_worker().address))
    time.sleep(0.1)


def fail():
    raise RuntimeError(ILLEGAL)


class Large:
    """A result that says it is large."""

    def __init__(self, size):
        self.size = size

    def __sizeof__(self):
        return self.size


def use(_large, i):
    ran.append((i, get_worker().address))
    Event("go").wait()


class Counter:
    n = 0


def know(cluster, prefix, seconds):
    """Let the preload know how long tasks of a prefix take: exactly, since how many are moved follows from it."""
    cluster.preload.demand._durations.learn(prefix, "gpu", [{"action": "compute", "start": 0.0, "stop": seconds}])


@dataclass
class Slice:
    looked: int = 0  # tasks that it looked at
    asked: int = 0  # requests to workers


class Slices:
    """The slices of work from now on. Each begins with the question which tasks are assigned to workers."""

    def __init__(self, cluster, monkeypatch):
        self.done = []
        self.before = lambda: None  # called at the beginning of each
        self._is_answer = False
        stealing, handlers = cluster.scheduler.extensions["stealing"], cluster.scheduler.stream_handlers
        assigned, ask = cluster.preload.demand.assigned, stealing.move_task_request
        requirement_of, answered = rebalance.requirement_of, handlers["steal-response"]

        def begin():
            self.before()
            self.done.append(Slice())
            return assigned()

        def look(ts):
            if self.done and not self._is_answer:
                self.done[-1].looked += 1
            return requirement_of(ts)

        def request(ts, giver, taker):
            self.done[-1].asked += 1
            return ask(ts, giver, taker)

        def answer(**message):
            self._is_answer = True
            answered(**message)
            self._is_answer = False

        monkeypatch.setattr(cluster.preload.demand, "assigned", begin)
        monkeypatch.setattr(rebalance, "requirement_of", look)
        monkeypatch.setattr(stealing, "move_task_request", request)
        handlers["steal-response"] = answer

    @property
    def looked(self):
        return sum(done.looked for done in self.done)


def given(cluster, worker):
    return len(cluster.state(worker).processing)


async def queue(cluster, worker, function=held, n=40, resources=GPU, **options):
    """Give a worker so many tasks and let the preload count them."""
    before = given(cluster, worker)
    futures = cluster.client.map(function, range(n), resources=resources, pure=False, **options)
    await until(lambda: given(cluster, worker) == before + n)
    # A heartbeat later: the scheduler knows which one runs.
    await until(lambda: cluster.state(worker).processing & cluster.state(worker).executing.keys())
    await cluster.demand()
    return futures


async def finish(cluster, futures):
    """Let the tasks end; each began once."""
    await Event("go", client=cluster.client).set()
    await wait(futures, timeout=60)
    assert all(future.status == "finished" for future in futures)
    assert len(ran) == len(set(ran)), "a task began twice"
    cluster.scheduler.validate_state()


async def nothing_goes_to(cluster, *workers):
    """See two whole slices pass in which nothing is asked for, and nothing came to these workers."""
    stealing = cluster.scheduler.extensions["stealing"]
    requests = cluster.count(stealing, "move_task_request")
    slices = cluster.count(cluster.preload.demand, "assigned")
    cluster.preload.watch.touch()
    await until(lambda: slices() >= 1)
    # A worker's status is news for all that had nothing to give.
    status = {"worker": cluster.workers[0].address, "status": "running", "stimulus_id": "still-running"}
    cluster.scheduler.stream_handlers["worker-status-change"](**status)
    before = slices()
    await until(lambda: slices() > before)
    assert not requests()
    assert not stealing.in_flight
    assert [given(cluster, worker) for worker in workers] == [0] * len(workers)


async def test_a_worker_that_joins_gets_its_share_of_the_waiting_tasks_before_any_task_ends(start):
    cluster = await start()
    first = await cluster.add("gpu-0")
    know(cluster, "held", 0.1)
    futures = await queue(cluster, first)
    second = await cluster.add("gpu-1")
    await until(lambda: (given(cluster, first), given(cluster, second)) == (20, 20))
    third = await cluster.add("gpu-2", nthreads=2, resources={"GPU": 2})
    await until(lambda: [given(cluster, worker) for worker in (first, second, third)] == [10, 10, 20])
    await finish(cluster, futures)
    assert len(ran) == 40


@pytest.mark.parametrize("joining", [1, 3])
async def test_no_worker_runs_much_more_than_its_share_of_a_queue_and_each_task_runs_once(start, joining):
    with dask.config.set({"distributed.scheduler.work-stealing-interval": "1s"}):  # the default
        cluster = await start()
    await cluster.add("cpu-0", nthreads=8)  # idle workers of another kind are what makes work stealing slow
    await cluster.add("gpu-0")
    futures = cluster.client.map(short, range(100), resources=GPU, pure=False)
    await until(lambda: len(ran) >= 2)
    others = [await cluster.add(f"gpu-{i}") for i in range(1, joining + 1)]
    await until(lambda: all(given(cluster, worker) for worker in others))
    before = len(ran)
    await wait(futures, timeout=60)
    assert sorted(i for i, _ in ran) == list(range(100))
    # All tasks take the same time: who ran the most of those that were left says how long that took.
    shares = collections.Counter(where for _, where in ran[before:])
    assert max(shares.values()) < 1.5 * (100 - before) / (joining + 1) + 2, shares


async def test_a_worker_gets_a_few_seconds_of_work_and_more_when_half_of_it_is_used_up(start):
    cluster = await start()
    first = await cluster.add("gpu-0")
    know(cluster, "held", 1.0)
    futures = await queue(cluster, first, n=60)
    second = await cluster.add("gpu-1")
    await until(lambda: given(cluster, second) == 1 + 3)
    await nothing_goes_to(cluster)
    assert given(cluster, second) == 4
    await finish(cluster, futures)


async def test_the_most_urgent_of_the_waiting_tasks_go_first(start):
    cluster = await start()
    first = await cluster.add("gpu-0")
    know(cluster, "held", 1.0)
    idle = await queue(cluster, first, n=30)
    urgent = cluster.client.map(held, range(100, 104), resources=GPU, pure=False, priority=10)
    await until(lambda: given(cluster, first) == 34)
    second = await cluster.add("gpu-1")
    await until(lambda: given(cluster, second) == 4)
    assert {ts.key for ts in cluster.state(second).processing} == {future.key for future in urgent}
    await finish(cluster, [*idle, *urgent])


async def test_tasks_that_name_another_worker_stay(start):
    cluster = await start()
    first = await cluster.add("gpu-0")
    futures = await queue(cluster, first, n=10, workers=[first.address])
    second = await cluster.add("gpu-1")
    await nothing_goes_to(cluster, second)
    await finish(cluster, futures)
    assert {where for _, where in ran} == {first.address}


async def test_actors_stay(start):
    cluster = await start()
    first = await cluster.add("gpu-0")
    futures = await queue(cluster, first, n=1)
    actors = [cluster.client.submit(Counter, actor=True, resources=GPU, pure=False) for _ in range(5)]
    await until(lambda: given(cluster, first) == 6)
    second = await cluster.add("gpu-1")
    await nothing_goes_to(cluster, second)
    await finish(cluster, [*futures, *actors])


async def test_plain_tasks_stay(start):
    with dask.config.set({"distributed.scheduler.worker-saturation": float("inf")}):
        cluster = await start(pools={"gpu": "any"})
    first = await cluster.add("gpu-0")
    futures = await queue(cluster, first, n=10, resources=None)
    futures += await queue(cluster, first, n=1)
    second = await cluster.add("gpu-1")
    await until(lambda: given(cluster, second) == 1)
    assert [ts.resource_restrictions for ts in cluster.state(second).processing] == [GPU]
    await finish(cluster, futures)


async def test_tasks_of_several_gpus_go_only_where_so_many_are_offered(start):
    cluster = await start()
    first = await cluster.add("gpu-0", nthreads=2, resources={"GPU": 2})
    know(cluster, "held", 0.1)
    futures = await queue(cluster, first, n=12, resources={"GPU": 2})
    small = await cluster.add("gpu-1")
    await nothing_goes_to(cluster, small)
    large = await cluster.add("gpu-2", nthreads=2, resources={"GPU": 2})
    await until(lambda: (given(cluster, first), given(cluster, large)) == (6, 6))
    assert not given(cluster, small)
    await finish(cluster, futures)


async def test_a_kind_of_task_that_cannot_move_does_not_hold_back_another(start):
    cluster = await start()
    first = await cluster.add("gpu-0", nthreads=2, resources={"GPU": 2})
    futures = await queue(cluster, first, n=12, resources={"GPU": 2})
    futures += await queue(cluster, first, n=4)
    small = await cluster.add("gpu-1")
    await until(lambda: given(cluster, small) == 4)
    await finish(cluster, futures)


async def test_a_worker_with_a_sick_device_gets_no_more(start):
    cluster = await start()
    first = await cluster.add("gpu-0")
    second = await cluster.add("gpu-1")
    for _ in range(3):
        await wait(cluster.client.submit(fail, resources=GPU, pure=False, workers=[second.address]))
    assert cluster.preload.device_health.message(cluster.state(second))
    futures = await queue(cluster, first, n=10, workers=[first.address])
    for ts in list(cluster.state(first).processing):
        ts.worker_restrictions = None  # they were only to get there
    await nothing_goes_to(cluster, second)
    await finish(cluster, futures)


async def test_a_worker_that_leaves_gets_no_more(start):
    cluster = await start()
    first = await cluster.add("gpu-0")
    await cluster.desire("gpu-1")
    futures = await queue(cluster, first, n=10)
    second = await cluster.add("gpu-1")
    await nothing_goes_to(cluster, second)
    await cluster.desire()  # it stays after all
    await until(lambda: given(cluster, second) == 5)
    await finish(cluster, futures)


async def test_a_task_on_its_way_to_a_worker_that_begins_to_leave_goes_elsewhere(start):
    cluster = await start()
    first = await cluster.add("gpu-0")
    futures = await queue(cluster, first, n=11)
    desired = cluster.preload.desired_version

    class Wish:
        pod, data, if_idle, forced = "demo-gpu-worker-1-00000", "move", False, False

    stealing = cluster.scheduler.extensions["stealing"]
    ask, came = stealing.move_task_request, []

    def ask_and_retire(ts, giver, taker):
        request = ask(ts, giver, taker)
        cluster.preload.retirement.retire((Wish(),))
        came.append(given)
        return request

    stealing.move_task_request = ask_and_retire
    second = await cluster.add("gpu-1")
    await until(lambda: came)
    await until(lambda: not stealing.in_flight)
    assert (given(cluster, first), given(cluster, second)) == (11, 0)
    assert desired == cluster.preload.desired_version
    await finish(cluster, futures)
    assert {where for _, where in ran} == {first.address}


@pytest.mark.parametrize(("size", "moved"), [(10**12, 0), (10, 10)])
async def test_a_task_moves_only_if_it_ends_earlier_for_all_that_must_be_copied(start, size, moved):
    cluster = await start()
    first = await cluster.add("gpu-0")
    large = cluster.client.submit(Large, size, resources=GPU)
    await wait(large)
    know(cluster, "use", 0.1)
    futures = [cluster.client.submit(use, large, i, resources=GPU, pure=False) for i in range(20)]
    await until(lambda: given(cluster, first) == 20 and cluster.state(first).executing)
    await cluster.demand()
    second = await cluster.add("gpu-1")
    if moved:
        await until(lambda: given(cluster, second) == moved)
    else:
        await nothing_goes_to(cluster, second)
    await finish(cluster, futures)


async def test_slices_are_bounded_however_long_the_queue(start, monkeypatch):
    monkeypatch.setattr(rebalance, "LOOK_AT", 100)
    monkeypatch.setattr(rebalance, "REQUESTS", 20)
    monkeypatch.setattr(rebalance, "REQUESTS_OF_ONE", 15)
    cluster = await start()
    first = await cluster.add("gpu-0")
    know(cluster, "held", 0.005)
    futures = await queue(cluster, first, n=400)
    slices, stealing = Slices(cluster, monkeypatch), cluster.scheduler.extensions["stealing"]
    on_their_way = []
    slices.before = lambda: on_their_way.append(len(stealing.in_flight))
    second = await cluster.add("gpu-1")
    await until(lambda: given(cluster, second) >= 190)  # then it is less than a move's cost behind: 20 tasks
    assert 0 < max(done.looked for done in slices.done) <= 100
    assert 0 < max(done.asked for done in slices.done) <= 15
    assert max(on_their_way) <= 15
    await finish(cluster, futures)


async def test_few_tasks_that_may_move_are_found_among_many_that_may_not(start, monkeypatch):
    monkeypatch.setattr(rebalance, "LOOK_AT", 50)
    cluster = await start()
    first = await cluster.add("gpu-0")
    bound = await queue(cluster, first, n=300, workers=[first.address])
    free = await queue(cluster, first, n=4)
    second = await cluster.add("gpu-1")
    await until(lambda: given(cluster, second) == 4)
    await finish(cluster, bound + free)


async def test_a_task_that_moves_up_behind_the_search_is_found_later(start, monkeypatch):
    monkeypatch.setattr(rebalance, "LOOK_AT", 4)
    cluster = await start()
    first = await cluster.add("gpu-0")
    bound = await queue(cluster, first, n=60, workers=[first.address])
    free = await queue(cluster, first, n=4)
    giver, done = cluster.state(first), []
    slices = Slices(cluster, monkeypatch)

    def many_leave_after_the_first_look():
        if slices.looked and not done:  # those before the free ones; some stay: both workers have their share
            tasks = list(giver.processing)
            theirs = {future.key for future in free}
            last = max(i for i, ts in enumerate(tasks) if ts.key in theirs)
            ours = {future.key for future in bound} - {ts.key for ts in giver.executing}
            keys = [ts.key for ts in tasks if ts.key in ours][:-10]
            before = [key for key in keys if key in {ts.key for ts in tasks[:last]}]
            cluster.scheduler.client_releases_keys(before, cluster.client.id)
            done.append(before)

    slices.before = many_leave_after_the_first_look
    second = await cluster.add("gpu-1")
    await until(lambda: given(cluster, second) == 4)
    assert done
    await finish(cluster, free)


async def test_a_worker_that_keeps_a_task_is_not_asked_for_it_again(start):
    cluster = await start()
    first = await cluster.add("gpu-0", nthreads=2)  # offers one GPU, so one of the tasks waits
    futures = await queue(cluster, first, n=2)
    cluster.state(first).executing.clear()
    asked = []
    stealing = cluster.scheduler.extensions["stealing"]
    ask = stealing.move_task_request

    def noted(ts, giver, taker):
        asked.append(ts.key)
        return ask(ts, giver, taker)

    stealing.move_task_request = noted
    second = await cluster.add("gpu-1")
    await until(lambda: given(cluster, second) == 1)
    assert len(asked) == len(set(asked))
    await finish(cluster, futures)


async def test_where_the_user_forbids_stealing_nothing_moves(start):
    with dask.config.set({"distributed.scheduler.work-stealing": False}):
        cluster = await start()
    first = await cluster.add("gpu-0")
    futures = await queue(cluster, first, n=10)
    slices = cluster.count(cluster.preload.demand, "assigned")
    second = await cluster.add("gpu-1")
    await cluster.demand()
    assert not slices()
    assert (given(cluster, first), given(cluster, second)) == (10, 0)
    assert (await cluster.demand())["features"]["rebalance"] == ""
    await finish(cluster, futures)


async def test_another_distributed_without_what_is_needed_switches_it_off_with_a_word(start, monkeypatch):
    from distributed.stealing import WorkStealing

    monkeypatch.delattr(WorkStealing, "move_task_request")
    cluster = await start()
    features = (await cluster.demand())["features"]
    assert features["rebalance"].strip().endswith("WorkStealing.move_task_request is missing")
    assert (features["demand"], features["fence"], features["retire"]) == ("", "", "")


async def test_after_errors_it_is_tried_again_though_nothing_happens(start):
    cluster = await start()
    first = await cluster.add("gpu-0")
    stealing = cluster.scheduler.extensions["stealing"]
    works = stealing.move_task_request
    failures = []

    def fails(*_):
        failures.append("")
        if len(failures) == 6:  # what a joining worker sets off is over by then, and only the first one is news
            stealing.move_task_request = works
        raise RuntimeError("for a while")

    know(cluster, "held", 0.1)
    futures = await queue(cluster, first)
    stealing.move_task_request = fails
    second = await cluster.add("gpu-1")
    await until(lambda: len(failures) == 6)
    await until(lambda: given(cluster, second) == 20)
    await finish(cluster, futures)


async def test_a_slice_that_fails_is_told_as_a_feature_that_is_off_until_one_moves_something(start):
    cluster = await start()
    first = await cluster.add("gpu-0")
    stealing = cluster.scheduler.extensions["stealing"]
    works = stealing.move_task_request

    def fails(*_):
        raise RuntimeError("it changed its shape")

    async def trouble():
        return (await cluster.demand())["features"]["rebalance"]

    async def no_trouble():
        return not await trouble()

    stealing.move_task_request = fails
    futures = await queue(cluster, first)
    second = await cluster.add("gpu-1")
    await until(trouble)
    assert "it changed its shape" in await trouble()
    assert not given(cluster, second)

    stealing.move_task_request = works
    await until(no_trouble)
    await until(lambda: given(cluster, second))  # what is moved changes hands when its worker has answered
    await finish(cluster, futures)
