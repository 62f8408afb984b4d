"""When the tasks of a pool that has no worker run elsewhere, and when they return."""

from __future__ import annotations


def falls_back(*, active: bool, after_seconds: float, waited_seconds: float, tasks: int) -> bool:
    """Whether the tasks fall back now.

    `active`: whether they do already. `tasks`: how many run or could run, elsewhere included, of those for which no
    worker is ready that offers what they want by itself: without any there is nothing to lend. One ready worker is
    enough to return, because what has begun elsewhere ends there, and Dask gives the rest to the pool.
    """
    return bool(tasks) and (active or waited_seconds >= after_seconds)
