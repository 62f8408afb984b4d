"""Pods of pools that the spec no longer has: they retire, then go."""

from __future__ import annotations

from gpudask.planning.actions import Action, DeletePod, MarkRetiring
from gpudask.planning.observed import Observation, Retirement
from gpudask.planning.pools import is_empty


def plan_removed(seen: Observation) -> tuple[Action, ...]:
    """Retire or delete the pods of removed pools."""
    actions: list[Action] = []
    for pod in seen.of_removed_pools:
        if pod.deleting:
            continue
        cancel = not pod.finished and not seen.works(pod)
        if pod.finished or cancel or (pod.retirement and is_empty(seen, pod)):
            actions.append(DeletePod(pod, "its pool was removed", only_if_unchanged=cancel))
        elif pod.retirement is None and seen.drains:
            actions.append(MarkRetiring(pod, Retirement("its pool was removed")))
    return tuple(actions)
