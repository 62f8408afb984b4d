"""Write Parquet from the devices, read two columns of it back, filtered."""

import cudf
import dask_cudf
import numpy as np

ROWS = 40_000
HOST = {"key": np.arange(ROWS) % 13, "value": np.arange(ROWS) * 1.5, "other": np.arange(ROWS)}


def program(folder):
    dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=4).to_parquet(folder)
    frame = dask_cudf.read_parquet(folder, columns=["key", "value"], filters=[("key", "<", 5)])
    return frame.groupby("key").value.sum().compute().to_pandas().sort_index()


def expected(pandas):
    frame = pandas.DataFrame(HOST)
    return frame[frame.key < 5].groupby("key").value.sum()
