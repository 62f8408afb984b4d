"""What a Dask worker's name says: its pool and its pod. The rule is in `docs/preload-protocol.md`, under Names."""

from __future__ import annotations

import re
from functools import lru_cache

_POOL = re.compile(r"^.+-([a-z][a-z0-9]*)-worker-")


@lru_cache(maxsize=100_000)
def pool_of(name: object) -> str:
    """Return the pool of the worker called `name`; `""` for a worker that is not ours."""
    found = _POOL.match(str(name))
    return found.group(1) if found else ""


def is_of_pod(name: object, pod: str) -> bool:
    """Return whether the worker called `name` lives in `pod`: exactly so, or `<pod>-<i>` (dask-cuda, one per GPU)."""
    text = str(name)
    return text == pod or (text.startswith(f"{pod}-") and text[len(pod) + 1 :].isdigit())
