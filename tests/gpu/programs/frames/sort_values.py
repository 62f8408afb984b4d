"""A sort, and the first rows of it."""

import cudf
import dask_cudf
import numpy as np

ROWS = 40_000
HOST = {"score": np.random.default_rng(5).permutation(ROWS), "name": np.arange(ROWS)}


def program():
    frame = dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=5)
    return frame.sort_values("score").head(20, npartitions=-1).to_pandas().reset_index(drop=True)


def expected(pandas):
    return pandas.DataFrame(HOST).sort_values("score").head(20).reset_index(drop=True)
