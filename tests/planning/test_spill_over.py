"""Whole sequences in which the cheap pool cannot do it all. See `sequence` for the letters."""

from __future__ import annotations

import pytest

from tests.builders import a_pool
from gpudask.planning.plan import plan
from tests.planning.builders import cluster, demand, gpu_pool, scaled, scheduler_pod, seen, tasks
from tests.planning.sequence import Sequence, cancels, play, sets, submits

CPU = a_pool(replicas=1)
SMALL = gpu_pool("small", most=2)
BIG = gpu_pool("big", count=4, most=2)

SPILL_OVER = {
    "at the cheap pool's maximum the rest goes to the dearer one, and that pool goes first": Sequence(
        [CPU, BIG, SMALL],
        [
            (None, 4, {}),
            (submits(10, 300, known=True, GPU=1), 1, {"small": "0P 1P", "big": "0P 1P"}),
            (None, 290, {"small": "0W 1W", "big": "0W 1W"}),
            (None, 50, {"small": "", "big": ""}),
        ],
    ),
    "work that the cheap pool does before a dear pod could is no reason for one": Sequence(
        [CPU, BIG, SMALL],
        [(None, 4, {}), (submits(40, 4, known=True, GPU=1), 10, {"small": "0W 1W", "big": ""})],
    ),
    "unknown durations spill over when the cheap pool is full and had time to tell them": Sequence(
        [CPU, BIG, SMALL],
        [
            (None, 4, {}),
            (submits(6, 100, GPU=1), 4, {"small": "0W", "big": ""}),
            (None, 2, {"small": "0W 1P", "big": ""}),
            (None, 3, {"small": "0W 1W", "big": ""}),
            (None, 2, {"small": "0W 1W", "big": "0P"}),
        ],
    ),
    "nodes that do not come: the dearer pool serves, the cheap one goes on waiting and takes over": Sequence(
        [CPU, BIG, SMALL],
        [
            (sets(nodes={"small": 0}), 4, {}),
            (submits(2, 500, known=True, GPU=1), 179, {"small": "0U 1U", "big": ""}),
            (None, 3, {"small": "0U 1U", "big": "0S"}),
            (None, 100, {"small": "0U 1U", "big": "0W"}),
            (submits(6, 300, known=True, GPU=1), 20, {"small": "0U 1U", "big": "0W 1W"}),
            (sets(nodes={}), 20, {"small": "0I 1I", "big": "0W 1W"}),
            (submits(2, 700, known=True, GPU=1), 20, {"small": "0W 1W", "big": "0W 1W"}),
            (None, 600, {"small": "0W 1W", "big": ""}),
        ],
    ),
    "no pod of either is left once the demand is gone": Sequence(
        [CPU, BIG, SMALL],
        [
            (sets(nodes={"small": 0}), 4, {}),
            (submits(2, 500, known=True, GPU=1), 190, {"small": "0U 1U", "big": "0W"}),
            (cancels, 1, {"small": "", "big": "0I"}),
            (None, 35, {"small": "", "big": ""}),
        ],
    ),
    "a quota refuses the cheap pool's pods: the dearer one serves at once, and the quota is tried again": Sequence(
        [CPU, BIG, SMALL],
        [
            (sets(quota={"small"}), 4, {}),
            (submits(2, 400, known=True, GPU=1), 1, {"small": "", "big": "0P"}),
            (None, 30, {"small": "", "big": "0W"}),
            (sets(quota=set()), 60, {"big": "0W"}),
            (submits(4, 400, known=True, GPU=1), 60, {"small": "0W 1W", "big": "0W"}),
        ],
    ),
    "a size set by hand is the room that there is": Sequence(
        [CPU, BIG, SMALL],
        [(None, 4, {}), (submits(6, 300, known=True, GPU=1), 4, {"small": "0W", "big": "0W 1W"})],
        spec={"overrides": [{"pool": "small", "replicas": 1, "by": "alice"}]},
    ),
    "plain tasks never reach a GPU pool that does not accept them": Sequence(
        [scaled("cpu", most=2), gpu_pool()],
        [(None, 4, {}), (submits(50, 300, known=True), 30, {"cpu": "0W 1W", "gpu": ""})],
    ),
    "where it accepts any they do": Sequence(
        [scaled("cpu", most=2), gpu_pool(accepts="any")],
        [(None, 4, {}), (submits(4, 300, known=True), 4, {"cpu": "0W 1W", "gpu": "0W 1W"})],
    ),
}


@pytest.mark.parametrize(
    "sequence", [pytest.param(sequence, id=name.replace(" ", "-")) for name, sequence in SPILL_OVER.items()]
)
def test_spill_over(sequence: Sequence):
    play(sequence)


@pytest.mark.parametrize(("wall_ahead", "expected"), [(0.0, {"small": 1, "big": 1}), (3600.0, {"small": 2, "big": 0})])
def test_a_size_set_by_hand_is_the_room_until_people_s_own_clock_says_that_it_is_over(
    wall_ahead: float, expected: dict[str, int]
):
    for_a_while = {"pool": "small", "replicas": 1, "by": "alice", "until": "2027-01-15T08:30:00Z"}
    of = cluster(CPU, BIG, SMALL, overrides=[for_a_while])
    says = demand(tasks(2, seconds=800.0, GPU=1))

    sizes = plan(seen(of, scheduler_pod(of), says=says, wall_ahead=wall_ahead)).pools

    assert {name: sizes[name].size.pods for name in expected} == expected
