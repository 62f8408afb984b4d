"""Pools follow demand: from zero, up, and back, each apart from the others."""

from __future__ import annotations

from tests.e2e.manifests import cluster, cpu, gpu
from gpudask_e2e import ends, record, release, wait_for_release, work
from tests.e2e.space import Space
from tests.eventually import steadily


def test_one_gpu_task_starts_one_gpu_pod_from_zero(space: Space) -> None:
    space.apply(cluster("one", cpu(), gpu()))
    space.wait_ready("one")
    assert space.names("one", "gpu") == set()
    with space.client("one") as client:
        task = client.submit(wait_for_release, 7, resources={"GPU": 1}, pure=False)
        space.wait_workers("one", "gpu", 1)
        assert space.names("one", "gpu") == {"one-gpu-worker-0"}
        client.run(release)
        assert task.result(timeout=90) == 7
    space.wait_pods("one", "gpu", 0)


def test_plain_tasks_neither_run_on_the_gpu_pool_nor_keep_it_up(space: Space) -> None:
    space.apply(cluster("plain", cpu(), gpu()))
    space.wait_ready("plain")
    with space.client("plain") as client:
        record(client)
        assert client.submit(work, 1, resources={"GPU": 1}).result(timeout=90) == 1
        stream = client.map(work, range(6000), seconds=0.05, pure=False)
        space.wait_pods("plain", "gpu", 0)
        assert not all(future.done() for future in stream), "the stream of plain tasks ended too early to show anything"
        done = [future for future in stream if future.done()]
        ran_on = {worker for workers in ends(client, [f.key for f in done]).values() for worker in workers}
        assert ran_on, "no plain task ended"
        assert not [worker for worker in ran_on if "-gpu-" in worker]


def test_a_gpu_only_cluster_starts_from_zero_on_plain_tasks(space: Space) -> None:
    space.apply(cluster("only", gpu()))
    space.wait_ready("only")
    with space.client("only") as client:
        assert client.gather(client.map(work, range(10), pure=False)) == list(range(10))
    space.wait_pods("only", "gpu", 0)


def test_cpu_and_gpu_pools_grow_by_their_own_demand(space: Space) -> None:
    limits = {"min": 0, "max": 3, "targetDuration": "2s"}
    space.apply(cluster("both", cpu(autoscale=dict(limits)), gpu(autoscale=dict(limits))))
    space.wait_ready("both")
    with space.client("both") as client:
        tasks = client.map(wait_for_release, range(24), resources={"GPU": 1}, pure=False)
        space.wait_workers("both", "gpu", 3)
        assert space.names("both", "cpu") == set(), "no plain task, yet the CPU pool grew"
        client.run(release)
        assert len(client.gather(tasks)) == 24
        del tasks  # results would keep the last GPU pod: there is no CPU worker to take them
        space.wait_pods("both", "gpu", 0)
        plain = client.map(work, range(40), seconds=1.0, pure=False)
        space.wait(lambda: len(space.names("both", "cpu")) > 1, "the CPU pool grows")
        client.gather(plain)
        assert space.names("both", "gpu") == set(), "no GPU task, yet the GPU pool grew"


def test_demand_that_no_pool_can_serve_is_named_and_starts_nothing(space: Space) -> None:
    space.apply(cluster("unserved", cpu(), gpu()))
    space.wait_ready("unserved")
    with space.client("unserved") as client:
        future = client.submit(work, 1, resources={"GPU": 2})
        space.wait(lambda: space.condition("unserved", "DemandServable").get("status") == "False", "it is reported")
        message = space.condition("unserved", "DemandServable")["message"]
        assert message.startswith("1 task wants GPU: 2; pool cpu offers no resources a worker, pool gpu offers GPU: 1")
        space.wait(lambda: message in _notes(space, "NoPoolServes"), "an event says so")
        assert space.names("unserved", "gpu") == set()
        future.cancel()
        space.wait(lambda: space.condition("unserved", "DemandServable").get("status") == "True", "it is over")


def test_a_gpu_pool_that_no_node_can_hold_lets_the_cpu_pool_work_and_grow_and_is_cancelled(
    space: Space,
) -> None:
    impossible = gpu(autoscale={"min": 0, "max": 4, "targetDuration": "1s"})
    impossible["gpu"] = {"count": 1, "resourceName": "example.com/none"}
    growing = cpu(autoscale={"min": 1, "max": 2, "targetDuration": "1s"})
    space.apply(cluster("nohome", growing, impossible))
    space.wait_ready("nohome")
    with space.client("nohome") as client:
        waiting = client.map(work, range(4), resources={"GPU": 1}, pure=False)
        space.wait(lambda: space.pool("nohome", "gpu").get("unschedulable"), "a GPU pod is unschedulable")
        degraded = space.condition("nohome", "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "Unschedulable")
        assert "Insufficient example.com/none" in degraded["message"]
        plain = client.map(work, range(20), seconds=1.0, pure=False)
        space.wait_workers("nohome", "cpu", 2)
        assert client.gather(plain) == list(range(20))
        steadily(lambda: len(space.names("nohome", "gpu")) == 1, "a stuck pool does not grow", seconds=3)
        client.cancel(waiting)
        space.wait_pods("nohome", "gpu", 0)
        space.wait(lambda: space.condition("nohome", "Degraded")["status"] == "False", "all is well again")


def _notes(space: Space, reason: str) -> str:
    """What the events of this reason say."""
    return "\n".join(event["note"] for event in space.get("events") if event["reason"] == reason)
