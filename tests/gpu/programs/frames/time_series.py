"""Days from a minute's rows."""

import cudf
import dask_cudf
import numpy as np

MINUTES = 60_000
HOST = {
    "at": np.datetime64("2026-01-01T00:00", "ns") + np.arange(MINUTES) * np.timedelta64(1, "m"),
    "load": np.arange(MINUTES) % 1_440 * 1.0,
}


def program():
    frame = dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=6)
    frame["month"], frame["hour"] = frame["at"].dt.month, frame["at"].dt.hour
    return frame.groupby(["month", "hour"]).load.mean().compute().to_pandas().sort_index()


def expected(pandas):
    frame = pandas.DataFrame(HOST)
    frame["month"], frame["hour"] = frame["at"].dt.month, frame["at"].dt.hour
    return frame.groupby(["month", "hour"]).load.mean()
