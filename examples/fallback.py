"""One task for both: on a GPU with CuPy where it runs on one, on a CPU with NumPy where it falls back.

    python examples/fallback.py --cluster fallback
    python examples/fallback.py --address tcp://localhost:8786

It compares its results with plain NumPy, prints how many tasks ran on which kind of worker, and exits with 1 if a
result is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

# One BLAS thread for each task, as on Dask's workers. Read at import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from distributed import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 200


def energy(seed: int, seconds: float = 0.0) -> tuple[str, float]:
    """The spectral energy of some noise, and on which kind of worker it was computed."""
    has_gpu = on_gpu()
    xp = numpy_or_cupy(has_gpu)
    noise = xp.asarray(np.random.default_rng(seed).normal(size=(SIZE, SIZE)))
    value = float(xp.square(xp.abs(xp.fft.fft2(noise))).sum())
    time.sleep(seconds)
    return ("gpu" if has_gpu else "cpu"), value


def on_gpu() -> bool:
    """Whether this task has a GPU: a worker that only stands in for one says no."""
    from gpudask import has_gpu  # noqa: PLC0415 - where the task runs

    return has_gpu()


def numpy_or_cupy(has_gpu: bool) -> Any:
    """CuPy where there is a GPU and CuPy is installed, NumPy elsewhere: the calls are the same."""
    if has_gpu:
        with contextlib.suppress(ImportError):
            import cupy  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415

            return cupy
    return np


def main() -> int:
    """Run it and say where the tasks ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--cluster", help="name of a GpuDaskCluster")
    where.add_argument("--address", help="address of a Dask scheduler, tcp://host:8786")
    parser.add_argument("--namespace", help="namespace of --cluster (default: your current one)")
    parser.add_argument("--tasks", type=int, default=40, help="how many (default: 40)")
    parser.add_argument("--seconds", type=float, default=0.5, help="what each takes besides (default: 0.5)")
    options = parser.parse_args()
    with connect(options) as client:
        futures = client.map(energy, range(options.tasks), seconds=options.seconds, resources={"GPU": 1}, pure=False)
        results = client.gather(futures)
    ran = Counter(kind for kind, _ in results)
    right = all(np.isclose(value, energy_here(seed)) for seed, (_, value) in enumerate(results))
    print(f"ran on gpu workers: {ran['gpu']}, on cpu workers: {ran['cpu']}; {'right' if right else 'WRONG'}")
    return 0 if right else 1


def energy_here(seed: int) -> float:
    """The same by Parseval's theorem, without a transform."""
    noise = np.random.default_rng(seed).normal(size=(SIZE, SIZE))
    return float(np.square(noise).sum() * noise.size)


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


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:  # KubeClusterError: its text says what to do
        sys.exit(f"fallback: {error}")
