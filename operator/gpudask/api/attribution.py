"""Attribution: the labels and annotations of a cluster that say who answers for its cost, as `attribution` lists them.

Their values are a tenant's, and stand in metrics, records and tables: short, and clean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpudask.api.untrusted_text import quote

MAX_NAMES = 8
VALUE_LENGTH = 63
# A name of Kubernetes' labels and annotations.
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_NAME = re.compile(
    r"(?=.{1,316}\Z)(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z"
)
_NOT_IN_METRICS = re.compile(r"[^A-Za-z0-9_]")


def parse(text: str) -> tuple[str, ...]:
    """The names that `text` lists, with commas between them.

    Raises:
        ValueError: a name is none, there are too many, or two would be the same label of a metric.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(names) > MAX_NAMES:
        raise ValueError(f"expected at most {MAX_NAMES} names, got {len(names)}: each is a label of a metric")
    known: dict[str, str] = {}
    for name in names:
        if _NAME.match(name) is None:
            raise ValueError(f"expected the name of a label or an annotation, such as example.com/team, got {name!r}")
        label = metric_label(name)
        if label in known:
            raise ValueError(
                f"{known[label]} and {name} would both be the metrics' label {label}: leave one out, or rename it"
            )
        known[label] = name
    return names


def metric_label(name: str) -> str:
    """The label of a metric that stands for `name`, as kube-state-metrics names such: `label_example_com_team`."""
    return f"label_{_NOT_IN_METRICS.sub('_', name)}"


def read(metadata: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """The values of `names` in an object's metadata: its label, else its annotation, else an empty text."""
    return {name: _value(metadata, name) for name in names}


def clean(value: object) -> str:
    """`value` in at most 63 visible characters on one line; of anything but text, an empty one."""
    return quote(value, VALUE_LENGTH) if isinstance(value, str) else ""


def _value(metadata: Mapping[str, Any], name: str) -> str:
    for place in ("labels", "annotations"):
        values = metadata.get(place)
        if isinstance(values, Mapping) and (value := clean(values.get(name))):
            return value
    return ""
