"""Sequences to be told in tables: what happens, how many seconds pass, and the pods that are there then.

Each pod is shown by its number and a letter: P pending, U unschedulable, S starts, W works, I idle, D drains,
T terminates, F finished; ' when it was made from an older spec. A pod starts in 2 s and registers 1 s later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.builders import a_pool
from tests.planning.builders import NOW, cluster
from tests.planning.world import World

Happens = Callable[[World], Any]


@dataclass(frozen=True)
class Sequence:
    """A cluster, and rows of (what happens, seconds, pods then); pods by pool, the scheduler under `scheduler`."""

    pools: list[dict[str, Any]]
    rows: list[tuple[Happens | None, int, dict[str, str]]]
    spec: dict[str, Any] | None = None
    nodes: dict[str, int] | None = None


CPU = a_pool(replicas=1)


def submits(
    count: int = 1, seconds: float = 10.0, *, known: bool = False, ready_in: float = 0.0, **resources: float
) -> Happens:
    return lambda world: world.submit(count, seconds, known=known, ready_in=ready_in, **resources)


def edits(*pools: dict[str, Any], **spec: Any) -> Happens:
    return lambda world: world.apply(*pools, **spec)


def sets(**fields: Any) -> Happens:
    return lambda world: [setattr(world, name, value) for name, value in fields.items()]


def pod(name: str, **fields: Any) -> Happens:
    return lambda world: world.change(name, **fields)


def scheduler(**fields: Any) -> Happens:
    return lambda world: world.change_scheduler(**fields)


def holds(name: str, *blockers: str) -> Happens:
    return lambda world: world.hold(name, *blockers)


def restarts(world: World) -> None:
    world.restart_operator()


def restarts_deaf(world: World) -> None:
    """The operator restarts, and its first passes hear nothing of the scheduler."""
    world.restart_operator()
    world.silent = True


def hears(world: World) -> None:
    world.silent = False


def cancels(world: World) -> None:
    world.cancel()


def override(replicas: int, *, pool: str = "gpu", until: str | None = None) -> dict[str, Any]:
    return {"overrides": [{"pool": pool, "replicas": replicas, "by": "alice", "until": until}]}


def limits(least: int, most: int, *, pool: str = "gpu", until: str | None = None) -> dict[str, Any]:
    return {"overrides": [{"pool": pool, "min": least, "max": most, "by": "alice", "until": until}]}


def play(sequence: Sequence) -> None:
    """Play it, compare at each row, and look that no task was cut."""
    world = tell(sequence)
    assert not world.cut, f"tasks were cut on {world.cut}"


def tell(sequence: Sequence) -> World:
    """Play it, and compare at each row."""
    world = World(cluster(*sequence.pools, **sequence.spec or {}), nodes=dict(sequence.nodes or {}))
    told = []
    for happens, seconds, expected in sequence.rows:
        if happens is not None:
            happens(world)
        world.run(seconds)
        found = {name: world.scheduler if name == "scheduler" else world.show(name) for name in expected}
        told.append(f"after {world.now - NOW:.0f} s: {found}")
        assert found == expected, "\n".join(told)
    return world
