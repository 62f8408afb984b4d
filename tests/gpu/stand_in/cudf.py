"""pandas in cuDF's place: what the programs use of it."""

from typing import Any

import dask
import pandas as pd
from dask.dataframe.dask_expr._backends import dataframe_creation_dispatch
from pandas import DataFrame, Series, concat

__all__ = ["DataFrame", "Series", "concat"]


class Backend(type(dataframe_creation_dispatch.dispatch("pandas"))):  # type: ignore[misc]
    """The backend `cudf`, which is that of pandas by another name."""

    @staticmethod
    def read_parquet(*arguments: Any, **options: Any) -> Any:
        import dask.dataframe as dd  # noqa: PLC0415 - Dask imports this module while it imports that one

        with dask.config.set({"dataframe.backend": "pandas"}):
            return dd.read_parquet(*arguments, **options)


def _itself(self: Any) -> Any:
    return self


for kind in (pd.DataFrame, pd.Series, pd.Index):
    kind.to_pandas = _itself  # type: ignore[attr-defined]
dataframe_creation_dispatch.register_backend("cudf", Backend())
