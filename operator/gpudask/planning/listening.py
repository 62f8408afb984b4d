"""Pools that speak a protocol of their own: whether the scheduler listens for it, what it waits for, and the cure.

Their pods are made once it does, after each of its starts: a worker that finds nobody there ends. Only the scheduler
can say it: what an image has is known to who runs in it.
"""

from __future__ import annotations

import re

from gpudask.api.addresses import UCXX_PORT
from gpudask.api.pool import Pool
from gpudask.planning.observed.observation import Observation

FEATURE = "listen"  # the preload's
_LACKS_PACKAGE = re.compile(r"unknown address scheme|No module named|ImportError")


def is_awaited(observation: Observation, pool: Pool) -> bool:
    """True if `pool` has a protocol of its own, for which the scheduler does not listen, as far as is known."""
    protocol, demand = observation.cluster.spec.own_protocol(pool), observation.demand
    if protocol is None:
        return False
    found = demand.listeners.get(protocol) if demand is not None else None
    return found is None or bool(found.why) or found.port != UCXX_PORT


def message(observation: Observation, pool: Pool) -> str:
    """What the pods of `pool` wait for, and what to do; empty: nothing."""
    if not is_awaited(observation, pool):
        return ""
    return trouble(observation, pool) or f"its pods are made once the scheduler listens for {pool.protocol}"


def trouble(observation: Observation, pool: Pool) -> str:
    """Why the scheduler does not listen, and what to do, where that is not over by itself; empty: it is, or it listens.

    Of a scheduler that is not heard, or has no preload, others tell.
    """
    demand = observation.demand
    if demand is None or not is_awaited(observation, pool):
        return ""
    waits = f"its pods are not made, since the scheduler does not listen for {pool.protocol}"
    if FEATURE not in demand.features:
        replaced = "it listens once the scheduler pod is replaced: delete that once its results are not needed"
        return f"{waits}: its preload is older than that; {replaced}"
    if demand.features[FEATURE]:
        return f"{waits}: {demand.features[FEATURE]}"
    found = demand.listeners.get(pool.protocol or "")
    if found is None or not found.why:
        return ""
    cure = ""
    if _LACKS_PACKAGE.search(found.why):
        cure = ": its image needs distributed-ucxx, for its CUDA version, as that of each pod that takes or gives data"
    return f"{waits}: {found.why}{cure}"
