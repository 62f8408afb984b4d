"""What is too large or too deep is refused by its field's name, in time that the limits bound."""

from __future__ import annotations

from gpudask.api import Json

import json
from typing import Any

import pytest

from gpudask.api.resource import (
    InvalidSpecError,
    MAX_CONFIG_BYTES,
    MAX_DEPTH,
    MAX_SPEC_BYTES,
    MAX_TEMPLATE_BYTES,
    broken_limits,
    parse,
)
from tests.builders import a_cluster, a_pool, a_spec


def nested(depth: int, *, lists: bool = False) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if lists else {"a": value}
    return value


def template(value: Any) -> Json:
    return {"spec": {"x": value}}


def refused(spec: Json) -> list[str]:
    body = {"metadata": {"name": "demo", "namespace": "default", "uid": "1"}, "spec": spec}
    with pytest.raises(InvalidSpecError) as caught:
        parse(body)
    return [line.split(":")[0] for line in str(caught.value).split("; ")]


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1000, 100_000])
@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("spec.config", lambda value: {"config": {"x": value}}),
        ("spec.template", lambda value: {"template": template(value)}),
        ("spec.scheduler.template", lambda value: {"scheduler": {"template": template(value)}}),
        ("spec.pools[1].template", lambda value: {"pools": [a_pool("a"), a_pool("b", template=template(value))]}),
        ("spec", lambda value: {"env": [{"name": "A", "valueFrom": value}]}),
        ("spec", lambda value: {"config": {}, "idle": value}),
    ],
)
def test_what_is_too_deep_is_refused_by_its_field(field: str, place: Any, depth: int):
    for lists in (False, True):
        assert refused(a_spec() | place(nested(depth, lists=lists))) == [field]


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("spec.config", {"config": {"x": "v" * MAX_CONFIG_BYTES}}),
        ("spec.config", {"config": {f"k{number}": number for number in range(MAX_CONFIG_BYTES // 5)}}),
        ("spec.config", {"config": {"x": [0] * MAX_CONFIG_BYTES}}),
        ("spec.config", {"config": {"x": "ä" * (MAX_CONFIG_BYTES // 2)}}),
        ("spec.template", {"template": template("v" * MAX_TEMPLATE_BYTES)}),
        ("spec.pools[0].template", {"pools": [a_pool(template=template("v" * MAX_TEMPLATE_BYTES))]}),
        ("spec", {"env": [{"name": f"A{i}", "value": "v" * 32_000} for i in range(MAX_SPEC_BYTES // 32_000 + 1)]}),
    ],
)
def test_what_is_too_large_is_refused_by_its_field(field: str, spec: Json):
    assert refused(a_spec() | spec) == [field]


def test_what_is_allowed_is_taken():
    a_cluster(config={"x": nested(MAX_DEPTH - 2), "y": "v" * (MAX_CONFIG_BYTES - 1000)})


def test_the_measure_is_that_of_json():
    value = {"key": ["ä", "abc", 12, None, {"a": {}}], "x": {}}
    written = len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())
    assert broken_limits({"config": {"x": "v" * (MAX_CONFIG_BYTES - 30), "y": value}}) != []
    assert broken_limits({"config": {"x": "v" * (MAX_CONFIG_BYTES - 2 * written - 30), "y": value}}) == []


def test_looking_costs_no_more_than_the_limits(monkeypatch: pytest.MonkeyPatch):
    """What lies beyond the limit is not looked at, however much it is."""
    looked = {}
    from gpudask.api import resource  # noqa: PLC0415 - the module is what is watched

    original = resource._bytes
    for size in (2**20, 2**22):
        looked[size] = 0

        def counting(value: Any, size: int = size) -> int:
            looked[size] += 1
            return original(value)

        monkeypatch.setattr(resource, "_bytes", counting)
        assert broken_limits({"config": {"x": ["v" * 100] * (size // 100)}})
    assert 0 < looked[2**22] <= looked[2**20]


@pytest.mark.parametrize("spec", [None, "text", [], {"pools": "no"}, {"pools": [1]}, {"scheduler": 3, "template": []}])
def test_foreign_shapes_are_left_to_the_models(spec: Any):
    assert broken_limits(spec) == []
