"""One pod with every GPU of the machine: a worker for each, on a device of its own."""

from __future__ import annotations

from gpudask_gpu import array, device, facts, facts_of

from tests.e2e.space import Space
from tests.gpu.device_files import uuids
from tests.gpu.manifests import cluster, cpu, gpu
from tests.gpu.workers import addresses, gpu_client, on, result


def test_a_pod_with_all_gpus_has_a_worker_for_each(room: Space, several_gpus: int) -> None:
    room.apply(cluster("whole", cpu(), gpu(count=several_gpus, replicas=1)))
    room.wait_workers("whole", "gpu", several_gpus)
    assert len(room.names("whole", "gpu")) == 1
    assert room.pool("whole", "gpu")["gpusHeld"] == several_gpus
    with gpu_client(room, "whole") as client:
        workers = addresses(client, "gpu")
        seen = [result(on(client, worker, device)) for worker in workers]
        assert {each["uuid"] for each in seen} == uuids()
        assert len({each["uuid"] for each in seen}) == len(workers) == several_gpus
        # Each worker sees all of the pod's, its own first.
        assert {each["count"] for each in seen} == {several_gpus}
        assert len({each["visible"].partition(",")[0] for each in seen}) == several_gpus
        made = on(client, workers[0], array, 4)
        moved = result(on(client, workers[-1], facts, made))
        assert moved == facts_of(4) | {"module": "cupy", "uuid": seen[-1]["uuid"]}
