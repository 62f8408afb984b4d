"""GPU tasks whose pool gets no GPU run on the CPU pool, and go to the GPU worker once there is one."""

from __future__ import annotations

from gpudask.api import Json

import pytest


from gpudask_e2e import ends, processing_on, record, release, work, work_unless_released

from gpudask.kubecluster.display import pool_of
from local.clusters.settings import DEFAULT_GPUS
from tests.e2e.manifests import QUICK_END, RESTRICTED_CONTAINER, RESTRICTED_POD, cluster, cpu, gpu
from tests.e2e.space import Space

pytestmark = [
    pytest.mark.alone,  # it takes all GPUs
    pytest.mark.local_cluster("it takes all pretended GPUs"),
]


ALL_GPUS = DEFAULT_GPUS
MANY = 300  # tasks of a second: more than the CPU worker ends until the GPU worker is there


def test_tasks_fall_back_while_others_have_the_gpus_and_return_when_one_is_free(space: Space) -> None:
    space.apply(_taking_all_gpus())
    space.wait(lambda: _runs(space, "others"), "the other pod has the GPUs")
    manifest = cluster(
        "both",
        cpu(),
        gpu(autoscale={"min": 0, "max": 1, "idleTimeout": "60s"}, fallback={"to": ["cpu"], "after": "3s"}),
    )
    space.apply(manifest)
    space.wait_workers("both", "cpu", 1)
    with space.client("both") as client:
        record(client)
        first = client.map(work, range(4), resources={"GPU": 1}, pure=False)
        assert client.gather(first) == list(range(4))
        assert {_pool(worker) for workers in ends(client, [f.key for f in first]).values() for worker in workers} == {
            "cpu"
        }
        more = client.map(work_unless_released, range(MANY), seconds=1.0, resources={"GPU": 1}, pure=False)
        space.wait(lambda: _on_cpu(client.run_on_scheduler(processing_on)), "the CPU worker has some of them")
        space.wait(lambda: _fallen_back(space.pool("both", "gpu")), "the status says so, and why")
        space.kubectl("delete", "pod", "others", "--grace-period=0", "--force")
        space.wait_workers("both", "gpu", 1)
        space.wait(lambda: not space.pool("both", "gpu").get("fallback"), "the status says that it is over")
        later = client.map(work, range(4), resources={"GPU": 1}, pure=False, priority=10)
        assert client.gather(later) == list(range(4))
        assert {_pool(worker) for workers in ends(client, [f.key for f in later]).values() for worker in workers} == {
            "gpu"
        }
        client.run(release)
        assert client.gather(more) == list(range(MANY))
        executions = ends(client, [future.key for future in more])
        assert {len(workers) for workers in executions.values()} == {1}, "nothing is cut and nothing runs twice"
        assert {_pool(worker) for workers in executions.values() for worker in workers} == {"cpu", "gpu"}
    space.wait(lambda: {"FallbackStarted", "FallbackEnded"} <= space.events(), "events say so")


def _taking_all_gpus() -> Json:
    image = cluster("any", cpu())["spec"]["image"]
    container = {
        "name": "main",
        "image": image,
        "command": ["sleep", "600"],
        "resources": {"limits": {"nvidia.com/gpu": str(ALL_GPUS)}},
        **RESTRICTED_CONTAINER,
    }
    spec = {
        "containers": [container],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "restartPolicy": "Never",
        **RESTRICTED_POD,
        **QUICK_END["spec"],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "others"}, "spec": spec}


def _runs(space: Space, name: str) -> bool:
    return any(pod["metadata"]["name"] == name and pod["status"]["phase"] == "Running" for pod in space.get("pods"))


def _on_cpu(processing: dict[str, int]) -> int:
    """How many tasks CPU workers have. The status may still be the one of the first batch."""
    return sum(tasks for worker, tasks in processing.items() if _pool(worker) == "cpu")


def _fallen_back(pool: Json) -> bool:
    """One status with both: the first batch's fallback may still stand, its pod given up, when the second begins."""
    return pool.get("fallback") == "cpu" and pool.get("unschedulable") == 1


def _pool(worker: str) -> str:
    return pool_of(worker, "both")
