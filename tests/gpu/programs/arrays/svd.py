"""Singular values of a tall matrix."""

import cupy
import dask.array as da
import numpy as np

HOST = np.random.default_rng(11).normal(size=(4_000, 40))


def program():
    matrix = da.from_array(HOST, chunks=(1_000, 40)).map_blocks(cupy.asarray)
    _, values, _ = da.linalg.svd(matrix)
    return cupy.asnumpy(values.compute())


def expected(_pandas):
    return np.linalg.svd(HOST, compute_uv=False)
