"""Nothing that a pass decides, or tells, changes by time alone before the pass that it asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.planning.actions import Plan
from gpudask.planning.observed.observation import Observation
from gpudask.planning.plan import plan
from gpudask.planning.status import report
from tests.planning import test_freezes, test_look_ahead, test_replacing, test_sequences, test_spill_over
from tests.planning.builders import cluster
from tests.planning.sequence import Sequence
from tests.planning.test_properties import happen, happenings, pools, several
from tests.planning.world import World

pytestmark = pytest.mark.simulation

TABLES = (
    test_sequences.SCALING,
    test_sequences.PEOPLE,
    test_sequences.FAILURES,
    test_sequences.ROLLOUTS,
    test_spill_over.SPILL_OVER,
    test_freezes.SEQUENCES,
    test_look_ahead.LOOK_AHEAD,
    test_replacing.SEQUENCES,
)
RESYNC_SECONDS = 600.0
CALM_SECONDS = 5
"""How often to look while only the clock goes on: each look covers what comes until the pass that it asks for."""


def decided(seen: Observation, planned: Plan) -> dict[str, Any]:
    """What is done in this pass, and what a person is told of it, but for figures that grow."""
    status = report(seen, planned, seen.cluster.status)
    return {
        "actions": planned.actions,
        "sizes": {name: pool.size.pods for name, pool in planned.pools.items()},
        "frozen": {name: pool.frozen for name, pool in planned.pools.items()},
        "frozen since": {pool.name: bool(pool.frozen_since) for pool in status.pools},
        "offers": planned.offers,
        "deletion": bool(planned.deletion.why),
        "eviction": planned.protections,
        "conditions": {each.type: (each.status, each.reason) for each in status.conditions},
    }


def run(world: World, seconds: int) -> None:
    """Let time go on, and look at the moment before the pass that each pass asks for."""
    before: Any = None
    for second in range(seconds):
        world.reconcile()
        now = (dict(world.pods), [task.worker for task in world.tasks], world.plan.actions)
        if now != before or second % CALM_SECONDS == 0:
            look(world)
        before = now
        world.elapse(1.0)


def look(world: World) -> None:
    seen = world.observe()
    planned = plan(seen)
    soonest, now = planned.requeue_after, decided(seen, planned)
    later = replace(seen, now=seen.now + 0.999 * min(RESYNC_SECONDS, soonest or RESYNC_SECONDS))
    then = decided(later, plan(later))
    changed = {name: (now[name], then[name]) for name in now if now[name] != then[name]}
    assert not changed, f"{later.now - seen.now:.1f} s later, of {soonest}"


@pytest.mark.parametrize(
    "sequence",
    [pytest.param(each, id=name.replace(" ", "-")) for table in TABLES for name, each in table.items()],
)
def test_sequence(sequence: Sequence):
    world = World(cluster(*sequence.pools, **sequence.spec or {}), nodes=dict(sequence.nodes or {}))
    for happens, seconds, _ in sequence.rows:
        if happens is not None:
            happens(world)
        run(world, seconds)


@several
@given(events=st.lists(happenings, max_size=12))
def test_whatever_happens(events: list[tuple[Any, ...]]):
    world = World(cluster(*pools((0, 2), (0, 3), 0)))
    for event in events:
        if event[0] == "run":
            run(world, event[1])
        else:
            happen(world, event)
    run(world, 5)
