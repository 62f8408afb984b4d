"""Pods with several GPUs: one worker for each, coming and leaving together."""

from __future__ import annotations

import pytest

from distributed import Client, wait

from gpudask_e2e import ends, processing_on, read_story, record, release, statuses, wait_for_release, work

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space
from tests.eventually import steadily

GPU = {"GPU": 1}


def test_a_pod_with_two_gpus_has_two_workers_that_share_its_tasks(space: Space) -> None:
    space.apply(cluster("multi", cpu(), gpu(count=2, autoscale={"min": 0, "max": 1})))
    space.wait_ready("multi")
    with space.client("multi") as client:
        record(client)
        first = client.submit(wait_for_release, 8, resources=GPU, pure=False)
        space.wait_workers("multi", "gpu", 2)
        assert len(space.names("multi", "gpu")) == 1
        assert space.pool("multi", "gpu")["gpusHeld"] == 2
        tasks = [first, *client.map(work, range(8), seconds=0.5, resources=GPU, pure=False)]
        wait(tasks[1:], timeout=60, return_when="FIRST_COMPLETED")  # the worker that has none of it takes one
        client.run(release)
        assert sorted(client.gather(tasks)) == list(range(9))
        used = {worker for workers in ends(client, [task.key for task in tasks]).values() for worker in workers}
        assert len(used) == 2, "one of the two workers got nothing"
        assert {name.rpartition("-")[0] for name in used} == {next(iter(used)).rpartition("-")[0]}
        del first, tasks
    space.wait_pods("multi", "gpu", 0)


@pytest.mark.parametrize("why", ["idle", "asked"])
def test_a_pod_whose_one_worker_is_busy_keeps_the_idle_one_until_both_can_leave(space: Space, why: str) -> None:
    """`idle`: the demand needs less; `asked`: a person set the pool to zero, which closes both workers at once."""
    space.apply(cluster("whole", cpu(), gpu(count=2, autoscale={"min": 0, "max": 1, "idleTimeout": "2s"})))
    space.wait_ready("whole")
    with space.client("whole") as client:
        record(client)
        long = client.submit(wait_for_release, 1, resources=GPU, pure=False)
        space.wait_workers("whole", "gpu", 2)
        space.wait(lambda: busy(client) == 1, "the long task has one of the two workers")
        if why == "asked":
            override = {"pool": "gpu", "replicas": 0, "by": "test"}
            space.edit("whole", {"op": "add", "path": "/spec/overrides", "value": [override]})
            space.wait(lambda: on_gpus(client) == ["closing_gracefully"] * 2, "both are closed to new tasks")
        left_alone = ["closing_gracefully" if why == "asked" else "running"] * 2
        space.wait(lambda: on_gpus(client) == left_alone, "both are up")  # one that has just come is not running yet
        steadily(lambda: on_gpus(client) == left_alone, "the pod is whole", seconds=4, show=space.show)
        assert len(space.names("whole", "gpu")) == 1
        client.run(release)
        assert long.result(timeout=60) == 1
        space.wait_pods("whole", "gpu", 0)

        def ours() -> list[str]:
            story = client.run_on_scheduler(read_story)
            return [what for what, who in story if who == long.key or "-gpu-" in who]

        space.wait(lambda: len(ours()) >= 5, "the scheduler has seen both go")
        assert ours() == ["joined", "joined", "ended", "left", "left"]


def busy(client: Client) -> int:
    """How many GPU workers have a task."""
    return sum(1 for name, tasks in client.run_on_scheduler(processing_on).items() if tasks and "-gpu-" in name)


def on_gpus(client: Client) -> list[str]:
    """The statuses of the GPU workers."""
    return [status for name, status in client.run_on_scheduler(statuses).items() if "-gpu-" in name]
