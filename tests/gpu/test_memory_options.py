"""What a pool may say about device memory: from where on results spill to the host, and RMM's pool."""

from __future__ import annotations

from dask.utils import parse_bytes
from gpudask_gpu import array, facts, facts_of, is_imported, rmm_in_use, stored

from tests.e2e.space import Space
from tests.gpu.manifests import cluster, cpu, gpu
from tests.gpu.workers import addresses, gpu_client, needs, on, result

LIMIT = "1Gi"
ELEMENTS = 2**25  # 256 MiB of doubles
ARRAY_BYTES = 8 * ELEMENTS
ARRAYS = 6


def test_results_beyond_the_device_memory_limit_spill_to_the_host_and_come_back(room: Space) -> None:
    room.apply(cluster("limited", cpu(), gpu(replicas=1, devices={"deviceMemoryLimit": LIMIT})))
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


def test_the_workers_take_device_memory_from_an_rmm_pool_and_cupy_from_rmm(room: Space) -> None:
    needs("rmm")
    options = {"rmmPoolSize": LIMIT, "rmmAllocatorFor": ["cupy"], "preImport": ["cupy"]}
    room.apply(cluster("pooled", cpu(), gpu(replicas=1, devices=options)))
    room.wait_workers("pooled", "gpu", 1)
    with gpu_client(room, "pooled") as client:
        (worker,) = addresses(client, "gpu")
        seen = result(on(client, worker, rmm_in_use))
    print(f"  {seen}")
    assert seen["pool"], seen
    assert seen["pool_bytes"] >= parse_bytes(LIMIT), seen
    assert seen["cupy_from_rmm"], seen
    # An array of 256 MiB was made: what the device has free did not change, since the pool had it already.
    assert seen["taken_by_an_array"] < ARRAY_BYTES // 2, seen


def test_a_module_is_there_before_the_first_task(room: Space) -> None:
    room.apply(cluster("warm", cpu(), gpu(replicas=1, devices={"preImport": ["cupy"]})))
    room.wait_workers("warm", "gpu", 1)
    with gpu_client(room, "warm") as client:
        (worker,) = addresses(client, "gpu")
        assert result(on(client, worker, is_imported, "cupy"))
