"""UCX as the protocol of a cluster, or of one pool, without GPUs: workers find the scheduler, and its successor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local.bundle.packing.wheel_sets import cuda13_lock
from local.bundle.wheel_files import unpack_wheels
from local.host.progress import Steps
from local.images.wheels import fetch_wheels
from tests.e2e.manifests import cluster, cpu
from tests.e2e.space import Space
from tests.e2e.ucx import BYTES as _BYTES
from tests.e2e.ucx import moved, moved_beside_tcp

pytestmark = [
    pytest.mark.local_cluster("pods mount this machine's directories"),
    pytest.mark.pod_security("privileged"),  # hostPath is of no stricter level
]

_AT = "/ucxx"
_WORKERS = 2
_CPU = "400m"  # a process with UCX never rests: three would leave other tests nothing


@pytest.fixture(scope="session")
def packages() -> Path:
    """A directory with distributed-ucxx and what it needs; the nodes share this machine's files."""
    wheels = fetch_wheels(cuda13_lock(), Steps())
    return unpack_wheels(wheels, wheels.with_name(f"{wheels.name}.unpacked"))


def by_ucx(packages: Path) -> dict[str, Any]:
    """A cluster that speaks UCX."""
    return _cluster(packages, cpu(replicas=_WORKERS, nthreads=1), protocol="ucxx")


def beside_tcp(packages: Path) -> dict[str, Any]:
    """A cluster of tcp with a pool that speaks UCX."""
    own = cpu(replicas=_WORKERS, nthreads=1) | {"name": "own", "protocol": "ucxx"}
    return _cluster(packages, cpu(replicas=1, nthreads=1), own)


def _cluster(packages: Path, *pools: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A cluster whose image has no UCX: that comes by hostPath."""
    mount = {"name": "ucxx", "mountPath": _AT, "readOnly": True}
    template = {
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "dask", "volumeMounts": [mount], "resources": {"limits": {"cpu": _CPU}}}],
            "volumes": [{"name": "ucxx", "hostPath": {"path": str(packages)}}],
        }
    }
    env = [{"name": "PYTHONPATH", "value": _AT}]
    return cluster("fast", *pools, template=template, env=env, **spec)


def test_arrays_move_by_ucx_also_after_the_scheduler_was_replaced(space: Space, packages: Path) -> None:
    """Through a Service's own address some of the first workers never registered, and after a new scheduler none."""
    space.apply(by_ucx(packages))
    space.wait_ready("fast")
    assert len(moved(space, "fast", "numpy")["workers"]) == _WORKERS

    before = space.uids("fast")
    (scheduler,) = space.names("fast")
    space.kubectl("delete", "pod", scheduler, "--wait=false")
    space.wait(lambda: space.uids("fast") and not space.uids("fast") & before, "another scheduler pod is there")
    # Each container starts again, and once more where the name led nowhere yet: the kubelet then waits 10 s, 20 s.
    space.wait_workers("fast", "cpu", _WORKERS, seconds=120)
    degraded = space.condition("fast", "Degraded")
    assert degraded["status"] == "False", degraded
    space.wait_ready("fast")
    assert len(moved(space, "fast", "numpy")["workers"]) == _WORKERS


def test_a_pool_speaks_ucx_beside_tcp_also_after_the_scheduler_was_replaced(space: Space, packages: Path) -> None:
    """The program comes by tcp, through a forwarded port, as to any cluster."""
    space.apply(beside_tcp(packages))
    space.wait_ready("fast")
    with space.client("fast") as client:
        assert moved_beside_tcp(client, "own", "cpu") == _BYTES

    before = space.uids("fast")
    (scheduler,) = space.names("fast")
    space.kubectl("delete", "pod", scheduler, "--wait=false")
    space.wait(lambda: space.uids("fast") and not space.uids("fast") & before, "another scheduler pod is there")
    space.wait_workers("fast", "own", _WORKERS, seconds=120)
    space.wait_ready("fast")
    with space.client("fast") as client:
        assert moved_beside_tcp(client, "own", "cpu") == _BYTES


def test_an_image_without_ucx_keeps_such_a_pool_waiting_and_is_told(space: Space) -> None:
    space.apply(cluster("fast", cpu(), cpu() | {"name": "own", "protocol": "ucxx"}))
    space.wait(
        lambda: space.condition("fast", "Degraded").get("reason") == "SchedulerNotListening", "it is told", seconds=60
    )
    assert "its image needs distributed-ucxx" in space.condition("fast", "Degraded")["message"]
    space.wait_workers("fast", "cpu", 1, seconds=60)
    assert space.names("fast", "own") == set()
