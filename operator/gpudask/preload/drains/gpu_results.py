"""Results that need a GPU worker, found on the worker that holds them: this module is sent there by value.

By an allow-list: a result may go to a worker without a GPU when pickling it meets no type, class or function from
outside the modules below. So a GPU type deep inside a list or a data frame is found, and what is not known stays.

The standard library alone, no import from this package: gpudask need not be installed where it runs.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from typing import Any

SAFE_MODULES = frozenset(
    {
        *("builtins", "_codecs", "copyreg", "collections", "_collections", "array", "_io", "io", "types", "typing"),
        *("datetime", "_datetime", "zoneinfo", "decimal", "_decimal", "fractions", "uuid", "ipaddress", "enum"),
        *(
            "pathlib",
            "functools",
            "operator",
            "_operator",
            "random",
            "_random",
            "re",
            "string",
            "statistics",
            "itertools",
        ),
        *("numpy", "pandas", "pyarrow", "scipy", "xarray", "dask", "pytz", "dateutil", "sparse"),
    }
)

CYTHON = "_cython_"  # where the type of compiled functions says it comes from, whatever module has them


class GpuDependencyError(Exception):
    """Something in a value comes from a module that a CPU worker may lack; the message names it."""


class _Prober(pickle.Pickler):
    """Pickles into nothing and stops at the first thing from outside the allow-list. Big buffers are not copied."""

    def __init__(self) -> None:
        super().__init__(_Discard(), protocol=5, buffer_callback=_ignore)

    def reducer_override(self, obj: Any) -> Any:
        """Look at everything but plain containers, numbers and text, which pickle does not show."""
        kind = type(obj)
        # a class or a function counts by its own module, any other thing by its type's
        named = [obj] if isinstance(obj, type) else [obj, kind] if hasattr(obj, "__qualname__") else [kind]
        for thing in named:
            module = getattr(thing, "__module__", None) or "builtins"
            root = module.partition(".")[0]
            if root not in SAFE_MODULES and not (thing is kind and root.startswith(CYTHON)):
                raise GpuDependencyError(f"{module}.{getattr(thing, '__qualname__', thing)}")
        if hasattr(obj, "__cuda_array_interface__"):
            raise GpuDependencyError(f"{kind.__module__}.{kind.__qualname__}")
        return NotImplemented


class _Discard:
    """A file that keeps nothing."""

    def write(self, data: bytes) -> int:
        return len(data)


def _ignore(_buffer: Any) -> None:
    """Take a big buffer out of band."""


def gpu_dependency(value: Any) -> str:
    """Return `""` when any worker could hold the value, else the type or function that it needs."""
    try:
        _Prober().dump(value)
    except GpuDependencyError as error:
        return str(error)
    except Exception:  # noqa: BLE001 (whatever a foreign __reduce__ raises: unknown, so it stays)
        return f"{type(value).__module__}.{type(value).__qualname__}"
    return ""


async def examine(keys: list[Any], seconds: float, dask_worker: Any) -> dict[str, list[Any]]:
    """Examine the worker's results for so many seconds, each off its event loop.

    `needs` has pairs of a key and what it needs (see `gpu_dependency`), `gone` the keys that it has no more, and `slow`
    the one that it had not done by then: that goes on, and the next call for it returns what came of it.
    """
    deadline = time.monotonic() + seconds
    probes: dict[Any, asyncio.Future[str]] = dask_worker.__dict__.setdefault("gpudask_probes", {})
    answer: dict[str, list[Any]] = {"needs": [], "gone": [], "slow": []}
    for key in keys:
        if key not in dask_worker.data:
            probes.pop(key, None)
            answer["gone"].append(key)
            continue
        if key not in probes:
            try:
                value = dask_worker.data[key]  # on the event loop: what spills to disk is not made for threads
            except Exception as error:  # noqa: BLE001 (whatever a foreign type raises when it is read back from disk)
                answer["needs"].append((key, f"what cannot be read back from disk ({type(error).__name__})"))
                continue
            probes[key] = asyncio.ensure_future(asyncio.to_thread(gpu_dependency, value))
        await asyncio.wait([probes[key]], timeout=max(0.0, deadline - time.monotonic()))
        if not probes[key].done():
            answer["slow"].append(key)
            break
        answer["needs"].append((key, probes.pop(key).result()))
    return answer
