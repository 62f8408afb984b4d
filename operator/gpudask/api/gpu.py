"""`spec.pools[].gpu`: the devices of a GPU pool's pods, their nodes, and the launcher of their workers."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from gpudask.api.base import MEBIBYTE, Model, Rule, number
from gpudask.api.pod_template import LabelText

EXTENDED_RESOURCE = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
DEFAULT_GPU_RESOURCE = "nvidia.com/gpu"
MODULE = "^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$"
DIRECTORY = "^((/[A-Za-z0-9_-][A-Za-z0-9._-]*)+)?$"
_OF_DASK_CUDA = {
    "deviceMemoryLimit": "device_memory_limit",
    "rmmPoolSize": "rmm_pool_size",
    "rmmAllocatorFor": "rmm_allocator_for",
    "preImport": "pre_import",
}
# Of a GPU's memory: bytes as Kubernetes writes them, or a share of the device as dask-cuda takes it.
_SHARE = r"(0[.][0-9]*[1-9][0-9]*|1([.]0+)?)"
_ADVICE = "write bytes such as 40Gi, at least 1Mi, or a share of the device's memory up to 1, quoted: '0.5'"


def device_memory(value: str | float) -> float | int:
    """The amount that `value` says: bytes as an int, or a share of the device's memory as a float up to 1.

    Raises:
        ValueError: it is neither; the message says what to write.
    """
    if re.fullmatch(_SHARE, str(value)):
        return float(value)
    try:
        amount = int(number(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is no amount of a GPU's memory: {_ADVICE}") from error
    if amount < MEBIBYTE:
        raise ValueError(f"{value!r} is no amount of a GPU's memory: {_ADVICE}")
    return amount


def _checked(value: Any) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is no amount of a GPU's memory: {_ADVICE}")
    device_memory(value)
    return value


DeviceMemory = Annotated[
    str | int | float,
    BeforeValidator(_checked),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            "x-kubernetes-validations": [
                {
                    "rule": f"type(self) == int ? self == 1 || self >= {MEBIBYTE} : string(self).matches('^{_SHARE}$')"
                    " || (isQuantity(string(self)) && !quantity(string(self)).isLessThan(quantity('1Mi')))",
                    "message": _ADVICE,
                }
            ],
        }
    ),
]


def _plain_workers_have_no_options(gpu: Gpu) -> bool:
    return gpu.is_of_dask_cuda or not any(getattr(gpu, attribute) for attribute in _OF_DASK_CUDA.values())


class Gpu(Model):
    """Makes a pool a GPU pool: each pod gets `count` devices, one worker process for each."""

    rules = (
        Rule(
            f"!has(self.resourceName) || self.resourceName.matches('{EXTENDED_RESOURCE}')",
            "a device plugin's resource has a domain and a name: write for example nvidia.com/gpu",
            lambda gpu: re.fullmatch(EXTENDED_RESOURCE, gpu.resource_name) is not None,
            ".resourceName",
        ),
        Rule(
            "!has(self.preImport) || self.preImport.all(m, m.matches('" + MODULE + "'))",
            "a module is named as import names it: write for example cupy or cupyx.scipy",
            lambda gpu: all(re.fullmatch(MODULE, module) for module in gpu.pre_import),
            ".preImport",
        ),
        Rule(
            "!has(self.launcher) || self.launcher != 'dask' || !(has(self.deviceMemoryLimit)"
            " || has(self.rmmPoolSize) || (has(self.rmmAllocatorFor) && size(self.rmmAllocatorFor) > 0)"
            " || (has(self.preImport) && size(self.preImport) > 0))",
            f"{', '.join(_OF_DASK_CUDA)} are options of dask cuda worker: remove them, or write launcher: dask-cuda",
            _plain_workers_have_no_options,
            ".launcher",
        ),
        Rule(
            f"!has(self.kernelCache) || self.kernelCache.matches('{DIRECTORY}')",
            "a directory of the node begins with a slash and has no dots alone: write for example /var/lib/kernels",
            lambda gpu: re.fullmatch(DIRECTORY, gpu.kernel_cache or "") is not None,
            ".kernelCache",
        ),
    )

    count: Annotated[int, Field(ge=1, le=64, description="GPUs of each pod")] = 1
    resource_name: Annotated[
        str,
        Field(
            max_length=128,
            description="the extended resource that a device plugin offers, e.g. nvidia.com/mig-1g.10gb",
        ),
    ] = DEFAULT_GPU_RESOURCE
    node_selector: Annotated[
        dict[str, LabelText],
        Field(
            max_length=16,
            description="labels of the nodes that have these devices; by default nvidia.com/gpu.present: true",
        ),
    ] = Field(default_factory=lambda: {"nvidia.com/gpu.present": "true"})
    launcher: Annotated[
        Literal["dask-cuda", "dask-cuda-nanny", "dask"],
        Field(
            description="dask-cuda: one worker for each GPU, without a nanny in pods of one GPU, which start sooner;"
            " dask-cuda-nanny: the same, always below a nanny, as dask cuda worker has it by itself; dask: one worker"
            " that sees all of the pod's GPUs"
        ),
    ] = "dask-cuda"
    device_memory_limit: DeviceMemory | None = Field(
        default=None,
        description="from which use of its GPU on a worker moves results to the host's memory: bytes (40Gi) or a share"
        " ('0.5'); by default dask-cuda's, 0.8 of the device",
    )
    rmm_pool_size: DeviceMemory | None = Field(
        default=None,
        description="device memory that each worker's RMM takes at its start and then allocates from: bytes or a share;"
        " the image needs rmm",
    )
    rmm_allocator_for: Annotated[
        list[Literal["cupy", "torch"]],
        Field(
            max_length=2,
            description="libraries that shall take device memory from RMM too; cuDF does in any case. The image needs"
            " rmm and the library",
        ),
    ] = Field(default_factory=list)
    pre_import: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=128)]],
        Field(
            max_length=16,
            description="modules that a worker imports before it registers, such as cupy: its first task need not",
        ),
    ] = Field(default_factory=list)

    kernel_cache: Annotated[
        str | None,
        Field(
            max_length=256,
            description="a directory of the node, such as /var/lib/team-a-kernels, in which compiled kernels of CuPy,"
            " Numba and the driver outlive the pod. It has to exist, and the pods' user to be able to write there; who"
            " can write there can have these pods run other code",
        ),
    ] = None

    @property
    def is_of_dask_cuda(self) -> bool:
        """Whether `dask cuda worker` starts the pool's workers: one for each GPU, with its options."""
        return self.launcher != "dask"

    @property
    def is_one_process(self) -> bool:
        """Whether a pod's only worker runs without a nanny, where the image allows it (docs/adr/0049)."""
        return self.launcher == "dask-cuda" and self.count == 1
