"""The tables of docs/metrics.md, made from the families: `python -m gpudask.metrics.reference` prints the page.

What people write around them stands in docs/metrics.in.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from gpudask.metrics.families import CLUSTER_FAMILIES, OPERATOR_FAMILIES, Family

_UNITS = ("seconds", "bytes", "tasks", "pods", "gpus")
_SOURCE = Path(__file__).resolve().parents[3] / "docs" / "metrics.in.md"


def page(text: str) -> str:
    """The page: `text` with the tables in the places that it leaves for them."""
    head, line, rest = text.partition("\n")
    note = "<!-- Made by `make generate` from docs/metrics.in.md and metrics/families.py. Do not edit. -->"
    made = f"{head}{line}\n{note}\n"
    return made + rest.lstrip("\n").replace("{clusters}", table(CLUSTER_FAMILIES)).replace(
        "{operator}", table(OPERATOR_FAMILIES)
    )


def table(families: Iterable[Family]) -> str:
    """The families as a table."""
    rows = [
        f"| `{family.name}` | {family.kind.value} | {_labels(family)} | {unit(family)} | {family.help} |"
        for family in families
    ]
    return "\n".join(("| name | type | labels | unit | meaning |", "|---|---|---|---|---|", *rows))


def unit(family: Family) -> str:
    """The unit of a family's values, by its name; of what has none, empty."""
    parts = family.name.removesuffix("_total").split("_")
    if parts[-2:] == ["gpu", "seconds"]:
        return "GPU-seconds"
    found = next((part for part in (parts[-1], parts[-2]) if part in _UNITS), "")
    return {"gpus": "GPUs"}.get(found, found)


def _labels(family: Family) -> str:
    *others, last = family.labels or ("",)
    states = f": {', '.join(family.states)}" if family.states else ""
    return ", ".join([*(f"`{label}`" for label in others), *([f"`{last}`{states}"] if last else [])])


if __name__ == "__main__":
    sys.stdout.write(page(_SOURCE.read_text()))
