"""An edited spec reaches running pods: workers at once and without loss, the scheduler when nothing is lost with it."""

from __future__ import annotations

from gpudask.api import Json

from collections.abc import Callable

import pytest

from distributed import Client, Future, wait

from gpudask_e2e import (
    ends,
    make_only_on_gpu,
    misplaced,
    processing_on,
    read_only_on_gpu,
    record,
    release,
    wait_for_release,
    work,
)

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.programs import IMAGE
from tests.e2e.space import Space
from tests.eventually import steadily

Seen = Callable[[Json], bool]  # whether a container has what the edit gave it

GPU = {"GPU": 1}
SLIM_IMAGE = "localhost/gpudask/dask-cpu:dev"
OTHER_IMAGES = pytest.mark.local_cluster("it needs other images on the nodes")


def edit_env(space: Space, place: str) -> Seen:
    space.edit("roll", {"op": "add", "path": f"{place}/env/-", "value": {"name": "EDITED", "value": "yes"}})
    return lambda container: {"name": "EDITED", "value": "yes"} in container["env"]


def edit_resources(space: Space, place: str) -> Seen:
    space.edit("roll", {"op": "replace", "path": f"{place}/resources/memory", "value": "880Mi"})
    return lambda container: bool(container["resources"]["limits"]["memory"] == "880Mi")


def edit_image(space: Space, place: str) -> Seen:
    image = SLIM_IMAGE if place == "/spec/pools/0" else another_name_of_the_image(space)
    space.edit("roll", {"op": "add", "path": f"{place}/image", "value": image})
    return lambda container: bool(container["image"] == image)


def edit_config(space: Space, place: str) -> Seen:
    space.edit(
        "roll", {"op": "add", "path": f"{place}/config", "value": {"distributed": {"admin": {"tick": {"limit": "7s"}}}}}
    )
    return lambda container: {"name": "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT", "value": "7s"} in container["env"]


@pytest.mark.parametrize("edit", [edit_env, edit_resources, pytest.param(edit_image, marks=OTHER_IMAGES)])
@pytest.mark.parametrize("pool", ["cpu", "gpu"])
def test_an_edited_pool_is_replaced_while_a_task_runs_and_a_result_is_held(
    space: Space, pool: str, edit: Callable[[Space, str], Seen]
) -> None:
    """On GPUs the result is one that only GPU workers can hold."""
    has_env = {"env": [{"name": "FIRST", "value": "yes"}]}
    pools = [cpu(replicas=2, **has_env)] if pool == "cpu" else [cpu(), gpu(replicas=1, **has_env)]
    space.apply(cluster("roll", *pools))
    size = 2 if pool == "cpu" else 1
    space.wait_workers("roll", pool, size)
    scheduler, old = space.uids("roll"), uids(space, pool)
    with space.client("roll") as client:
        record(client)
        held = hold_results(client, pool)
        running = start_a_task(space, client, pool)
        seen = edit(space, f"/spec/pools/{len(pools) - 1}")
        space.wait(lambda: uids(space, pool) - old and len(uids(space, pool) & old) == 1, "the busy one is left")
        space.wait(lambda: space.pool("roll", pool)["retiring"] == 1, "the busy one is on its way out")
        assert not running.done(), "the running task was cut"
        client.run(release)
        space.wait(lambda: len(uids(space, pool)) == size and not uids(space, pool) & old, "all pods are new")
        check_nothing_was_lost(client, pool, held, running)
    assert all(seen(pod["spec"]["containers"][0]) for pod in space.pods("roll", pool))
    assert space.uids("roll") == scheduler, "an edit of a pool is no reason to restart the scheduler"
    space.wait(lambda: space.pool("roll", pool)["outdated"] == 0, "none is out of date")


