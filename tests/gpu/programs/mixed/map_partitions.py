"""A function of the user's own on each partition."""

import cudf
import dask_cudf
import numpy as np

ROWS = 30_000
HOST = {"x": np.arange(ROWS) * 1.0, "y": np.arange(ROWS) % 5}


def scaled(part, factor):
    part = part.copy()
    part["x"] = part["x"] * factor
    return part[part["y"] != 2]


def program():
    frame = dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=6).map_partitions(scaled, 3.0)
    return frame.groupby("y").x.sum().compute().to_pandas().sort_index()


def expected(pandas):
    return scaled(pandas.DataFrame(HOST), 3.0).groupby("y").x.sum()
