"""What the tests' tasks do on GPUs. Uploaded to the scheduler and the workers; CuPy is imported where it is used."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

ELEMENTS = 1_000_000
GIBIBYTE = 2**30


def uuid() -> str:
    """The UUID of the first device that this process sees, as 32 hexadecimal digits.

    From the driver: CuPy gives it as a string of C, which ends at the first byte that is zero.
    """
    driver, device, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    for answer in (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), 0),
        driver.cuDeviceGetUuid_v2(ctypes.byref(found), device),
    ):
        if answer:
            raise RuntimeError(f"the CUDA driver answers {answer}")
    return bytes(found).hex()


def device(seconds: float = 0.0) -> dict[str, Any]:
    """What the worker sees of the machine's GPUs, after a while."""
    import cupy  # noqa: PLC0415

    time.sleep(seconds)
    count = cupy.cuda.runtime.getDeviceCount()
    return {"uuid": uuid(), "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "count": count}


def has_device(seconds: float = 0.0) -> bool:
    """Whether CUDA finds a device here, after a while."""
    import cupy  # noqa: PLC0415

    time.sleep(seconds)
    try:
        return bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def array(number: int, elements: int = ELEMENTS) -> Any:
    """An array on the device: `number`, `number` + 1, and so on."""
    import cupy  # noqa: PLC0415

    return cupy.arange(number, number + elements, dtype="f8")


def facts(values: Any) -> dict[str, Any]:
    """Where an array is and what is in it."""
    module = type(values).__module__.partition(".")[0]
    where = uuid() if module == "cupy" else ""
    return {"module": module, "uuid": where, "first": float(values[0]), "sum": float(values.sum()), "size": values.size}


def facts_of(number: int, elements: int = ELEMENTS) -> dict[str, Any]:
    """What `facts` says of `array(number, elements)`, by arithmetic alone, without where it is."""
    total = float(elements * number + elements * (elements - 1) // 2)
    return {"first": float(number), "sum": total, "size": elements}


def together(left: Any, right: Any) -> dict[str, Any]:
    """Of the sum of two arrays that were made on different devices."""
    return facts(left + right)


def on_host(values: Any) -> Any:
    """The array in the host's memory."""
    import cupy  # noqa: PLC0415

    return cupy.asnumpy(values)


def fill_the_device() -> None:
    """Take device memory, a gibibyte at a time, until there is none."""
    import cupy  # noqa: PLC0415

    held = []
    while True:
        held.append(cupy.empty(GIBIBYTE, dtype="u1"))


def more_than_any_device() -> None:
    """Ask for a pebibyte at once."""
    import cupy  # noqa: PLC0415

    cupy.empty(2**50, dtype="u1")


def free_share() -> float:
    """The free part of the device's memory, once what nobody uses was given back."""
    import gc  # noqa: PLC0415

    import cupy  # noqa: PLC0415

    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    free, total = cupy.cuda.runtime.memGetInfo()
    return float(free / total)


def stored(dask_worker: Any) -> dict[str, int]:
    """Bytes of results on the device, and numbers of results there and in the host's memory, of a dask-cuda worker."""
    data = dask_worker.data
    on_device = list(data.device.values())
    return {"device_bytes": sum(each.nbytes for each in on_device), "device": len(on_device), "host": len(data.host)}


def by_numba(elements: int = ELEMENTS) -> float:
    """The largest error of a Numba CUDA kernel's a * x + y, beside NumPy's."""
    import numpy as np  # noqa: PLC0415
    from numba import cuda  # noqa: PLC0415

    if not hasattr(np, "row_stack"):  # numba-cuda 0.30.4 names it; NumPy 2.5 has dropped it for `vstack`
        np.row_stack = np.vstack  # noqa: NPY201

    @cuda.jit  # type: ignore[misc,unused-ignore]
    def axpy(factor: float, x: Any, y: Any, out: Any) -> None:
        index = cuda.grid(1)
        if index < out.size:
            out[index] = factor * x[index] + y[index]

    x, y = np.arange(elements, dtype="f8"), np.ones(elements)
    out = cuda.device_array(elements, dtype="f8")
    threads = 256
    axpy[(elements + threads - 1) // threads, threads](3.0, cuda.to_device(x), cuda.to_device(y), out)
    return float(np.abs(out.copy_to_host() - (3.0 * x + y)).max())


def to_cudf(frame: Any) -> Any:
    """The rows of a pandas frame, on the device."""
    import cudf  # noqa: PLC0415

    return cudf.from_pandas(frame)


def to_pandas(frame: Any) -> Any:
    """The rows of a cuDF frame or series, in the host's memory; an error if they are there already."""
    return frame.to_pandas()


def rmm_in_use() -> dict[str, Any]:
    """Whether the worker's RMM has a pool, of how many bytes, and whether CuPy's arrays come out of it."""
    import cupy  # noqa: PLC0415
    import rmm  # noqa: PLC0415

    resource = rmm.mr.get_current_device_resource()
    pool = isinstance(resource, rmm.mr.PoolMemoryResource)
    before, _ = cupy.cuda.runtime.memGetInfo()
    made = cupy.zeros(2**25, dtype="f8")
    cupy.cuda.runtime.deviceSynchronize()
    after, _ = cupy.cuda.runtime.memGetInfo()
    return {
        "resource": type(resource).__name__,
        "pool": pool,
        "pool_bytes": int(resource.pool_size()) if pool else 0,
        "cupy_from_rmm": "rmm" in type(made.data.mem).__module__ or "rmm" in repr(cupy.cuda.get_allocator()),
        "taken_by_an_array": before - after,
    }


def is_imported(module: str) -> bool:
    """Whether this process has imported a module; the task itself does not."""
    import sys  # noqa: PLC0415

    return module in sys.modules


def as_started(dask_worker: Any) -> dict[str, Any]:
    """What dask-cuda's options and the device made of a worker; `context`: whether its main thread has one."""
    import dask  # noqa: PLC0415

    data, driver, context = dask_worker.data, ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    driver.cuCtxGetCurrent(ctypes.byref(context))
    return {
        "data": (type(data).__name__, data.device_buffer.n, data.host_buffer.n),
        "plugins": sorted(type(plugin).__name__ for plugin in dask_worker.plugins.values()),
        "resources": dict(dask_worker.state.total_resources),
        "memory": dask_worker.memory_manager.memory_limit,
        "cores": sorted(os.sched_getaffinity(0)),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "ucx": repr(dask.config.get("distributed-ucxx", None)),
        "context": bool(context),
    }


def has_nanny(dask_worker: Any) -> bool:
    """Whether a nanny watches the worker."""
    return dask_worker.nanny is not None
