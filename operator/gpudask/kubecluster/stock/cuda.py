"""The arguments of `dask_cuda.LocalCUDACluster` as fields of a GPU pool, or one sentence on what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dask.utils import parse_bytes

from gpudask.api import Json
from gpudask.kubecluster.errors import KubeClusterTypeError, KubeClusterValueError

# True: the flag of `dask cuda worker`; False and None: nothing, which is its default.
SWITCHES = {
    "enable_cudf_spill": "--enable-cudf-spill",
    "rmm_managed_memory": "--rmm-managed-memory",
    "rmm_async": "--rmm-async",
    "rmm_track_allocations": "--rmm-track-allocations",
}
# None: UCX chooses.
CHOICES = {
    "enable_tcp_over_ucx": "tcp-over-ucx",
    "enable_infiniband": "infiniband",
    "enable_nvlink": "nvlink",
    "enable_rdmacm": "rdmacm",
}
VALUES = {
    "cudf_spill_stats": "--cudf-spill-stats",
    "local_directory": "--local-directory",
    "rmm_maximum_pool_size": "--rmm-maximum-pool-size",
    "rmm_release_threshold": "--rmm-release-threshold",
    "rmm_log_directory": "--rmm-log-directory",
}
FIELDS = {
    "device_memory_limit": "deviceMemoryLimit",
    "rmm_pool_size": "rmmPoolSize",
    "rmm_allocator_external_lib_list": "rmmAllocatorFor",
    "pre_import": "preImport",
}
OTHERS = ("CUDA_VISIBLE_DEVICES", "threads_per_worker", "memory_limit")
# What has no counterpart: the values that change nothing, and what to write instead of any other.
INSTEAD: dict[str, tuple[tuple[Any, ...], str]] = {
    "jit_unspill": (
        (None, False),
        "dask-cuda has it no more: write enable_cudf_spill=True for cuDF, device_memory_limit='20GB' for other data",
    ),
    "log_spilling": (
        (None, False),
        "the dashboard shows what a worker has spilled: leave it out",
    ),
    "data": ((None,), "a worker's store is dask-cuda's: write device_memory_limit= or enable_cudf_spill="),
    "worker_class": ((None,), "write worker_command='dask cuda worker --worker-class my.Class'"),
    "shared_filesystem": (
        (None,),
        "write DASK_JIT_UNSPILL_SHARED_FS into env=, or mount a volume in a pool's template",
    ),
    "processes": ((None, True), "each GPU has a process of its own: leave it out"),
    "host": ((None,), "pods have addresses of their own: leave it out"),
    "ip": ((None,), "pods have addresses of their own: leave it out"),
    "interface": ((None,), "write worker_command='dask cuda worker --interface ib0'"),
    "scheduler_port": ((None, 0, 8786), "the scheduler's port is 8786 in its pod: leave it out"),
    "dashboard_address": ((None, ":8787"), "write scheduler_forward_port=8787, the port of this machine"),
    "worker_dashboard_address": ((None,), "a worker's own pages are in the cluster's dashboard: leave it out"),
    "silence_logs": ((None, False, True), "write env={'DASK_LOGGING__DISTRIBUTED': 'error'}"),
}
NAMES = (*OTHERS, *FIELDS, *SWITCHES, *CHOICES, *VALUES)
_SHARE = re.compile(r"^(0?[.][0-9]+|1[.]0+)$")


@dataclass(frozen=True)
class Cuda:
    """What LocalCUDACluster's arguments ask for.

    Attributes:
        names: those that were given.
        gpus: how many devices CUDA_VISIBLE_DEVICES lists; None: it was not given.
        gpu: of a pool's section `gpu`.
        extra_args: of `dask cuda worker`.
        common: of any pool: threads, memory, the local directory.
        needs_ucx: whether the protocol has to be UCX.
    """

    names: tuple[str, ...] = ()
    gpus: int | None = None
    gpu: Json = field(default_factory=dict)
    extra_args: list[str] = field(default_factory=list)
    common: Json = field(default_factory=dict)
    needs_ucx: bool = False

    @property
    def needs_gpus(self) -> bool:
        """True if they mean nothing without GPUs."""
        return self.gpus is not None or bool(self.gpu or self.extra_args)


def read_cuda(given: Mapping[str, Any], known: Iterable[str]) -> Cuda:
    """The arguments that `KubeCluster` has not by itself.

    Args:
        given: by name.
        known: what else there is, for who misspelt one.

    Raises:
        KubeClusterTypeError: there is none of that name.
        KubeClusterValueError: it cannot be said here; the message says what to write.
    """
    for name, value in given.items():
        if name in INSTEAD:
            _refuse_unless_neutral(name, value)
        elif name not in NAMES:
            raise _unknown(name, list(known))
    gpu: Json = {}
    for name, field_name in FIELDS.items():
        if name in given and (value := _READERS[name](name, given[name])) not in (None, []):
            gpu[field_name] = value
    switches = [flag for name, flag in SWITCHES.items() if given.get(name)]
    chosen = {name: given[name] for name in CHOICES if given.get(name) is not None}
    choices = [f"--{'enable' if is_on else 'disable'}-{CHOICES[name]}" for name, is_on in chosen.items()]
    values = {name: given[name] for name in VALUES if given.get(name) not in (None, "", 0)}
    directory = values.pop("local_directory", None)
    common: Json = {}
    if (threads := given.get("threads_per_worker")) is not None:
        common["nthreads"] = threads
    if (memory := _host_memory(given.get("memory_limit"))) is not None:
        common["resources"] = {"memory": memory}
    if directory is not None:
        common["extraArgs"] = [VALUES["local_directory"], str(directory)]
    return Cuda(
        names=tuple(name for name in given if name in NAMES and given[name] is not None),
        gpus=_devices(given.get("CUDA_VISIBLE_DEVICES")),
        gpu=gpu,
        extra_args=[
            *switches,
            *choices,
            *(part for name, each in values.items() for part in (VALUES[name], str(each))),
        ],
        common=common,
        needs_ucx=any(chosen.values()),
    )


def _refuse_unless_neutral(name: str, value: Any) -> None:
    neutral, instead = INSTEAD[name]
    if not any(value is each or value == each for each in neutral):
        what, colon, step = instead.rpartition(": ")
        raise KubeClusterValueError(
            f"{name}={value!r} has no counterpart",
            reason=what if colon else "pods are started by the operator",
            next_step=step[:1].upper() + step[1:],
        )


def _unknown(name: str, known: list[str]) -> KubeClusterTypeError:
    written = {each.lower(): each for each in (*NAMES, *known)}
    close = difflib.get_close_matches(name[:100].lower(), written, n=1)
    return KubeClusterTypeError(
        f"{name:.100}= given to KubeCluster",
        reason=f"there is no argument {name:.100}",
        next_step=f"Did you mean {written[close[0]]}=?"
        if close
        else "help(gpudask.KubeCluster) has its arguments; those of dask-cuda's LocalCUDACluster are taken, too",
    )


def _device_limit(name: str, value: Any) -> Any:
    if value == "default":
        return None
    return "1" if value in (None, 0, "0", "auto") else _device_memory(name, value)  # never: all of the device


def _device_memory(name: str, value: Any) -> Any:
    """Bytes, or a share of the device as text."""
    if value is None:
        return None
    is_share = 0 < value <= 1 if isinstance(value, float) else bool(_SHARE.match(str(value)))
    if is_share:
        return str(float(value))
    return _bytes(name, value, "a share of the device such as 0.5, or bytes such as '20GB'")


def _host_memory(value: Any) -> int | None:
    if value in (None, 0, "0", "auto"):
        return None
    if isinstance(value, float) or _SHARE.match(str(value)):
        raise KubeClusterValueError(
            f"memory_limit={value!r}",
            reason="a share of the machine's memory is not known before a node takes the pod",
            next_step="Write resources={'memory': '64Gi'}, of each worker's pod",
        )
    return _bytes("memory_limit", value, "bytes such as '64GB'")


def _bytes(name: str, value: Any, instead: str) -> int:
    try:
        amount = parse_bytes(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise KubeClusterValueError(
            f"{name}={value!r}", reason="it is no amount of memory", next_step=f"Write {instead}"
        ) from error
    return int(amount)


def _devices(value: Any) -> int | None:
    if value is None:
        return None
    listed = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []
    if not listed or not all(str(each).strip() for each in listed):
        raise KubeClusterValueError(
            f"CUDA_VISIBLE_DEVICES={value!r}",
            reason="it is a list of devices, of which their number counts here: Kubernetes chooses them",
            next_step="Write gpus=(4, 4) for four pods of one GPU each, or gpus=4 for up to four",
        )
    return len(listed)


def _list(name: str, value: Any) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple | type(None)):
        raise KubeClusterValueError(
            f"{name}={value!r}", reason="it is a list of names", next_step=f"Write {name}=['cupy', 'torch']"
        )
    return [str(part).strip() for part in parts or [] if str(part).strip()]


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "device_memory_limit": _device_limit,
    "rmm_pool_size": _device_memory,
    "rmm_allocator_external_lib_list": _list,
    "pre_import": _list,
}
