"""The part of CuPy that the benchmark's programs use, in NumPy: a program that runs with it is right up to its figures.

Arrays are of a class of their own, as CuPy's are, so that a program which takes one for NumPy's is found out.
"""

from __future__ import annotations

import ctypes
import os
import socket
import types
from typing import Any, Self

import numpy as np

from benchmarks.gpu.stand_in.arrays import ndarray, plain


def asarray(values: Any) -> ndarray:
    """Onto the device."""
    return ndarray(plain(values))


def asnumpy(values: ndarray) -> Any:
    """To the host."""
    return plain(values)


def full(count: int, value: float, dtype: str) -> ndarray:
    """`count` times `value`."""
    return ndarray(np.full(count, value, dtype=dtype))


def ones(count: int, dtype: str) -> ndarray:
    """`count` times 1."""
    return full(count, 1, dtype)


def zeros(count: int, dtype: str) -> ndarray:
    """`count` times 0."""
    return full(count, 0, dtype)


class _Device:
    """The device in use, while the context is open."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _Generator:
    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def random(self, count: int) -> ndarray:
        return ndarray(self._generator.random(count))


class CUDARuntimeError(RuntimeError):
    """What CUDA refuses."""


def _copy(target: int, _target_device: int, source: int, _source_device: int, nbytes: int) -> None:
    ctypes.memmove(target, source, nbytes)


def _properties(_device: int) -> dict[str, Any]:
    """One "device" for each process."""
    return {"uuid": f"{socket.gethostname()}/{os.getpid()}"}


cuda = types.SimpleNamespace(
    Device=_Device,
    runtime=types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        deviceCanAccessPeer=lambda _from, _to: 1,
        deviceEnablePeerAccess=lambda _device: None,
        deviceSynchronize=lambda: None,
        free=lambda _pointer: None,
        getDeviceProperties=_properties,
        memcpyPeer=_copy,
    ),
)
fft = types.SimpleNamespace(
    fft=lambda values: ndarray(np.fft.fft(plain(values))),
    ifft=lambda values: ndarray(np.fft.ifft(plain(values))),
)
random = types.SimpleNamespace(
    default_rng=_Generator,
    random=lambda shape: ndarray(np.random.random(shape)),  # noqa: NPY002 - CuPy's old generator is fast, too
    seed=np.random.seed,
)
