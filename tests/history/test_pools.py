"""The pools' rows of a record have the status' ledger, and keep that of pools that the spec has no more."""

from __future__ import annotations

import pytest

from gpudask.api.reasons import Cause
from gpudask.api.record import MAX_POOLS, RecordedPool
from gpudask.api.status import CauseSeconds, OwnerSeconds, PoolStatus, Status
from gpudask.history import pools
from gpudask.history.pools import Ending
from tests.planning.builders import cluster, gpu_pool


def row(name: str, **seconds: float) -> RecordedPool:
    """A pool's row; `seconds`: GPU-seconds by cause."""
    causes = [{"cause": cause, "gpuSeconds": amount} for cause, amount in seconds.items()]
    return RecordedPool.model_validate({"name": name, "gpus": 2, "nodeSelector": {"a": "b"}, "causes": causes})


def test_a_row_has_the_causes_and_owners_of_the_status():
    status = PoolStatus(
        name="gpu",
        causes=[CauseSeconds(cause=Cause.WORKING, gpus=1, gpu_seconds=3.5)],
        owners=[OwnerSeconds(owner="team-a", gpu_seconds=3.5)],
    )
    (found,) = pools.rows(cluster(gpu_pool(count=2)).spec.pools, Status(pools=[status]))
    assert found.gpus == 2
    assert [(item.cause, item.gpu_seconds) for item in found.causes] == [("working", 3.5)]
    assert [(item.owner, item.gpu_seconds) for item in found.owners] == [("team-a", 3.5)]


def test_a_pool_that_the_status_has_no_more_keeps_its_row_where_it_held_gpus():
    found = pools.merged([row("old", working=7.0), row("cpu")], [row("gpu", spare=1.0)])
    assert [(pool.name, sum(item.gpu_seconds for item in pool.causes)) for pool in found] == [
        ("gpu", 1.0),
        ("old", 7.0),
    ]


def test_a_pool_that_leaves_the_spec_keeps_what_the_spec_said_of_it():
    leaves = RecordedPool.model_validate({"name": "gpu", "causes": [{"cause": "draining", "gpuSeconds": 9.0}]})
    (found,) = pools.merged([row("gpu", draining=8.0)], [leaves])
    assert (found.gpus, found.node_selector) == (2, {"a": "b"})
    assert found.causes[0].gpu_seconds == 9.0


def total(pool: RecordedPool) -> float:
    return sum(item.gpu_seconds for item in pool.causes)


def test_a_pool_that_comes_back_under_its_name_goes_on():
    before = pools.merged([row("gpu", working=7000.0)], [row("other", spare=1.0)])
    (other, back) = pools.merged(before, [row("other", spare=2.0), row("gpu", working=8000.0)])
    assert (total(other), total(back)) == (2.0, 15_000.0)
    (_, later) = pools.merged([other, back], [row("other", spare=2.0), row("gpu", working=9000.0)])
    assert total(later) == 16_000.0


def test_a_pool_that_went_and_came_between_two_writes_goes_on_too():
    (back,) = pools.merged([row("gpu", working=7000.0, spare=1.0)], [row("gpu", working=20.0)])
    assert {item.cause: item.gpu_seconds for item in back.causes} == {"working": 7020.0, "spare": 1.0}
    (later,) = pools.merged([back], [row("gpu", working=30.0)])
    assert total(later) == 7031.0


def test_a_new_leaders_estimate_that_is_a_little_less_counts_nothing_twice():
    (found,) = pools.merged([row("gpu", working=100.0)], [row("gpu", working=80.0)])
    assert total(found) == 80.0


def test_once_a_cluster_has_ended_no_pool_comes_back_and_who_counts_less_knows_less():
    (found,) = pools.merged([row("gpu", working=70.0)], [row("gpu", working=6.0)], ending=Ending.GUESSED)
    assert total(found) == 70.0
    (found,) = pools.merged([found], [row("gpu", working=71.0)], ending=Ending.GUESSED)
    assert total(found) == 71.0


@pytest.mark.parametrize("more", [6.0, 90.0])
def test_an_end_that_was_told_whole_stays_unless_its_teller_goes_on(more: float):
    before, now = [row("gpu", working=70.0)], [row("gpu", working=more), row("other", spare=5.0)]
    assert [total(pool) for pool in pools.merged(before, now, ending=Ending.TOLD)] == [70.0]
    assert [total(pool) for pool in pools.merged(before, now, ending=Ending.TOLD, is_own=True)] == [more, 5.0]


def test_what_was_counted_for_too_long_and_is_taken_off_is_no_counter_that_began_anew():
    (found,) = pools.merged([row("gpu", spare=50.0)], [row("gpu", spare=20.0)], surplus={"gpu": 30.0})
    assert total(found) == 20.0
    (found,) = pools.merged([row("gpu", spare=50.0)], [row("gpu", spare=20.0)])
    assert total(found) == 70.0


def test_a_pool_that_held_nothing_yet_is_not_closed():
    assert not pools.is_closed(row("gpu"))
    closed, _ = pools.merged([row("gpu", working=7.0)], [row("other", spare=1.0)])[::-1]
    assert pools.is_closed(closed)


def test_owners_of_pools_that_come_back_are_bounded_and_none_is_lost():
    def owned(first: int) -> RecordedPool:
        owners = [{"owner": f"team-{n}", "gpuSeconds": 1.0} for n in range(first, first + 20)]
        return RecordedPool.model_validate({"name": "gpu", "causes": [], "owners": owners})

    before = pools.merged([with_causes(owned(0), 20.0)], [row("other")])
    (_, back) = pools.merged(before, [row("other"), with_causes(owned(10), 20.0)])
    assert len(back.owners) == 21
    assert sum(item.gpu_seconds for item in back.owners) == 40.0


def with_causes(pool: RecordedPool, seconds: float) -> RecordedPool:
    return pool.model_copy(update={"causes": row("gpu", working=seconds).causes})


def sums(rows: list[RecordedPool]) -> dict[str, float]:
    return {pool.name: total(pool) for pool in rows}


def test_what_the_status_has_of_pools_without_a_row_counts_only_where_the_record_has_none_either():
    before = [row("gpu", spare=1.0), row("p0", draining=8.0)]
    found = pools.merged(before, [row("gpu", spare=1.0), row("", draining=8.0)])
    assert sums(found) == {"gpu": 1.0, "p0": 8.0}
    found = pools.merged([row("gpu", spare=1.0)], [row("gpu", spare=1.0), row("", draining=8.0)])
    assert sums(found) == {"gpu": 1.0, "": 8.0}, "nobody wrote a record then"
    found = pools.merged([*found, row("p1", draining=5.0)], [row("gpu", spare=2.0), row("", draining=13.0)])
    assert sums(found) == {"gpu": 2.0, "": 8.0, "p1": 5.0}


def test_a_pool_that_comes_back_after_its_row_went_into_the_others_counts_once():
    found = pools.merged([row("p0", draining=8.0)], [row("", draining=8.0)])
    found = pools.merged(found, [row("p0", draining=3.0), row("", draining=8.0)])
    assert sums(found) == {"p0": 11.0}


def test_pools_beyond_the_bound_of_a_record_stay_in_its_sum():
    found = [row("gpu", spare=1.0)]
    for number in range(MAX_POOLS + 10):
        found = pools.merged(found, [row("gpu", spare=1.0), row(f"p{number}", draining=2.0)])
    assert len(found) == MAX_POOLS
    assert sum(sums(found).values()) == 1.0 + 2.0 * (MAX_POOLS + 10)
    assert found[0].name == "gpu"
