"""An edited spec reaches running pods: workers at once and without loss, the scheduler when nothing is lost with it."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask_e2e import ends, processing_on, record, work

from tests.e2e.manifests import cluster, cpu
from tests.e2e.space import Space

Json = dict[str, Any]

_ENV = {"op": "add", "path": "/spec/pools/0/env", "value": [{"name": "EDITED", "value": "yes"}]}
_RESOURCES = {"op": "replace", "path": "/spec/pools/0/resources/memory", "value": "500Mi"}
_IMAGE = {"op": "add", "path": "/spec/pools/0/image", "value": "localhost/gpudask/dask-cpu:dev"}


@pytest.mark.parametrize("edit", [_ENV, _RESOURCES, _IMAGE], ids=["env", "resources", "pool image"])
def test_an_edited_pool_is_replaced_while_a_task_runs_and_a_result_is_held(space: Space, edit: Json) -> None:
    space.apply(cluster("roll", cpu(replicas=2)))
    space.wait_workers("roll", "cpu", 2)
    old = {pod["metadata"]["uid"] for pod in space.pods("roll", "cpu")}
    scheduler = space.names("roll")
    with space.client("roll") as client:
        record(client)
        held = client.map(work, range(4), pure=False)
        client.gather(held)
        running = client.submit(work, 5, seconds=8.0, pure=False)
        space.wait(lambda: any(client.run_on_scheduler(processing_on).values()), "the task runs")
        space.edit("roll", edit)
        space.wait(
            lambda: (
                len(space.pods("roll", "cpu")) == 2
                and old.isdisjoint(pod["metadata"]["uid"] for pod in space.pods("roll", "cpu"))
            ),
            "both pods are new",
            seconds=120,
        )
        assert running.result(timeout=30) == 5
        assert client.gather(held) == list(range(4))
        executions = ends(client, [future.key for future in [*held, running]])
        assert {len(workers) for workers in executions.values()} == {1}, executions
    assert space.names("roll") == scheduler, "an edit of a pool is no reason to restart the scheduler"
    space.wait(lambda: space.pool("roll", "cpu")["outdated"] == 0, "none is out of date")


def test_an_edited_scheduler_waits_until_nothing_is_held_and_is_then_replaced(space: Space) -> None:
    space.apply(cluster("head", cpu()))
    space.wait_workers("head", "cpu", 1)
    old = space.names("head")
    edit = {"op": "add", "path": "/spec/scheduler/image", "value": "localhost/gpudask/dask-cpu:dev"}
    with space.client("head") as client:
        held = client.submit(work, 1, pure=False)
        assert held.result(timeout=30) == 1
        space.edit("head", edit)
        space.wait(
            lambda: space.condition("head", "SchedulerReady")["reason"] == "SchedulerWaitsForRollout", "it says so"
        )
        assert space.names("head") == old
        assert held.result(timeout=30) == 1
        held.release()
        del held
        space.wait(lambda: space.names("head") and not old & space.names("head"), "it was replaced once idle")
    space.wait(lambda: space.condition("head", "SchedulerReady")["reason"] == "SchedulerRunning", "it runs")
    space.wait_workers("head", "cpu", 1)


def test_a_rollout_that_drains_replaces_the_scheduler_when_no_task_runs(space: Space) -> None:
    space.apply(cluster("drain", cpu(), rollout="Drain"))
    space.wait_workers("drain", "cpu", 1)
    old = space.names("drain")
    with space.client("drain") as client:
        held = client.submit(work, 1, pure=False)
        assert held.result(timeout=30) == 1
        space.edit("drain", {"op": "add", "path": "/spec/scheduler/env", "value": [{"name": "EDITED", "value": "1"}]})
        space.wait(lambda: space.names("drain") and not old & space.names("drain"), "it was replaced")
    space.wait_workers("drain", "cpu", 1)


def test_a_pool_whose_new_image_does_not_exist_keeps_its_old_pods_and_says_so(space: Space) -> None:
    space.apply(cluster("bad", cpu(replicas=2)))
    space.wait_workers("bad", "cpu", 2)
    old = space.names("bad", "cpu")
    space.edit("bad", {"op": "add", "path": "/spec/pools/0/image", "value": "localhost/gpudask/none:1"})
    space.wait(lambda: space.condition("bad", "Degraded")["reason"] == "ImageNotPulled", "the status says why")
    assert old <= space.names("bad", "cpu")
    with space.client("bad") as client:
        assert client.submit(work, 1).result(timeout=30) == 1
    space.edit("bad", {"op": "remove", "path": "/spec/pools/0/image"})
    space.wait(lambda: space.names("bad", "cpu") == old, "the edit is taken back, and with it the new pod")
    space.wait(lambda: space.condition("bad", "Degraded")["status"] == "False", "all is well again")
