"""Steer one step to the workers that have the memory for it.

Small pieces are made anywhere; the step that joins them asks for `MEMORY: 1.5e9` bytes and so runs only where a
worker offers that much: in the pool `himem` of examples/memory-steering.yaml, which starts from zero for it.

    python examples/memory_steering.py --cluster steering
    python examples/memory_steering.py --address tcp://localhost:8786

It exits with 1 if the result is wrong or the joining step ran in another pool.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from typing import TYPE_CHECKING

import numpy as np
from distributed import Client, wait

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECES, ROWS = 8, 250_000
# What the step needs at its peak, in bytes. Dask compares it with what workers offer, and measures nothing.
NEEDED_BYTES = 1.5e9


def make(piece: int) -> np.ndarray:
    """A piece that fits everywhere."""
    return np.random.default_rng(piece).normal(size=ROWS)


def join(pieces: list[np.ndarray]) -> float:
    """The median needs all values at once."""
    return float(np.median(np.concatenate(pieces)))


def main() -> int:
    """Run it and say where the step ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--cluster", help="name of a GpuDaskCluster")
    where.add_argument("--address", help="address of a Dask scheduler, tcp://host:8786")
    parser.add_argument("--namespace", help="namespace of --cluster (default: your current one)")
    parser.add_argument("--pool", default="himem", help="the pool that must run the step (default: himem)")
    options = parser.parse_args()
    with connect(options) as client:
        pieces = client.map(make, range(PIECES))
        median = client.submit(join, pieces, resources={"MEMORY": NEEDED_BYTES})
        wait(median)
        # The scheduler's record: the result lies where the step ran.
        (address,) = next(iter(client.who_has([median]).values()))
        worker = str(client.scheduler_info(n_workers=-1)["workers"][address]["name"])
        result = median.result()
    expected = join([make(piece) for piece in range(PIECES)])
    match = re.search(r"-([a-z][a-z0-9]*)-worker-\d+-", worker)
    pool = match[1] if match else "?"
    print(f"median {result:.9f}, plain NumPy: {expected:.9f}; joined in pool {pool}, on {worker}")
    return 0 if result == expected and pool == options.pool else 1


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
        sys.exit(f"memory_steering: {error}")
