"""Standard deviations and sums by column."""

import cupy
import dask.array as da
import numpy as np

SHAPE = (2_000, 1_500)


def program():
    values = da.from_array(np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE), chunks=(500, 500))
    on_gpus = values.map_blocks(cupy.asarray)
    return cupy.asnumpy((on_gpus.std(axis=0) + on_gpus.sum(axis=0)).compute())


def expected(_pandas):
    values = np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
    return values.std(axis=0) + values.sum(axis=0)
