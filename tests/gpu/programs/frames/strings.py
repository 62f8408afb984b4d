"""Columns of text: case, a pattern, lengths.

None is called `name`: a frame of cuDF that has such a column cannot be grouped, with or without Dask.
"""

import cudf
import dask_cudf

WORDS = [f"{name}-{number}" for number in range(2_000) for name in ("Ada", "Grace", "Edsger", "Barbara")]


def program():
    frame = dask_cudf.from_cudf(cudf.DataFrame({"word": WORDS}), npartitions=4)
    frame["lower"] = frame.word.str.lower()
    chosen = frame[frame.lower.str.contains("gra")]
    chosen = chosen.assign(letters=chosen.lower.str.len())
    return chosen.groupby("letters").size().compute().to_pandas().sort_index()


def expected(pandas):
    frame = pandas.DataFrame({"word": WORDS})
    lower = frame.word.str.lower()
    chosen = frame[lower.str.contains("gra")].assign(letters=lower.str.len())
    return chosen.groupby("letters").size()
