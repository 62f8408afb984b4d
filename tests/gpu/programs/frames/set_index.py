"""A new index, sorted over all partitions, and a slice of it."""

import cudf
import dask_cudf
import numpy as np

ROWS = 40_000
HOST = {"when": np.random.default_rng(3).permutation(ROWS), "value": np.arange(ROWS)}


def program():
    frame = dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=6).set_index("when")
    return frame.loc[1_000:2_000].compute().to_pandas()


def expected(pandas):
    return pandas.DataFrame(HOST).set_index("when").sort_index().loc[1_000:2_000]
