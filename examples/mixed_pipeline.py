"""A pipeline over CPU and GPU workers: load and clean on CPUs, the heavy step on GPUs, the summary on CPUs.

It estimates the principal components of random Fourier features of noisy measurements. The heavy step asks
for `GPU: 1`, so it runs on GPU workers only, which the operator starts for it and removes after it. Its code is
the same for CuPy and NumPy.

    python examples/mixed_pipeline.py --cluster demo
    python examples/mixed_pipeline.py --address tcp://localhost:8786

At the end it compares its result with a plain NumPy computation and prints where each step ran, as the scheduler
recorded it. It exits with 1 if the result is wrong or a GPU step ran off the GPU pool.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

# One BLAS thread for each task, as on Dask's workers: more of them only wait for each other. Read at import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import dask
import numpy as np
from distributed import Client, SchedulerPlugin

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = 16
FEATURES = 256
COMPONENTS = 5
GPU_STEP = "fourier_gram"
STEPS = ("load", "clean", GPU_STEP, "summarise")
PLACEMENT = "mixed-pipeline-placement"


# ---------------------------------------------------------------- the work


def array_module() -> Any:
    """CuPy where this process sees a GPU, else NumPy."""
    try:
        import cupy  # noqa: PLC0415 - only GPU images have it

        has_device = cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:  # noqa: BLE001 - no CuPy, no driver, no device: all mean NumPy
        has_device = False
    return cupy if has_device else np


def load(part: int, rows: int) -> np.ndarray:
    """One part of the measurements, some of them lost (NaN). A real program reads a file here."""
    random = np.random.default_rng(part)
    data = random.normal(size=(rows, COLUMNS)) * np.linspace(1, 3, COLUMNS)
    data[random.random(rows) < 0.05, 0] = np.nan  # noqa: PLR2004
    return data


def clean(data: np.ndarray) -> np.ndarray:
    """Drop incomplete rows and bring the columns to one scale."""
    complete = data[~np.isnan(data).any(axis=1)]
    return complete / np.linspace(1, 3, COLUMNS)


def fourier_gram(data: np.ndarray, rounds: int, xp: Any = None) -> tuple[np.ndarray, int]:
    """Sum over `rounds` bandwidths of F'F for random Fourier features F of the rows, and the number of rows.

    All arithmetic is `xp`'s; what comes in and goes out is NumPy's, because the neighbours run on CPUs.
    """
    xp = xp or array_module()
    device_data = xp.asarray(data)
    total = xp.zeros((FEATURES, FEATURES))
    for bandwidth in range(1, rounds + 1):
        random = np.random.default_rng(bandwidth)  # NumPy's numbers on every device: results can be compared
        weights = xp.asarray(random.normal(size=(COLUMNS, FEATURES)) / bandwidth)
        phases = xp.asarray(random.uniform(0, 2 * np.pi, size=FEATURES))
        features = xp.cos(device_data @ weights + phases)
        total += features.T @ features
    return (total if xp is np else xp.asnumpy(total)), len(data)


def summarise(grams: list[tuple[np.ndarray, int]]) -> np.ndarray:
    """The largest eigenvalues of the mean over all rows, in descending order."""
    total = np.sum([gram for gram, _ in grams], axis=0)
    rows = sum(count for _, count in grams)
    return np.linalg.eigvalsh(total / rows)[::-1][:COMPONENTS]


def build(parts: int, rows: int, rounds: int) -> Any:
    """The whole pipeline as one lazy value. Only the step inside `annotate` asks for a GPU."""
    cleaned = [dask.delayed(clean)(dask.delayed(load)(part, rows)) for part in range(parts)]
    with dask.annotate(resources={"GPU": 1}):
        grams = [dask.delayed(fourier_gram)(data, rounds) for data in cleaned]
    return dask.delayed(summarise)(grams)


def reference(parts: int, rows: int, rounds: int) -> np.ndarray:
    """The same in plain NumPy, here, without Dask."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return summarise(
            list(threads.map(lambda part: fourier_gram(clean(load(part, rows)), rounds, np), range(parts)))
        )


# ---------------------------------------------------------------- the scheduler's record


class Placement(SchedulerPlugin):
    """Runs inside the scheduler and notes, from its own transitions, on which worker each task ended."""

    name = PLACEMENT

    def start(self, scheduler: Any) -> None:
        """Begin a record; workers that are there already count from now."""
        self.scheduler = scheduler
        self.runs: list[tuple[str, str, dict[str, float]]] = []
        self.first_gpu_task = 0.0
        self.first_gpu_worker = 0.0
        for worker in scheduler.workers.values():
            self._note(worker)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Note when the first worker with a GPU came."""
        self._note(scheduler.workers[worker])

    def _note(self, worker: Any) -> None:
        if worker.resources.get("GPU") and not self.first_gpu_worker:
            self.first_gpu_worker = time.time()

    def transition(self, key: Any, start: str, finish: str, *_: Any, **details: Any) -> None:
        """Note a task that could run for the first time, or that ended."""
        task = self.scheduler.tasks.get(key)
        wants = dict((task.resource_restrictions if task else None) or {})
        if finish in ("no-worker", "processing") and "GPU" in wants and not self.first_gpu_task:
            self.first_gpu_task = time.time()
        if start == "processing" and finish in ("memory", "erred"):
            worker = self.scheduler.workers.get(details.get("worker"))
            step = next((step for step in STEPS if str(key).startswith(f"{step}-")), "")
            self.runs.append((step, str(worker.name) if worker else "a worker that left", wants))


def read_placement(dask_scheduler: Any) -> dict[str, Any]:
    """What `Placement` noted. Runs on the scheduler."""
    plugin = dask_scheduler.plugins["mixed-pipeline-placement"]
    return {
        "runs": plugin.runs,
        "first_gpu_task": plugin.first_gpu_task,
        "first_gpu_worker": plugin.first_gpu_worker,
    }


def pool_of(worker: str) -> str:
    """The pool of a worker's name, `<cluster>-<pool>-worker-<n>-<nonce>`."""
    match = re.search(r"-([a-z][a-z0-9]*)-worker-\d+-", worker)
    return match[1] if match else "?"


