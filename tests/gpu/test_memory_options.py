"""What a pool may say about device memory: from where on results spill to the host, and RMM's pool.

Options of `dask cuda worker` reach it through the pool's `extraArgs`.
"""

from __future__ import annotations

from dask.utils import parse_bytes
from gpudask_gpu import array, facts, facts_of, rmm_pool_bytes, stored

from tests.e2e.space import Space
from tests.gpu.manifests import cluster, cpu, gpu
from tests.gpu.workers import addresses, gpu_client, needs, on, result

LIMIT = "1GiB"
ELEMENTS = 2**25  # 256 MiB of doubles
ARRAYS = 6


def test_results_beyond_the_device_memory_limit_spill_to_the_host_and_come_back(room: Space) -> None:
    room.apply(cluster("limited", cpu(), gpu(replicas=1, extraArgs=["--device-memory-limit", LIMIT])))
    room.wait_workers("limited", "gpu", 1)
    with gpu_client(room, "limited") as client:
        (worker,) = addresses(client, "gpu")
        made = {number: on(client, worker, array, number, ELEMENTS) for number in range(ARRAYS)}
        first = {number: result(on(client, worker, facts, future)) for number, future in made.items()}
        now = client.run(stored, workers=[worker])[worker]
        assert now["device_bytes"] <= parse_bytes(LIMIT), now
        assert now["host"] >= ARRAYS - parse_bytes(LIMIT) // (8 * ELEMENTS), now
        again = {number: result(on(client, worker, facts, future)) for number, future in made.items()}
        assert first == again
        for number, seen in again.items():
            assert seen == facts_of(number, ELEMENTS) | {"module": "cupy", "uuid": seen["uuid"]}


def test_the_workers_take_device_memory_from_an_rmm_pool(room: Space) -> None:
    needs("rmm")
    room.apply(cluster("pooled", cpu(), gpu(replicas=1, extraArgs=["--rmm-pool-size", LIMIT])))
    room.wait_workers("pooled", "gpu", 1)
    with gpu_client(room, "pooled") as client:
        (worker,) = addresses(client, "gpu")
        assert result(on(client, worker, rmm_pool_bytes)) >= parse_bytes(LIMIT)
