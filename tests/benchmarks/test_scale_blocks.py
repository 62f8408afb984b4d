"""The benchmark of blocks runs, sees every kind of entry into the preload, and counts distributed's own time out."""

from __future__ import annotations

import time

import pytest

from benchmarks.scale import blocks

pytestmark = pytest.mark.dask


def test_a_small_turn_times_all_entries():
    longest = blocks.measure(tasks=1000, workers=8, tell=lambda _: None)
    assert set(longest.calls) >= {
        "install",
        "Demand.transition",
        "Watch._on_check",
        "Watch._on_due",
        "Rebalance._on_timer",
        "DemandRoute.get",
        "DesiredRoute.post",
        "Preload.add_worker",
        "Preload.remove_worker",
        "Fence.decide_non_rootish",
    }
    assert longest.worst[1] > 0
    assert list(blocks.describe(longest))[-1].startswith("blocks: tasks=1000 workers=8 longest=")


def test_what_others_do_in_our_call_is_not_ours():
    clock = blocks.Clock()
    theirs = clock.outside(lambda: _spend(0.2))
    clock.timed(theirs, "ours")()
    clock.timed(lambda: _spend(0.05), "slow")()
    assert clock.seconds["ours"] < 0.02
    assert clock.seconds["slow"] == pytest.approx(0.05, abs=0.02)


def _spend(seconds: float) -> None:
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass
