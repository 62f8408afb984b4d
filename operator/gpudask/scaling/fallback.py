"""When the tasks of a pool that has no worker run elsewhere, and when they return."""

from __future__ import annotations


def falls_back(*, active: bool, after_seconds: float, waited_seconds: float, tasks: int, ready: int) -> bool:
    """Whether the tasks fall back now.

    `active`: whether they do already. `tasks`: how many of the pool's run or could run, elsewhere included; without any
    there is nothing to lend. `ready`: workers of the pool that take tasks: one is enough to return, because what has
    begun elsewhere ends there, and Dask gives the rest to the pool.
    """
    if ready or not tasks:
        return False
    return active or waited_seconds >= after_seconds