def count(runs: list[tuple[str, str, dict[str, float]]]) -> dict[str, dict[str, int]]:
    """Step -> worker -> how many of its tasks ended there."""
    counts: dict[str, dict[str, int]] = {step: {} for step in STEPS}
    for step, worker, _ in runs:
        if step:
            counts[step][worker] = counts[step].get(worker, 0) + 1
    return counts


def misplaced(runs: list[tuple[str, str, dict[str, float]]], gpu_pool: str) -> list[str]:
    """What is wrong with where GPU steps ran; empty when all is as asked."""
    wrong = []
    for step, worker, wants in runs:
        if step == GPU_STEP and wants.get("GPU") != 1:
            wrong.append(f"a {step} task reached the scheduler without its annotation (it asked for {wants})")
        if step == GPU_STEP and pool_of(worker) != gpu_pool:
            wrong.append(f"a {step} task ran on {worker}, which is not of pool {gpu_pool!r}")
    if not any(step == GPU_STEP for step, _, _ in runs):
        wrong.append(f"no {GPU_STEP} task is in the scheduler's record")
    return wrong


# ---------------------------------------------------------------- the program


def main() -> int:
    """Run it and say what happened."""
    options = parse_arguments()
    size = (options.parts, options.rows, options.rounds)
    with connect(options) as client:
        print(f"connected to {client.scheduler.address}", flush=True)
        with contextlib.suppress(ValueError):  # left by a run that was cut off
            client.unregister_scheduler_plugin(PLACEMENT)
        client.register_plugin(Placement())
        started = time.monotonic()
        print(f"{options.parts} parts of {options.rows} rows: load, clean, {GPU_STEP} (GPU: 1), summarise", flush=True)
        result = build(*size).compute()
        seconds = time.monotonic() - started
        record = client.run_on_scheduler(read_placement)
        client.unregister_scheduler_plugin(PLACEMENT)
    return report(options, result, seconds, record)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--cluster", help="name of a GpuDaskCluster")
    where.add_argument("--address", help="address of a Dask scheduler, tcp://host:8786")
    parser.add_argument("--namespace", help="namespace of --cluster (default: your current one)")
    parser.add_argument("--gpu-pool", default="gpu", help="the pool that GPU steps must run in (default: gpu)")
    parser.add_argument("--parts", type=int, default=24)
    parser.add_argument("--rows", type=int, default=8000, help="rows of each part")
    parser.add_argument("--rounds", type=int, default=6, help="bandwidths in the heavy step: its length")
    parser.add_argument("--report", type=Path, help="write what happened to this JSON file, too")
    return parser.parse_args()


@contextlib.contextmanager
def connect(options: argparse.Namespace) -> Iterator[Client]:
    """A client of the cluster that was named."""
    if options.address:
        with Client(options.address) as client:
            yield client
        return
    from gpudask import KubeCluster  # noqa: PLC0415 - not needed with --address

    with KubeCluster.from_name(options.cluster, namespace=options.namespace) as cluster, Client(cluster) as client:
        yield client


def report(options: argparse.Namespace, result: np.ndarray, seconds: float, record: dict[str, Any]) -> int:
    """Print the outcome, and return the exit code."""
    expected = reference(options.parts, options.rows, options.rounds)
    right = bool(np.allclose(result, expected, rtol=1e-8))
    wrong = misplaced(record["runs"], options.gpu_pool)
    counts = count(record["runs"])
    waited = max(0.0, record["first_gpu_worker"] - record["first_gpu_task"]) if record["first_gpu_worker"] else None
    print(f"largest eigenvalues: {', '.join(f'{value:.6f}' for value in result)}   ({seconds:.1f} s)")
    print(f"plain NumPy agrees: {'yes' if right else f'NO, it has {expected}'}")
    print("where each step ran (the scheduler's own transitions):")
    for step, workers in counts.items():
        for worker, tasks in sorted(workers.items()):
            print(f"  {step:<13} {tasks:>4} x  pool {pool_of(worker):<6} {worker}")
    if waited is not None:
        print(f"first GPU task able to run -> first GPU worker: {waited:.1f} s (the scheduler's clock)")
    for line in sorted(set(wrong)):
        print(f"WRONG: {line}")
    if options.report:
        outcome = {"right": right, "misplaced": wrong, "seconds": seconds, "placement": counts}
        clocks = {key: record[key] for key in ("first_gpu_task", "first_gpu_worker")}
        options.report.write_text(json.dumps(outcome | clocks | {"gpu_wait_seconds": waited}, indent=1))
    return 0 if right and not wrong else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:  # KubeClusterError: its text says what to do
        sys.exit(f"mixed_pipeline: {error}")
