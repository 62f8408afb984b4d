"""Whether what a scheduler says needs a look at once. Counts that move with every task can wait for a moment."""

from __future__ import annotations

from gpudask.scaling.demand import Demand, Requirement

# So many times the tasks that found no worker before, or of those that run or could run, may need pods.
_MORE_WAIT, _MORE = 1.1, 2.0


def is_urgent(before: Demand, now: Demand) -> bool:
    """Whether there are much more tasks, or none any more, or workers came, went, or are further on their way out."""
    return (
        (before.scheduler_id, before.features, before.offers) != (now.scheduler_id, now.features, now.offers)
        or bool(before.tasks) != bool(now.tasks)
        or _differs_much(before, now)
        or _of_workers(before) != _of_workers(now)
    )


def _differs_much(before: Demand, now: Demand) -> bool:
    earlier = {requirement.resources: requirement for requirement in before.requirements}
    later = {requirement.resources: requirement for requirement in now.requirements}
    return any(
        _is_much(earlier.get(kind, Requirement(kind)), later.get(kind, Requirement(kind))) for kind in earlier | later
    )


def _is_much(before: Requirement, now: Requirement) -> bool:
    return (
        now.unrunnable > _MORE_WAIT * before.unrunnable
        or now.active > _MORE * before.active
        or bool(before.active) != bool(now.active)
    )


def _of_workers(demand: Demand) -> list[tuple[str, ...]]:
    return [(worker.name, worker.address, worker.status, worker.retiring, worker.sick) for worker in demand.workers]
