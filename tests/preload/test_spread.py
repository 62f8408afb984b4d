"""Who gives how many waiting tasks to whom."""

import random

import pytest

from gpudask.preload.rebalance import Load, spread


def after(loads, rounds=100, slack=0, most=1000):
    """Return the workers' tasks after the moves."""
    tasks = {worker: load.tasks for worker, load in loads.items()}
    for (giver, taker), n in spread(loads, rounds=rounds, slack=slack, most=most).items():
        tasks[giver] -= n
        tasks[taker] += n
    return list(tasks.values())


def workers(*loads):
    return {f"w{i}": Load(*load) for i, load in enumerate(loads)}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([(1, 100), (1, 0)], [50, 50]),
        ([(1, 100), (1, 0), (1, 0), (1, 0)], [25, 25, 25, 25]),
        ([(1, 100), (3, 0)], [25, 75]),  # by what they can run at once
        ([(1, 2), (1, 0)], [1, 1]),  # the last waiting task, too
        ([(1, 1), (1, 0)], [1, 0]),  # but never the running one
        ([(2, 2), (1, 0)], [2, 0]),
        ([(1, 2), (1, 1)], [2, 1]),  # it would only wait there
        ([(1, 2), (1, 2), (1, 0)], [1, 2, 1]),  # a free slot is worth a move, whoever gives
        ([(1, 5), (4, 4)], [2, 7]),
        ([(1, 0), (1, 0)], [0, 0]),
    ],
)
def test_all_end_together(before, expected):
    assert after(workers(*before)) == expected


def test_a_taker_gets_no_more_than_some_rounds_ahead():
    assert after(workers((1, 100), (2, 0)), rounds=3) == [92, 8]


def test_a_taker_that_has_half_of_that_gets_nothing_yet():
    assert after(workers((1, 100), (1, 5)), rounds=10) == [94, 11]
    assert after(workers((1, 100), (1, 6)), rounds=10) == [100, 6]


def test_a_taker_that_is_little_behind_gets_nothing_and_one_that_is_far_behind_its_whole_share():
    assert after(workers((1, 20), (1, 9)), slack=10) == [20, 9]
    assert after(workers((1, 20), (1, 8)), slack=10) == [14, 14]


def test_no_more_than_the_most_are_moved():
    assert after(workers((1, 100), (1, 0)), most=7) == [93, 7]


def test_who_takes_nothing_may_still_give():
    assert after(workers((1, 100, False), (1, 0), (1, 0, False))) == [50, 50, 0]


@pytest.mark.parametrize("seed", range(200))
def test_when_all_was_moved_there_is_nothing_more_to_move(seed):
    draw = random.Random(seed)
    loads = {i: Load(draw.randint(1, 4), draw.randint(0, 60)) for i in range(draw.randint(1, 6))}
    moved = dict(zip(loads, after(loads), strict=True))
    assert sum(moved.values()) == sum(load.tasks for load in loads.values())
    again = {i: Load(load.slots, moved[i]) for i, load in loads.items()}
    assert not spread(again, rounds=100, slack=0, most=1000)
    longest = max(load.tasks / load.slots for load in loads.values())
    assert max(load.tasks / load.slots for load in again.values()) <= longest
