"""A device without free memory: the task fails in plain words, and its worker goes on."""

from __future__ import annotations

from distributed import Client
from gpudask_gpu import array, facts, facts_of, fill_the_device, free_share, more_than_any_device

from tests.gpu.one_gpu_pods.shared import Shared
from tests.gpu.workers import PATIENCE_SECONDS, on, result

SMALL = 1000


def test_tasks_that_run_out_of_device_memory_fail_and_their_worker_lives_on(
    shared: Shared, client: Client, workers: list[str]
) -> None:
    """Three in a row and more: so many CUDA errors of a sick device would replace the pod."""
    worker, before = workers[0], shared.space.containers()
    failed = [on(client, worker, function) for function in (more_than_any_device, *[fill_the_device] * 3)]
    for future in failed:
        error = str(future.exception(timeout=PATIENCE_SECONDS))
        assert "out of memory" in error.lower(), error
    del failed, future
    shared.space.wait(
        lambda: result(on(client, worker, free_share)) > 0.9, "what the failed tasks took is free again", seconds=20
    )
    assert result(on(client, worker, facts, on(client, worker, array, 5, SMALL))).items() >= facts_of(5, SMALL).items()
    assert shared.space.containers() == before, "a container was restarted, or a pod replaced"
