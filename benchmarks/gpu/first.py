"""Measurement 4: the first GPU task where there is no GPU worker, until its result, in steps."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial

from benchmarks.gpu.kubectl import BenchmarkError
from benchmarks.gpu.manifests import PACKAGE, cpu_pool, gpu_pool, warmed
from benchmarks.gpu.sight import SeenPod
from benchmarks.gpu.stage import Json, Stage

# What dask-cuda imports before the worker registers. It makes the CUDA context then in any case.
VARIANTS = {"plain": "", "cupy": "cupy", "kernels": f"{PACKAGE}.warm"}
_AUTOSCALE = {"min": 0, "max": 1, "idleTimeout": "5s"}
_GONE_SECONDS = 60.0
_SEEN_SECONDS = 5.0
_REGISTERED = "Registered to:"
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")


def first(stage: Stage) -> Json:
    """Each variant in a cluster of its own, each time from no GPU pod at all."""
    runs: list[Json] = []
    versions: Json = {}
    for variant, module in VARIANTS.items():
        pool = gpu_pool(autoscale=_AUTOSCALE)
        with stage.watch() as watch, stage.cluster("first", cpu_pool(1, 1), _warmed(pool, module)) as address:
            for _ in range(stage.repeats):
                told = stage.figures("first_task", f"--scheduler={address}")
                said = next(told)  # while the worker is sure to be there
                made_since = partial(_running_since, said["stamps"]["submitted"])
                pod = watch.until(made_since, "a GPU pod runs", "gpu", _SEEN_SECONDS)
                log = stage.kubectl("logs", pod.name, "--timestamps")
                list(told)
                runs.append({"variant": variant, "steps": steps(said["stamps"], pod, registered(log))})
                versions = said["versions"]
                watch.until_all_gone("gpu", _GONE_SECONDS)
    return {"runs": runs, "versions": versions}


def steps(stamps: dict[str, float], pod: SeenPod, registered_at: float) -> dict[str, float]:
    """The seconds of each step, from the times at which they ended; they add up to the whole."""
    ends = {
        "decision": pod.created,
        "pod": pod.running,
        "process": registered_at,
        "hand-over": stamps["began"],
        "CuPy import": stamps["imported"],
        "CUDA context": stamps["context"],
        "work": stamps["computed"],
        "way back": stamps["received"],
    }
    begins = [stamps["submitted"], *ends.values()]
    return {step: end - begin for (step, end), begin in zip(ends.items(), begins, strict=False)}


def registered(log: str) -> float:
    """When a worker registered, in seconds as `time.time()` has them, from its log with timestamps.

    Raises:
        BenchmarkError: it does not say so.
    """
    for line in log.splitlines():
        stamp = _STAMP.match(line)
        if stamp and _REGISTERED in line:
            whole, fraction, zone = stamp.groups()
            begin = datetime.fromisoformat(whole + zone.replace("Z", "+00:00")).timestamp()
            return begin + float(fraction or 0)
    raise BenchmarkError(f"the worker's log does not say {_REGISTERED!r}:\n{log[-1000:]}")


def _warmed(pool: Json, module: str) -> Json:
    return warmed(pool, module) if module else pool


def _running_since(submitted: float, pods: list[SeenPod]) -> list[SeenPod]:
    return [pod for pod in pods if pod.created > submitted and pod.running]
