"""Dashboards as Grafana reads them, made from tables of panels. Values only: what the panels show is in dashboards.py.

The schema of dashboards: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]

SCHEMA_VERSION = 41
"""Of Grafana 12; older ones read what they know of it, from Grafana 10 on all that is used here."""
_COLUMNS = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_ROW_HEIGHT = 1

Kind = Literal["stat", "timeseries", "table", "bargauge", "state-timeline"]


@dataclass(frozen=True)
class Query:
    """A PromQL expression, and the name of each series of its answer. `instant`: its value now, not over time."""

    expression: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True)
class Panel:
    """One panel: what it is called, what to read from it, its queries, and how they are drawn.

    Attributes:
        unit: one of Grafana's, such as s, percentunit, short.
        width, height: of 24 columns, and in rows of the grid.
        stacked: whether the series of a time series are parts of a whole.
        colors: series' names -> colours, so that a word has one colour everywhere.
        words: values -> words with a colour, for what is no number.
        thresholds: values -> the colours from there on; the first one's value is not read.
        columns: of a table, labels -> heads, in this order; `Value` is the value's own name.
    """

    title: str
    description: str
    kind: Kind
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 8
    height: int = 8
    stacked: bool = False
    colors: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    thresholds: Sequence[tuple[float, str]] = ()
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """Panels under one head, from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A choice above the panels: of a label's values, where `query` is `label_values(...)`, or of listed words.

    `several`: more than one may be chosen, and all are at first.
    """

    name: str
    title: str
    query: str
    several: bool = False

    @property
    def is_list(self) -> bool:
        """Whether the query is a list of words."""
        return not self.query.startswith("label_values(")


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. `name` is also its address in Grafana, which stays."""

    name: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    since: str = "now-6h"


def rendered(dashboard: Dashboard) -> str:
    """The dashboard's file: the same for the same tables, so that an edit is a small diff."""
    return json.dumps(_dashboard(dashboard), indent=2, ensure_ascii=False) + "\n"


def _dashboard(dashboard: Dashboard) -> Json:
    return {
        "uid": f"gpudask-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["gpudask"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # one crosshair in all panels
        "refresh": "30s",
        "time": {"from": dashboard.since, "to": "now"},
        "timezone": "browser",
        "links": [_links()],
        "annotations": {"list": []},
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "panels": list(_placed(dashboard.rows)),
    }


def _links() -> Json:
    """A way to the other dashboards, with what is chosen here."""
    return {
        "type": "dashboards",
        "tags": ["gpudask"],
        "title": "gpudask",
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> Json:
    made: Json = {"name": variable.name, "label": variable.title}
    if variable.is_list:
        return {**made, "type": "custom", "query": variable.query}
    made |= {
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "definition": variable.query,
        "refresh": 2,  # with the range of time: clusters come and go
        "sort": 1,
    }
    if variable.several:
        made |= {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return made


def _placed(rows: Sequence[Row]) -> Iterator[Json]:
    """Panels with their places: side by side while a line has room, each row below the one before."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield _row(row.title, number, top)
        top += _ROW_HEIGHT
        left, height = 0, 0
        for panel in row.panels:
            if left + panel.width > _COLUMNS:
                top, left, height = top + height, 0, 0
            number += 1
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _row(title: str, number: int, top: int) -> Json:
    place = {"h": _ROW_HEIGHT, "w": _COLUMNS, "x": 0, "y": top}
    return {"id": number, "gridPos": place, "type": "row", "title": title, "collapsed": False, "panels": []}


def _panel(panel: Panel) -> Json:
    made: Json = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "targets": [_target(query, chr(ord("A") + at), panel.kind) for at, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": [_color(*each) for each in panel.colors.items()]},
        "options": _OPTIONS[panel.kind],
    }
    if panel.kind == "table":
        made["transformations"] = [_organized(panel.columns)]
    return made


def _target(query: Query, reference: str, kind: Kind) -> Json:
    return {
        "refId": reference,
        "datasource": _DATASOURCE,
        "editorMode": "code",
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
        "format": "table" if kind == "table" else "time_series",
        "instant": query.instant,
        "range": not query.instant,
    }


def _defaults(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        fill = 40 if panel.stacked else 8
        defaults |= {"min": 0, "custom": {"stacking": stacking, "fillOpacity": fill, "lineWidth": 1}}
    if panel.words:
        words = {str(value): {"text": word, "color": color} for value, (word, color) in panel.words.items()}
        defaults["mappings"] = [{"type": "value", "options": words}]
    if panel.thresholds:
        steps: list[Json] = [{"value": value, "color": color} for value, color in panel.thresholds]
        steps[0]["value"] = None
        defaults |= {"thresholds": {"mode": "absolute", "steps": steps}, "color": {"mode": "thresholds"}}
    return defaults


def _color(name: str, color: str) -> Json:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
    }


def _organized(columns: Mapping[str, str]) -> Json:
    """A table's columns: in this order, under these heads; labels that are not among them come last."""
    return {
        "id": "organize",
        "options": {
            "excludeByName": {"Time": True},
            "indexByName": {name: at for at, name in enumerate(columns)},
            "renameByName": dict(columns),
        },
    }


_REDUCED = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: dict[Kind, Json] = {
    "stat": {"reduceOptions": _REDUCED, "colorMode": "value", "graphMode": "area", "textMode": "auto"},
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
    "bargauge": {"reduceOptions": _REDUCED, "orientation": "horizontal", "displayMode": "basic"},
    "state-timeline": {
        "mergeValues": True,
        "showValue": "auto",
        "rowHeight": 0.8,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
    },
}
