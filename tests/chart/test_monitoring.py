"""Alerts and dashboards are installed where they are asked for, as they are in the chart's files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.programs.prometheus import Prometheus
from tests.alerts.queries import ALERTS, DASHBOARDS

if TYPE_CHECKING:
    from tests.chart.conftest import Helm, Manifest

_URL = "https://wiki.example/gpudask"


def attributed(*names: str) -> tuple[str, ...]:
    """Options for these names."""
    return "--set-json", f"attribution={json.dumps(names)}"


AS_IN_THE_FILES = attributed("team", "project", "user")


def dashboards(helm: Helm, *options: str) -> list[Manifest]:
    manifests = helm.manifests("--set", "dashboards.enabled=true", *options)
    return [manifest for manifest in manifests if manifest["kind"] == "ConfigMap"]


def alerts(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"] if "alert" in rule}


def test_neither_is_there_unless_it_is_asked_for(helm: Helm) -> None:
    assert not {"PrometheusRule", "ConfigMap"} & {manifest["kind"] for manifest in helm.manifests()}


def test_the_rules_are_those_of_the_file(helm: Helm) -> None:
    options = ("--set", "alerts.enabled=true,alerts.labels.release=prometheus")
    rule = helm.the("PrometheusRule", *options, *AS_IN_THE_FILES)
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["metadata"]["namespace"] == "gpudask-system"


def test_a_runbook_is_found_where_the_chart_is_told(helm: Helm) -> None:
    rule = helm.the("PrometheusRule", "--set", f"alerts.enabled=true,alerts.runbookUrl={_URL}")
    found = alerts(rule["spec"])
    assert found
    assert all(each["annotations"]["runbook_url"] == f"{_URL}#{name.lower()}" for name, each in found.items())


def test_each_dashboard_is_a_config_map_that_the_sidecar_takes(helm: Helm) -> None:
    options = ("--set", "dashboards.labels.team=a,dashboards.annotations.grafana_folder=gpudask")
    made = dashboards(helm, *options, *AS_IN_THE_FILES)
    assert [each["metadata"]["name"] for each in made] == [f"gpudask-dashboard-{path.stem}" for path in DASHBOARDS]
    for each, path in zip(made, DASHBOARDS, strict=True):
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["labels"]["team"] == "a"
        assert each["metadata"]["annotations"] == {"grafana_folder": "gpudask"}
        assert each["data"] == {f"gpudask-{path.stem}.json": path.read_text()}


def test_labels_of_the_chart_win_over_those_that_are_given(helm: Helm) -> None:
    given = r"alerts.labels.app\.kubernetes\.io/name=x,dashboards.labels.app\.kubernetes\.io/name=x"
    options = ("--set", f"alerts.enabled=true,commonLabels.cost=b,{given}")
    for manifest in (helm.the("PrometheusRule", *options), *dashboards(helm, *options)):
        assert manifest["metadata"]["labels"]["app.kubernetes.io/name"] == "gpudask"
        assert manifest["metadata"]["labels"]["cost"] == "b"


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["cost-center", "example.com/team"], ["label_cost_center", "label_example_com_team"]),
        ([], []),
    ],
)
def test_clusters_are_attributed_by_the_names_that_the_chart_lists(
    helm: Helm, names: list[str], labels: list[str]
) -> None:
    options = ("--set", "alerts.enabled=true", *attributed(*names))
    rules = [rule for group in helm.the("PrometheusRule", *options)["spec"]["groups"] for rule in group["rules"]]
    [expression] = [rule["expr"] for rule in rules if rule.get("record") == "cluster_cause:gpudask_gpus:mean5m"]
    assert f"group_left ({', '.join(labels)})" in expression
    fleet = json.loads(dashboards(helm, *options)[1]["data"]["gpudask-fleet.json"])
    [by] = [variable for variable in fleet["templating"]["list"] if variable["name"] == "by"]
    assert by["query"] == ", ".join(["namespace", *labels])


@pytest.mark.registry
@pytest.mark.parametrize("names", [["cost-center"], []], ids=["other names", "no names"])
def test_rules_for_other_names_are_valid(helm: Helm, prometheus: Prometheus, tmp_path: Path, names: list[str]) -> None:
    path = tmp_path / "rules.yaml"
    rule = helm.the("PrometheusRule", "--set", "alerts.enabled=true", *attributed(*names))
    path.write_text(yaml.safe_dump(rule["spec"]))
    checked = subprocess.run(
        [str(prometheus.promtool), "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_given_to_a_release_fits_into_it() -> None:
    """A release is a Secret of at most a MiB, with the chart's files in it, packed."""
    assert sum(path.stat().st_size for path in (ALERTS, *DASHBOARDS)) < 200_000
