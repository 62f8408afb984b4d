"""Sums, means and counts by key."""

import cudf
import dask_cudf
import numpy as np

ROWS = 100_000
HOST = {"key": np.arange(ROWS) % 97, "value": np.arange(ROWS) * 0.5}


def program():
    frame = dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=8)
    return frame.groupby("key").agg({"value": ["sum", "mean", "count"]}).compute().to_pandas().sort_index()


def expected(pandas):
    return pandas.DataFrame(HOST).groupby("key").agg({"value": ["sum", "mean", "count"]})
