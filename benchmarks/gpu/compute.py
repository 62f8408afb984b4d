"""Measurements 1 and 2: the classic, and tasks of 0.1 s and more, on 1, 2, 4 ... GPUs of one cluster."""

from __future__ import annotations

from benchmarks.gpu.manifests import gpu_pool
from benchmarks.gpu.stage import Json, Stage


def classic(stage: Stage) -> Json:
    """Random doubles, every second one, + 1, mean: 80 and 800 GB; and parts of it on CPUs."""
    cpu = stage.run("cpu", f"--repeats={stage.repeats}")
    gpu = on_operator(stage, "classic", "--shapes=classic")
    return gpu | {"cpu_rows": cpu["rows"]}


def scaling(stage: Stage) -> Json:
    """Chains of matrix products, and Fourier transforms."""
    return on_operator(stage, "scaling", "--shapes=chain,transforms")


def on_operator(stage: Stage, name: str, *arguments: str) -> Json:
    """The program against a cluster of the operator whose pool has all GPUs, a pod for each."""
    with stage.cluster(name, gpu_pool(replicas=stage.gpus)) as address:
        return stage.run("compute", f"--scheduler={address}", *_of(stage), *arguments)


def in_one_pod(stage: Stage, *arguments: str) -> Json:
    """The same program on `LocalCUDACluster` in one pod that has all GPUs."""
    return stage.run("compute", *_of(stage), *arguments, gpus=stage.gpus)


def _of(stage: Stage) -> list[str]:
    return [f"--gpus={stage.gpus}", f"--repeats={stage.repeats}"]
