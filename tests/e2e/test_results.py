"""Nothing is cut and nothing is lost when pods leave."""

from __future__ import annotations

from distributed import Client
from gpudask_e2e import (
    ends,
    make_only_on_gpu,
    misplaced,
    processing_on,
    read_only_on_gpu,
    record,
    release,
    wait_for_release,
    who_has,
    work,
)

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space
from tests.eventually import steadily

GPU = {"GPU": 1}


def test_a_result_on_a_gpu_worker_is_moved_and_not_computed_again_when_the_pool_returns_to_zero(space: Space) -> None:
    space.apply(cluster("moved", cpu(), gpu()))
    space.wait_ready("moved")
    with space.client("moved") as client:
        record(client)
        results = client.map(work, range(6), resources=GPU, pure=False)
        client.gather(results)
        space.wait_pods("moved", "gpu", 0)
        assert client.gather(results) == list(range(6))
        executions = ends(client, [future.key for future in results])
        assert {key: len(workers) for key, workers in executions.items()} == dict.fromkeys(executions, 1)
        assert all("-gpu-" in worker for workers in executions.values() for worker in workers), executions


def test_a_value_that_only_gpu_workers_can_hold_stays_on_them_and_the_status_says_what_keeps_the_gpu(
    space: Space,
) -> None:
    space.apply(cluster("kept", cpu(), gpu(autoscale={"min": 0, "max": 2, "targetDuration": "1s"})))
    space.wait_ready("kept")
    with space.client("kept") as client:
        record(client)
        busy = client.map(wait_for_release, range(8), resources=GPU, pure=False)
        space.wait_workers("kept", "gpu", 2)
        client.run(release)
        values = client.map(make_only_on_gpu, range(4), resources=GPU, pure=False)
        plain = client.map(work, range(4), resources=GPU, pure=False)
        client.gather([*busy, *plain])
        del busy
        space.wait_pods("kept", "gpu", 1)
        space.wait(lambda: "OnlyOnGpu" in space.pool("kept", "gpu")["held"], "the status names what keeps the GPU")
        holders = {worker for value in values for worker in client.run_on_scheduler(who_has, value.key)}
        assert len(holders) == 1
        assert "-gpu-" in holders.pop()
        read = client.map(read_only_on_gpu, values, resources=GPU)
        assert client.gather(read) == list(range(4))
        executions = ends(client, [value.key for value in values])
        assert {len(workers) for workers in executions.values()} == {1}, executions
        cpu_workers = [w for w, info in client.scheduler_info()["workers"].items() if "-cpu-" in info["name"]]
        assert set(client.run(misplaced, workers=cpu_workers).values()) == {0}
        del values, read, plain
        space.wait_pods("kept", "gpu", 0)


def test_idle_pods_leave_and_the_busy_one_stays(space: Space) -> None:
    space.apply(cluster("busy", cpu(), gpu(autoscale={"min": 0, "max": 3, "targetDuration": "1s"})))
    space.wait_ready("busy")
    with space.client("busy") as client:
        record(client)
        tasks = client.map(wait_for_release, range(9), resources=GPU, pure=False)
        space.wait_workers("busy", "gpu", 3)
        space.wait(lambda: len(_working(client)) == 3, "each has tasks")
        worker = min(_working(client))
        named = {info["name"]: address for address, info in client.scheduler_info(n_workers=-1)["workers"].items()}
        client.run(release, workers=[named[other] for other in _working(client) - {worker}])
        space.wait_pods("busy", "gpu", 1)
        (left,) = space.names("busy", "gpu")
        assert worker.startswith(left)
        assert sum(not task.done() for task in tasks) == 1, "the task that ran was cut"
        client.run(release)
        assert client.gather(tasks) == list(range(9))
        executions = ends(client, [task.key for task in tasks])
        assert {len(workers) for workers in executions.values()} == {1}, executions


def _working(client: Client) -> set[str]:
    """The names of the workers that have tasks."""
    return {name for name, tasks in client.run_on_scheduler(processing_on).items() if tasks}


def test_a_person_who_asks_for_fewer_gets_them_when_the_running_tasks_have_ended(space: Space) -> None:
    space.apply(cluster("fewer", cpu(), gpu(replicas=2)))
    space.wait_workers("fewer", "gpu", 2)
    with space.client("fewer") as client:
        record(client)
        tasks = client.map(work, range(8), seconds=1.0, resources=GPU, pure=False)
        space.wait(lambda: sum(1 for n in client.run_on_scheduler(processing_on).values() if n) == 2, "both work")
        override = {"pool": "gpu", "replicas": 1, "by": "test"}
        space.edit("fewer", {"op": "add", "path": "/spec/overrides", "value": [override]})
        space.wait_pods("fewer", "gpu", 1)
        assert space.pool("fewer", "gpu")["sizeSetBy"] == "test"
        assert client.gather(tasks) == list(range(8))
        executions = ends(client, [task.key for task in tasks])
        assert {len(workers) for workers in executions.values()} == {1}, executions


def test_pods_that_no_demand_needs_any_more_are_cancelled_before_they_run(space: Space) -> None:
    impossible = gpu(autoscale={"min": 0, "max": 2})
    impossible["gpu"] = {"count": 1, "nodeSelector": {"no": "such-node"}}
    space.apply(cluster("cancelled", cpu(), impossible))
    space.wait_ready("cancelled")
    with space.client("cancelled") as client:
        future = client.submit(work, 1, resources=GPU, pure=False)
        space.wait_pods("cancelled", "gpu", 1)
        future.cancel()
        space.wait_pods("cancelled", "gpu", 0)


def test_a_suspended_cluster_finishes_what_runs_keeps_its_resource_and_comes_back(space: Space) -> None:
    space.apply(cluster("rest", cpu(), gpu(replicas=1)))
    space.wait_workers("rest", "gpu", 1)
    with space.client("rest") as client:
        record(client)
        task = client.submit(wait_for_release, 3, resources=GPU, pure=False)
        ended: list[str] = []
        task.add_done_callback(lambda future: ended.append(future.status))
        space.wait(lambda: any(client.run_on_scheduler(processing_on).values()), "the task runs")
        space.edit("rest", {"op": "add", "path": "/spec/suspend", "value": True})
        space.wait(lambda: not space.pods("rest", "cpu"), "the idle pod leaves")
        assert ended == []
        client.run(release)
        space.wait(lambda: ended == ["finished"], "the task ends as if nothing were")
    space.wait(lambda: space.status("rest")["phase"] == "Suspended", "it is suspended")
    assert space.get("pods") == []
    steadily(lambda: space.get("pods") == [], "nothing starts while it is suspended", seconds=2)
    space.edit("rest", {"op": "add", "path": "/spec/suspend", "value": False})
    space.wait_workers("rest", "gpu", 1)
