"""Another operator version renders new pods in its own way, and leaves those that run as they are."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client
from gpudask_e2e import (
    ends,
    make_only_on_gpu,
    processing_on,
    read_only_on_gpu,
    record,
    release,
    variable,
    wait_for_release,
    work,
)

from tests.e2e import later_version
from tests.e2e.later_version import build_later_version
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.platform import Platform
from tests.e2e.space import Space

pytestmark = [
    pytest.mark.alone,  # it installs the operator with other values
    pytest.mark.local_cluster("it puts the image of a later version on the nodes"),
]

GPU = {"GPU": 1}
LATER = later_version.VALUE


@pytest.fixture(scope="module")
def later(platform: Platform) -> str:
    """The image of a later version of the operator, on the nodes."""
    return build_later_version(platform.operator_image, platform.cluster.images)


@pytest.fixture(autouse=True)
def _this_version_afterwards(platform: Platform) -> Iterator[None]:
    yield
    platform.install()


def test_a_later_version_restarts_nothing_and_its_new_pods_join_the_old(space: Space, later: str) -> None:
    space.apply(cluster("calm", cpu(replicas=2), gpu(replicas=1)))
    _at_rest(space, cpu=2, gpu=1)
    with space.client("calm") as client:
        record(client)
        held = client.map(work, range(4), pure=False)
        on_gpu = client.submit(make_only_on_gpu, 7, resources=GPU, pure=False)
        client.gather(held)
        running = [client.submit(wait_for_release, n, resources=kind, pure=False) for n, kind in enumerate(({}, GPU))]
        space.wait(lambda: sum(map(bool, client.run_on_scheduler(processing_on).values())) == 2, "both tasks run")
        before = space.containers()

        space.platform.install(image=later)
        space.wait(lambda: _service_version(space) == LATER, "the later version has made a pass")
        assert space.containers() == before, "the later version replaced or restarted a container"
        assert _versions(space) == {None}
        assert space.pool("calm", "cpu")["outdated"] == space.pool("calm", "gpu")["outdated"] == 0
        assert space.condition("calm", "SchedulerReady")["reason"] == "SchedulerRunning"

        new = _resize(space, cpu=3, gpu=2)
        assert {uid: what for uid, what in space.containers().items() if uid in before} == before
        assert _preload_version(client) is None, "the scheduler, which runs on, has another preload"
        for pod in new:
            assert _versions(space, pod) == {LATER}
            assert _ask(client, pod) == LATER, f"{pod} does not serve the older scheduler"

        _resize(space, cpu=2, gpu=1)  # the older preload drains for the later operator
        client.run(release)
        assert client.gather(running) == [0, 1]
        assert client.submit(read_only_on_gpu, on_gpu, resources=GPU).result(timeout=120) == 7
        assert client.gather(held) == list(range(4))
        executions = ends(client, [future.key for future in [*held, on_gpu, *running]])
        assert {len(workers) for workers in executions.values()} == {1}, executions

    space.edit("calm", {"op": "add", "path": "/spec/env", "value": [{"name": "EDITED", "value": "yes"}]})
    space.wait(lambda: _versions(space) == {LATER}, "the next edit brings all to the later version", seconds=120)
    assert before.keys().isdisjoint(space.containers())
    _at_rest(space, cpu=2, gpu=1)
    with space.client("calm") as client:
        assert _preload_version(client) == LATER


def test_the_return_to_an_older_version_restarts_nothing_either(space: Space, later: str) -> None:
    space.platform.install(image=later)
    space.apply(cluster("calm", cpu(replicas=2), gpu(replicas=1)))
    _at_rest(space, cpu=2, gpu=1)
    assert _versions(space) == {LATER}
    with space.client("calm") as client:
        record(client)
        assert _preload_version(client) == LATER
        running = client.submit(wait_for_release, 1, pure=False)
        held = client.submit(make_only_on_gpu, 7, resources=GPU, pure=False)
        space.wait(lambda: held.status == "finished", "a result is held")
        space.wait(lambda: any(client.run_on_scheduler(processing_on).values()), "a task runs")
        before = space.containers()

        space.platform.install()
        space.wait(lambda: _service_version(space) is None, "the older version has made a pass")
        assert space.containers() == before, "the older version replaced or restarted a container"
        assert space.pool("calm", "cpu")["outdated"] == space.pool("calm", "gpu")["outdated"] == 0

        for pod in _resize(space, cpu=3, gpu=2):
            assert _versions(space, pod) == {None}
            assert _ask(client, pod) is None
        _resize(space, cpu=2, gpu=1)  # the later preload drains for the older operator
        assert client.submit(read_only_on_gpu, held, resources=GPU).result(timeout=120) == 7
        client.run(release)
        assert running.result(timeout=120) == 1
        executions = ends(client, [held.key, running.key])
        assert {len(workers) for workers in executions.values()} == {1}, executions


def _at_rest(space: Space, **pods: int) -> None:
    space.wait_ready("calm")
    for pool, count in pods.items():
        space.wait_pods("calm", pool, count)
        space.wait_workers("calm", pool, count)


def _resize(space: Space, **pods: int) -> set[str]:
    """Set the pools' sizes, wait until they have them, and name the new pods."""
    before = space.names("calm", "cpu") | space.names("calm", "gpu")
    sizes = [{"pool": pool, "replicas": count} for pool, count in pods.items()]
    space.edit("calm", {"op": "add", "path": "/spec/overrides", "value": sizes})
    _at_rest(space, **pods)
    return (space.names("calm", "cpu") | space.names("calm", "gpu")) - before


def _versions(space: Space, name: str = "") -> set[str | None]:
    """By which versions the pods were rendered: all of them, or the one named."""
    pods = [pod for pod in space.get("pods") if name in ("", pod["metadata"]["name"])]
    return {pod["metadata"]["labels"].get(later_version.LABEL) for pod in pods}


def _service_version(space: Space) -> str | None:
    """Which version made the last pass: each brings the Service to its own rendering."""
    (service,) = space.get("services")
    label = service["metadata"]["labels"].get(later_version.LABEL)
    return label if label is None else str(label)


def _ask(client: Client, pod: str) -> Any:
    """Run a task on the worker of a pod that tells by which version the pod was rendered."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    where = next(address for address, worker in workers.items() if str(worker["name"]).startswith(f"{pod}-"))
    resources = GPU if "-gpu-" in pod else {}
    told = client.submit(variable, later_version.VARIABLE, workers=where, resources=resources, pure=False)
    return told.result(timeout=120)


def _preload_version(client: Client) -> Any:
    module, attribute = later_version.PRELOAD_MODULE, later_version.PRELOAD_ATTRIBUTE

    def look() -> Any:
        return getattr(importlib.import_module(module), attribute, None)

    return client.run_on_scheduler(look)
