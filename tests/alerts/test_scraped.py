"""A real Prometheus scrapes operators' own exporters: its rules work, and every query of every panel has an answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local.programs.prometheus import Prometheus
from tests.alerts.exporting import CLUSTERS, operators
from tests.alerts.queries import PanelQuery, panel_queries, rules
from tests.alerts.scraping import QueryError, Server
from tests.eventually import eventually

pytestmark = pytest.mark.registry


@pytest.fixture(scope="module")
def server(prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("prometheus")
    with operators() as targets, Server.running(prometheus.server, targets, directory) as running:
        yield running


@pytest.mark.parametrize("query", panel_queries(), ids=str)
def test_a_query_of_a_panel_has_an_answer(server: Server, query: PanelQuery):
    eventually(lambda: server.query(query.filled()), f"{query} has an answer: {query.filled()}")
    eventually(lambda: server.over_time(query.filled()), f"{query} has one over time: {query.filled()}")


@pytest.mark.parametrize("name", rules("record"))
def test_a_rule_records_something(server: Server, name: str):
    eventually(lambda: server.query(name), f"{name} is recorded", show=server.rules)


def test_all_rules_are_loaded_and_can_be_computed(server: Server):
    eventually(
        lambda: all(rule["health"] != "unknown" for rule in server.rules()), "all are evaluated", show=server.rules
    )
    found = {rule["name"]: rule["health"] for rule in server.rules()}
    assert found == dict.fromkeys({*rules("alert"), *rules("record")}, "ok")


def test_a_cluster_keeps_its_namespace_beside_the_operators(server: Server):
    """Scraped without honorLabels, all clusters would be in the operator's namespace."""
    clusters = "count by (namespace, cluster) (gpudask_cluster_info)"
    found = eventually(lambda: server.query(clusters), "clusters are scraped")
    assert {(row["metric"]["namespace"], row["metric"]["cluster"]) for row in found} == set(CLUSTERS)
    [leader] = eventually(lambda: server.query("gpudask_leader == 1"), "one leads")
    assert leader["metric"]["namespace"] == "gpudask-system"


def test_gpus_by_cause_are_those_of_the_status(server: Server):
    expression = 'pool_cause:gpudask_gpus:mean5m{namespace="lab", cluster="demo"} > 0'
    found = eventually(lambda: server.query(expression), "GPU time is counted")
    assert {row["metric"]["cause"] for row in found} == {"working", "spare"}


def test_a_query_that_is_wrong_is_refused(server: Server):
    with pytest.raises(QueryError, match="parse error"):
        server.query("sum(")
