"""The part of NVIDIA's library that dask-cuda asks about its device: one of 8 GiB, next to the machine's first core."""

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818 - its name
    pass


def nvmlInit():  # noqa: N802 - its name
    return None


def nvmlDeviceGetCount():  # noqa: N802 - its name
    return 1


def nvmlDeviceGetHandleByIndex(index: int):  # noqa: N802 - its name
    return index


def nvmlDeviceGetMemoryInfo(handle: int):  # noqa: N802 - its name
    return SimpleNamespace(total=8 * 2**30)


def nvmlDeviceGetCpuAffinity(handle: int, size: int):  # noqa: N802 - its name
    return [1] + [0] * (size - 1)


def __getattr__(name: str) -> Any:
    if name.startswith("NVMLError"):
        return type(name, (NVMLError,), {})
    if name.startswith("NVML_"):
        return 0
    raise AttributeError(name)
