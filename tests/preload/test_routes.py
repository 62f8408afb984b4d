"""The routes: the token, the long poll, and the checks of what the operator sends."""

import asyncio
import json

import aiohttp
import dask
import pytest
from distributed import get_worker

from gpudask.clients.scheduler import SchedulerClient
from gpudask.preload import routes
from gpudask.preload.demand import Demand
from gpudask.preload.desired import parse_desired
from gpudask.preload.fence import Fence
from gpudask.preload.watch import COUNTS, COUNTS_SECONDS, FLAPPING_SECONDS, INTERVAL_SECONDS, Watch
from tests import documented_protocol
from tests.virtual_time import in_virtual_time, now

from .cluster import GPU, WORKING, digest, in_time, pod_name, until


def inc(x):
    return x + 1


def hold(name):
    from distributed import Event

    Event(name).wait()


async def poll(cluster, seen, wait=60, quiet=0):
    """Start a long poll and return once the scheduler has it."""
    watch = cluster.preload.watch
    before = watch._waiters | watch._urgent_waiters.keys()
    task = asyncio.create_task(cluster.demand(seen=seen, wait=wait, quiet=quiet))
    await until(lambda: (watch._waiters | watch._urgent_waiters.keys()) - before or task.done())
    return task


async def quiet_version(cluster):
    """Return the version once nothing is under way any more."""
    versions = [(await cluster.demand())["version"]]

    async def is_same():
        await asyncio.sleep(1.1 * COUNTS_SECONDS)  # longer than counts are held back
        versions.append((await cluster.demand())["version"])
        return versions[-1] == versions[-2]

    await until(is_same, "a version that stays")
    return versions[-1]


@pytest.mark.parametrize("route", ["demand", "desired", "health"])
@pytest.mark.parametrize(
    "header", ["", "Bearer wrong", "secret", f"Bearer {digest('secret')}", "bearer secret", "Bearer ", "Bearer sécret"]
)
async def test_a_wrong_token_is_a_401(start, route, header):
    cluster = await start()
    method = "POST" if route == "desired" else "GET"
    async with (
        aiohttp.ClientSession(headers={"Authorization": header} if header else {}) as http,
        http.request(method, cluster.url(route)) as response,
    ):
        assert response.status == 401
        assert (await response.json())["protocol"] == 1
    assert cluster.preload.desired_version == "desired-0"


async def test_a_rotated_token_needs_no_restart(start):
    cluster = await start()
    (cluster.folder / "token").write_text(digest("new"))
    async with cluster.http.get(cluster.url("health")) as response:
        assert response.status == 401
    async with cluster.http.get(cluster.url("health"), headers={"Authorization": "Bearer new"}) as response:
        assert response.status == 200


@pytest.mark.parametrize("break_it", ["unset", "missing", "empty"])
async def test_without_a_token_nobody_is_let_in(start, monkeypatch, break_it):
    cluster = await start()
    if break_it == "unset":
        monkeypatch.delenv("GPUDASK_TOKEN_SHA256_FILE")
    elif break_it == "missing":
        (cluster.folder / "token").unlink()
    else:
        (cluster.folder / "token").write_text("")
    for header in ("Bearer secret", "Bearer ", "Bearer"):
        async with cluster.http.get(cluster.url("health"), headers={"Authorization": header}) as response:
            assert response.status == 401


async def test_health_says_what_works(start):
    cluster = await start()
    async with cluster.http.get(cluster.url("health")) as response:
        body = await response.json()
    assert body["features"] == WORKING
    assert (body["protocol"], body["error"]) == (1, "")
    assert body["distributed"]


async def test_the_routes_work_beside_a_dashboard_with_a_prefix(start):
    import bokeh  # noqa: F401 (without it a page that says so is all that the dashboard is)

    cluster = await start(dashboard=True, http_prefix="/some/prefix")
    page = cluster.url("").replace("/gpudask/v1/", "/some/prefix/status")
    async with cluster.http.get(page) as response:
        assert response.status == 200, "there is no dashboard"
    assert (await cluster.demand())["protocol"] == 1


