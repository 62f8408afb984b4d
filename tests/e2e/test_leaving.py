"""Pods that leave for their own sake, on the real cluster: a task that never ends, a device that is sick."""

from __future__ import annotations

from gpudask_e2e import ends, fail_as_a_sick_device, processing_on, record, release, wait_for_release, work

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space


def test_a_task_that_never_ends_is_cut_after_the_drain_timeout_and_runs_again_elsewhere(space: Space) -> None:
    space.apply(cluster("hung", cpu(replicas=2, drainTimeout="40s", nthreads=1)))
    space.wait_workers("hung", "cpu", 2)
    with space.client("hung") as client:
        record(client)
        futures = client.map(wait_for_release, range(2), pure=False)
        space.wait(lambda: sum(map(bool, client.run_on_scheduler(processing_on).values())) == 2, "both work")
        space.edit("hung", {"op": "replace", "path": "/spec/pools/0/replicas", "value": 1})
        (leaving,) = space.wait(lambda: space.retiring("hung", "cpu"), "one retires")
        assert "wait_for_release" in space.wait(lambda: space.pool("hung", "cpu").get("leaving"), "the status tells it")
        space.wait_pods("hung", "cpu", 1)
        assert leaving not in space.names("hung", "cpu")
        space.wait(lambda: leaving in space.pool("hung", "cpu")["forced"], "the status says that it was forced")
        client.run(release)
        assert sorted(client.gather(futures)) == [0, 1]
    space.wait(lambda: "DrainForced" in space.events(), "an event says so, too")


def test_a_pod_whose_device_fails_task_after_task_is_replaced(space: Space) -> None:
    space.apply(cluster("sick", cpu(), gpu(replicas=1)))
    space.wait_workers("sick", "gpu", 1)
    (sick,) = [pod["metadata"]["uid"] for pod in space.pods("sick", "gpu")]
    with space.client("sick") as client:
        record(client)
        failing = client.map(fail_as_a_sick_device, range(3), resources={"GPU": 1}, pure=False, retries=0)
        space.wait(lambda: all(future.status == "error" for future in failing), "they fail")
        space.wait(
            lambda: [pod["metadata"]["uid"] for pod in space.pods("sick", "gpu")] not in ([], [sick]), "another pod"
        )
        future = client.submit(work, 1, resources={"GPU": 1}, pure=False)
        assert future.result(timeout=90) == 1
        assert len(ends(client, [future.key])[str(future.key)]) == 1
        space.wait(lambda: _gpu_seconds("unhealthy", space, "sick"), "what it held meanwhile has its cause")
    space.wait(lambda: "PodReplaced" in space.events(), "an event says so, too")


def test_the_budget_keeps_the_scheduler_while_it_knows_a_result_and_lets_it_go_afterwards(space: Space) -> None:
    space.apply(cluster("kept", cpu()))
    space.wait_ready("kept")
    (scheduler,) = space.names("kept")
    evict = ("create", "-f", "-", "--raw", f"/api/v1/namespaces/{space.kubectl.namespace}/pods/{scheduler}/eviction")
    body = f'{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"name":"{scheduler}"}}}}'
    with space.client("kept") as client:
        future = client.submit(work, 1)
        assert future.result(timeout=60) == 1
        space.wait(lambda: _disruptions(space) == 0, "the budget allows no disruption")
        refused = space.kubectl.attempt(*evict, stdin=body)
        assert "disruption budget" in refused.stderr, refused
        del future
    space.wait(lambda: _disruptions(space) == 1, "the budget lets it go", seconds=90)
    old = space.uids("kept")
    assert space.kubectl.attempt(*evict, stdin=body).returncode == 0
    space.wait(lambda: space.uids("kept") and not space.uids("kept") & old, "another scheduler pod")


def _disruptions(space: Space) -> int:
    (budget,) = space.get("poddisruptionbudgets")
    return int(budget.get("status", {}).get("disruptionsAllowed", -1))


def _gpu_seconds(cause: str, space: Space, name: str) -> float:
    rows = space.pool(name, "gpu").get("causes", ())
    return sum(row.get("gpuSeconds", 0.0) for row in rows if row["cause"] == cause)
