"""What is exported of a cluster: each family from its status, bounded and clean whatever the status says."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api.status import CauseSeconds, Condition, Demand, OwnerSeconds, PoolStatus, Status
from gpudask.api.attribution import VALUE_LENGTH
from gpudask.metrics import families
from gpudask.metrics.clusters import MAX_SERIES, ClusterMetrics, Feed, Report
from gpudask.metrics.pools import PoolLimits
from tests.metrics.reading import Series, names, read_cluster, value

AT = 1_800_000_000.0


def exported(*pools: PoolStatus, now: float = AT, status: Status | None = None, **report: Any) -> Series:
    cluster = ClusterMetrics("team-a", "demo")
    cluster.set_report(Report(status or Status(pools=list(pools)), AT, **report))
    return read_cluster(cluster, now)


GPU = {"gpu": PoolLimits(0, 8, has_gpus=True, has_fallback=True)}


def test_before_its_first_pass_nothing_is_exported_of_a_cluster():
    assert read_cluster(ClusterMetrics("team-a", "demo"), AT) == {}


def test_pods_are_counted_by_state_beside_the_sizes():
    pool = PoolStatus(name="gpu", desired=3, ready=1, pending=2, unschedulable=1, retiring=1)
    found = exported(pool, limits=GPU)
    where = {"namespace": "team-a", "cluster": "demo", "pool": "gpu"}
    states = {state: value(found, "gpudask_pool_pods", state=state, **where) for state in families.PODS.states}
    assert states == {"ready": 1, "pending": 2, "unschedulable": 1, "retiring": 1}
    assert value(found, "gpudask_pool_desired_pods", **where) == 3
    assert value(found, "gpudask_pool_min_pods", **where) == 0
    assert value(found, "gpudask_pool_max_pods", **where) == 8


def test_demand_is_that_by_which_the_pool_is_sized_and_unservable_tasks_are_the_clusters():
    found = exported(PoolStatus(name="gpu", demand=Demand(waiting=7, running=2)), unservable=4)
    assert value(found, "gpudask_pool_demand_tasks", state="waiting") == 7
    assert value(found, "gpudask_pool_demand_tasks", state="running") == 2
    assert value(found, "gpudask_cluster_unservable_tasks", cluster="demo") == 4


@pytest.mark.parametrize(("status", "number"), [("True", 1), ("False", 0), ("Unknown", -1)])
def test_a_condition_is_one_number_with_its_reason(status: Any, number: int):
    ready = Condition(type="Ready", status=status, reason="AllReady")
    found = exported(status=Status(conditions=[ready]))
    assert value(found, "gpudask_cluster_condition", condition="Ready", reason="AllReady") == number


def test_gpu_seconds_go_on_between_two_passes_and_begin_at_zero_for_every_cause():
    causes = [CauseSeconds(cause="working", gpus=2, gpu_seconds=100.0), CauseSeconds(cause="spare", gpu_seconds=5.0)]
    found = exported(PoolStatus(name="gpu", gpus_held=2, gpus_busy=1, causes=causes), now=AT + 10, limits=GPU)
    seconds = {cause: value(found, "gpudask_pool_gpu_seconds_total", cause=cause) for cause in families.CAUSES}
    assert seconds == dict.fromkeys(families.CAUSES, 0.0) | {"working": 120.0, "spare": 5.0}
    assert value(found, "gpudask_pool_gpus_held", pool="gpu") == 2
    assert value(found, "gpudask_pool_gpus_busy", pool="gpu") == 1


def test_a_counter_never_goes_back_where_the_next_status_counts_less_than_was_exported():
    cluster = ClusterMetrics("team-a", "demo")

    def at(seconds: float, now: float) -> float | None:
        causes = [CauseSeconds(cause="working", gpus=1, gpu_seconds=seconds)]
        cluster.set_report(Report(Status(pools=[PoolStatus(name="gpu", causes=causes)]), AT, GPU))
        return value(read_cluster(cluster, now), "gpudask_pool_gpu_seconds_total", cause="working")

    assert at(100.0, AT + 20) == 120.0
    assert at(105.0, AT) == 120.0
    assert at(130.0, AT) == 130.0


def test_a_pool_without_gpus_has_no_series_of_gpus_and_one_without_fallback_none_of_fallbacks():
    found = exported(PoolStatus(name="cpu"), limits={"cpu": PoolLimits(1, 4)})
    assert not [name for name in names(found) if "gpu_" in name or "gpus" in name or "fallback" in name]


def test_owners_share_the_working_seconds():
    owners = [OwnerSeconds(owner="team-a", gpu_seconds=3.0), OwnerSeconds(owner="", gpu_seconds=4.0)]
    found = exported(PoolStatus(name="gpu", owners=owners), limits=GPU)
    assert value(found, "gpudask_pool_owner_gpu_seconds_total", owner="team-a") == 3.0
    assert value(found, "gpudask_pool_owner_gpu_seconds_total", owner="") == 4.0


def test_fallback_is_active_while_the_status_says_so():
    assert value(exported(PoolStatus(name="gpu", fallback="cpu"), limits=GPU), "gpudask_pool_fallback_active") == 1
    assert value(exported(PoolStatus(name="gpu"), limits=GPU), "gpudask_pool_fallback_active") == 0
    assert value(exported(PoolStatus(name="gpu"), limits=GPU), "gpudask_pool_fallbacks_total") == 0


def test_the_longest_drain_gets_longer_between_two_passes():
    pool = PoolStatus(name="gpu")
    assert value(exported(pool, now=AT + 7, drains_since={"gpu": AT - 3}), "gpudask_pool_oldest_drain_seconds") == 10
    assert value(exported(pool), "gpudask_pool_oldest_drain_seconds") == 0


def test_time_without_a_node_goes_on_between_two_passes():
    pool = PoolStatus(name="gpu", unschedulable=2)
    assert value(exported(pool, now=AT + 5), "gpudask_pool_unschedulable_seconds_total") == 10


def test_what_is_counted_begins_at_zero_and_goes_with_its_pool():
    cluster = ClusterMetrics("team-a", "demo")
    cluster.set_report(Report(Status(pools=[PoolStatus(name="gpu")]), AT))
    counts = cluster.pool("gpu")
    before = read_cluster(cluster, AT)
    for name in ("drains", "forced_deletions"):
        assert value(before, f"gpudask_pool_{name}_total", pool="gpu") == 0
    assert value(before, "gpudask_pool_terminations_total", reason="OOMKilled") == 0
    counts.drains, counts.forced_deletions, counts.terminations["OOMKilled"] = 3, 1, 2
    after = read_cluster(cluster, AT)
    assert value(after, "gpudask_pool_drains_total", pool="gpu") == 3
    assert value(after, "gpudask_pool_forced_deletions_total", pool="gpu") == 1
    assert value(after, "gpudask_pool_terminations_total", reason="OOMKilled") == 2
    cluster.set_report(Report(Status(), AT))
    assert not [name for name in names(read_cluster(cluster, AT)) if name.startswith("gpudask_pool")]
    assert cluster.pool("gpu").drains == 0


@pytest.mark.parametrize(
    ("feed", "up", "age"),
    [(Feed(up=True, age_seconds=2.5), 1, 2.5), (Feed(up=False, age_seconds=60.0), 0, 60.0), (None, None, None)],
)
def test_the_feed_is_asked_when_the_metrics_are_read(feed: Feed | None, up: int | None, age: float | None):
    cluster = ClusterMetrics("team-a", "demo", feed=lambda: feed)
    cluster.set_report(Report(Status(), AT))
    found = read_cluster(cluster, AT)
    assert value(found, "gpudask_feed_up", cluster="demo") == up
    assert value(found, "gpudask_feed_age_seconds", cluster="demo") == age


def test_attribution_is_a_label_each_of_the_info():
    cluster = ClusterMetrics("team-a", "demo")
    cluster.attribute({"team": "a", "example.com/project": 'x"\\\n{}'})
    cluster.set_report(Report(Status(), AT))
    (labels,) = [dict(has) for name, has in read_cluster(cluster, AT) if name == "gpudask_cluster_info"]
    assert labels == {
        "namespace": "team-a",
        "cluster": "demo",
        "label_team": "a",
        "label_example_com_project": 'x"\\ {}',
    }


def hostile_status() -> Status:
    """The largest and worst that a status can be, by whoever may write one."""
    owners = [OwnerSeconds.model_construct(owner=f"own\ner {n} " + "x" * 900, gpu_seconds=1.0) for n in range(300)]
    causes = [CauseSeconds(cause=f"cause{n}", gpu_seconds=1.0) for n in range(900)]
    causes += [CauseSeconds(cause=cause, gpus=1, gpu_seconds=float("inf")) for cause in families.CAUSES]
    pools = [
        PoolStatus(name=name, owners=owners, causes=causes, fallback="x", gpus_held=1)
        for name in [f'pool{n}"' + "\ud800\n" * 50 for n in range(300)] * 2
    ]
    conditions = [Condition(type=f"Type{n}", status="True", reason="R") for n in range(100)]
    conditions += [Condition(type=kind, status="True", reason="R" * 1000) for kind in ("Ready", "Ready", "Degraded")]
    return Status(pools=pools, conditions=conditions)


def test_the_series_of_a_cluster_are_bounded_whatever_its_status_says():
    status = hostile_status()
    limits = {pool.name: PoolLimits(0, 1, has_gpus=True, has_fallback=True) for pool in status.pools}
    cluster = ClusterMetrics(
        "team-a", "demo", feed=lambda: Feed(up=True, age_seconds=0.0), attribution={"team": "\x1b[31m" + "x" * 999}
    )
    cluster.set_report(Report(status, AT, limits))
    found = read_cluster(cluster, AT)
    assert 1000 < len(found) <= MAX_SERIES
    assert max(len(text) for _, has in found for _, text in has) <= VALUE_LENGTH
    assert all(text.isprintable() for _, has in found for _, text in has)


def test_owners_that_become_the_same_when_cleaned_are_one_series():
    owners = [OwnerSeconds.model_construct(owner=owner, gpu_seconds=1.0) for owner in ("a\nb", "a b", "a\t b")]
    found = exported(PoolStatus(name="gpu", owners=owners), limits=GPU)
    assert value(found, "gpudask_pool_owner_gpu_seconds_total", owner="a b") == 3.0


def test_a_name_that_no_family_has_is_exported_nowhere():
    """Each family of the reference has samples, and each sample a family."""
    pools = [PoolStatus(name="gpu", owners=[OwnerSeconds(owner="a")])]
    conditions = [Condition(type="Ready", status="True", reason="AllReady")]
    cluster = ClusterMetrics("team-a", "demo", feed=lambda: Feed(up=True, age_seconds=0.0))
    cluster.set_report(Report(Status(pools=pools, conditions=conditions), AT, GPU))
    assert names(read_cluster(cluster, AT)) == {family.name for family in families.CLUSTER_FAMILIES}
