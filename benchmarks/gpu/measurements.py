"""The measurements: a function for each, whose name is that of `--only`; docs/gpu-benchmark.md says how."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from functools import partial

from benchmarks.gpu.figures import KEPT, NANNY, ONE_PROCESS
from benchmarks.gpu.manifests import PACKAGE, cpu_pool, gpu_pool, warmed
from benchmarks.gpu.runner import BenchmarkError, Json, PodWatch, Runner
from benchmarks.testbed.pods import SeenPod

# What dask-cuda imports before the worker registers. It makes the CUDA context then in any case.
VARIANTS = {"plain": "", "cupy": "cupy", "kernels": f"{PACKAGE}.warm"}
# By pool: how the report calls it, and its launcher.
LAUNCHERS = {"one": (ONE_PROCESS, "dask-cuda"), "nanny": (NANNY, "dask-cuda-nanny")}
_KEPT_POOL = "kept"
_FEWEST_RESULTS = 10  # of each launcher
_AUTOSCALE = {"min": 0, "max": 1, "idleTimeout": "5s"}
_GONE_SECONDS = 60.0
_SEEN_SECONDS = 5.0
_REGISTERED = "Registered to:"
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_CPU_THREADS = 8
_PIPELINE_GONE_SECONDS = 90.0
_COUNTED_SECONDS, _SEEN_POLL_SECONDS = 15.0, 0.5
_RETIREMENT = "retirement"
TWO_PODS, ONE_POD, OPERATORS_POD = "two pods", "one pod", "one pod of the operator's"
UCXX = "ucxx"
_FAILURE_CHARACTERS = 12_000  # it comes last, after what the pods wrote


def classic(runner: Runner) -> Json:
    """1: Random doubles, every second one, + 1, mean: 80 and 800 GB; and parts of it on CPUs."""
    cpu = runner.run("cpu", f"--repeats={runner.repeats}")
    gpu = on_operator(runner, "classic", "--shapes=classic")
    return gpu | {"cpu_rows": cpu["rows"]}


def scaling(runner: Runner) -> Json:
    """2: Chains of matrix products, and Fourier transforms."""
    return on_operator(runner, "scaling", "--shapes=chain,transforms")


def on_operator(runner: Runner, name: str, *arguments: str) -> Json:
    """The program against a cluster of the operator whose pool has all GPUs, a pod for each."""
    with runner.cluster(name, gpu_pool(replicas=runner.gpus)) as address:
        return runner.run("compute", f"--scheduler={address}", *_of(runner), *arguments)


def in_one_pod(runner: Runner, *arguments: str) -> Json:
    """The same program on `LocalCUDACluster` in one pod that has all GPUs."""
    return runner.run("compute", *_of(runner), *arguments, gpus=runner.gpus)


def _of(runner: Runner) -> list[str]:
    return [f"--gpus={runner.gpus}", f"--repeats={runner.repeats}"]


def overhead(runner: Runner) -> Json:
    """3: The same program, tasks and GPUs under the operator and on `LocalCUDACluster`: all shapes on all GPUs.

    What the first run found about the length of tasks, the second takes over.
    """
    ours = on_operator(runner, "overhead", "--all-gpus")
    theirs = in_one_pod(runner, "--all-gpus", f"--repetitions={json.dumps(ours['repetitions'])}")
    return {
        "operator": ours["rows"],
        "local": theirs["rows"],
        "errors": ours["errors"] + theirs["errors"],
        "versions": ours["versions"],
    }


def first(runner: Runner) -> Json:
    """4: The first GPU task where there is no GPU worker, until its result, in steps.

    Each variant in a cluster of its own, each time from no GPU pod at all.
    """
    runs: list[Json] = []
    versions: Json = {}
    for variant, module in VARIANTS.items():
        pool = gpu_pool(autoscale=_AUTOSCALE)
        with runner.watch() as watch, runner.cluster("first", cpu_pool(1, 1), _warmed(pool, module)) as address:
            for _ in range(runner.repeats):
                took, versions = _first_task(runner, watch, "gpu", f"--scheduler={address}")
                runs.append({"variant": variant, "steps": took})
    return {"runs": runs, "versions": versions}


def first_result(runner: Runner) -> Json:
    """8: The same task by each launcher of a pod's worker, in turn, at least ten times: in one process, and in two.

    And in one process where the node keeps compiled kernels, if a directory for them was given.
    """
    runs: list[Json] = []
    versions: Json = {}
    variants = {pool: variant for pool, (variant, _) in LAUNCHERS.items()}
    pools = [cpu_pool(1, 1), *(of_launcher(pool, launcher) for pool, (_, launcher) in LAUNCHERS.items())]
    if runner.kernels:
        variants[_KEPT_POOL] = KEPT
        kept = of_launcher(_KEPT_POOL, "dask-cuda")
        pools.append(kept | {"gpu": kept["gpu"] | {"kernelCache": runner.kernels}})
    repeats = runner.repeats if runner.stand_in else max(runner.repeats, _FEWEST_RESULTS)
    with runner.watch() as watch, runner.cluster("first-result", *pools) as address:
        for pool, variant in list(variants.items()) * repeats:
            took, versions = _first_task(runner, watch, pool, f"--scheduler={address}", f"--offered={pool}")
            runs.append({"variant": variant, "steps": took})
    return {"runs": runs, "versions": versions}


def of_launcher(name: str, launcher: str) -> Json:
    """A pool with a resource of its own name: tasks that want it go nowhere else."""
    pool = gpu_pool(name=name, autoscale=_AUTOSCALE, offers={"GPU": 1, name: 1})
    return pool | {"gpu": pool["gpu"] | {"launcher": launcher}}


def _first_task(runner: Runner, watch: PodWatch, pool: str, *arguments: str) -> tuple[dict[str, float], Json]:
    """The steps of a first task of `pool`, from no pod of it until none is left, and the versions."""
    told = runner.figures("first_task", *arguments)
    said = next(told)  # while the worker is sure to be there
    made_since = partial(_running_since, said["stamps"]["submitted"])
    pod = watch.until(made_since, "a GPU pod runs", pool, _SEEN_SECONDS)
    log = runner.kubectl("logs", pod.name, "--timestamps")
    list(told)
    watch.until_all_gone(pool, _GONE_SECONDS)
    return steps(said["stamps"], pod, registered(log)), said["versions"]


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


def pipeline(runner: Runner) -> Json:
    """5: CPU load, GPU compute, CPU summary, with a GPU pool that follows demand and with one that does not.

    Each in a cluster of its own. A pool that does not follow is counted while the program runs, and no longer.

    From the fixed pool's pods the operator knows how long one takes to start.
    """
    followed = {"min": 0, "max": runner.gpus, "idleTimeout": "3s", "targetDuration": "5s"}
    fixed = _run(runner, gpu_pool(replicas=runner.gpus), "--fixed")
    autoscaled = _run(runner, gpu_pool(autoscale=followed), f"--sorts={fixed['sorts']}")
    return {"fixed": [fixed], "autoscaled": [autoscaled], "autoscale": followed, "versions": fixed.pop("versions")}


def _run(runner: Runner, pool: Json, *arguments: str) -> Json:
    with runner.watch() as watch, runner.cluster("pipeline", cpu_pool(runner.gpus, _CPU_THREADS), pool) as address:
        words = [f"--scheduler={address}", f"--gpus={runner.gpus}", f"--cpus={runner.gpus}"]
        said = runner.run("pipeline", *words, *arguments)
        end = said["ended"] if "replicas" in pool else watch.until_all_gone("gpu", _PIPELINE_GONE_SECONDS).gone
        pods = watch.pods("gpu")
        status = runner.kubectl.json("get", "gpudaskcluster", "pipeline")["status"]
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


def uneven(runner: Runner) -> Json:
    """9: Sixty GPU tasks of log-normal lengths on a pool from zero to all GPUs, and what each GPU-second was for.

    Each time in a cluster of its own, whose ledger has nothing else; read once its last GPU pod is gone.
    """
    followed = {"min": 0, "max": runner.gpus, "idleTimeout": "5s"}
    runs: list[Json] = []
    for _ in range(runner.repeats):
        with runner.watch() as watch, runner.cluster("uneven", gpu_pool(autoscale=followed)) as address:
            said = runner.run("uneven", f"--scheduler={address}")
            end = watch.until_all_gone("gpu", _PIPELINE_GONE_SECONDS).gone
            pods = watch.pods("gpu")
            row = _counted(runner, "uneven")
        runs.append(
            {key: said[key] for key in ("seconds", "tasks", "task_seconds", "longest_task")}
            | {"pod_seconds": sum(pod.held_seconds(said["started"], end) for pod in pods)}
            | {"held": row["gpuSecondsHeld"], "used": row["gpuSecondsUsed"]}
            | {"causes": {counted["cause"]: counted["gpuSeconds"] for counted in row["causes"]}}
        )
    return {"runs": runs, "autoscale": followed, "versions": said["versions"]}


def _counted(runner: Runner, cluster: str) -> Json:
    """The GPU pool's row of the status once it counts no pod any more.

    Raises:
        BenchmarkError: it still does.
    """
    deadline = time.monotonic() + _COUNTED_SECONDS
    while True:
        status = runner.kubectl.json("get", "gpudaskcluster", cluster)["status"]
        row: Json = next(row for row in status["pools"] if row["name"] == "gpu")
        if not row["pods"]:
            return row
        if time.monotonic() > deadline:
            raise BenchmarkError(f"its status still counts pods of the GPU pool after {_COUNTED_SECONDS:.0f} s: {row}")
        time.sleep(_SEEN_POLL_SECONDS)


def retirement(runner: Runner) -> Json:
    """6: A GPU pool loses a pod whose worker holds results: how long, and how many bytes moved.

    The pool has all GPUs, is asked to have one pod less, and gets it back for the next time.

    Raises:
        BenchmarkError: there is one GPU only, so that results have nowhere to go.
    """
    if runner.gpus <= 1:
        raise BenchmarkError("a GPU worker's results need another GPU worker to go to: this takes two GPUs")
    runs: list[Json] = []
    versions: Json = {}
    with runner.watch() as watch, runner.cluster(_RETIREMENT, gpu_pool(replicas=runner.gpus)) as address:
        for _ in range(runner.repeats):
            _resize(runner, runner.gpus)
            told = runner.figures("retirement", f"--scheduler={address}", f"--gpus={runner.gpus}")
            held = next(told)["held"]
            asked = time.time()
            _resize(runner, runner.gpus - 1)
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


def _resize(runner: Runner, replicas: int) -> None:
    change = [{"op": "replace", "path": "/spec/pools/0/replicas", "value": replicas}]
    runner.kubectl("patch", "gpudaskcluster", _RETIREMENT, "--type=json", f"--patch={json.dumps(change)}")


def _left_after(asked: float, pods: list[SeenPod]) -> list[SeenPod]:
    return [pod for pod in pods if pod.leaving > asked and pod.gone]


def transfer(runner: Runner) -> Json:
    """7: How fast an array goes from one GPU to another: between two pods, and within one.

    Dask over tcp between pods and within one, CUDA's own copy, and Dask over UCX where that can be had.

    Raises:
        BenchmarkError: there is one GPU only.
    """
    if runner.gpus <= 1:
        raise BenchmarkError("a transfer takes two GPUs")
    repeats = f"--repeats={runner.repeats}"
    rows: list[Json] = []
    with runner.cluster("transfer", gpu_pool(replicas=2)) as address:
        rows.append({"where": TWO_PODS} | runner.run("transfer", f"--scheduler={address}", repeats))
    rows.append({"where": ONE_POD} | runner.run("transfer", "--gpus=2", repeats, gpus=2))
    peer = runner.run("peer_copy", repeats, gpus=2)
    rows.append({"where": ONE_POD} | peer)
    errors: list[str] = []
    if not peer["ucxx"]:
        errors.append("UCX was not measured: ucxx and distributed_ucxx cannot be imported")
    for by_ucx in (_local_ucx, _operators_ucx) if peer["ucxx"] else ():
        try:
            rows.append(by_ucx(runner, repeats))
        except BenchmarkError as error:  # what else was measured stands
            errors.append(str(error)[-_FAILURE_CHARACTERS:])
    return {"rows": rows, "errors": errors, "versions": peer["versions"]}


def _local_ucx(runner: Runner, repeats: str) -> Json:
    return {"where": ONE_POD} | runner.run("transfer", "--gpus=2", f"--protocol={UCXX}", repeats, gpus=2)


def _operators_ucx(runner: Runner, repeats: str) -> Json:
    with runner.cluster("transfer-ucxx", gpu_pool(gpu={"count": 2}, replicas=1), protocol=UCXX) as address:
        return {"where": OPERATORS_POD} | runner.run("transfer", f"--scheduler={address}", repeats)
