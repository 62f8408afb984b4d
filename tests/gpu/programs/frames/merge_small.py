"""A left join with a small table, which Dask sends to all partitions."""

import cudf
import dask_cudf
import numpy as np

ROWS = 50_000
HOST = {"city": np.arange(ROWS) % 11, "fare": np.arange(ROWS) * 0.25}
CITIES = {"city": list(range(10)), "country": [number % 3 for number in range(10)]}


def program():
    rides = dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=8)
    joined = rides.merge(cudf.DataFrame(CITIES), on="city", how="left")
    return joined.groupby("country").fare.sum().compute().to_pandas().sort_index()


def expected(pandas):
    joined = pandas.DataFrame(HOST).merge(pandas.DataFrame(CITIES), on="city", how="left")
    return joined.groupby("country").fare.sum()
