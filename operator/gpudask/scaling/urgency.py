"""Whether what a scheduler says needs a look at once. Counts that move with every task can wait for a moment."""

from __future__ import annotations

from gpudask.scaling.demand import Demand

# More tasks that wait than so many times those before may need pods.
_GROWTH = 1.1


def is_urgent(before: Demand, now: Demand) -> bool:
    """Whether more tasks find no worker, or workers came, went, or are further on their way out."""
    return (
        (before.scheduler_id, before.features, before.offers) != (now.scheduler_id, now.features, now.offers)
        or _grew(before, now)
        or _of_workers(before) != _of_workers(now)
    )


def _grew(before: Demand, now: Demand) -> bool:
    waited = {requirement.resources: requirement.unrunnable for requirement in before.requirements}
    return any(
        requirement.unrunnable > _GROWTH * waited.get(requirement.resources, 0) for requirement in now.requirements
    )


def _of_workers(demand: Demand) -> list[tuple[str, ...]]:
    return [(worker.name, worker.address, worker.status, worker.retiring, worker.sick) for worker in demand.workers]
