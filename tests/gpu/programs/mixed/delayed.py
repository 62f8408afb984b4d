"""Delayed functions that make frames, and one that takes them together."""

import cudf
import dask
import numpy as np


@dask.delayed
def load(number):
    return cudf.DataFrame({"part": [number] * 1_000, "value": np.arange(1_000) * number})


@dask.delayed
def total(frames):
    return cudf.concat(frames).groupby("part").value.sum().to_pandas()


def program():
    return total([load(number) for number in range(8)]).compute().sort_index()


def expected(pandas):
    frames = [pandas.DataFrame({"part": [n] * 1_000, "value": np.arange(1_000) * n}) for n in range(8)]
    return pandas.concat(frames).groupby("part").value.sum()
