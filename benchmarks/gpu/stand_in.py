"""The part of CuPy that the benchmark's programs use, in NumPy: a program that runs with it is right up to its figures.

For dry runs (`--stand-in`), never measured with: pods without a GPU import it as `cupy`, by a module of that name which
has all of it. The arrays are of a class of their own, as CuPy's are, so that a program which takes one for NumPy's is
found out. That class is not of a module named cupy: what Dask knows of CuPy's would be taken to be so of these.
"""

from __future__ import annotations

import ctypes
import os
import socket
import types
from typing import Any, Self

import numpy as np


class ndarray:  # noqa: N801 - its name
    """An array "on the device"."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)
        self.nbytes, self.size, self.dtype = self._values.nbytes, self._values.size, self._values.dtype

    @property
    def data(self) -> Any:
        """Where it lies."""
        return types.SimpleNamespace(ptr=self._values.ctypes.data)

    @property
    def real(self) -> ndarray:
        """Of complex numbers."""
        return ndarray(self._values.real)

    def __getitem__(self, key: Any) -> ndarray:
        return ndarray(self._values[key])

    def __add__(self, other: Any) -> ndarray:
        return ndarray(self._values + plain(other))

    def __mul__(self, other: Any) -> ndarray:
        return ndarray(self._values * plain(other))

    def __truediv__(self, other: Any) -> ndarray:
        return ndarray(self._values / plain(other))

    def __matmul__(self, other: Any) -> ndarray:
        return ndarray(self._values @ plain(other))

    def astype(self, kind: str) -> ndarray:
        """In another kind of number."""
        return ndarray(self._values.astype(kind))

    def mean(self) -> Any:
        """The mean."""
        return self._values.mean()

    def all(self) -> Any:
        """Whether all are true."""
        return self._values.all()


def plain(values: Any) -> Any:
    """NumPy's array in it; anything else as it is."""
    return values._values if isinstance(values, ndarray) else values  # noqa: SLF001 - this module's own


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
