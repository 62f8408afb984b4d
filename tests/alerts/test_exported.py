"""What an operator really exposes: a Prometheus scrapes its own exporter, and every panel has an answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from gpudask.api import status
from local.programs.prometheus import Prometheus
from tests.alerts.exposed import CLUSTERS
from tests.alerts.queries import PanelQuery, panel_queries
from tests.alerts.scraping import Server, Target, serving
from tests.eventually import eventually

_OPERATOR = pytest.importorskip("gpudask.metrics.operator", reason="this operator has no exporter: gpudask.metrics")
_CLUSTERS = pytest.importorskip("gpudask.metrics.clusters")

pytestmark = pytest.mark.registry


@pytest.fixture(scope="module")
def server(prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    metrics = _OPERATOR.Metrics(clock=time.monotonic, version="1")
    metrics.leads = lambda: True
    for number, cluster in enumerate(CLUSTERS):
        exported = _CLUSTERS.ClusterMetrics(
            cluster["namespace"],
            cluster["cluster"],
            attribution={"team": "vision", "project": "", "user": "ada"},
            feed=lambda: _CLUSTERS.Feed(up=True, age_seconds=1.0),
        )
        exported.set_report(_report())
        metrics.keep(str(number), exported)
    metrics.reflector_age.labels("pods").set(1)
    metrics.relists("pods")()
    metrics.event_loop_lag.set(0)
    directory = tmp_path_factory.mktemp("prometheus")
    with (
        serving(lambda: b"".join(metrics.exposition()).decode()) as address,
        Server.running(prometheus.server, [Target(address, "gpudask-0")], directory) as running,
    ):
        yield running


def _report() -> object:
    """A cluster whose GPU works for its owner, beside one that does not."""
    causes = [status.CauseSeconds(cause=cause, gpus=1, gpu_seconds=9.0) for cause in ("working", "spare")]
    gpu = status.PoolStatus(
        name="gpu", gpus_held=2, gpus_busy=1, causes=causes, owners=[status.OwnerSeconds(owner="ada")]
    )
    types = ("Ready", "SchedulerReady", "Degraded")
    conditions = [status.Condition(type=each, status="True", reason="AllReady") for each in types]
    limits = {
        "cpu": _CLUSTERS.PoolLimits(1, 1),
        "gpu": _CLUSTERS.PoolLimits(0, 8, has_gpus=True, has_fallback=True),
    }
    made = status.Status(conditions=conditions, pools=[status.PoolStatus(name="cpu"), gpu])
    return _CLUSTERS.Report(made, time.monotonic(), limits=limits)


@pytest.mark.parametrize("query", panel_queries(), ids=str)
def test_a_query_of_a_panel_has_an_answer(server: Server, query: PanelQuery):
    expression = query.filled()
    eventually(partial(server.query, expression), f"{query} has an answer: {expression}", seconds=30)


def test_gpus_by_cause_are_those_of_the_status(server: Server):
    expression = 'round(sum by (cause) (pool_cause:gpudask_gpus:mean5m{namespace="lab", cluster="demo"}) * 300) > 0'
    found = eventually(partial(server.query, expression), "GPU time is counted")
    assert {row["metric"]["cause"] for row in found} == {"working", "spare"}
