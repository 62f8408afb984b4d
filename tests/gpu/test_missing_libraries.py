"""What a pool asks for and the image lacks is told in its status: RMM, and UCX as the cluster's protocol."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

from tests.e2e.space import Space
from tests.gpu.manifests import cluster, cpu, gpu

# Until a container has come back often enough to be called crashing: the kubelet waits 10 s before the third start.
CRASHING_SECONDS = 75


def test_a_pool_that_wants_rmm_says_that_it_is_not_there(room: Space) -> None:
    absent("rmm")
    room.apply(cluster("pooled", cpu(), gpu(replicas=1, devices={"rmmPoolSize": "1Gi"})))
    told(room, "pooled", r"pool gpu: .*RMM pool requested but module 'rmm' is not available")


def test_a_pool_that_imports_what_is_not_there_says_so(room: Space) -> None:
    room.apply(cluster("absent", cpu(), gpu(replicas=1, devices={"preImport": ["gpudask_no_such_module"]})))
    told(room, "absent", r"pool gpu: .*(No module named 'gpudask_no_such_module'|gpu.preImport names: gpudask_no_such)")


def test_a_cluster_that_wants_ucx_says_that_it_is_not_there(room: Space) -> None:
    absent("distributed_ucxx")
    room.apply(cluster("fast", cpu(), protocol="ucxx"))
    told(room, "fast", "with the protocol ucxx its image needs distributed-ucxx")


def absent(module: str) -> None:
    """Skip where the pods' Python, which is this one, has the module."""
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"the machine's Python has {module}: another test uses it")


def told(room: Space, name: str, words: str) -> None:
    """Wait until the condition Degraded says so."""

    def said() -> Any:
        degraded = room.condition(name, "Degraded")
        return degraded.get("status") == "True" and re.search(words, degraded["message"], re.DOTALL)

    room.wait(said, f"Degraded says {words}", seconds=CRASHING_SECONDS)
    print(f"  status: {room.condition(name, 'Degraded')['message']}")
