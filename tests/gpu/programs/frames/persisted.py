"""A frame that stays on the devices, computed from twice."""

import cudf
import dask_cudf
import numpy as np

ROWS = 50_000
HOST = {"x": np.arange(ROWS) * 1.0, "y": np.arange(ROWS) % 10}


def program():
    frame = dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=8).query("y > 3").persist()
    return [float(frame.x.mean().compute()), int(frame.y.nunique().compute()), len(frame)]


def expected(pandas):
    frame = pandas.DataFrame(HOST).query("y > 3")
    return [float(frame.x.mean()), int(frame.y.nunique()), len(frame)]
