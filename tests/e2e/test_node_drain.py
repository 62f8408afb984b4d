"""A node that is drained for maintenance: what its pods run ends, and what they hold goes over to others."""

from __future__ import annotations

import pytest

from collections.abc import Iterator
from contextlib import contextmanager

from gpudask_e2e import ends, processing_on, record, who_has, work

from tests.e2e.manifests import cluster, cpu
from tests.e2e.space import Space

pytestmark = [
    pytest.mark.alone,  # it drains a node
    pytest.mark.local_cluster("it drains a node, and others' pods with it"),
]

EDGE = {"EDGE": 1}
GRACE_SECONDS = 30  # Kubernetes' own, which the quick end of the other tests leaves no time for


def test_a_node_drain_ends_the_running_task_and_moves_the_results(space: Space) -> None:
    patient = {"spec": {"terminationGracePeriodSeconds": GRACE_SECONDS}}
    space.apply(cluster("steady", cpu(), cpu(name="edge", offers={"EDGE": 2}, template=patient)))
    space.wait_ready("steady")
    space.wait_workers("steady", "edge", 1)
    (pod,) = space.pods("steady", "edge")
    with space.client("steady") as client:
        record(client)
        held = client.map(work, range(4), resources=EDGE, pure=False)
        client.gather(held)
        running = client.submit(work, 9, seconds=6.0, resources=EDGE, pure=False)
        space.wait(lambda: any(client.run_on_scheduler(processing_on).values()), "a task runs on it")
        with _drained(space, pod["spec"]["nodeName"], "gpudask.dev/cluster=steady,gpudask.dev/pool=edge"):
            assert pod["metadata"]["uid"] not in {other["metadata"]["uid"] for other in space.get("pods")}
            assert running.result(timeout=120) == 9
            assert client.gather(held) == list(range(4))
            holders = {worker for future in [*held, running] for worker in client.run_on_scheduler(who_has, future.key)}
            assert not any(worker.startswith(pod["metadata"]["name"]) for worker in holders), holders
        executions = ends(client, [future.key for future in [*held, running]])
        assert {len(workers) for workers in executions.values()} == {1}, executions
        assert client.submit(work, 5, resources=EDGE, pure=False).result(timeout=60) == 5


@contextmanager
def _drained(space: Space, node: str, pods: str) -> Iterator[None]:
    """`kubectl drain`, for some pods only, and the end of the maintenance."""
    try:
        space.kubectl("drain", node, f"--pod-selector={pods}", "--delete-emptydir-data", "--timeout=90s")
        yield
    finally:
        space.kubectl("uncordon", node)
