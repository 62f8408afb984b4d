"""A column of categories: codes, and sums by them."""

import cudf
import dask_cudf

ROWS = 30_000
COLOURS = ["red", "green", "blue"]
HOST = {"colour": [COLOURS[row % 3] for row in range(ROWS)], "value": list(range(ROWS))}


def program():
    table = cudf.DataFrame(HOST)
    table["colour"] = table["colour"].astype("category")
    frame = dask_cudf.from_cudf(table, npartitions=4)
    frame["code"] = frame.colour.cat.codes.astype("int64")
    return frame.groupby("code").value.sum().compute().to_pandas().sort_index()


def expected(pandas):
    table = pandas.DataFrame(HOST)
    table["code"] = table.colour.astype("category").cat.codes.astype("int64")
    return table.groupby("code").value.sum()
