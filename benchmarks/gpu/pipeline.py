"""Measurement 5: CPU load, GPU compute, CPU summary, with a GPU pool that follows demand and with one that does not."""

from __future__ import annotations

from benchmarks.gpu.manifests import cpu_pool, gpu_pool
from benchmarks.gpu.stage import Json, Stage

_THREADS = 8
_GONE_SECONDS = 90.0


def pipeline(stage: Stage) -> Json:
    """Each in a cluster of its own. A pool that does not follow is counted while the program runs, and no longer.

    From the fixed pool's pods the operator knows how long one takes to start.
    """
    followed = {"min": 0, "max": stage.gpus, "idleTimeout": "3s", "targetDuration": "5s"}
    fixed = _run(stage, gpu_pool(replicas=stage.gpus), "--fixed")
    autoscaled = _run(stage, gpu_pool(autoscale=followed), f"--sorts={fixed['sorts']}")
    return {"fixed": [fixed], "autoscaled": [autoscaled], "autoscale": followed, "versions": fixed.pop("versions")}


def _run(stage: Stage, pool: Json, *arguments: str) -> Json:
    with stage.watch() as watch, stage.cluster("pipeline", cpu_pool(stage.gpus, _THREADS), pool) as address:
        words = [f"--scheduler={address}", f"--gpus={stage.gpus}", f"--cpus={stage.gpus}"]
        said = stage.run("pipeline", *words, *arguments)
        end = said["ended"] if "replicas" in pool else watch.until_all_gone("gpu", _GONE_SECONDS).gone
        pods = watch.pods("gpu")
        status = stage.kubectl.json("get", "gpudaskcluster", "pipeline")["status"]
        return {
            "seconds": said["seconds"],
            "gpu_seconds": sum(pod.held_seconds(said["started"], end) for pod in pods),
            "status_gpu_seconds": sum(row.get("gpuSecondsHeld", 0.0) for row in status.get("pools", [])),
            "held": [[pod.placed - said["started"], (pod.gone or end) - said["started"]] for pod in pods],
            "total": said["total"],
            "sorts": said["sorts"],
            "phases": said["phases"],
            "versions": said["versions"],
        }
