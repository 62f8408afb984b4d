"""The dashboards are what their tables say, as Grafana reads them, and ask for what there is."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.dashboards import __main__ as written
from charts.dashboards.grafana import SCHEMA_VERSION
from local.programs.prometheus import Prometheus
from tests.alerts.queries import (
    DASHBOARDS,
    GRAFANA,
    PanelQuery,
    known,
    metrics,
    panel_queries,
    panels,
    rules,
    unknown,
)

_VARIABLE = re.compile(r"\$\{?([a-zA-Z_]+)")
_LEGEND = re.compile(r"\{\{\s*([a-zA-Z_$]+)\s*\}\}")
_COLUMNS = 24


def loaded(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def test_the_files_are_what_the_tables_say():
    assert {path: path.read_text() for path in DASHBOARDS} == written.files(), "run `make generate`"


def test_there_are_three():
    assert [path.stem for path in DASHBOARDS] == ["cluster", "fleet", "operator"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_one_that_grafana_reads(path: Path):
    dashboard = loaded(path)
    assert dashboard["uid"] == f"gpudask-{path.stem}"
    assert dashboard["schemaVersion"] == SCHEMA_VERSION
    assert "id" not in dashboard, "Grafana gives it one"
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert names[:3] == ["datasource", "namespace", "cluster"]
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_lie_beside_each_other_and_say_what_they_show(path: Path):
    taken: set[tuple[int, int]] = set()
    for panel in loaded(path)["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] <= place["x"] + place["w"] <= _COLUMNS
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies upon another"
        taken |= cells
    for panel in panels(loaded(path)):
        assert panel["description"].endswith(".")
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_it_uses_its_variables_and_no_others(path: Path):
    dashboard = loaded(path)
    chosen = {variable["name"] for variable in dashboard["templating"]["list"]}
    of_grafana = {name for name in _VARIABLE.findall(" ".join(GRAFANA)) if name.startswith("__")}
    used = set(_VARIABLE.findall(json.dumps(dashboard["panels"])))
    assert used - of_grafana == chosen


@pytest.mark.parametrize("query", panel_queries(), ids=str)
def test_a_query_asks_for_what_is_exposed(query: PanelQuery):
    assert metrics(query.expression)
    assert not unknown(query.filled())


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_legend_names_labels_that_its_query_keeps(path: Path):
    for panel in panels(loaded(path)):
        for target in panel["targets"]:
            named = set(_LEGEND.findall(target["legendFormat"]))
            kept = re.search(r"\bby \(([^)]*)\)", target["expr"])
            labels = {label.strip() for label in kept[1].split(",")} if kept else set()
            assert named <= labels, f"{panel['title']}: {target['legendFormat']} beside {target['expr']}"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_variables_ask_for_labels_that_there_are(path: Path):
    for variable in loaded(path)["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((gpudask_\w+)(\{.*\})?, (\w+)\)", variable["definition"])
            assert found is not None
            assert found[3] in known()[found[1]]
            assert not unknown(f"{found[1]}{found[2] or ''}")
        if variable["type"] == "custom":
            assert set(variable["query"].split(", ")) <= known()["cluster_cause:gpudask_gpus:mean5m"]


@pytest.mark.registry
def test_promtool_can_parse_every_query(prometheus: Prometheus, tmp_path: Path):
    recorded = [
        {"record": f"panel:query:{number}", "expr": query.filled(), "labels": {"of": str(query)}}
        for number, query in enumerate(panel_queries())
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    done = subprocess.run(
        [str(prometheus.promtool), "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(recorded)} rules found" in done.stdout


def test_what_rules_record_for_dashboards_is_shown_somewhere():
    shown = {name for query in panel_queries() for name in metrics(query.expression)}
    inner = {name for rule in rules("record").values() for name in metrics(rule["expr"])}
    of_alerts = {name for rule in rules("alert").values() for name in metrics(rule["expr"])}
    assert set(rules("record")) <= shown | inner | of_alerts
