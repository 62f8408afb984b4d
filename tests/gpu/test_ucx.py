"""UCX as the cluster's protocol, between the GPUs of one pod."""

from __future__ import annotations

import sys

import pytest

from tests.e2e.space import Space
from tests.e2e.ucx import moved
from tests.gpu.manifests import cluster, gpu
from tests.gpu.workers import needs


@pytest.mark.timeout(270)  # its parts have limits of their own, which say more
def test_an_array_moves_by_ucx(room: Space, several_gpus: int) -> None:
    needs("distributed_ucxx", "ucxx")
    room.apply(cluster("fast", gpu(count=several_gpus, replicas=1), protocol="ucxx"))
    room.wait_workers("fast", "gpu", several_gpus, seconds=90)
    assert len(moved(room, "fast", "cupy", sys.executable)["workers"]) == several_gpus
