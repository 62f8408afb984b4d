"""A product of matrices in blocks, transposed and summed."""

import cupy
import dask.array as da
import numpy as np

HOST = np.random.default_rng(17).normal(size=(900, 600))


def program():
    matrix = da.from_array(HOST, chunks=(300, 300)).map_blocks(cupy.asarray)
    return cupy.asnumpy((matrix.T @ matrix).sum(axis=1).compute())


def expected(_pandas):
    return (HOST.T @ HOST).sum(axis=1)
