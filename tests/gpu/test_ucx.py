"""UCX as the protocol of a cluster, or of its GPU pool, between the GPUs of one pod."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from gpudask_gpu import array, facts, facts_of

from tests.e2e.space import Space
from tests.e2e.ucx import moved
from tests.gpu.manifests import cluster, cpu, gpu
from tests.gpu.workers import addresses, gpu_client, needs, on, result


@pytest.mark.timeout(270)  # its parts have limits of their own, which say more
def test_an_array_moves_by_ucx(room: Space, several_gpus: int) -> None:
    needs("distributed_ucxx", "ucxx")
    room.apply(cluster("fast", gpu(count=several_gpus, replicas=1), protocol="ucxx"))
    room.wait_workers("fast", "gpu", several_gpus, seconds=90)
    assert len(moved(room, "fast", "cupy", sys.executable)["workers"]) == several_gpus


@pytest.mark.timeout(270)
@pytest.mark.parametrize("launcher", ["dask-cuda", "dask-cuda-nanny"])
def test_a_pool_moves_arrays_by_ucx_in_a_cluster_of_tcp(room: Space, several_gpus: int, launcher: str) -> None:
    """The program comes by tcp; so does the CPU worker, which takes what it can hold."""
    needs("distributed_ucxx", "ucxx")
    pool = gpu(count=several_gpus, replicas=1, protocol="ucxx", devices={"launcher": launcher})
    room.apply(cluster("beside", cpu(), pool))
    room.wait_workers("beside", "gpu", several_gpus, seconds=90)
    room.wait_workers("beside", "cpu", 1, seconds=90)
    with gpu_client(room, "beside") as client:
        workers, (of_cpu,) = addresses(client, "gpu"), addresses(client, "cpu")
        assert len(workers) == several_gpus
        assert all(worker.startswith("ucxx://") for worker in workers)
        assert of_cpu.startswith("tcp://")
        made = on(client, workers[0], array, 4)
        own = result(on(client, workers[0], facts, made))
        moved = result(on(client, workers[-1], facts, made))
        assert moved == own | {"uuid": moved["uuid"]} == facts_of(4) | {"module": "cupy", "uuid": moved["uuid"]}
        assert moved["uuid"] != own["uuid"], "on another device"
        host = on(client, workers[0], np.arange, 1_000_000)
        taken = client.submit(np.sum, host, workers=[of_cpu], pure=False)
        assert result(taken) == 1_000_000 * 999_999 // 2
        back = on(client, workers[-1], np.sum, client.submit(np.arange, 1_000, workers=[of_cpu], pure=False))
        assert result(back) == 1_000 * 999 // 2
