"""How long pods of a pool took to start, as far as it was seen: so long the next one is taken to need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpudask.scaling.lookahead import LONGEST_START_SECONDS, UNKNOWN_START_SECONDS

if TYPE_CHECKING:
    from gpudask.planning.observed import Observation


@dataclass(frozen=True, slots=True)
class Start:
    """A pod whose workers were all there at `at`: `seconds` after its creation, `held_seconds` on its node."""

    at: float
    seconds: float
    held_seconds: float
    spec_hash: str


def starts(seen: Observation, pool: str) -> list[Start]:
    """The starts of the pods of `pool` that are there, the last one last.

    Pods whose workers were there when this scheduler was first heard tell nothing, and neither do those that took
    longer than `LONGEST_START_SECONDS`.
    """
    if pool not in seen.starts:
        seen.starts[pool] = _starts(seen, pool)
    return seen.starts[pool]


def _starts(seen: Observation, pool: str) -> list[Start]:
    complete: dict[str, float] = {}
    pods = {pod.dask_name: pod for pod in seen.workers(pool)}
    for worker in seen.demand.workers if seen.demand else ():
        if worker.pool == pool:
            of = worker.name if worker.name in pods else worker.name.rpartition("-")[0]
            complete[of] = max(complete.get(of, -math.inf), seen.first_joined.get(worker.name, -math.inf))
    found = [
        Start(at, at - pod.created, at - pod.placed if pod.placed else 0.0, pod.spec_hash)
        for name, at in complete.items()
        if at > seen.scheduler_since and (pod := pods.get(name)) is not None and not pod.restarts
    ]
    return sorted((each for each in found if each.seconds <= LONGEST_START_SECONDS), key=lambda start: start.at)


def start_seconds(seen: Observation, pool: str) -> float | None:
    """How long the last pod of `pool` took from its creation until all of its workers were registered."""
    seconds = [start.seconds for start in starts(seen, pool)]
    memory = seen.memory.get(pool)
    return seconds[-1] if seconds else memory.start_seconds if memory else None


def expected_start_seconds(seen: Observation, pool: str) -> float | None:
    """How long the next pod of `pool` is taken to need: as the last one; for its first, as one like it elsewhere.

    That can only be sooner than where nobody knows: what was slow elsewhere may have waited for a node, or for others'
    pods.
    """
    seconds, elsewhere = start_seconds(seen, pool), seen.known_starts.get(pool)
    if seconds is None and elsewhere is not None:
        return min(elsewhere, UNKNOWN_START_SECONDS)
    return seconds


def slowest_start_seconds(seen: Observation, pool: str) -> float | None:
    """The longest that a pod of `pool` which is there took so: one, as a rule, for which a node had to come."""
    return max((start.seconds for start in starts(seen, pool)), default=start_seconds(seen, pool))


def held_seconds(seen: Observation, pool: str) -> float:
    """For how long a pod of `pool` may hold its node before it can work: it pulls its image; 0.0 where nobody knows.

    The longest of those that are there. Where none is, it is the start of the first one when the pool last came from
    nothing: its nodes may be gone since.
    """
    memory = seen.memory.get(pool)
    return max((start.held_seconds for start in starts(seen, pool)), default=memory.held_seconds if memory else 0.0)
