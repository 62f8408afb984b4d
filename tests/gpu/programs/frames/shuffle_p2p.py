"""A shuffle over the workers' own connections; afterwards each key is in one partition."""

import cudf
import dask
import dask_cudf
import numpy as np

ROWS = 60_000
HOST = {"key": np.arange(ROWS) % 501, "value": np.arange(ROWS)}


def program():
    frame = dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=6)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        counted = frame.shuffle("key").map_partitions(lambda part: part.groupby("key").value.agg(["count", "sum"]))
        return counted.compute().to_pandas().sort_index()


def expected(pandas):
    return pandas.DataFrame(HOST).groupby("key").value.agg(["count", "sum"])
