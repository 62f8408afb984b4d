"""Waiting GPU tasks spread over GPU workers that join, beside a busy CPU pool."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.e2e.manifests import cluster, cpu, gpu
from gpudask_e2e import ends, processing_on, record, release, work, work_once_released
from tests.e2e.space import Space

pytestmark = [pytest.mark.alone, pytest.mark.quiet]  # it compares times

TASKS, SECONDS = 100, 0.1


@pytest.mark.parametrize("workers", [2, 4])
def test_a_queue_that_the_first_gpu_worker_took_ends_in_the_time_of_all_of_them(space: Space, workers: int) -> None:
    space.apply(cluster("join", cpu(), gpu(replicas=1)))
    space.wait_ready("join")
    with space.client("join") as client:
        record(client)
        plain = client.map(work, range(20_000), seconds=0.05, pure=False)
        futures = client.map(work_once_released, range(TASKS), seconds=SECONDS, resources={"GPU": 1}, pure=False)
        space.wait(lambda: _on_gpu(client.run_on_scheduler(processing_on)) == TASKS, "the first worker has them all")
        space.edit("join", {"op": "replace", "path": "/spec/pools/1/replicas", "value": workers})
        space.wait_workers("join", "gpu", workers)
        client.run(release)
        since = time.monotonic()
        assert client.gather(futures) == list(range(TASKS))
        seconds = time.monotonic() - since
        ran_on = ends(client, [future.key for future in futures])
        assert not all(future.done() for future in plain), "the CPU pool was idle at the end"
        client.cancel(plain)
        assert {key: on for key, on in ran_on.items() if len(on) != 1} == {}
        share = Counter(name for on in ran_on.values() for name in on)
        told = f"{seconds:.2f} s on {workers} workers, tasks by worker: {share}"
        assert max(share.values()) <= 1.15 * TASKS / workers + 2, told
        assert seconds <= 2 * TASKS * SECONDS / workers, told  # so much for a machine that does other things as well


def _on_gpu(processing: dict[str, int]) -> int:
    return sum(n for name, n in processing.items() if "-gpu-" in name)
