"""The names of what a cluster owns: pods, ConfigMaps, NetworkPolicy; and the Dask name of a pod's worker.

Pool names hold no hyphen, so `<cluster>-<pool>-worker-<n>` has one reading: clusters `a` and `a-b` never meet.
"""

from __future__ import annotations

import hashlib


def own_preload(cluster: str) -> str:
    """The prefix of a cluster's own ConfigMaps with the preload, which versions before made for each."""
    return f"{cluster}-gpudask-preload-"


def network_policy(cluster: str) -> str:
    """The NetworkPolicy of all of a cluster's pods."""
    return f"{cluster}-gpudask"


def token(cluster: str) -> str:
    """The ConfigMap with the SHA-256 of the token that guards the preload's routes, and with the pools."""
    return f"{cluster}-gpudask-token"


def scheduler_pod(cluster: str, uid: str, taken: frozenset[str]) -> str:
    """The next scheduler pod's name: never one of `taken`, and the same for the same arguments.

    It has a suffix because on a dead node a pod stays Terminating for long and would block its successor.
    """
    for attempt in range(len(taken) + 1):
        suffix = hashlib.sha256(f"{uid}/{attempt}".encode()).hexdigest()[:5]
        name = f"{cluster}-scheduler-{suffix}"
        if name not in taken:
            return name
    raise AssertionError("unreachable: more names than taken ones were tried")


def worker_pod(cluster: str, pool: str, number: int) -> str:
    """A worker pod."""
    return f"{cluster}-{pool}-worker-{number}"


def worker_group(cluster: str, pool: str) -> str:
    """A pool as the stock Dask client calls it: its pods have this label, and its mirror this name."""
    return f"{cluster}-{pool}"


def dask_name(pod: str, nonce: str) -> str:
    """The name under which a pod's worker registers.

    A nonce keeps it apart from a worker of the same pod name that is still registered: Dask refuses the second.
    """
    return f"{pod}-{nonce}"


def runner_pod(job: str, attempt: int, *, is_stock: bool = False) -> str:
    """The pod of a job's runner: one name for each attempt, so a creation whose answer was lost is not made twice.

    `is_stock`: the job serves a DaskJob, whose first runner has the name that the stock operator gives it.
    """
    return f"{job}-runner" if is_stock and attempt == 1 else f"{job}-runner-{attempt}"
