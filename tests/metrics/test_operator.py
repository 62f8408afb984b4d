"""The operator's own metrics: what is counted begins at zero, and a standby says nothing of clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gpudask.api.reasons import Reason
from gpudask.api.status import PoolStatus, Status
from gpudask.metrics import families
from gpudask.metrics.clusters import ClusterMetrics, Report
from gpudask.metrics.families import Kind
from gpudask.metrics.operator import Metrics
from local.host.commands import run
from local.programs.prometheus import Prometheus
from tests.metrics.reading import names, read, value

ALL = (*families.CLUSTER_FAMILIES, *families.JOB_FAMILIES, *families.OPERATOR_FAMILIES)


def a_cluster(name: str = "demo") -> ClusterMetrics:
    cluster = ClusterMetrics("team-a", name)
    cluster.set_report(Report(Status(pools=[PoolStatus(name="cpu")]), 0.0))
    return cluster


def leading(*clusters: ClusterMetrics) -> Metrics:
    metrics = Metrics()
    metrics.leads = lambda: True
    for number, cluster in enumerate(clusters):
        metrics.keep(str(number), cluster)
    return metrics


def test_a_standby_exports_its_own_and_no_clusters():
    metrics = leading(a_cluster())
    assert value(metrics, "gpudask_leader") == 1
    assert value(metrics, "gpudask_pool_desired_pods", cluster="demo") == 0
    metrics.leads = lambda: False
    assert value(metrics, "gpudask_leader") == 0
    assert not [
        name for name in names(read(metrics.exposition())) if name.startswith(("gpudask_cluster", "gpudask_pool"))
    ]


def test_a_cluster_is_gone_from_the_metrics_once_it_is_forgotten():
    metrics = leading(a_cluster("one"), a_cluster("two"))
    metrics.forget("0")
    metrics.forget("0")
    assert value(metrics, "gpudask_cluster_info", cluster="one") is None
    assert value(metrics, "gpudask_cluster_info", cluster="two") == 1


def test_a_cluster_whose_samples_cannot_be_made_stops_no_other():
    class Broken(ClusterMetrics):
        def samples(self, *_: object) -> Iterator[str]:
            raise RuntimeError("a defect")

    metrics = leading(Broken("team-a", "broken"), a_cluster("two"))
    assert value(metrics, "gpudask_cluster_info", cluster="two") == 1


def test_requests_are_counted_by_verb_and_code_from_zero():
    metrics = Metrics()
    assert value(metrics, "gpudask_api_requests_total", verb="PATCH", code="200") == 0
    metrics.count_request("PATCH", 409)
    metrics.count_request("WATCH", 0)
    metrics.count_request("GET", 123456)
    assert value(metrics, "gpudask_api_requests_total", verb="PATCH", code="409") == 1
    assert value(metrics, "gpudask_api_requests_total", verb="WATCH", code="0") == 1
    assert value(metrics, "gpudask_api_requests_total", verb="GET", code="other") == 1


def test_errors_are_counted_by_reason_from_zero():
    metrics = Metrics()
    metrics.count_error(Reason.QUOTA)
    found = {reason: value(metrics, "gpudask_pass_errors_total", reason=reason) for reason in families.PASS_ERRORS}
    assert found == dict.fromkeys(families.PASS_ERRORS, 0) | {"QuotaExceeded": 1}


@pytest.mark.parametrize("step", ["pod", "worker", "result"])
def test_starts_are_histograms_by_kind_of_pool(step: str):
    metrics = Metrics()
    assert value(metrics, f"gpudask_demand_to_{step}_seconds_count", kind="cpu") == 0
    metrics.record_start(step, 7.0, has_gpus=True)
    assert value(metrics, f"gpudask_demand_to_{step}_seconds_sum", kind="gpu") == 7
    assert value(metrics, f"gpudask_demand_to_{step}_seconds_bucket", kind="gpu", le="10.0") == 1
    assert value(metrics, f"gpudask_demand_to_{step}_seconds_bucket", kind="gpu", le="5.0") == 0


def test_what_is_read_at_a_moment_is_asked_for_then():
    metrics = Metrics(version="1.2.3")
    numbers = [0]
    for gauge in (metrics.waiting_requests, metrics.waiting_passes, metrics.unreadable_objects, metrics.event_loop_lag):
        gauge.set_function(lambda: numbers[0])
    metrics.reflector_age.labels("Pod").set_function(lambda: numbers[0])
    metrics.relists("Pod")()
    metrics.tasks_restarted = lambda: numbers[0]
    numbers[0] = 5
    found = read(metrics.exposition())
    for name in (
        "gpudask_waiting_requests",
        "gpudask_waiting_passes",
        "gpudask_unreadable_objects",
        "gpudask_event_loop_lag_seconds",
        "gpudask_reflector_age_seconds",
        "gpudask_tasks_restarted_total",
    ):
        assert value(found, name) == 5, name
    assert value(found, "gpudask_reflector_relists_total", kind="Pod") == 1
    assert value(found, "gpudask_build_info", version="1.2.3") == 1


def test_every_family_of_the_operator_is_exported_with_its_help_and_type():
    metrics = Metrics()
    metrics.relists("Pod")
    metrics.reflector_age.labels("Pod")
    text = b"".join(metrics.exposition()).decode()
    for family in families.OPERATOR_FAMILIES:
        assert f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind.value}\n" in text
        assert re.search(rf"^{family.name}(_bucket)?[ {{]", text, re.MULTILINE), f"{family.name} has no sample"


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_names_follow_the_conventions(family: families.Family):
    assert family.name.startswith("gpudask_")
    assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
    assert bool(family.buckets) == (family.kind is Kind.HISTOGRAM)
    assert family.help.endswith(".")


def test_no_family_stands_there_twice():
    assert len({family.name for family in ALL}) == len(ALL)


@pytest.mark.registry
def test_promtool_has_nothing_to_say(prometheus: Prometheus):
    clusters = [a_cluster(f"cluster-{number}") for number in range(300)]
    text = b"".join(leading(*clusters).exposition()).decode()
    assert run([str(prometheus.promtool), "check", "metrics"], stdin=text) == ""
