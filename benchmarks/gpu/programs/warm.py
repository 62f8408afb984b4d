"""For `dask cuda worker --pre-import`: CuPy's libraries and kernels are there before the worker registers."""

from __future__ import annotations

import cupy

_TOTAL = float((cupy.random.random(1000)[::2] + 1).sum())
