"""The rendered CRD: current in the tree, and structural."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpudask.api import reference
from gpudask.api.crd import dump, render, render_cron_job, render_job, render_record

ROOT = Path(__file__).resolve().parents[2]
MADE = {
    "crds/gpudaskclusters.yaml": lambda: dump(render()),
    "charts/gpudask/crds/gpudaskclusters.yaml": lambda: dump(render()),
    "crds/gpudaskrecords.yaml": lambda: dump(render_record()),
    "charts/gpudask/crds/gpudaskrecords.yaml": lambda: dump(render_record()),
    "crds/gpudaskjobs.yaml": lambda: dump(render_job()),
    "charts/gpudask/crds/gpudaskjobs.yaml": lambda: dump(render_job()),
    "crds/gpudaskcronjobs.yaml": lambda: dump(render_cron_job()),
    "charts/gpudask/crds/gpudaskcronjobs.yaml": lambda: dump(render_cron_job()),
    **{path: partial(reference.render, page) for path, page in reference.PAGES.items()},
}


@pytest.mark.parametrize("path", MADE)
def test_what_is_made_from_the_models_is_current(path: str):
    assert (ROOT / path).read_text() == MADE[path](), f"{path} is not current: `make generate` writes it anew"


@pytest.mark.parametrize(
    ("path", "field", "link"),
    [
        ("docs/reference-jobs.md", "spec", "reference.md#spec"),
        ("docs/reference-jobs.md", "runner", "#specrunner"),
        ("docs/reference-cron-jobs.md", "spec", "reference-jobs.md#spec"),
    ],
)
def test_what_a_kind_has_of_another_is_described_on_the_others_page(path: str, field: str, link: str):
    text = reference.render(reference.PAGES[path])
    assert f"| `{field}` | [object]({link}) |" in text
    sections = [line for line in text.splitlines() if line.startswith("## ")]
    assert not [line for line in sections if "pools" in line or "jobTemplate.spec" in line], "it stands here, too"


def _nodes(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _nodes(schema[key], f"{path}[]")


def _schema() -> dict[str, Any]:
    return _schema_of(render())


def _schema_of(definition: dict[str, Any]) -> dict[str, Any]:
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


EACH = pytest.mark.parametrize("made", [render, render_record, render_job, render_cron_job])


@EACH
def test_every_node_has_a_type(made: Any):
    for path, node in _nodes(_schema_of(made())):
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert not {"$ref", "anyOf", "title", "const"} & set(node), path


@EACH
def test_every_field_is_described(made: Any):
    undescribed = [
        f"{path}.{name}"
        for path, node in _nodes(_schema_of(made()))
        for name, child in node.get("properties", {}).items()
        if not child.get("description") and not f"{path}.{name}".startswith(".metadata")
    ]
    assert undescribed == []


def test_the_phases_are_listed():
    words = _schema()["properties"]["status"]["properties"]["phase"]["description"]
    assert words.endswith("Pending, Running, Degraded, Suspending, Suspended, Invalid")


def _is_bounded(node: dict[str, Any]) -> bool:
    if node.get("type") == "array":
        return "maxItems" in node
    if node.get("type") == "string" or node.get("x-kubernetes-int-or-string"):
        return "maxLength" in node or "enum" in node or node.get("format") == "date-time"
    return "additionalProperties" not in node or "maxProperties" in node


@pytest.mark.parametrize("made", [render, render_job, render_cron_job])
def test_every_list_map_and_string_of_the_spec_has_a_bound(made: Any):
    spec = _schema_of(made())["properties"]["spec"]
    assert [path for path, node in _nodes(spec) if not _is_bounded(node)] == []


def test_every_list_map_and_string_of_a_record_has_a_bound():
    record = _schema_of(render_record())["properties"]["record"]
    assert [path for path, node in _nodes(record) if not _is_bounded(node)] == []


def test_neither_kind_of_size_has_a_default():
    pool = _schema()["properties"]["spec"]["properties"]["pools"]["items"]["properties"]
    assert "default" not in pool["replicas"]
    assert "default" not in pool["autoscale"]
