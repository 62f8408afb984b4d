"""The stand-in's arrays. Not in a module named cupy: what Dask knows of CuPy's would be taken to be so of these."""

from __future__ import annotations

import types
from typing import Any

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
