"""A groupby with so many keys that its result is in several partitions."""

import cudf
import dask_cudf
import numpy as np

ROWS = 100_000
HOST = {"key": np.arange(ROWS) * 7919 % 25_013, "value": np.arange(ROWS)}


def program():
    frame = dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=8)
    return frame.groupby("key").value.max(split_out=4).compute().to_pandas().sort_index()


def expected(pandas):
    return pandas.DataFrame(HOST).groupby("key").value.max()
