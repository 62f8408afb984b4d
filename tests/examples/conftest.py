"""A Dask cluster in this process, whose workers are named as the operator names them."""

from collections.abc import Iterator

import pytest
from distributed import Scheduler, SpecCluster, Worker


def start(workers: dict[str, dict[str, float]]) -> SpecCluster:
    """Workers by name, each with what it offers."""
    return SpecCluster(
        scheduler={
            "cls": Scheduler,
            "options": {"dashboard": False, "dashboard_address": "127.0.0.1:0", "port": 0, "host": "127.0.0.1"},
        },
        workers={
            name: {"cls": Worker, "options": {"nthreads": 1, "resources": offers, "dashboard": False}}
            for name, offers in workers.items()
        },
        silence_logs=False,
    )


@pytest.fixture
def mixed() -> Iterator[SpecCluster]:
    names = {
        "demo-cpu-worker-0-aaaaa": {},
        "demo-himem-worker-0-bbbbb": {"MEMORY": 2e9},
        "demo-gpu-worker-0-ccccc-0": {"GPU": 1},
        "demo-gpu-worker-0-ccccc-1": {"GPU": 1},
    }
    with start(names) as cluster:
        yield cluster


@pytest.fixture
def gpu_on_cpu_pool() -> Iterator[SpecCluster]:
    with start({"demo-cpu-worker-0-aaaaa": {"GPU": 1}}) as cluster:
        yield cluster
