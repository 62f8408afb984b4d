"""The expressions of rules and dashboards, as Prometheus gets them, and the names in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpudask.api.cron_job import CronJobConditionType, CronJobReason
from gpudask.api.job import JobReason
from gpudask.api.reasons import ConditionType, Reason
from gpudask.metrics import families
from gpudask.metrics.families import Family, Kind

FILES = Path(__file__).resolve().parents[2] / "charts" / "gpudask" / "files"
ALERTS = FILES / "alerts.yaml"
DASHBOARDS = sorted((FILES / "dashboards").glob("*.json"))
# Of the target that is scraped, beside the series' own.
TARGET_LABELS = {"namespace", "job", "instance", "pod"}
# By the names that the chart's own files have; the chart writes those of its `attribution`.
_ATTRIBUTION = {"label_team", "label_project", "label_user"}
_FAMILIES = {
    family.name: family for family in (*families.CLUSTER_FAMILIES, *families.JOB_FAMILIES, *families.OPERATOR_FAMILIES)
}
# What Grafana puts in, for a Prometheus that lives for some seconds.
GRAFANA = {
    "$__rate_interval": "10s",
    "$__range:5m": "30s:1s",
    "$__range": "30s",
    "$namespace": "lab",
    "$cluster": "demo",
    "$by": "label_team",
}

_STRING = re.compile(r'"[^"]*"|\'[^\']*\'')
_NAME = re.compile(r"\b(?:[a-z][a-z0-9_]*:gpudask_[a-z0-9_:]+|gpudask_[a-z0-9_]+)")
_SELECTOR = re.compile(rf"(?P<metric>{_NAME.pattern})\{{(?P<matchers>[^}}]*)\}}")
_MATCHER = re.compile(r"(?P<label>[a-z_]+)\s*(?:=~|!~|!=|=)\s*(?:\"(?P<value>[^\"]*)\")?")
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\((?P<labels>[^)]*)\)")


@dataclass(frozen=True)
class PanelQuery:
    """A query of a panel; printed it says where it stands."""

    dashboard: str
    panel: str
    reference: str
    expression: str

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}, {self.reference}"

    def filled(self, values: Mapping[str, str] = GRAFANA) -> str:
        """The expression as Grafana sends it; `values` for its variables, the longer names first."""
        return filled(self.expression, values)


def filled(text: str, values: Mapping[str, str] = GRAFANA) -> str:
    """`text` with values for Grafana's variables."""
    for variable in sorted(values, key=len, reverse=True):
        text = text.replace(variable, values[variable])
    return text


@cache  # the file is long, and asked for by each parametrisation
def groups() -> list[dict[str, Any]]:
    """The groups of rules."""
    return list(yaml.safe_load(ALERTS.read_text())["groups"])


def rules(kind: str) -> dict[str, dict[str, Any]]:
    """The rules by name; `kind` is alert or record."""
    return {rule[kind]: rule for group in groups() for rule in group["rules"] if kind in rule}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels of a dashboard that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def panel_queries() -> list[PanelQuery]:
    """Every query of every panel."""
    return [
        PanelQuery(path.stem, panel["title"], target["refId"], target["expr"])
        for path in DASHBOARDS
        for panel in panels(json.loads(path.read_text()))
        for target in panel["targets"]
    ]


def _exposed(family: Family) -> dict[str, frozenset[str]]:
    """What queries call a family, each name with its labels."""
    labels = {*family.labels, *TARGET_LABELS, *(_ATTRIBUTION if family is families.CLUSTER_INFO else ())}
    if family.kind is Kind.HISTOGRAM:
        return {f"{family.name}_{part}": frozenset({*labels, "le"}) for part in ("bucket", "count", "sum")}
    return {family.name: frozenset(labels)}


def _values(metric: str, label: str) -> frozenset[str] | None:
    """The values that a label can have there; None: any."""
    if metric == families.CRON_JOB_CONDITION.name and label in ("condition", "reason"):
        return frozenset(CronJobConditionType if label == "condition" else CronJobReason)
    if metric == families.JOBS_WAITING.name and label == "reason":
        return frozenset(JobReason)
    if label == "condition":
        return frozenset(ConditionType)
    if label == "cause":
        return frozenset(families.CAUSES)
    family = _FAMILIES.get(metric)
    if family is families.CLUSTER_CONDITION and label == "reason":
        return frozenset(Reason)
    return frozenset(family.states) if family and family.states and family.labels[-1] == label else None


@cache
def known() -> dict[str, frozenset[str]]:
    """The labels of everything that can be asked for: what operators expose, and what the rules record of it."""
    found = {name: labels for family in _FAMILIES.values() for name, labels in _exposed(family).items()}
    for name, rule in rules("record").items():  # in the order in which one stands on the other
        bare = _STRING.sub('""', rule["expr"])
        grouped = {label for match in _GROUPED.finditer(bare) for label in _split(match["labels"])}
        of_parts = {label for part in metrics(bare) for label in found.get(part, ())}
        found[name] = frozenset(grouped or of_parts)
    return found


def metrics(expression: str) -> set[str]:
    """The metrics and recorded series that an expression reads."""
    return set(_NAME.findall(_STRING.sub('""', expression)))


def unknown(expression: str) -> list[str]:
    """The metrics that nobody exposes or records, labels that no series there has, and values that these never have."""
    bare = _STRING.sub('""', expression)
    wrong = [name for name in sorted(metrics(bare)) if name not in known()]
    for match in _SELECTOR.finditer(expression):
        metric = match["metric"]
        for found in _MATCHER.finditer(match["matchers"]):
            label, values = found["label"], _values(metric, found["label"])
            if label not in known().get(metric, {label}):
                wrong.append(f"{metric}{{{label}}}")
            elif values is not None:
                wrong += [
                    f'{metric}{{{label}="{value}"}}' for value in found["value"].split("|") if value not in values
                ]
    anywhere = {label for name in metrics(bare) for label in known().get(name, ())}
    grouped = {label for match in _GROUPED.finditer(bare) for label in _split(match["labels"])}
    return wrong + sorted(grouped - anywhere)


def _split(labels: str) -> list[str]:
    return [label.strip() for label in labels.split(",") if label.strip()]
