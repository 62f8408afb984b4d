"""Measurement 7: how fast an array goes from one GPU to another: between two pods, and within one."""

from __future__ import annotations

from benchmarks.gpu.kubectl import BenchmarkError
from benchmarks.gpu.manifests import gpu_pool
from benchmarks.gpu.stage import Json, Stage

TWO_PODS, ONE_POD, OPERATORS_POD = "two pods", "one pod", "one pod of the operator's"
UCXX = "ucxx"
_WORDS = 12_000  # characters of a failure, which comes last, after what the pods wrote


def transfer(stage: Stage) -> Json:
    """Dask over tcp between pods and within one, CUDA's own copy, and Dask over UCX where that can be had.

    Raises:
        BenchmarkError: there is one GPU only.
    """
    if stage.gpus <= 1:
        raise BenchmarkError("a transfer takes two GPUs")
    repeats = f"--repeats={stage.repeats}"
    rows: list[Json] = []
    with stage.cluster("transfer", gpu_pool(replicas=2)) as address:
        rows.append({"where": TWO_PODS} | stage.run("transfer", f"--scheduler={address}", repeats))
    rows.append({"where": ONE_POD} | stage.run("transfer", "--gpus=2", repeats, gpus=2))
    peer = stage.run("peer_copy", repeats, gpus=2)
    rows.append({"where": ONE_POD} | peer)
    errors: list[str] = []
    if not peer["ucxx"]:
        errors.append("UCX was not measured: ucxx and distributed_ucxx cannot be imported")
    for by_ucx in (_local_ucx, _operators_ucx) if peer["ucxx"] else ():
        try:
            rows.append(by_ucx(stage, repeats))
        except BenchmarkError as error:  # what else was measured stands
            errors.append(str(error)[-_WORDS:])
    return {"rows": rows, "errors": errors, "versions": peer["versions"]}


def _local_ucx(stage: Stage, repeats: str) -> Json:
    return {"where": ONE_POD} | stage.run("transfer", "--gpus=2", f"--protocol={UCXX}", repeats, gpus=2)


def _operators_ucx(stage: Stage, repeats: str) -> Json:
    with stage.cluster("transfer-ucxx", gpu_pool(gpu={"count": 2}, replicas=1), protocol=UCXX) as address:
        return {"where": OPERATORS_POD} | stage.run("transfer", f"--scheduler={address}", repeats)
