"""An inner join of two frames that both have several partitions."""

import cudf
import dask_cudf
import numpy as np

ROWS = 50_000
LEFT = {"key": np.arange(ROWS), "left": np.arange(ROWS) * 2}
RIGHT = {"key": np.arange(ROWS)[::-3].copy(), "right": np.arange(len(range(0, ROWS, 3)))}


def program():
    left = dask_cudf.from_cudf(cudf.DataFrame(LEFT), npartitions=6)
    right = dask_cudf.from_cudf(cudf.DataFrame(RIGHT), npartitions=5)
    joined = left.merge(right, on="key", how="inner")
    return joined.compute().to_pandas().sort_values("key").reset_index(drop=True)


def expected(pandas):
    joined = pandas.DataFrame(LEFT).merge(pandas.DataFrame(RIGHT), on="key")
    return joined.sort_values("key").reset_index(drop=True)
