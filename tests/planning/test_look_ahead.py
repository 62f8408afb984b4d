"""Whole sequences in which tasks wait for their inputs. See `sequence` for the letters."""

from __future__ import annotations

import pytest

from tests.builders import a_pool
from tests.planning.builders import gpu_pool
from tests.planning.sequence import Sequence, cancels, play, sets, submits

CPU = a_pool(replicas=1)
NOT_AHEAD = a_pool("gpu", gpu={}, autoscale={"max": 4, "lookAhead": False})

LOOK_AHEAD = {
    "a pod is there when the inputs are; without a start to go by it is ordered a minute before": Sequence(
        [CPU, gpu_pool()],
        [
            (None, 4, {}),
            (submits(1, 10, ready_in=100, GPU=1), 34, {"gpu": ""}),
            (None, 2, {"gpu": "0P"}),
            (None, 63, {"gpu": "0I"}),
            (None, 2, {"gpu": "0W"}),
        ],
    ),
    "once a start was seen, it is ordered that much before and a little": Sequence(
        [CPU, gpu_pool()],
        [
            (None, 4, {}),
            (submits(1, 5, GPU=1), 60, {"gpu": ""}),
            (submits(1, 10, ready_in=100, GPU=1), 90, {"gpu": ""}),
            (None, 3, {"gpu": "0P"}),
            (None, 6, {"gpu": "0I"}),
            (None, 2, {"gpu": "0W"}),
        ],
    ),
    "one pod comes for many tasks; the size follows when they are ready": Sequence(
        [CPU, gpu_pool(most=8)],
        [
            (None, 4, {}),
            (submits(100, 20, known=True, ready_in=50, GPU=1), 48, {"gpu": "0I"}),
            (None, 3, {"gpu": "0W 1P 2P 3P 4P 5P 6P 7P"}),
        ],
    ),
    "off by a setting": Sequence(
        [CPU, NOT_AHEAD],
        [(None, 4, {}), (submits(1, 10, ready_in=30, GPU=1), 30, {"gpu": ""}), (None, 1, {"gpu": "0P"})],
    ),
    "what nobody can estimate starts nothing": Sequence(
        [CPU, gpu_pool()],
        [
            (sets(estimate=lambda _: None), 4, {}),
            (submits(1, 10, ready_in=30, GPU=1), 30, {"gpu": ""}),
            (None, 1, {"gpu": "0P"}),
        ],
    ),
    "an estimate that jumps cancels nothing; one that was far too low does": Sequence(
        [CPU, gpu_pool()],
        [
            (sets(nodes={"gpu": 0}), 4, {}),
            (submits(1, 10, ready_in=70, GPU=1), 8, {"gpu": "0U"}),
            (sets(estimate=lambda seconds: 1.15 * seconds), 3, {"gpu": "0U"}),
            (sets(estimate=lambda seconds: 5 * seconds), 1, {"gpu": ""}),
        ],
    ),
    "a pod on its way is cancelled when the tasks are": Sequence(
        [CPU, gpu_pool()],
        [
            (sets(nodes={"gpu": 0}), 4, {}),
            (submits(1, 10, ready_in=40, GPU=1), 4, {"gpu": "0U"}),
            (cancels, 1, {"gpu": ""}),
        ],
    ),
    "an idle pod is kept for what comes within a minute, and no second one is started": Sequence(
        [CPU, gpu_pool()],
        [
            (None, 4, {}),
            (submits(1, 5, GPU=1), 10, {"gpu": "0I"}),
            (submits(1, 10, ready_in=65, GPU=1), 64, {"gpu": "0I"}),
            (None, 2, {"gpu": "0W"}),
        ],
    ),
    "a pool with a minimum has its pod already": Sequence(
        [CPU, a_pool("gpu", gpu={}, autoscale={"min": 1, "max": 4})],
        [(None, 4, {"gpu": "0I"}), (submits(3, 10, ready_in=40, GPU=1), 39, {"gpu": "0I"})],
    ),
    "nothing is started while a size is set by hand": Sequence(
        [CPU, gpu_pool()],
        [(None, 4, {}), (submits(1, 10, ready_in=30, GPU=1), 25, {"gpu": ""})],
        spec={"overrides": [{"pool": "gpu", "replicas": 0, "by": "alice"}]},
    ),
    "plain tasks that wait are no reason to grow": Sequence(
        [a_pool("cpu", autoscale={"min": 0, "max": 4})],
        [(None, 4, {}), (submits(9, 10, ready_in=30), 29, {"cpu": ""}), (None, 2, {"cpu": "0P"})],
    ),
    "of two pools the cheaper starts the pod": Sequence(
        [CPU, gpu_pool("big", count=4), gpu_pool("small")],
        [(None, 4, {}), (submits(2, 10, ready_in=30, GPU=1), 4, {"big": "", "small": "0I"})],
    ),
}


@pytest.mark.parametrize(
    "sequence", [pytest.param(sequence, id=name.replace(" ", "-")) for name, sequence in LOOK_AHEAD.items()]
)
def test_look_ahead(sequence: Sequence):
    play(sequence)
