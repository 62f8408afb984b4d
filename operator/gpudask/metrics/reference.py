"""The tables of docs/metrics.md, made from the families: `python -m gpudask.metrics.reference FILE` writes them anew.

What stands around them is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from gpudask.metrics.families import CLUSTER_FAMILIES, JOB_FAMILIES, OPERATOR_FAMILIES, Family

_UNITS = ("seconds", "bytes", "tasks", "pods", "gpus")
_TABLES = {"clusters": CLUSTER_FAMILIES, "jobs": JOB_FAMILIES, "operator": OPERATOR_FAMILIES}


def page(text: str) -> str:
    """The page with its tables made anew: each stands between `<!-- table: NAME -->` and `<!-- end of table -->`."""
    for name, families in _TABLES.items():
        begin = f"<!-- table: {name} -->\n"
        if (count := text.count(begin)) != 1:
            raise ValueError(f"expected the place of the table {name} once, found it {count} times")
        head, _, rest = text.partition(begin)
        _, end, tail = rest.partition("<!-- end of table -->")
        text = f"{head}{begin}{table(families)}\n{end}{tail}"
    return text


def table(families: Iterable[Family]) -> str:
    """The families as a table."""
    rows = [
        f"| `{family.name}` | {family.kind.value} | {_labels(family)} | {unit(family)} | {family.help} |"
        for family in families
    ]
    return "\n".join(("| name | type | labels | unit | meaning |", "|---|---|---|---|---|", *rows))


def unit(family: Family) -> str:
    """The unit of a family's values, by its name; of what has none, empty."""
    *_, before, last = family.name.removesuffix("_total").split("_")
    if (before, last) == ("gpu", "seconds"):
        return "GPU-seconds"
    found = next((part for part in (last, before) if part in _UNITS), "")
    return "GPUs" if found == "gpus" else found


def _labels(family: Family) -> str:
    """The labels; of the last one the values, where they are known in advance."""
    states = f": {', '.join(family.states)}" if family.states else ""
    return ", ".join(f"`{label}`" for label in family.labels) + states


def main(path: Path) -> None:
    """Write the tables in the page at `path`."""
    path.write_text(page(path.read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
