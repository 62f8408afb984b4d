"""The schedule: which fault begins when, and for how long. A value of the seed: no clock, no I/O.

Faults of one group do not overlap, and at most `AT_ONCE` faults act at a time. Each kind comes as often as its weight
says, but every kind has had a turn before one comes again that has had more than its share.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

BEHIND = "watches behind"  # a kind that others have to know of
AT_ONCE = 3
EVERY_SECONDS = 8.0  # a fault begins, on average
BEGIN_SECONDS = 10.0  # until the first clusters are there
_RECOVERY_SECONDS = 1.0  # of a group between two of its faults


@dataclass(frozen=True)
class Kind:
    """A kind of fault. `group`: what of the platform it takes away; `seconds`: how long it acts, at least and at most.

    `spacing`: seconds that have to pass between the beginnings of two of them, whatever its weight.
    """

    name: str
    group: str
    seconds: tuple[float, float] = (0.0, 0.0)
    weight: float = 1.0
    spacing: float = 0.0


@dataclass(frozen=True)
class Planned:
    """A fault to come. `pick` chooses its victim among those that are there then: 0 is the first, below 1 the last."""

    at: float
    kind: Kind
    seconds: float
    pick: float

    @property
    def until(self) -> float:
        """When it ends, in seconds from the beginning of the run."""
        return self.at + self.seconds

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.at:6.1f} s {self.kind.name}{lasts}"


KINDS = (
    # The operator. A kubelet waits ever longer before it starts a container again: a killed one's pod is replaced.
    Kind("operator killed", "operator", (6, 10)),
    Kind("all operators killed", "operator", (6, 10)),
    Kind("operator deleted", "operator"),
    Kind("all operators deleted", "operator"),
    Kind("operator frozen", "operator", (5, 25)),  # longer than its Lease: it wakes when another one leads
    Kind("leader changed", "operator"),
    # The API server.
    Kind("API server restarted", "API server", (8, 8)),
    Kind("API server killed", "API server", (2, 12)),
    Kind("API server frozen", "API server", (3, 20)),
    Kind("etcd frozen", "API server", (3, 15)),
    # What stands between the operator and the API server.
    Kind("requests answered 429", "answers", (5, 20)),
    Kind("requests answered 500", "answers", (5, 20)),
    Kind("answers lost", "answers", (5, 15)),
    Kind("answers slow", "answers", (5, 20)),
    Kind("connections cut", "answers"),
    Kind("watches expired", "watches", (0, 10)),
    Kind(BEHIND, "watches", (5, 15)),
    Kind("API server's clock stepped", "clock", (5, 30)),
    # What refuses.
    Kind("webhook away", "admission", (5, 20)),
    Kind("pods denied", "admission", (5, 20)),
    Kind("quota", "quota", (5, 25)),
    # Nodes.
    Kind("node drained", "node", (10, 25)),
    Kind("kubelet frozen", "node", (5, 30)),
    Kind("kubelet restarted", "node", (5, 5)),
    Kind("node lost", "node", (20, 75), weight=0.7, spacing=150),
    # Workers.
    Kind("worker killed", "worker", weight=2),
    Kind("worker deleted", "worker", weight=1.5),
    Kind("worker without memory", "worker", weight=1.5),
    Kind("worker frozen", "worker", (5, 25)),
    # The network between pods.
    Kind("packets lost", "network", (5, 15)),
    Kind("worker unplugged", "network", (3, 15)),
    # What people do.
    Kind("image missing", "spec", (8, 25)),
    Kind("override", "spec", (5, 20)),
    Kind("Service edited", "objects"),
    # Counted apart: they lose a scheduler's state, by the design of Dask.
    Kind("scheduler killed", "scheduler", weight=0.7, spacing=60),
    Kind("scheduler deleted", "scheduler", weight=0.7, spacing=60),
)
OF_API_SERVER = frozenset(kind.name for kind in KINDS if kind.group == "API server")
# All operators may be on the node that is lost, and one that is killed may lead.
OF_OPERATORS = frozenset(kind.name for kind in KINDS if kind.group == "operator" or kind.name == "node lost")
LOSES_STATE = frozenset({"scheduler killed", "scheduler deleted"})


def plan(seed: int, seconds: float, *, only: Collection[str] = ()) -> tuple[Planned, ...]:
    """The faults of a run of so many seconds, all of which end within it. `only`: of these kinds."""
    draw = random.Random(seed)  # noqa: S311 - a schedule, no secret
    kinds = [kind for kind in KINDS if not only or kind.name in only]
    turns = {kind.name: draw.random() for kind in kinds}  # how much of its share each kind has had
    planned: list[Planned] = []
    under_way: list[Planned] = []
    groups_free_at: dict[str, float] = {}
    kinds_free_at: dict[str, float] = {}
    at = BEGIN_SECONDS
    while at < seconds:
        under_way = [each for each in under_way if each.until > at]
        free = [kind for kind in kinds if at >= groups_free_at.get(kind.group, 0.0)]
        free = [kind for kind in free if at >= kinds_free_at.get(kind.name, 0.0)]
        if free and len(under_way) < AT_ONCE:
            kind = min(free, key=lambda each: turns[each.name])
            turns[kind.name] += (0.5 + draw.random()) / kind.weight
            chosen = Planned(at, kind, draw.uniform(*kind.seconds), draw.random())
            if chosen.until <= seconds:
                planned.append(chosen)
                under_way.append(chosen)
                groups_free_at[kind.group] = chosen.until + _RECOVERY_SECONDS
                kinds_free_at[kind.name] = at + kind.spacing
        at += draw.uniform(0.4, 1.6) * EVERY_SECONDS
    return tuple(planned)
