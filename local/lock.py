"""One command at a time on one cluster: two `up`s at once would start every part twice."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from local.layout import Layout


@contextmanager
def exclusive(layout: Layout) -> Iterator[None]:
    """Wait for other commands on the same cluster, then hold them off.

    The lock file lies beside the cluster's directory, which `down` may delete.
    """
    layout.root.mkdir(parents=True, exist_ok=True)
    with layout.root.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        layout.root.mkdir(parents=True, exist_ok=True)
        yield
