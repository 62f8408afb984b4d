"""Requirements: a task's `resources=` as a value, and the workers that offer it.

It is the user's input, and hostile: what cannot be demand becomes a requirement that no worker can offer, and `IGNORED`
has the reasons.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed.scheduler import TaskState, WorkerState

REQUIREMENTS = 1_000  # kept apart; what else is asked for counts together, as ignored
NAMES = 32  # resources that one task asks for
NAME_LENGTH = 200

Requirement = tuple[tuple[str, float], ...]  # sorted (resource, quantity); () is plain
PLAIN: Requirement = ()

IGNORED = (NO_NUMBER, NO_NAME, TOO_LONG, TOO_MANY_NAMES, TOO_MANY, UNREADABLE) = (
    "a quantity is no finite number of zero or more",
    "a resource's name is no text",
    f"a resource's name has more than {NAME_LENGTH} characters",
    f"one task asks for more than {NAMES} resources",
    f"more than {REQUIREMENTS} different requirements at a time",
    "it cannot be read",
)


def requirement_of(ts: TaskState) -> Requirement:
    """Return the requirement of a task."""
    return requirement_from(ts.resource_restrictions) if ts.resource_restrictions else PLAIN


def requirement_from(restrictions: Any) -> Requirement:
    """Return the requirement of any `resources=`: one that nobody can offer where it is no demand."""
    try:
        if len(restrictions) > NAMES:
            return ignored(TOO_MANY_NAMES)
        for name, quantity in restrictions.items():
            if reason := _ignored_reason(name, quantity):
                return ignored(reason)
        return tuple(sorted((name, float(quantity)) for name, quantity in restrictions.items()))
    except Exception:  # noqa: BLE001 (whatever a foreign type raises)
        return ignored(UNREADABLE)


def _ignored_reason(name: Any, quantity: Any) -> str:
    if not isinstance(name, str):
        return NO_NAME
    if len(name) > NAME_LENGTH:
        return TOO_LONG
    if not isinstance(quantity, Real):
        return NO_NUMBER
    try:
        return "" if 0 <= float(quantity) < math.inf else NO_NUMBER  # what is not a number is not even zero or more
    except OverflowError:
        return NO_NUMBER


def ignored(reason: str) -> Requirement:
    """Return the requirement of tasks that are no demand. No worker can offer so much of anything."""
    return ((reason, math.inf),)


def is_ignored(requirement: Requirement) -> bool:
    """Return whether tasks of this requirement are no demand."""
    return bool(requirement) and requirement[0][1] == math.inf


def slots_of(ws: WorkerState, requirement: Requirement) -> int:
    """Return how many such tasks a worker can run at once, by its threads and its offers; 0 where it lacks something.

    A task that asks for 0 of something needs a worker that knows it: one that does not would close.
    """
    slots = ws.nthreads
    for name, quantity in requirement:
        offered = ws.resources.get(name)
        if offered is None or offered < quantity:
            return 0
        if quantity > 0:
            slots = min(slots, int(offered / quantity))
    return slots


def has_offer(ws: WorkerState, restrictions: dict[str, float]) -> bool:
    """Return whether a worker offers each resource, and enough of it, also where a task asks for 0 of it.

    A worker closes when it gets a task that asks for a resource which it does not know, whatever the quantity.
    """
    try:
        return all(name in ws.resources and ws.resources[name] >= needed for name, needed in restrictions.items())
    except TypeError:  # a quantity that is no number
        return False