async def test_an_unknown_version_is_answered_at_once(start, monkeypatch):
    monkeypatch.setattr(routes, "MAX_WAIT_SECONDS", 3600.0)
    cluster = await start()
    seen = "Scheduler-of-yesterday/3"
    answer = await in_time(
        cluster.demand(seen=seen, wait=3600), "the answer to whoever saw another scheduler's version"
    )
    assert answer["version"].startswith(cluster.scheduler.id + "/")
    assert answer["scheduler_id"] == cluster.scheduler.id


async def test_a_first_gpu_task_answers_the_waiting_poll(start):
    cluster = await start()
    await cluster.add("cpu-0")
    task = await poll(cluster, await quiet_version(cluster))
    future = cluster.client.submit(inc, 1, resources=GPU)
    answer = await task
    assert [e["unrunnable"] for e in answer["demand"] if e["resources"] == GPU] == [1]
    del future


async def test_the_operator_reads_what_a_real_scheduler_answers(start):
    cluster = await start()
    await cluster.add("cpu-0")
    future = cluster.client.submit(inc, 1, resources=GPU)
    base, operator = cluster.url("").removesuffix("/gpudask/v1/"), SchedulerClient()
    async with asyncio.timeout(60):
        while not (demand := await operator.demand(base, "secret", known_version="", wait_seconds=0)).requirements:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert demand.requirements[0].resources == tuple(GPU.items())
    assert [worker.nthreads for worker in demand.workers] == [1]
    wanted = {"version": "1", "pools": {}, "retiring": [], "offers": {}}
    assert await operator.desire(base, "secret", wanted) == {}
    await operator.close()
    del future


async def test_a_last_gpu_task_gone_answers_the_waiting_poll(start):
    cluster = await start()
    future = cluster.client.submit(inc, 1, resources=GPU)
    await until(lambda: cluster.scheduler.unrunnable)
    task = await poll(cluster, await quiet_version(cluster))
    del future
    assert (await task)["demand"] == []


async def test_a_first_plain_task_and_a_joining_worker_answer_the_waiting_poll(start):
    cluster = await start()
    task = await poll(cluster, await quiet_version(cluster))
    future = cluster.client.submit(inc, 1)
    assert [e["unrunnable"] for e in (await task)["demand"]] == [1]
    task = await poll(cluster, await quiet_version(cluster))
    await cluster.add("cpu-0")
    assert [row["pool"] for row in (await task)["workers"]] == ["cpu"]
    assert await future == 2