@pytest.mark.parametrize("edit", [edit_env, edit_config])
def test_an_edit_of_the_whole_cluster_rolls_the_pools_at_once_and_the_scheduler_when_it_holds_nothing(
    space: Space, edit: Callable[[Space, str], Seen]
) -> None:
    has_env = {"env": [{"name": "FIRST", "value": "yes"}]}
    space.apply(cluster("roll", cpu(), gpu(replicas=1), **has_env))
    space.wait_workers("roll", "cpu", 1)
    space.wait_workers("roll", "gpu", 1)
    scheduler, old = space.uids("roll"), uids(space, "cpu") | uids(space, "gpu")
    with space.client("roll") as client:
        record(client)
        held = hold_results(client, "gpu")
        held_on_cpu = hold_results(client, "cpu")
        running = start_a_task(space, client, "gpu")
        seen = edit(space, "/spec")
        space.wait(lambda: len(uids(space, "cpu")) == 1 and not uids(space, "cpu") & old, "the CPU pool has rolled")
        assert not running.done(), "the running task was cut"
        client.run(release)
        space.wait(lambda: len(uids(space, "gpu")) == 1 and not uids(space, "gpu") & old, "the GPU pool has rolled")
        new = uids(space, "cpu") | uids(space, "gpu")
        check_nothing_was_lost(client, "gpu", held, running)
        assert client.gather(held_on_cpu) == list(range(4))
        assert space.condition("roll", "SchedulerReady")["reason"] == "SchedulerWaitsForRollout"
        assert space.uids("roll") == scheduler
        del held, held_on_cpu, running
        space.wait(lambda: space.uids("roll") and not space.uids("roll") & scheduler, "then the scheduler is new")
    space.wait(lambda: space.condition("roll", "SchedulerReady")["reason"] == "SchedulerRunning", "it runs")
    space.wait_workers("roll", "cpu", 1)
    space.wait_workers("roll", "gpu", 1)
    assert uids(space, "cpu") | uids(space, "gpu") == new, "the new workers need not be replaced once more"
    stay = [pod for pod in space.get("pods") if "deletionTimestamp" not in pod["metadata"]]
    assert all(seen(pod["spec"]["containers"][0]) for pod in stay)


@OTHER_IMAGES
def test_an_edited_image_comes_with_the_scheduler_and_until_then_new_workers_get_its_own(space: Space) -> None:
    space.apply(cluster("roll", cpu()))
    space.wait_workers("roll", "cpu", 1)
    scheduler, old = space.uids("roll"), uids(space, "cpu")
    with space.client("roll") as client:
        held = client.submit(work, 1, pure=False)
        assert held.result(timeout=120) == 1
        has_new_image = edit_image(space, "/spec")
        image = "holds tasks or results; workers meanwhile keep the image"
        space.wait(lambda: image in space.condition("roll", "SchedulerReady")["message"], "the status says what waits")
        space.edit("roll", {"op": "replace", "path": "/spec/pools/0/replicas", "value": 2})
        space.wait_workers("roll", "cpu", 2)
        assert old < uids(space, "cpu"), "a worker was replaced"
        assert [has_new_image(pod["spec"]["containers"][0]) for pod in space.pods("roll", "cpu")] == [False, False]
        assert space.uids("roll") == scheduler
        assert client.gather(client.map(work, range(4), pure=False)) == list(range(4))
        del held
        space.wait(lambda: space.uids("roll") and not space.uids("roll") & scheduler, "then the scheduler is new")
    space.wait(lambda: space.pool("roll", "cpu")["outdated"] == 0, "and all workers are")
    space.wait_workers("roll", "cpu", 2)
    stay = [pod for pod in space.get("pods") if "deletionTimestamp" not in pod["metadata"]]
    assert all(has_new_image(pod["spec"]["containers"][0]) for pod in stay)


@OTHER_IMAGES
def test_an_edited_scheduler_waits_for_running_tasks_and_for_held_results_and_says_so(space: Space) -> None:
    space.apply(cluster("roll", cpu()))
    space.wait_workers("roll", "cpu", 1)
    old = space.uids("roll")
    with space.client("roll") as client:
        running = start_a_task(space, client, "cpu")
        space.edit("roll", {"op": "add", "path": "/spec/scheduler/image", "value": SLIM_IMAGE})
        waits_for_rollout(space, "holds tasks or results")
        steadily(lambda: space.uids("roll") == old, "the scheduler stays while a task runs", seconds=2)
        client.run(release)
        assert running.result(timeout=120) == 5
        steadily(lambda: space.uids("roll") == old, "the scheduler stays while a result is held", seconds=2)
        assert running.result(timeout=120) == 5
        del running
        space.wait(lambda: space.uids("roll") and not old & space.uids("roll"), "it was replaced once idle")
    space.wait(lambda: space.condition("roll", "SchedulerReady")["reason"] == "SchedulerRunning", "it runs")
    space.wait_workers("roll", "cpu", 1)
    stay = [pod for pod in space.pods("roll") if "deletionTimestamp" not in pod["metadata"]]
    assert [pod["spec"]["containers"][0]["image"] for pod in stay] == [SLIM_IMAGE]


