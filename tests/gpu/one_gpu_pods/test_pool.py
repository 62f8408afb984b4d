"""The GPU pool on real devices: one worker for each, pinned to it; who runs there; from zero and back."""

from __future__ import annotations

from collections import Counter

from distributed import Client, Future
from gpudask_e2e import ends, work
from gpudask_gpu import device

from tests.e2e.space import Space
from tests.gpu.device_files import uuids
from tests.gpu.one_gpu_pods.shared import NAME
from tests.gpu.workers import GPU, on, result


def test_the_pool_goes_from_zero_to_every_gpu_and_back_by_demand(space: Space, client: Client, gpus: int) -> None:
    space.wait_pods(NAME, "gpu", 0)
    tasks = client.map(device, [0.5] * (16 * gpus), resources=GPU, pure=False)
    space.wait_workers(NAME, "gpu", gpus)
    assert space.pool(NAME, "gpu")["gpusHeld"] == gpus
    seen = client.gather(tasks)
    assert {each["uuid"] for each in seen} <= uuids()
    assert pools_of(client, tasks) == {"gpu"}
    del tasks
    space.wait_pods(NAME, "gpu", 0)


def test_each_worker_has_one_gpu_of_its_own(client: Client, workers: list[str], gpus: int) -> None:
    seen = [result(on(client, worker, device)) for worker in workers]
    assert {each["uuid"] for each in seen} == uuids()
    assert len({each["uuid"] for each in seen}) == gpus
    assert [(each["visible"], each["count"]) for each in seen] == [("0", 1)] * gpus


def test_plain_tasks_stay_off_the_gpus_unless_the_pool_accepts_them(
    space: Space, client: Client, workers: list[str]
) -> None:
    assert workers
    assert plain_tasks_ran_on(client) == {"cpu"}
    space.edit(NAME, {"op": "add", "path": "/spec/pools/1/accepts", "value": "any"})
    space.wait(lambda: "gpu" in plain_tasks_ran_on(client), "the GPU workers take plain tasks too")
    space.edit(NAME, {"op": "remove", "path": "/spec/pools/1/accepts"})
    space.wait(lambda: plain_tasks_ran_on(client) == {"cpu"}, "the GPU workers are left alone again")


def plain_tasks_ran_on(client: Client) -> set[str]:
    """The pools on which 24 plain tasks ran, more than the CPU worker has threads for."""
    tasks = client.map(work, range(24), seconds=0.1, pure=False)
    assert client.gather(tasks) == list(range(24))
    return pools_of(client, tasks)


def pools_of(client: Client, tasks: list[Future]) -> set[str]:
    """The pools on which tasks ran, each of them once."""
    executions = ends(client, [task.key for task in tasks])
    assert set(Counter(len(ran) for ran in executions.values())) == {1}, executions
    return {name.partition("-worker-")[0].rpartition("-")[2] for ran in executions.values() for name in ran}
