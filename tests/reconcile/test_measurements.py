"""What passes are measured by: ends, drains, moved bytes, fallbacks and limits, each once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.api.resource import Cluster
from gpudask.api.status import PoolStatus, Status
from gpudask.metrics.operator import Metrics
from gpudask.planning.actions import DeletePod, Plan
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Ended, Pod, Retirement
from gpudask.reconcile.measurements import Measurements
from gpudask.scaling.assignment import Assignment
from tests.builders import a_pool
from tests.metrics.reading import value
from tests.planning.builders import (
    NOW,
    UID,
    cluster,
    demand,
    gpu_pool,
    pod,
    scaled,
    scheduler_pod,
    seen,
    tasks,
    worker,
)

OF = cluster(gpu_pool(fallback={"to": ["cpu"]}), scaled("cpu", least=1, most=5), a_pool("fixed", replicas=3))
DRAINING = Retirement("the pool is too large", at=NOW - 30)


class Measured:
    """The measurements of one cluster, and the metrics that they end in."""

    def __init__(self) -> None:
        self.metrics = Metrics(clock=lambda: self.now)
        self.metrics.leads = lambda: True
        self.now = NOW
        self.metadata: dict[str, Any] = {"name": "demo", "namespace": "default", "uid": UID, "labels": {"team": "a"}}
        context: Any = SimpleNamespace(metrics=self.metrics, clock=lambda: self.now, attribution=("team",))
        copy: Any = SimpleNamespace(body={"metadata": self.metadata})
        feed: Any = SimpleNamespace(state=lambda: None)
        self.measurements = Measurements(context, copy, feed)

    def passes(self, *pods: Pod, after: float = 0.0, of: Cluster = OF, **fields: Any) -> None:
        """A pass sees these pods, so many seconds after the last."""
        self.now += after
        status = fields.pop("status", None) or Status(pools=[PoolStatus(name=p.name) for p in of.spec.pools])
        unserved = fields.pop("unserved", ())
        observation: Observation = seen(of, scheduler_pod(of), *pods, now=self.now, **fields)
        self.measurements.passed(observation, Plan(assignment=Assignment({}, unserved)), status)

    def __getitem__(self, name: str) -> float | None:
        return value(self.metrics, f"gpudask_{name}")

    def of(self, name: str, **labels: str) -> float | None:
        return value(self.metrics, f"gpudask_{name}", **labels)


@pytest.fixture
def measured() -> Measured:
    measured = Measured()
    measured.passes(pod(OF, "gpu"))
    return measured


def ended(reason: str = "OOMKilled", **fields: Any) -> Pod:
    return replace(pod(OF, "gpu"), ended=Ended(reason, 137, at=NOW), **fields)


def test_a_container_that_ended_and_runs_again_is_one_termination(measured: Measured):
    measured.passes(ended(started=0.0))
    assert measured.of("pool_terminations_total", pool="gpu", reason="OOMKilled") == 1
    measured.passes(ended(restarts=1))
    measured.passes(ended(restarts=1))
    assert measured.of("pool_terminations_total", pool="gpu", reason="OOMKilled") == 1
    measured.passes(ended(restarts=4))
    assert measured.of("pool_terminations_total", pool="gpu", reason="OOMKilled") == 4


def test_a_pod_that_ended_for_good_between_two_passes_is_one(measured: Measured):
    measured.passes(ended("Evicted", started=0.0, phase="Failed"), replace(ended("Error", started=0.0), uid="another"))
    assert measured.of("pool_terminations_total", pool="gpu", reason="Evicted") == 1
    assert measured.of("pool_terminations_total", pool="gpu", reason="Error") == 1


def test_a_reason_that_nobody_knows_is_another(measured: Measured):
    measured.passes(ended("Made up by a tenant", started=0.0))
    assert measured.of("pool_terminations_total", pool="gpu", reason="Other") == 1


def test_a_restart_count_that_somebody_made_up_counts_so_far(measured: Measured):
    measured.passes(ended(restarts=10**9))
    assert measured.of("pool_terminations_total", pool="gpu", reason="OOMKilled") == 100


def test_the_end_of_a_pod_that_is_being_deleted_was_asked_for(measured: Measured):
    measured.passes(ended("Error", started=0.0, delete_by=NOW + 30))
    assert measured.of("pool_terminations_total", pool="gpu", reason="Error") == 0


def test_what_had_ended_before_an_operator_began_is_not_counted_again():
    measured = Measured()
    measured.passes(ended(restarts=3))
    measured.passes(ended(restarts=3))
    assert measured.of("pool_terminations_total", pool="gpu", reason="OOMKilled") == 0


def test_a_drain_ends_with_its_pods_deletion(measured: Measured):
    leaving = pod(OF, "gpu", retirement=DRAINING)
    measured.passes(leaving)
    assert measured.of("pool_oldest_drain_seconds", pool="gpu") == 30
    assert measured.of("pool_drains_total", pool="gpu") == 0
    measured.measurements.deleted(DeletePod(leaving, "it is empty"))
    measured.passes()
    assert measured.of("pool_drains_total", pool="gpu") == 1
    assert measured["drain_duration_seconds_sum"] == 30
    assert measured.of("pool_forced_deletions_total", pool="gpu") == 0
    assert measured.of("pool_oldest_drain_seconds", pool="gpu") == 0


def test_a_forced_deletion_is_counted_as_such(measured: Measured):
    measured.measurements.deleted(DeletePod(pod(OF, "gpu", retirement=DRAINING), "drainTimeout is over", forced=True))
    assert measured.of("pool_forced_deletions_total", pool="gpu") == 1


def test_a_pending_pod_and_a_scheduler_that_are_deleted_are_no_drains(measured: Measured):
    measured.measurements.deleted(DeletePod(pod(OF, "gpu", running=False, retirement=DRAINING), "nobody wants it"))
    measured.measurements.deleted(DeletePod(scheduler_pod(OF), "its spec is older"))
    assert measured.of("pool_drains_total", pool="gpu") == 0
    assert measured["drain_duration_seconds_count"] == 0


def holding(*bytes_held: int, release: bool = False) -> dict[str, Any]:
    leaving = pod(OF, "gpu", retirement=replace(DRAINING, release=release))
    workers = tuple(worker(leaving, n, held_bytes=held) for n, held in enumerate(bytes_held))
    return {"pod": leaving, "says": demand(workers=workers)}


def test_bytes_that_leave_a_draining_worker_are_moved(measured: Measured):
    for held in (holding(1000, 50), holding(400, 50), holding(600, 0)):
        measured.passes(held["pod"], says=held["says"])
    assert measured["drain_moved_bytes_total"] == 650


def test_bytes_that_are_released_are_not_moved(measured: Measured):
    for held in (holding(1000, release=True), holding(0, release=True)):
        measured.passes(held["pod"], says=held["says"])
    assert measured["drain_moved_bytes_total"] == 0


def falling_back(to: str) -> Status:
    return Status(pools=[PoolStatus(name="gpu", fallback=to)])


def test_each_time_that_tasks_fall_back_counts(measured: Measured):
    for to in ("cpu", "cpu", "", "cpu"):
        measured.passes(status=falling_back(to))
    assert measured.of("pool_fallbacks_total", pool="gpu") == 2
    assert measured.of("pool_fallback_active", pool="gpu") == 1


def test_time_without_a_node_adds_up_over_passes(measured: Measured):
    waits = Status(pools=[PoolStatus(name="gpu", unschedulable=2)])
    measured.passes(status=waits)
    measured.passes(after=10, status=waits)
    measured.passes(after=5)
    measured.now += 100
    assert measured.of("pool_unschedulable_seconds_total", pool="gpu") == 30


def test_limits_are_those_in_force(measured: Measured):
    found = {
        (pool, bound): measured.of(f"pool_{bound}_pods", pool=pool)
        for pool in ("cpu", "fixed", "gpu")
        for bound in ("min", "max")
    }
    assert found == {
        ("cpu", "min"): 1,
        ("cpu", "max"): 5,
        ("fixed", "min"): 3,
        ("fixed", "max"): 3,
        ("gpu", "min"): 0,
        ("gpu", "max"): 4,
    }
    overrides = [{"pool": "cpu", "min": 2, "max": 9}, {"pool": "gpu", "replicas": 7}]
    pools = [pool.model_dump(mode="json", by_alias=True, exclude_none=True) for pool in OF.spec.pools]
    measured.passes(of=cluster(*pools, overrides=overrides))
    assert measured.of("pool_min_pods", pool="cpu") == 2
    assert measured.of("pool_max_pods", pool="cpu") == 9
    assert measured.of("pool_min_pods", pool="gpu") == measured.of("pool_max_pods", pool="gpu") == 7


def test_tasks_that_nobody_can_serve_are_the_clusters(measured: Measured):
    measured.passes(unserved=(tasks(4, GPU=9),))
    assert measured["cluster_unservable_tasks"] == 4


def test_attribution_follows_an_edit_of_the_labels(measured: Measured):
    assert measured.of("cluster_info", label_team="a") == 1
    measured.metadata["labels"]["team"] = "b"
    measured.passes()
    assert measured.of("cluster_info", label_team="b") == 1


def test_a_cluster_of_which_no_pass_can_be_made_has_its_status_all_the_same():
    measured = Measured()
    measured.measurements.not_passed(falling_back(""))
    assert measured.of("pool_desired_pods", pool="gpu") == 0
    measured.measurements.stop()
    assert measured["cluster_info"] is None