def test_a_rollout_that_drains_waits_for_running_tasks_alone_and_gives_held_results_up(space: Space) -> None:
    space.apply(cluster("roll", cpu(), rollout="Drain"))
    space.wait_workers("roll", "cpu", 1)
    old = space.uids("roll")
    with space.client("roll") as client:
        held = client.submit(work, 1, pure=False)
        assert held.result(timeout=120) == 1
        running = start_a_task(space, client, "cpu")
        ended: list[str] = []
        running.add_done_callback(lambda future: ended.append(future.status))
        space.edit("roll", {"op": "add", "path": "/spec/scheduler/env", "value": [{"name": "EDITED", "value": "1"}]})
        waits_for_rollout(space, "runs tasks")
        steadily(lambda: space.uids("roll") == old, "the scheduler stays while a task runs", seconds=2)
        assert ended == []
        client.run(release)
        space.wait(lambda: space.uids("roll") and not old & space.uids("roll"), "it was replaced")
        space.wait(lambda: ended == ["finished"], "the task ended, then the scheduler")
        space.wait(lambda: held.status != "finished", "a held result does not outlive the scheduler, as documented")
    space.wait_workers("roll", "cpu", 1)


def test_a_pool_whose_new_image_does_not_exist_keeps_its_old_pods_and_says_so(space: Space) -> None:
    space.apply(cluster("bad", cpu(replicas=2)))
    space.wait_workers("bad", "cpu", 2)
    old = space.names("bad", "cpu")
    space.edit("bad", {"op": "add", "path": "/spec/pools/0/image", "value": "localhost/gpudask/none:1"})
    space.wait(lambda: space.condition("bad", "Degraded")["reason"] == "ImageNotPulled", "the status says why")
    assert old <= space.names("bad", "cpu")
    with space.client("bad") as client:
        assert client.submit(work, 1).result(timeout=120) == 1
    space.edit("bad", {"op": "remove", "path": "/spec/pools/0/image"})
    space.wait(lambda: space.names("bad", "cpu") == old, "the edit is taken back, and with it the new pod")
    space.wait(lambda: space.condition("bad", "Degraded")["status"] == "False", "all is well again")


def another_name_of_the_image(space: Space) -> str:
    """The name by which this checkout's Dask image is known beside `dev`: a change of the spec, and of nothing else."""

    def names() -> list[str]:
        images = [image["names"] for node in space.nodes() for image in node["status"]["images"]]
        return [name for group in images if IMAGE in group for name in group if name != IMAGE and "@" not in name]

    return str(space.wait(names, "the kubelets report their images")[0])


def uids(space: Space, pool: str) -> set[str]:
    """Which pods the pool has, whether they are ending or not."""
    return {pod["metadata"]["uid"] for pod in space.pods("roll", pool)}


def hold_results(client: Client, pool: str) -> list[Future]:
    """Four results, on workers of the pool: on GPUs such as no other worker could take."""
    make, wants = (make_only_on_gpu, GPU) if pool == "gpu" else (work, {})
    held = client.map(make, range(4), resources=wants, pure=False)
    wait(held, timeout=60)
    return list(held)


def start_a_task(space: Space, client: Client, pool: str) -> Future:
    """A task that runs in the pool until `release`, and gives 5."""
    running = client.submit(wait_for_release, 5, resources=GPU if pool == "gpu" else {}, pure=False)
    space.wait(lambda: any(client.run_on_scheduler(processing_on).values()), "the task runs")
    return running


def check_nothing_was_lost(client: Client, pool: str, held: list[Future], running: Future) -> None:
    """All values are there, each was computed once, and none was sent where it cannot be."""
    assert running.result(timeout=120) == 5
    read = client.map(read_only_on_gpu, held, resources=GPU) if pool == "gpu" else held
    assert client.gather(read) == list(range(4))
    executions = ends(client, [future.key for future in [*held, running]])
    assert {len(workers) for workers in executions.values()} == {1}, executions
    assert set(client.run(misplaced).values()) == {0}


def waits_for_rollout(space: Space, why: str) -> None:
    """Wait until the status says that the scheduler waits, and for what."""
    space.wait(lambda: space.condition("roll", "SchedulerReady")["reason"] == "SchedulerWaitsForRollout", "it says so")
    (old,) = space.names("roll")
    message = space.condition("roll", "SchedulerReady")["message"]
    assert message == f"{old} keeps its older spec while it {why}"
