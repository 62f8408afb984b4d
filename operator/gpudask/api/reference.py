"""The reference of the resource for people, rendered from the CRD's schema.

`python -m gpudask.api.reference` prints it; `make generate` writes it to docs/reference.md, and a test fails on
drift. Words about a field belong into the models, not here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from gpudask.api.crd import render
from gpudask.api.resource import API_VERSION, KIND, SHORT

Schema = dict[str, Any]

_HEAD = f"""\
<!-- Made by `make generate` from operator/gpudask/api. Do not edit. -->
# {KIND} reference

`apiVersion: {API_VERSION}`, `kind: {KIND}`, short `{SHORT}`. In a terminal: `kubectl explain {SHORT}.spec.pools`.

- *Quantity*: as in a pod: `4`, `500m`, `16Gi`, `200G`. Fractions stand in quotes: `"0.5"`.
- *Duration*: `30s`, `5m`, `1h30m`.
- *List by `name`*: no two items have the same name; server-side apply merges the lists of several owners by it.
- `replicas`, `min` and `max` count pods; a pod with four GPUs holds four workers.
"""


def reference() -> str:
    """The text of docs/reference.md."""
    root = render()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    places = _places(root)
    sections = [_HEAD, "\n".join(["A name is refused with:", "", *_rules(root)]) + "\n"]
    sections += [_section(paths, schema, places) for paths, schema in _distinct_objects(root)]
    return "\n".join(sections)


def _objects(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every object with fields of its own under `schema`, outermost first."""
    if "properties" in schema:
        if path:
            yield path, schema
        for name, child in schema["properties"].items():
            if path or name in ("spec", "status"):
                yield from _objects(child, f"{path}.{name}" if path else name)
    if isinstance(schema.get("items"), dict):
        yield from _objects(schema["items"], f"{path}[]")


def _distinct_objects(root: Schema) -> list[tuple[list[str], Schema]]:
    """Objects of one shape once, with all their places."""
    found: dict[str, tuple[list[str], Schema]] = {}
    for path, schema in _objects(root, ""):
        found.setdefault(_shape(schema), ([], schema))[0].append(path)
    return list(found.values())


def _places(root: Schema) -> dict[str, str]:
    """The path under which a shape is described."""
    return {_shape(schema): paths[0] for paths, schema in _distinct_objects(root)}


def _shape(schema: Schema) -> str:
    return json.dumps({key: schema[key] for key in schema if key not in ("description", "default")}, sort_keys=True)


def _section(paths: list[str], schema: Schema, places: dict[str, str]) -> str:
    lines = [f"## `{paths[0]}`"]
    if len(paths) > 1:
        lines += ["", "Also " + ", ".join(f"`{path}`" for path in paths[1:]) + "."]
    if schema.get("description"):
        lines += ["", schema["description"]]
    lines += ["", "| field | type | default | meaning | limits |", "|---|---|---|---|---|"]
    required = schema.get("required", [])
    for name, child in schema["properties"].items():
        default = "required" if name in required else _code(child["default"]) if "default" in child else ""
        meaning = " ".join(child.get("description", "").split()).replace("|", "\\|")
        lines.append(f"| `{name}` | {_type(child, places)} | {default} | {meaning} | {_limits(child)} |")
    rules = _rules(schema)
    return "\n".join([*lines, *(["", "Refused with:", "", *rules] if rules else [])]) + "\n"


def _rules(schema: Schema) -> list[str]:
    rules = schema.get("x-kubernetes-validations", [])
    return [f"- {_subject(rule)}{rule['message']}" for rule in rules]


def _subject(rule: Schema) -> str:
    return f"`{rule['fieldPath'].removeprefix('.')}`: " if "fieldPath" in rule else ""


def _type(schema: Schema, places: dict[str, str]) -> str:
    if place := places.get(_shape(schema)):
        return f"[object](#{_anchor(place)})"
    if schema.get("type") == "array":
        keys = schema.get("x-kubernetes-list-map-keys")
        return f"list{f' by `{keys[0]}`' if keys else ''} of {_type(schema['items'], places)}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_type(schema['additionalProperties'], places)}"
    return _plain_type(schema)


def _plain_type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        rule = schema["x-kubernetes-validations"][0]["rule"]
        return "Quantity" if "Quantity" in rule else "Duration"
    if "enum" in schema:
        return " \\| ".join(_code(value) for value in schema["enum"])
    if schema.get("format") == "date-time":
        return "time, as `2026-12-01T18:00:00Z`"
    return "any object" if schema["type"] == "object" else str(schema["type"])


def _limits(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    limits = [f"{low} to {high}"] if low is not None and high is not None else []
    if schema.get("minItems"):
        limits.append(f"at least {schema['minItems']}")
    limits += [f"at most {schema[key]}" for key in ("maxItems", "maxProperties") if key in schema]
    return ", ".join(limits)


def _anchor(path: str) -> str:
    """GitHub's anchor of a heading: lower case, punctuation dropped."""
    return "".join(letter for letter in path.lower() if letter.isalnum() or letter in "-_")


def _code(value: Any) -> str:
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
