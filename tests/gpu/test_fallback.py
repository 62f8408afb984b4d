"""While another pod has the GPUs the tasks run on CPUs, and on a GPU again once there is one."""

from __future__ import annotations

from gpudask_gpu import has_device

from tests.e2e.space import Space
from tests.gpu.manifests import cluster, cpu, following, gpu, holding_gpus
from tests.gpu.workers import GPU, PATIENCE_SECONDS, gpu_client

NAME = "both"
OTHERS = "others"


def test_tasks_run_on_cpus_while_another_pod_has_the_gpus_and_on_a_gpu_afterwards(room: Space, gpus: int) -> None:
    room.apply(holding_gpus(OTHERS, gpus))
    room.wait(lambda: runs(room, OTHERS), "the other pod has the GPUs")
    room.apply(cluster(NAME, cpu(), gpu(autoscale=following(1), fallback={"to": ["cpu"], "after": "3s"})))
    room.wait_workers(NAME, "cpu", 1)
    with gpu_client(room, NAME) as client:
        first = client.map(has_device, [0.1] * 4, resources=GPU, pure=False)
        assert client.gather(first) == [False] * 4
        # As long as it takes for a GPU pod to come, and no longer than this test has.
        more = client.map(has_device, [0.5] * 90, resources=GPU, pure=False)
        room.wait(lambda: room.pool(NAME, "gpu").get("fallback") == "cpu", "the status says so")
        room.kubectl("delete", "pod", OTHERS, "--grace-period=1")
        room.wait_workers(NAME, "gpu", 1)
        room.wait(lambda: not room.pool(NAME, "gpu").get("fallback"), "the status says that it is over")
        later = client.map(has_device, [0.1] * 4, resources=GPU, pure=False, priority=10)
        assert [future.result(timeout=PATIENCE_SECONDS) for future in later] == [True] * 4
        assert set(client.gather(more)) == {True, False}
    reasons = {event["reason"] for event in room.get("events.events.k8s.io")}
    assert {"FallbackStarted", "FallbackEnded"} <= reasons


def runs(room: Space, name: str) -> bool:
    """Whether a pod runs."""
    return any(pod["metadata"]["name"] == name and pod["status"]["phase"] == "Running" for pod in room.get("pods"))
