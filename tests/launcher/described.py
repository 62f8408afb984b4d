"""What a worker of dask-cuda is: run inside it, in an image without this package, so it is sent there by value."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

# What the launcher sets for a cuDF that is not imported yet; what libraries of the dashboard, and process titles, set.
_IGNORED = {"CUDF_SPILL", "CUDF_SPILL_STATS", "COLUMNS", "LINES", "__DASK_PARENT_PID"}


def described(dask_worker: Any) -> dict[str, Any]:
    """All that dask-cuda's options decide, and where it is; of what is the worker's alone, nothing."""
    import dask  # noqa: PLC0415 - where it runs, as cuDF

    worker = dask_worker
    memory = worker.memory_manager
    was_imported = "cudf" in sys.modules
    import cudf  # noqa: PLC0415

    return {
        "class": type(worker).__name__,
        "name": worker.name,
        "threads": worker.state.nthreads,
        "resources": dict(worker.state.total_resources),
        "memory": (memory.memory_limit, memory.memory_target_fraction, memory.memory_spill_fraction),
        "data": data(worker.data),
        "plugins": sorted(repr((type(item).__name__, vars(item))) for item in own_plugins(worker)),
        "preloads": [item.name for item in worker.preloads],
        "address": worker.address.rpartition(":")[0],
        "scheduler": worker.scheduler.addr,
        "start": (worker._start_host, worker._start_port, worker._protocol, worker._interface),
        "death timeout": worker.death_timeout,
        "directory": str(Path(worker.local_directory).parent),
        "prefix": worker._http_prefix,
        "validate": worker.state.validate,
        "security": repr(worker.security),
        "cores": sorted(os.sched_getaffinity(0)),
        "environment": {key: value for key, value in os.environ.items() if key not in _IGNORED},
        "config": dask.config.config,
        "cudf": cudf.options,
        "rmm": getattr(sys.modules.get("rmm"), "told", None),
        "imported": [name for name in ("wave", "cudf") if name in sys.modules and (name != "cudf" or was_imported)],
    }


def own_plugins(worker: Any) -> list[Any]:
    return [item for name, item in worker.plugins.items() if name != "shuffle"]


def data(held: Any) -> Any:
    """A dict, or dask-cuda's file of devices, hosts and disks with its limits."""
    if type(held).__name__ != "DeviceHostFile":
        return type(held).__name__
    limits = (getattr(held.device_buffer, "n", None), getattr(held.host_buffer, "n", None))
    return type(held).__name__, limits, held.disk_func_path.rpartition("/")[2]


def processes(dask_worker: Any) -> dict[str, Any]:
    """How many processes the worker takes, and by whom it is watched."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {"children": len(children), "nanny": dask_worker.nanny, "parent": os.getppid()}


def modules(*names: str) -> list[str]:
    """Which of these are imported."""
    return [name for name in names if name in sys.modules]


def early(dask_worker: Any) -> Any:
    """What a preload of the user's left."""
    return dask_worker.early


def driver_calls() -> list[tuple[str, str]]:
    """The calls of the stand-in driver: function, and in which thread."""
    return list(vars(threading)["calls"])


def addresses(name: str, dask_scheduler: Any) -> list[str]:
    """Of the scheduler's workers whose names begin so."""
    return [row.address for row in dask_scheduler.workers.values() if str(row.name).startswith(name)]


def dashboard_port(dask_scheduler: Any) -> int:
    """Of the scheduler's only worker."""
    [row] = dask_scheduler.workers.values()
    return int(row.services["dashboard"])