async def test_a_worker_that_becomes_busy_and_idle_answers_the_waiting_poll(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    idle = await cluster.row(gpu)
    task = await poll(cluster, await quiet_version(cluster))
    future = cluster.client.submit(hold, "busy", resources=GPU)
    assert [(row["own"], row["idle_seconds"], row["blockers"]) for row in (await task)["workers"]] == [
        (1, 0.0, ["running"])
    ]
    task = await poll(cluster, await quiet_version(cluster))
    from distributed import Event

    await Event("busy", client=cluster.client).set()
    assert [row["own"] for row in (await task)["workers"]] == [0]
    await future
    await until(lambda: cluster.row(gpu))
    assert idle["idle_seconds"] >= 0


async def test_a_quiet_poll_is_answered_by_demand_and_workers_that_come_but_not_by_counts(start):
    cluster = await start()
    await cluster.add("gpu-0")
    seen = await quiet_version(cluster)
    quiet = await poll(cluster, seen, quiet=50)
    waiting = cluster.client.map(hold, ["busy"] * 2, pure=False, resources=GPU)
    first = await asyncio.wait_for(quiet, 20)
    assert [entry["processing"] for entry in first["demand"]] == [2], "the first task of a kind is urgent"

    seen = await quiet_version(cluster)
    quiet, plain = await poll(cluster, seen, quiet=50), await poll(cluster, seen)
    third = cluster.client.submit(inc, 1, resources=GPU)  # of three, after two: no more than a count
    assert [entry["processing"] for entry in (await plain)["demand"]] == [3]
    await asyncio.sleep(0.1)  # for an answer that should not come
    assert not quiet.done()
    joined = await cluster.add("cpu-0")
    answer = await asyncio.wait_for(quiet, 20)
    assert joined.address in [row["address"] for row in answer["workers"]]
    from distributed import Event

    await Event("busy", client=cluster.client).set()
    assert await third == 2
    del waiting


async def test_a_quiet_poll_is_answered_by_many_more_tasks_though_a_worker_takes_them_all(start):
    cluster = await start()
    await cluster.add("gpu-0")
    waiting = cluster.client.map(hold, ["busy"], pure=False, resources=GPU)
    await until(lambda: cluster.scheduler.total_occupancy)
    quiet = await poll(cluster, await quiet_version(cluster), quiet=50)
    more = cluster.client.map(inc, range(50), pure=False, resources=GPU)
    answer = await asyncio.wait_for(quiet, 20)
    assert answer["demand"][0]["processing"] > 2
    from distributed import Event

    await Event("busy", client=cluster.client).set()
    await cluster.client.gather(more)
    del waiting


@pytest.mark.parametrize(("pool", "resources", "answers"), [("gpu", GPU, True), ("cpu", None, False)])
async def test_a_quiet_poll_is_answered_by_a_gpu_that_becomes_idle_and_by_no_other_worker(
    start, pool, resources, answers
):
    from distributed import Event

    cluster = await start()
    workers = [await cluster.add(f"{pool}-{number}") for number in range(2)]
    tasks = [
        cluster.client.submit(hold, f"busy-{number}", workers=[worker.address], resources=resources)
        for number, worker in enumerate(workers)
    ]
    await until(lambda: all(cluster.scheduler.workers[worker.address].processing for worker in workers))
    seen = await quiet_version(cluster)
    quiet, plain = await poll(cluster, seen, quiet=50), await poll(cluster, seen)
    await Event("busy-0", client=cluster.client).set()  # one task less is no edge of its kind
    assert {row["own"] for row in (await plain)["workers"]} == {0, 1}
    if answers:
        assert {row["own"] for row in (await asyncio.wait_for(quiet, 20))["workers"]} == {0, 1}
    else:
        await asyncio.sleep(0.1)  # for an answer that should not come
        assert not quiet.done()
        quiet.cancel()
    await Event("busy-1", client=cluster.client).set()
    await cluster.client.gather(tasks)


async def test_a_quiet_poll_is_answered_at_its_quiet_end_with_what_changed_meanwhile(start):
    cluster = await start()
    await cluster.add("gpu-0")
    waiting = cluster.client.map(hold, ["busy"] * 2, pure=False, resources=GPU)
    await until(lambda: cluster.scheduler.total_occupancy)
    seen, began = await quiet_version(cluster), asyncio.get_running_loop().time()
    quiet, plain = await poll(cluster, seen, quiet=3), await poll(cluster, seen)
    third = cluster.client.submit(inc, 1, resources=GPU)
    version = (await plain)["version"]
    answer = await asyncio.wait_for(quiet, 20)
    assert asyncio.get_running_loop().time() - began >= 3
    assert (answer["version"], [entry["processing"] for entry in answer["demand"]]) == (version, [3])
    from distributed import Event

    await Event("busy", client=cluster.client).set()
    assert await third == 2
    del waiting


async def test_a_quiet_poll_of_who_missed_something_urgent_is_answered_at_once(start):
    cluster = await start()
    seen = await quiet_version(cluster)
    await cluster.add("cpu-0")
    await until(lambda: cluster.preload.watch.urgent_counter == cluster.preload.watch.counter)
    for missed in (seen, "", "another-scheduler/1", "no version", f"{cluster.scheduler.id}/x"):
        answer = await asyncio.wait_for(cluster.demand(seen=missed, wait=50, quiet=50), 20)
        assert [row["pool"] for row in answer["workers"]] == ["cpu"]
    version = await quiet_version(cluster)
    answer = await asyncio.wait_for(cluster.demand(seen=version, wait=1, quiet=50), 20)
    assert answer["version"] == version, "a poll is quiet for as long as it waits, at most"


async def test_the_idle_clock_runs_from_the_end_of_own_work(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    first = (await cluster.row(gpu))["idle_seconds"]
    assert (await cluster.row(gpu))["idle_seconds"] > first
    before = cluster.preload.workers._idle_since[gpu.address]
    await cluster.client.submit(inc, 1, resources=GPU)
    await until(lambda: cluster.preload.workers._idle_since.get(gpu.address, 0) > before)


async def test_an_idle_cluster_leaves_the_poll_silent(start):
    cluster = await start()
    await cluster.add("cpu-0")
    await cluster.add("gpu-0")
    kept = await cluster.client.scatter([1, 2, 3])
    seen = await quiet_version(cluster)
    assert (await (await poll(cluster, seen, wait=1.5)))["version"] == seen
    del kept


async def test_many_more_tasks_that_find_no_worker_answer_at_once_and_a_few_more_with_the_counts(start, monkeypatch):
    cluster = await start()
    many = cluster.client.map(inc, range(8), pure=False, resources=GPU)
    await until(lambda: len(cluster.scheduler.unrunnable) == 8)
    task = await poll(cluster, await quiet_version(cluster))
    published, before = cluster.preload.watch._published, cluster.preload.watch.counter
    now = asyncio.get_running_loop().time()
    monkeypatch.setitem(published, COUNTS, (now, now + 3600.0))  # plain counts are held back for an hour
    more = cluster.client.map(inc, range(8), pure=False, resources=GPU)
    answer = await task
    assert [entry["unrunnable"] for entry in answer["demand"]] == [16]
    assert cluster.preload.watch.counter > before, "held back as plain counts are"

    cluster.preload.watch._published.pop(COUNTS)
    edges = cluster.preload.watch._edges.copy()
    del many[:3], more[:3]
    await until(lambda: len(cluster.scheduler.unrunnable) == 10)
    seen = await quiet_version(cluster)
    assert cluster.preload.watch._edges == edges, "fewer tasks are no edge"
    assert [entry["unrunnable"] for entry in (await cluster.demand())["demand"]] == [10]
    assert (await cluster.demand())["version"] == seen


async def test_a_busy_cluster_makes_few_versions_a_second(start):
    cluster = await start()
    await cluster.add("cpu-0", nthreads=4)
    futures = cluster.client.map(inc, range(1500), pure=False)
    await until(lambda: cluster.scheduler.queued)
    loop, versions = asyncio.get_running_loop(), cluster.preload.watch.counter
    began, transitions = loop.time(), cluster.scheduler.transition_counter
    await cluster.client.gather(futures)
    seconds = loop.time() - began
    assert cluster.scheduler.transition_counter - transitions > 2000
    # Once a second the counts; the first and the last task, and the one worker that is busy and idle, are edges.
    assert cluster.preload.watch.counter - versions <= seconds / COUNTS_SECONDS + 6
    await until(lambda: cluster.client.futures is not None)


def test_what_changes_again_and_again_makes_versions_ever_more_rarely_until_it_rests():
    async def versions() -> list[float]:
        made = []
        watch = Watch(dict, lambda: made.append(now()))
        while now() < 3.0:
            watch.publish("a worker becomes busy or idle")
            await asyncio.sleep(0.02)
        await asyncio.sleep(2.2 * FLAPPING_SECONDS)
        made.append(now())
        watch.publish("a worker becomes busy or idle")
        await asyncio.sleep(INTERVAL_SECONDS / 2)
        return made

    *flapping, rested, again = in_virtual_time(versions())
    assert flapping == pytest.approx([0.0, 0.2, 0.6, 1.4, 2.4, 3.4], abs=0.03)
    assert again == pytest.approx(rested)


async def test_a_poll_is_answered_with_what_made_its_version_and_nothing_is_computed_twice(start):
    cluster = await start()
    task = await poll(cluster, await quiet_version(cluster))
    answers = cluster.count(cluster.preload, "answer")
    await cluster.add("cpu-0")
    answer = await task
    assert [row["pool"] for row in answer["workers"]] == ["cpu"]
    assert not answers(), "but for the one that the watch asked for"


async def test_a_poll_whose_client_has_gone_is_forgotten(start):
    cluster = await start()
    task = await poll(cluster, await quiet_version(cluster))
    task.cancel()
    await until(lambda: not cluster.preload.watch._waiters)


async def test_the_answer_has_the_documented_fields_and_no_others(start):
    cluster = await start()
    await cluster.add("gpu-0")
    running = cluster.client.submit(hold, "documented", resources=GPU)
    odd = cluster.client.submit(inc, 1, resources={"GPU": float("inf")})

    async def whole():
        answer = await cluster.demand()
        return answer if answer["demand"] and answer["ignored"] and answer["workers"][0]["own"] else None

    answer = await until(whole, "an entry of each kind")
    assert_like(answer, documented_protocol.DEMAND, "answer")
    del odd
    from distributed import Event

    await Event("documented", client=cluster.client).set()
    await running


def assert_like(given, documented, path):
    """Compare the fields and their types; those that are documented as optional may be there beyond the example's."""
    if isinstance(documented, dict) and not path.endswith(("resources", "offers", "features", "listeners")):
        named = documented.keys() | documented_protocol.OPTIONAL
        assert given.keys() <= named, f"{path}: not documented"
        assert documented.keys() <= given.keys(), f"{path}: documented"
        for name in documented:
            assert_like(given[name], documented[name], f"{path}.{name}")
    elif isinstance(documented, list):
        assert isinstance(given, list), path
        for item in given if documented else ():
            assert_like(item, documented[0], f"{path}[]")
    else:
        kind = (int, float) if isinstance(documented, float) else type(documented)
        assert isinstance(given, kind), f"{path}: {given!r}"


async def test_the_documented_word_is_taken_as_it_is_meant(start):
    cluster = await start()
    await cluster.add("gpu-3")
    answer = await cluster.post(documented_protocol.DESIRED)
    assert answer["desired_version"] == documented_protocol.DESIRED["version"]
    wanted = parse_desired(json.dumps(documented_protocol.DESIRED).encode())
    assert (wanted.pools, wanted.gpu_pools) == ({"cpu": "any", "gpu": "annotated"}, {"gpu": {"GPU": 1.0}})
    assert [(wish.pod, wish.data, wish.if_idle, wish.forced) for wish in wanted.retiring] == [
        ("demo-gpu-worker-3-77aa0", "move", True, False)
    ]


BAD = [
    (b"{", "body: expected JSON"),
    (b"[]", "body: expected an object"),
    ({"protocol": 2}, "protocol: expected 1, got 2"),
    ({"version": ""}, "version: expected a string, got ''"),
    ({"version": 3}, "version: expected a string, got 3"),
    ({"pools": None}, "pools: expected an object, got None"),
    ({"pools": {"gpu": "any"}}, "pools.gpu: expected an object, got 'any'"),
    ({"pools": {"gpu": {"accepts": "all"}}}, "pools.gpu.accepts: expected 'any' or 'annotated', got 'all'"),
    ({"pools": {"gpu": {"accepts": []}}}, "pools.gpu.accepts: expected 'any' or 'annotated', got []"),
    ({"pools": {"gpu": {"accepts": "any", "gpu": 1}}}, "pools.gpu.gpu: expected true or false, got 1"),
    ({"retiring": {}}, "retiring: expected a list, got {}"),
    ({"retiring": ["x"]}, "retiring[0]: expected an object, got 'x'"),
    ({"retiring": [{"data": "move", "if_idle": True}]}, "retiring[0].pod: expected a pod's Dask name, got None"),
    (
        {"retiring": [{"pod": "p", "data": "x", "if_idle": True}]},
        "retiring[0].data: expected 'move' or 'release', got 'x'",
    ),
    (
        {"retiring": [{"pod": "p", "data": "move", "if_idle": 1}]},
        "retiring[0].if_idle: expected true or false, got 1",
    ),
    ({"retiring": [{"pod": "p", "data": "move", "if_idle": True}] * 2}, "retiring[1].pod: 'p' is named twice"),
]


async def test_bad_input_is_a_400_that_names_the_field_and_changes_nothing(start):
    cluster = await start()
    good = {"protocol": 1, "version": "v", "pools": {"gpu": {"accepts": "any"}}, "retiring": []}
    for body, error in BAD:
        answer = await cluster.post(body if isinstance(body, bytes) else good | body, status=400)
        assert answer["error"].startswith(error), answer
        assert cluster.preload.desired_version == "desired-0"
        assert cluster.preload.pools.accepts == {"cpu": "any", "gpu": "annotated"}
    assert (await cluster.post(good)) == {"protocol": 1, "desired_version": "v", "refused": []}
    assert (await cluster.demand())["desired_version"] == "v"


async def test_a_wait_that_is_no_number_is_a_400(start):
    cluster = await start()
    async with cluster.http.get(cluster.url("demand"), params={"wait": "soon"}) as response:
        assert response.status == 400
        assert "wait" in (await response.json())["error"]


async def test_workers_are_named_by_pool_and_others_are_nobodys(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0-3")
    row = await cluster.row(gpu)
    assert (row["pool"], row["status"], row["nthreads"], row["resources"]) == ("gpu", "running", 1, GPU)
    assert (row["blockers"], row["retiring"], row["held_keys"]) == ([], "", 0)
    async with await _stranger(cluster) as stranger:
        assert (await cluster.row(stranger))["pool"] == ""


async def test_held_results_are_those_of_which_a_worker_has_the_only_copy(start):
    cluster = await start()
    one, two = await cluster.add("cpu-0"), await cluster.add("cpu-1")
    [kept] = await cluster.client.scatter([b"x" * 1000], workers=[one.address])
    [shared] = await cluster.client.scatter([b"y" * 1000], broadcast=True)
    row, other = await cluster.row(one), await cluster.row(two)
    assert (row["held_keys"], other["held_keys"]) == (1, 0)
    assert 1000 <= row["held_bytes"] < 2000
    del kept, shared


async def _stranger(cluster):
    from distributed import Worker

    return await Worker(cluster.scheduler.address, name=7, nthreads=1)


async def test_the_pools_file_stands_until_the_operator_speaks(start, monkeypatch, tmp_path):
    (tmp_path / "pools.json").write_text(json.dumps({"gpu": {"accepts": "annotated"}}))
    monkeypatch.setenv("GPUDASK_POOLS_FILE", str(tmp_path / "pools.json"))
    cluster = await start()
    again = type(cluster.preload)(cluster.scheduler)
    assert again.pools.accepts == {"gpu": "annotated"}
    (tmp_path / "pools.json").write_text("{")
    assert type(cluster.preload)(cluster.scheduler).pools.accepts == {}


async def test_a_missing_hook_switches_only_its_feature_off(start, monkeypatch):
    from distributed import Scheduler

    monkeypatch.delattr(Scheduler, "request_acquire_replicas")
    cluster = await start()
    features = (await cluster.demand())["features"]
    assert features["retire"] == "Scheduler.request_acquire_replicas is missing"
    assert (features["demand"], features["fence"]) == ("", "")
    answer = await cluster.desire("gpu-0")
    assert answer["refused"] == [{"pod": "demo-gpu-worker-0-00000", "why": f"retire is off: {features['retire']}"}]
    assert dask.config.get("distributed.scheduler.preload") == []


async def test_what_depends_on_a_missing_part_is_off_with_it_and_the_others_work(start, monkeypatch):
    monkeypatch.setattr(Demand, "attributes", ("no_such_attribute",))
    cluster = await start()
    answer = await cluster.demand()
    assert answer["features"] == WORKING | {
        "demand": "Scheduler.no_such_attribute is missing",
        "retire": "without demand nobody knows which workers are idle",
        "offers": "without retire nobody takes back the tasks of an offer that ends",
        "rebalance": "without demand nobody knows which tasks wait",
    }
    cpu = await cluster.add("cpu-0")
    await cluster.add("gpu-0")
    assert await cluster.client.submit(lambda: get_worker().name) == cpu.name, "the fence is up"
    assert (await cluster.demand())["demand"] == []
    why = await cluster.preload.wait_until_drained(pod_name("cpu-0"), "127.0.0.1")
    assert why == f"retire is off: {answer['features']['retire']}"


async def test_without_the_fence_pools_still_change_and_workers_still_drain(start, monkeypatch):
    monkeypatch.setattr(Fence, "attributes", ("no_such_attribute",))
    cluster = await start()
    assert (await cluster.demand())["features"] == WORKING | {"fence": "Scheduler.no_such_attribute is missing"}
    gpu = await cluster.add("gpu-0")
    assert await cluster.client.submit(lambda: get_worker().name) == gpu.name, "it keeps nobody off"
    assert (await cluster.desire("gpu-0", pools={"gpu": "any"}))["refused"] == []
    assert cluster.preload.pools.accepts == {"gpu": "any"}
    await cluster.until_retiring(gpu, "drained")
