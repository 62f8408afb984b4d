"""pandas on CPUs, cuDF on GPUs, and pandas again."""

import cudf  # noqa: F401 - which registers the backend
import dask.dataframe as dd
import numpy as np
import pandas as pd

ROWS = 40_000
HOST = {"key": np.arange(ROWS) % 31, "value": np.arange(ROWS) * 0.5}


def program():
    frame = dd.from_pandas(pd.DataFrame(HOST), npartitions=6)
    frame = frame[frame.value > 100].to_backend("cudf")
    sums = frame.groupby("key").value.sum().to_backend("pandas")
    return (sums + 1).compute().sort_index()


def expected(pandas):
    frame = pandas.DataFrame(HOST)
    return frame[frame.value > 100].groupby("key").value.sum() + 1
