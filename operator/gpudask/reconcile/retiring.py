"""What a cluster's scheduler is told of pods that leave."""

from __future__ import annotations

from typing import Any

from gpudask.planning import drain
from gpudask.planning.observed.observation import Observation

Json = dict[str, Any]


def retiring(seen: Observation) -> list[Json]:
    """What the preload is to retire, whole, every time: all pods so marked, and those that end for whatever reason.

    A pod that somebody else deletes has its grace period left: what it holds may still be moved, and nothing is to be
    moved to it. One whose drain took too long is waited for no more, by its own hook either.
    """
    timeouts = {pool.name: pool.drain_timeout_seconds for pool in seen.cluster.spec.pools}
    asked = [
        {
            "pod": pod.dask_name,
            "data": "release" if pod.retirement.release else "move",
            "if_idle": pod.retirement.if_idle and not pod.deleting,
            **({"forced": True} if drain.progress(pod, seen.now, timeouts.get(pod.pool)).is_overdue else {}),
        }
        for pod in seen.pods
        if pod.pool and pod.retirement is not None and not pod.finished
    ]
    ending = [pod for pod in seen.pods if pod.pool and pod.deleting and pod.retirement is None and not pod.finished]
    return asked + [{"pod": pod.dask_name, "data": "move", "if_idle": False} for pod in ending]
