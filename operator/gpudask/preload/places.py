"""Where the results of a leaving worker may go. Rules only: nothing is moved here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .names import pool_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distributed.scheduler import WorkerState

    from .pools import Pools


@dataclass(frozen=True)
class Places:
    """Workers that can take results: any result, or only those that need nothing which a GPU worker alone has."""

    any_value: frozenset[WorkerState] = frozenset()
    host_safe: frozenset[WorkerState] = frozenset()


def places_for(ws: WorkerState, staying: Iterable[WorkerState], pools: Pools) -> Places:
    """Return where the results of `ws` may go among the workers that stay.

    Workers of its own pool come first: they can hold what it holds. From a pool that accepts any task so can every
    worker that offers all it offers, those that accept any task first, so that results keep no GPU; but from a pool
    with GPUs only to others with GPUs, whatever it offers or accepts. Elsewhere a value must be host-safe.
    """
    others = [other for other in staying if other is not ws]
    if same := frozenset(other for other in others if pool_of(other.name) == pool_of(ws.name)):
        return Places(any_value=same)
    if not pools.is_fenced(ws):
        equals = [
            other
            for other in others
            if ws.resources.keys() <= other.resources.keys() and (pools.has_gpu(other) or not pools.has_gpu(ws))
        ]
        if equals:
            return Places(any_value=_unfenced_first(equals, pools))
    return Places(host_safe=_unfenced_first(others, pools))


def _unfenced_first(workers: list[WorkerState], pools: Pools) -> frozenset[WorkerState]:
    return frozenset(ws for ws in workers if not pools.is_fenced(ws)) or frozenset(workers)
