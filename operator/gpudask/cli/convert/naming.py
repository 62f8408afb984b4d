"""Names that our rules allow, made of names that the stock operator took."""

from __future__ import annotations

import re

from gpudask.api.pool import POOL_NAME
from gpudask.api.spec import CLUSTER_NAME, MAX_CLUSTER_NAME
from gpudask.cli.convert.notes import Notes

_POOL_LENGTH = 15


def pool_name(group: str, taken: set[str], source: str, notes: Notes) -> str:
    """The pool of a worker group, unlike those in `taken`, to which it is added."""
    plain = re.sub(r"[^a-z0-9]", "", group.lower())
    name = (plain if plain[:1].isalpha() else f"p{plain}")[:_POOL_LENGTH]
    if name == "scheduler":
        name = "schedulers"
    number = 2
    while name in taken:
        name = f"{name[: _POOL_LENGTH - 2]}{number}"
        number += 1
    taken.add(name)
    assert re.fullmatch(POOL_NAME, name)
    if name != group:
        notes.assumed(
            source, "metadata.name", f"the pool is called {name}: a pool's name is 1 to 15 letters and digits"
        )
    return name


def cluster_name(name: str, source: str, notes: Notes) -> str:
    """The cluster of a stock cluster."""
    plain = re.sub(r"[^-a-z0-9]", "-", name.lower()).lstrip("-0123456789")[:MAX_CLUSTER_NAME].strip("-")
    if plain != name:
        notes.assumed(source, "metadata.name", f"the cluster is called {plain}: letters, digits, hyphens, 35 at most")
    assert re.fullmatch(CLUSTER_NAME, plain or "x")
    return plain or "dask"
