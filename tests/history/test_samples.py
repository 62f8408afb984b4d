"""Samples are taken where something changed, and thinned evenly."""

from __future__ import annotations

from gpudask.api.record import MAX_POOLS, PoolSample, Sample
from gpudask.api.status import PoolStatus, Status, iso
from gpudask.history import samples
from tests.planning.builders import NOW


def at(seconds: float, desired: int = 0, waiting: int = 0) -> Sample:
    return Sample(at=iso(NOW + seconds), pools=[PoolSample(name="gpu", desired=desired, waiting=waiting)])


def test_the_first_is_taken_and_one_that_says_the_same_is_not():
    assert samples.is_due(None, at(0))
    assert not samples.is_due(at(0), at(1000))


def test_sizes_follow_each_other_in_seconds_and_counts_do_not():
    assert samples.is_due(at(0), at(1, desired=1))
    assert not samples.is_due(at(0), at(0.5, desired=1))
    assert not samples.is_due(at(0), at(5, waiting=9))
    assert samples.is_due(at(0), at(10, waiting=9))


def test_those_go_whose_neighbours_are_closest_and_never_the_ends():
    taken = [at(second) for second in (0, 100, 101, 102, 200, 300)]
    assert samples.thinned(taken, 5) == [at(second) for second in (0, 100, 102, 200, 300)]
    assert samples.thinned(taken, 2) == [at(0), at(300)]
    assert samples.thinned(taken, 6) == taken


def test_a_sample_has_the_sizes_and_the_demand_of_each_pool():
    status = Status(pools=[PoolStatus(name="gpu", desired=2, ready=1, gpus_held=8, gpus_busy=4)])
    assert samples.take(status, NOW) == Sample(
        at=iso(NOW, to="seconds"), pools=[PoolSample(name="gpu", desired=2, ready=1, gpus_held=8, gpus_busy=4)]
    )


def test_a_removed_pool_is_sampled_while_it_has_pods_and_no_longer():
    """Its row stays for its GPU-seconds alone: in each sample it would take the room of another sample."""
    leaving, gone = PoolStatus(name="old", removed=True, pods=1, gpus_held=1), PoolStatus(name="gone", removed=True)
    status = Status(pools=[PoolStatus(name="gpu"), leaving, gone])
    assert [pool.name for pool in samples.take(status, NOW).pools] == ["gpu", "old"]


def test_removed_pools_take_no_place_of_those_that_are_sampled():
    gone = [PoolStatus(name=f"gone{number}", removed=True) for number in range(MAX_POOLS)]
    assert [pool.name for pool in samples.take(Status(pools=[*gone, PoolStatus(name="gpu")]), NOW).pools] == ["gpu"]
