"""Pods with several GPUs: one worker for each, coming and leaving together."""

from __future__ import annotations

from gpudask_e2e import ends, record, work

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space


def test_a_pod_with_two_gpus_has_two_workers_and_they_leave_together(space: Space) -> None:
    space.apply(cluster("multi", cpu(), gpu(count=2, autoscale={"min": 0, "max": 1})))
    space.wait_ready("multi")
    with space.client("multi") as client:
        record(client)
        tasks = client.map(work, range(8), seconds=0.5, resources={"GPU": 1}, pure=False)
        space.wait_workers("multi", "gpu", 2)
        assert len(space.names("multi", "gpu")) == 1
        assert space.pool("multi", "gpu")["gpusHeld"] == 2
        long = client.submit(work, 1, seconds=20.0, resources={"GPU": 1}, pure=False)
        assert sorted(client.gather(tasks)) == list(range(8))
        used = {worker for workers in ends(client, [task.key for task in tasks]).values() for worker in workers}
        assert len(used) == 2, "one of the two workers got nothing"
        assert {name.rpartition("-")[0] for name in used} == {next(iter(used)).rpartition("-")[0]}
        assert long.result(timeout=60) == 1
        assert len(ends(client, [long.key])[long.key]) == 1
        del tasks, long
    space.wait_pods("multi", "gpu", 0)
