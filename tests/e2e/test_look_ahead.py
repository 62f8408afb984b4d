"""A GPU pod is ordered while the CPU phase before its tasks runs: so late that it holds no GPU for nothing."""

from __future__ import annotations

import pytest

from distributed import Client, Future
from gpudask_e2e import read_story, record, work

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space

pytestmark = [pytest.mark.alone, pytest.mark.quiet]  # it compares times

CPU_TASKS = 60  # of a second, two at a time


def test_the_gpu_worker_is_ready_before_the_cpu_phase_ends_and_not_long_before(space: Space) -> None:
    space.apply(cluster("ahead", cpu(nthreads=2), gpu(autoscale={"min": 0, "max": 1})))
    space.wait_ready("ahead")
    with space.client("ahead") as client:
        first = _program(client, 4)  # from it Dask knows how long its tasks take, and the operator how long a pod does
        client.gather(first)
        del first
        space.wait_pods("ahead", "gpu", 0)
        record(client)
        trained = _program(client, CPU_TASKS)
        assert client.gather(trained) == [list(range(CPU_TASKS))] * 2
        story = client.run_on_scheduler(read_story)
    came = next(n for n, (what, name) in enumerate(story) if what == "joined" and "-gpu-" in name)
    cpu_tasks = [n for n, (what, key) in enumerate(story) if what == "ended" and key.startswith("load")]
    assert len(cpu_tasks) == CPU_TASKS
    assert came < cpu_tasks[-1], f"it came after the CPU phase: {story}"
    assert came > cpu_tasks[CPU_TASKS // 3], f"it came long before it was needed: {story}"


def _program(client: Client, tasks: int) -> list[Future]:
    """A CPU phase, a barrier, and GPU tasks behind it."""
    loaded = client.map(work, range(tasks), seconds=1.0, key=[f"load-{tasks}-{n}" for n in range(tasks)])
    joined = client.submit(work, loaded, key=f"join-{tasks}")
    return client.map(work, [joined] * 2, key=[f"train-{tasks}-{n}" for n in range(2)], resources={"GPU": 1})
