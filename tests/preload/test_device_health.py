"""Workers whose device is sick are told, and what ended on each worker is counted."""

import pytest
from distributed import wait

from gpudask.preload.device_health import is_device_failure

from .cluster import GPU, until


def fail(words):
    raise RuntimeError(words)


def succeed(x):
    return x


ILLEGAL = "cudaErrorIllegalAddress: an illegal memory access was encountered"


async def run(cluster, words, n=1, **options):
    """Let `n` tasks fail with these words, one after the other; no words: let them succeed."""
    for _ in range(n):
        future = cluster.client.submit(fail if words else succeed, words, pure=False, resources=GPU, **options)
        await wait(future)


@pytest.mark.parametrize(
    "error",
    [
        "CUDARuntimeError('cudaErrorIllegalAddress: an illegal memory access was encountered')",
        "CUDADriverError('CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered')",
        "CudaAPIError: [700] Call to cuMemcpyDtoH results in CUDA_ERROR_ILLEGAL_ADDRESS",
        "NVMLError_GpuIsLost: GPU is lost",
    ],
)
def test_errors_that_no_task_survives_are_sick(error):
    assert is_device_failure(error)


@pytest.mark.parametrize(
    "error",
    [
        "OutOfMemoryError('Out of memory allocating 8,000,000 bytes')",
        "CUDARuntimeError('cudaErrorMemoryAllocation: out of memory')",
        "CUDADriverError('CUDA_ERROR_OUT_OF_MEMORY: out of memory')",
        "MemoryError('std::bad_alloc: out_of_memory: CUDA error')",
        "CUDARuntimeError('cudaErrorInvalidValue: invalid argument')",
        "AssertionError('expected 3')",
    ],
)
def test_other_errors_are_not(error):
    assert not is_device_failure(error)


async def test_three_in_a_row_are_told_with_the_words_and_a_success_ends_it(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await run(cluster, ILLEGAL, 2)
    assert (await cluster.row(gpu))["sick"] == ""
    await run(cluster, ILLEGAL)
    row = await cluster.row(gpu)
    assert row["sick"].startswith("3 tasks in a row failed")
    assert "cudaErrorIllegalAddress" in row["sick"]
    assert row["tasks_done"] == 3
    edges = cluster.preload.watch
    await until(lambda: edges._edges["sick"] == {gpu.address}, "it is an edge, which answers quiet polls, too")
    await run(cluster, "")
    row = await cluster.row(gpu)
    assert (row["sick"], row["tasks_done"]) == ("", 4)
    await until(lambda: not edges._edges["sick"])


async def test_a_success_in_between_begins_anew_and_another_error_does_not(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await run(cluster, ILLEGAL, 2)
    await run(cluster, "")
    await run(cluster, ILLEGAL, 2)
    assert (await cluster.row(gpu))["sick"] == ""
    await run(cluster, "a bug")
    await run(cluster, ILLEGAL)
    assert (await cluster.row(gpu))["sick"].startswith("3 tasks")


async def test_a_task_that_is_tried_again_counts_each_time(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await run(cluster, ILLEGAL, retries=2)
    row = await cluster.row(gpu)
    assert row["sick"].startswith("3 tasks")
    assert row["tasks_done"] == 3


async def test_a_worker_that_goes_is_forgotten(start):
    cluster = await start()
    gpu = await cluster.add("gpu-0")
    await run(cluster, ILLEGAL, 3)
    await gpu.close()
    await until(lambda: not cluster.scheduler.workers)
    assert not cluster.preload.device_health._rows
    assert not cluster.preload.demand.finished.restricted
