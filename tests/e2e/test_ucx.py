"""UCX as the cluster's protocol, without GPUs: workers find the scheduler, and its successor, and move arrays."""

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
from tests.e2e.ucx import moved

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
    """The cluster: its image has no UCX, so that comes by hostPath."""
    mount = {"name": "ucxx", "mountPath": _AT, "readOnly": True}
    template = {
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "dask", "volumeMounts": [mount], "resources": {"limits": {"cpu": _CPU}}}],
            "volumes": [{"name": "ucxx", "hostPath": {"path": str(packages)}}],
        }
    }
    env = [{"name": "PYTHONPATH", "value": _AT}]
    return cluster("fast", cpu(replicas=_WORKERS, nthreads=1), protocol="ucxx", template=template, env=env)


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
