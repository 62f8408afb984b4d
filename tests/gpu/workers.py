"""A pool's workers in the hands of a test: who they are, and a task on each."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gpudask_gpu
import pytest
from distributed import Client, Future

from tests.e2e.space import Space

GPU = {"GPU": 1}
PATIENCE_SECONDS = 60


@contextmanager
def gpu_client(space: Space, cluster: str) -> Iterator[Client]:
    """A client of a cluster whose workers have `gpudask_gpu`."""
    with space.client(cluster) as client:
        client.upload_file(gpudask_gpu.__file__)
        yield client


def addresses(client: Client, pool: str) -> list[str]:
    """The addresses of a pool's workers, in the order of their names."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    named = sorted((str(worker["name"]), address) for address, worker in workers.items())
    return [address for name, address in named if f"-{pool}-worker-" in name]


def on(client: Client, worker: str, function: Callable[..., Any], *arguments: Any) -> Future:
    """A task on one GPU worker and nowhere else."""
    return client.submit(function, *arguments, workers=[worker], resources=GPU, pure=False)


def result(future: Future) -> Any:
    """What a task gave, or its error."""
    return future.result(timeout=PATIENCE_SECONDS)


def needs(*modules: str) -> None:
    """Skip where the pods' Python, which is this one, lacks a module."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"the machine's Python has no {', '.join(missing)}")
