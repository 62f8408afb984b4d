"""CuPy results: from one device to another, to the host, and off a worker that leaves."""

from __future__ import annotations

import numpy as np
from distributed import Client, wait
from gpudask_e2e import ends, who_has
from gpudask_gpu import ELEMENTS, array, device, facts, facts_of, on_host, together

from tests.gpu.one_gpu_pods.shared import NAME, Shared
from tests.gpu.workers import GPU, PATIENCE_SECONDS, on, result


def test_an_array_moves_to_another_gpu(client: Client, workers: list[str], several_gpus: int) -> None:
    assert several_gpus
    first, last = workers[0], workers[-1]
    made = on(client, first, array, 7)
    there = result(on(client, last, facts, made))
    assert there == facts_of(7) | {"module": "cupy", "uuid": result(on(client, last, device))["uuid"]}
    assert there["uuid"] != result(on(client, first, facts, made))["uuid"]
    other = on(client, last, array, 1)
    both = result(on(client, first, together, made, other))
    expected = facts_of(7)["sum"] + facts_of(1)["sum"]
    assert (both["module"], both["first"], both["sum"]) == ("cupy", 8.0, expected)


def test_an_array_comes_to_the_host_and_to_a_cpu_worker(client: Client, workers: list[str]) -> None:
    copied = on(client, workers[0], on_host, on(client, workers[0], array, 3))
    assert np.array_equal(result(copied), np.arange(3, 3 + ELEMENTS, dtype="f8"))
    on_cpu = result(client.submit(facts, copied, pure=False))
    assert on_cpu == facts_of(3) | {"module": "numpy", "uuid": ""}


def test_results_on_a_gpu_worker_that_leaves_survive_on_the_others(
    shared: Shared, client: Client, workers: list[str], several_gpus: int
) -> None:
    made = {number: on(client, workers[number % several_gpus], array, number) for number in range(4 * several_gpus)}
    wait(list(made.values()), timeout=PATIENCE_SECONDS)
    shared.size(several_gpus - 1)
    shared.space.wait_pods(NAME, "gpu", several_gpus - 1)
    for future in made.values():
        holders = client.run_on_scheduler(who_has, future.key)
        assert holders
        assert all("-gpu-" in holder for holder in holders)
    for number, future in made.items():
        kept = result(client.submit(facts, future, resources=GPU, pure=False))
        assert kept == facts_of(number) | {"module": "cupy", "uuid": kept["uuid"]}
    executions = ends(client, [future.key for future in made.values()])
    assert {len(ran) for ran in executions.values()} == {1}, "a result was computed again"
