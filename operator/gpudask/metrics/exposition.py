"""Prometheus' text format, for the series of clusters: headers, labels, values.

https://prometheus.io/docs/instrumenting/exposition_formats. The operator's own series are written by prometheus_client;
those of a thousand clusters are written from here, a few at a time (docs/adr/0044-metrics.md has the figures).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from gpudask.metrics.families import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def header(family: Family) -> str:
    """The two lines before the samples of a family."""
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {family.name} {text}\n# TYPE {family.name} {family.kind.value}\n"


def labels(values: Mapping[str, str]) -> str:
    """Labels as they stand between the braces, each value escaped."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in values.items())


def escape(value: str) -> str:
    """A label's value between the quotes."""
    return value.translate(_ESCAPED)


def sample(name: str, of: str, value: float) -> str:
    """One line: the family's name, labels as `labels` makes them, and the value."""
    return f"{name}{{{of}}} {number(value)}\n"


def number(value: float) -> str:
    """A value as Go reads it."""
    if isinstance(value, int) or math.isfinite(value):
        return repr(value)
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def utf8(lines: Iterable[str]) -> bytes:
    """Lines as they are sent. A lone surrogate, which no UTF-8 can have, becomes a question mark."""
    return "".join(lines).encode(errors="replace")
