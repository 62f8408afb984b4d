"""The worker of a pod's only GPU, in one process and below a nanny: the same worker, and the same results."""

from __future__ import annotations

from typing import Any

from gpudask_gpu import array, as_started, facts, facts_of, has_nanny

from tests.e2e.space import Space
from tests.gpu.manifests import cluster, cpu, gpu
from tests.gpu.workers import addresses, gpu_client, on, result

SECONDS = 30


def test_a_worker_in_one_process_is_as_dask_cuda_makes_it(room: Space) -> None:
    ours, theirs = started(room, "ours", "dask-cuda"), started(room, "theirs", "dask-cuda-nanny")
    print(f"  {ours}")
    assert (ours.pop("nanny"), theirs.pop("nanny")) == (False, True)
    assert ours == theirs
    assert ours["context"]


def started(room: Space, name: str, launcher: str) -> dict[str, Any]:
    """What a worker of that launcher is, after a task on its device; its cluster is gone then, and its GPU free."""
    room.apply(cluster(name, cpu(), gpu(replicas=1, devices={"launcher": launcher})))
    room.wait_workers(name, "gpu", 1)
    with gpu_client(room, name) as client:
        (worker,) = addresses(client, "gpu")
        seen = result(on(client, worker, facts, on(client, worker, array, 3)))
        assert seen == facts_of(3) | {"module": "cupy", "uuid": seen["uuid"]}
        of_it = client.run(as_started, workers=[worker])[worker]
        nanny = client.run(has_nanny, workers=[worker])[worker]
    room.kubectl("delete", "gdc", name, "--wait=true", f"--timeout={SECONDS}s")
    room.wait(lambda: not room.pods(name), "its pods are gone")
    return {"nanny": nanny, **of_it}
