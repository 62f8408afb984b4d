"""Measurement 6: a GPU pool loses a pod whose worker holds results: how long, and how many bytes moved."""

from __future__ import annotations

import json
import time
from functools import partial

from benchmarks.gpu.kubectl import BenchmarkError
from benchmarks.gpu.manifests import gpu_pool
from benchmarks.gpu.sight import SeenPod
from benchmarks.gpu.stage import Json, Stage

_CLUSTER = "retirement"
_GONE_SECONDS = 60.0


def retirement(stage: Stage) -> Json:
    """The pool has all GPUs, is asked to have one pod less, and gets it back for the next time.

    Raises:
        BenchmarkError: there is one GPU only, so that results have nowhere to go.
    """
    if stage.gpus <= 1:
        raise BenchmarkError("a GPU worker's results need another GPU worker to go to: this takes two GPUs")
    runs: list[Json] = []
    versions: Json = {}
    with stage.watch() as watch, stage.cluster(_CLUSTER, gpu_pool(replicas=stage.gpus)) as address:
        for _ in range(stage.repeats):
            _resize(stage, stage.gpus)
            told = stage.figures("retirement", f"--scheduler={address}", f"--gpus={stage.gpus}")
            held = next(told)["held"]
            asked = time.time()
            _resize(stage, stage.gpus - 1)
            said = next(told)
            list(told)
            left = partial(_left_after, asked)
            pod = watch.until(left, "a GPU pod is gone", "gpu", _GONE_SECONDS)
            versions = said["versions"]
            runs.append(
                {
                    "bytes": held[said["gone"]],
                    "deleted_seconds": pod.leaving - asked,
                    "gone_seconds": pod.gone - asked,
                    "on_gpu_workers": said["on_gpu_workers"],
                    "intact": said["intact"],
                }
            )
    return {"runs": runs, "versions": versions}


def _resize(stage: Stage, replicas: int) -> None:
    change = [{"op": "replace", "path": "/spec/pools/0/replicas", "value": replicas}]
    stage.kubectl("patch", "gpudaskcluster", _CLUSTER, "--type=json", f"--patch={json.dumps(change)}")


def _left_after(asked: float, pods: list[SeenPod]) -> list[SeenPod]:
    return [pod for pod in pods if pod.leaving > asked and pod.gone]
