"""Columns of text: case, a pattern, lengths."""

import cudf
import dask_cudf

WORDS = [f"{name}-{number}" for number in range(2_000) for name in ("Ada", "Grace", "Edsger", "Barbara")]


def program():
    frame = dask_cudf.from_cudf(cudf.DataFrame({"name": WORDS}), npartitions=4)
    frame["lower"] = frame.name.str.lower()
    chosen = frame[frame.lower.str.contains("gra")]
    chosen = chosen.assign(letters=chosen.lower.str.len())
    return chosen.groupby("letters").size().compute().to_pandas().sort_index()


def expected(pandas):
    frame = pandas.DataFrame({"name": WORDS})
    lower = frame.name.str.lower()
    chosen = frame[lower.str.contains("gra")].assign(letters=lower.str.len())
    return chosen.groupby("letters").size()
