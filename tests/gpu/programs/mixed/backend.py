"""The program of a pandas user, with cuDF as the backend by configuration."""

import cudf  # noqa: F401 - which registers the backend
import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

ROWS = 20_000
HOST = {"key": np.arange(ROWS) % 19, "value": np.arange(ROWS)}


def program(folder):
    pd.DataFrame(HOST).to_parquet(f"{folder}/table.parquet")
    with dask.config.set({"dataframe.backend": "cudf"}):
        frame = dd.read_parquet(folder)
        return frame.groupby("key").value.mean().compute().to_pandas().sort_index()


def expected(pandas):
    return pandas.DataFrame(HOST).groupby("key").value.mean()
