"""The rules are valid, each alert fires when it should and not in the nearest harmless case, and has its runbook."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudask.cli.main import COMMANDS
from local.programs.prometheus import Prometheus
from tests.alerts.queries import ALERTS, groups, known, metrics, rules, unknown
from tests.conftest import ROOT

UNIT_TESTS = sorted((Path(__file__).resolve().parent / "rules").glob("*.yaml"))
PAGE = ROOT / "docs" / "alerts.md"
_SECTION = re.compile(r"^### (GpuDask\w+)$", re.MULTILINE)
_COMMAND = re.compile(r"`gpudask ([a-z]+)")


@cache
def tried() -> list[dict[str, Any]]:
    """The cases of all alerts in promtool's files."""
    tests = [test for path in UNIT_TESTS for test in yaml.load(path.read_text(), yaml.CSafeLoader)["tests"]]
    return [case for test in tests for case in test.get("alert_rule_test", ())]


def run(prometheus: Prometheus, *arguments: str | Path) -> str:
    """What promtool prints; it has to be content."""
    command = [str(prometheus.promtool), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.registry
def test_promtool_finds_nothing_wrong_with_the_rules(prometheus: Prometheus):
    assert "FAILED" not in run(prometheus, "check", "rules", "--lint=all", "--lint-fatal", ALERTS)


@pytest.mark.registry
@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_only_then(prometheus: Prometheus, path: Path):
    run(prometheus, "test", "rules", path)


@pytest.mark.parametrize("alert", rules("alert"))
def test_an_alert_is_tried_where_it_fires_and_where_it_does_not(alert: str):
    fires = {bool(case["exp_alerts"]) for case in tried() if case["alertname"] == alert}
    assert fires == {True, False}, f"{alert} has no case of one kind in tests/alerts/rules"


def test_no_unit_test_is_of_an_alert_that_is_gone():
    assert {case["alertname"] for case in tried()} == rules("alert").keys()


@pytest.mark.parametrize("alert", rules("alert"))
def test_an_alert_says_how_bad_it_is_what_it_is_and_where_to_read_on(alert: str):
    rule = rules("alert")[alert]
    assert rule["labels"] in ({"severity": "warning"}, {"severity": "critical"})
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{alert.lower()}"


def test_each_alert_has_a_section_of_the_page_and_each_section_an_alert():
    sections = _SECTION.findall(PAGE.read_text())
    assert sorted(sections) == sorted(rules("alert"))


@pytest.mark.parametrize("alert", rules("alert"))
def test_a_section_says_what_it_means_what_to_look_at_and_what_to_do(alert: str):
    _, _, rest = PAGE.read_text().partition(f"### {alert}\n")
    section = re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]
    assert re.findall(r"^\*\*(\w+)", section, re.MULTILINE) == ["Means", "Look", "Do"]
    assert "kubectl " in section or "gpudask " in section


def test_the_page_names_commands_that_there_are():
    assert set(_COMMAND.findall(PAGE.read_text())) <= COMMANDS.keys()


@pytest.mark.parametrize("name", [*rules("alert"), *rules("record")])
def test_a_rule_reads_what_operators_expose(name: str):
    rule = (rules("alert") | rules("record"))[name]
    assert metrics(rule["expr"])
    assert not unknown(rule["expr"])


def test_what_a_rule_records_has_a_name_that_says_of_what_it_is():
    """As Prometheus' own practice has it: level, metric, operation. Labels that stay are the level."""
    assert all(re.fullmatch(r"[a-z_]+:gpudask_[a-z_]+:[a-z0-9]+", name) for name in rules("record"))


def test_groups_have_names_of_ours_which_are_one_each():
    names = [group["name"] for group in groups()]
    assert len(names) == len(set(names))
    assert all(name.startswith("gpudask-") for name in names)


def test_what_is_not_exposed_is_found():
    """Else the tests above could not fail."""
    assert unknown('sum by (poll) (gpudask_pool_pods{stat="ready", pool="x", state="reddy"}) + gpudask_pods') == [
        "gpudask_pods",
        "gpudask_pool_pods{stat}",
        'gpudask_pool_pods{state="reddy"}',
        "poll",
    ]
    assert unknown('pool_cause:gpudask_gpus:mean5m{cause!~"working|idle"}')
    assert unknown('gpudask_cluster_condition{condition="Degradet", reason!="Helthy"}') == [
        'gpudask_cluster_condition{condition="Degradet"}',
        'gpudask_cluster_condition{reason="Helthy"}',
    ]
    assert unknown("pool_cause:gpudask_gpus:mean") == ["pool_cause:gpudask_gpus:mean"]
    assert not unknown('sum by (cause) (pool_cause:gpudask_gpus:mean5m{pool="x", cause!~"working|spare"})')
    assert known()["pool_cause:gpudask_gpus:mean5m"] >= {"namespace", "cluster", "pool", "cause"}
