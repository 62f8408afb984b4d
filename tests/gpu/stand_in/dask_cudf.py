"""dask.dataframe in dask_cudf's place."""

import cudf  # noqa: F401 - which gives frames `to_pandas`
from dask.dataframe import from_pandas, read_parquet

__all__ = ["from_cudf", "read_parquet"]
from_cudf = from_pandas
