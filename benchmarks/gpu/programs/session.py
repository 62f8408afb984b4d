"""A client of the operator's cluster, or of `LocalCUDACluster` on the GPUs of this pod; and how figures leave it."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from typing import Any

from distributed import Client, LocalCluster

RESULT = "RESULT "
GPU = {"GPU": 1}
NO_DASHBOARD = {"scheduler_kwargs": {"dashboard": False, "dashboard_address": "127.0.0.1:0"}}
"""Of a local cluster. With `dashboard_address=None` the scheduler's other pages take port 8787 of all addresses."""
_DEADLINE_SECONDS = 120.0
_POLL_SECONDS = 0.05
_PACKAGES = (
    "dask",
    "distributed",
    "dask-cuda",
    "numpy",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "rmm-cu13",
    "distributed-ucxx-cu13",
)


def options() -> argparse.ArgumentParser:
    """The options of all programs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scheduler", help="its address; without it: LocalCUDACluster on this pod's GPUs")
    parser.add_argument("--protocol", default="tcp", help="of LocalCUDACluster")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    shrinkable(parser)
    return parser


def shrinkable(parser: argparse.ArgumentParser) -> None:
    """Add the option of dry runs."""
    parser.add_argument("--shrink", type=int, default=1, help="divide all amounts of work by it: for a dry run alone")


@contextmanager
def session(arguments: argparse.Namespace) -> Iterator[Any]:
    """A client, half of whose methods have types."""
    with ExitStack() as closed:
        local = _local if arguments.shrink == 1 else _without_devices
        address = arguments.scheduler or closed.enter_context(local(arguments.gpus, arguments.protocol))
        client = Client(address, timeout=_DEADLINE_SECONDS)  # type: ignore[no-untyped-call]
        yield closed.enter_context(client)


def _local(gpus: int, protocol: str) -> Any:
    from dask_cuda import LocalCUDACluster  # noqa: PLC0415 - a client of the operator's cluster needs none

    return LocalCUDACluster(
        n_workers=gpus,
        protocol=protocol,
        resources=GPU,
        # NVLink goes with UCX alone.
        enable_nvlink=True if protocol != "tcp" else None,
        **NO_DASHBOARD,
    )


def _without_devices(workers: int, protocol: str) -> Any:
    """For dry runs: `LocalCUDACluster` asks the driver, whatever the environment says."""
    cluster: Any = LocalCluster
    return cluster(n_workers=workers, threads_per_worker=1, protocol=protocol, resources=GPU, **NO_DASHBOARD)


def gpu_workers(client: Any) -> dict[str, str]:
    """The addresses of the workers that offer a GPU, each with its name."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {address: str(row["name"]) for address, row in workers.items() if row["resources"].get("GPU")}


def all_gpu_workers(client: Any, count: int) -> list[str]:
    """The addresses of `count` GPU workers, once they are there.

    Raises:
        TimeoutError: they do not come; the text says which did.
    """
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while len(found := gpu_workers(client)) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} GPU workers expected within {_DEADLINE_SECONDS:.0f} s, there are {found}")
        time.sleep(_POLL_SECONDS)
    return sorted(found)[:count]


def say(**figures: Any) -> None:
    """Write figures where the benchmark reads them: one line of what the pod writes."""
    print(RESULT + json.dumps(figures), flush=True)


def versions() -> dict[str, str]:
    """Of Python and of those packages that are here."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
