"""The reference pages of the kinds that users write, rendered from the models.

`python -m gpudask.api.reference ROOT` writes them to docs/, and a test fails on drift. What one kind has of another, as
a job has a cluster's spec, is described on the other's page alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpudask.api.crd import Schema, full_schema
from gpudask.api.resource import API_VERSION, CRON_JOB_KIND, CRON_JOB_SHORT, JOB_KIND, JOB_SHORT, KIND, SHORT

Links = dict[str, str]  # from a shape to where it is described


@dataclass(frozen=True)
class Page:
    """The page of a kind. `explained`: what `kubectl explain` is shown with. `notes`: lines of a list.

    `refers_to`: kinds whose pages describe what this one has of them.
    """

    kind: str
    short: str
    explained: str
    notes: tuple[str, ...]
    refers_to: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> Schema:
        """The kind's schema, with all defaults."""
        return full_schema(self.kind)


_LIST = "*List by `name`*: no two items have the same name; server-side apply merges the lists of several owners by it."
_DURATION = "*Duration*: `30s`, `5m`, `1h30m`."
PAGES = {
    "docs/reference.md": Page(
        KIND,
        SHORT,
        "spec.pools",
        (
            '*Quantity*: as in a pod: `4`, `500m`, `16Gi`, `200G`. Fractions stand in quotes: `"0.5"`.',
            _DURATION,
            _LIST,
            "`replicas`, `min` and `max` count pods; a pod with four GPUs holds four workers.",
        ),
    ),
    "docs/reference-jobs.md": Page(
        JOB_KIND,
        JOB_SHORT,
        "spec.runner",
        (_DURATION, "[Jobs](jobs.md) says what the fields are for; [a cluster's fields](reference.md)."),
        (KIND,),
    ),
    "docs/reference-cron-jobs.md": Page(
        CRON_JOB_KIND,
        CRON_JOB_SHORT,
        "spec.jobTemplate",
        (
            _DURATION,
            "[Jobs at times](jobs.md#at-times) says what the fields are for; [a job's fields](reference-jobs.md).",
        ),
        (KIND, JOB_KIND),
    ),
}


def render(page: Page) -> str:
    """The text of a page."""
    made, links = page.schema, _links(page)
    sections = [_head(page), "\n".join(["A name is refused with:", "", *_rules(made)]) + "\n"]
    objects = _distinct_objects(made, _links_of_others(page))
    return "\n".join([*sections, *(_section(paths, each, links) for paths, each in objects)])


def _head(page: Page) -> str:
    kind = f"`apiVersion: {API_VERSION}`, `kind: {page.kind}`, short `{page.short}`."
    lines = (
        "<!-- Made by `make generate` from operator/gpudask/api. Do not edit. -->",
        f"# {page.kind} reference",
        "",
        f"{kind} In a terminal: `kubectl explain {page.short}.{page.explained}`.",
        "",
        *(f"- {note}" for note in page.notes),
    )
    return "\n".join(lines) + "\n"


def _objects(schema: Schema, path: str, elsewhere: Links) -> Iterator[tuple[str, Schema]]:
    """Every object with fields of its own under `schema`, outermost first; not what is described elsewhere."""
    if _shape(schema) in elsewhere:
        return
    if "properties" in schema:
        if path:
            yield path, schema
        for name, child in schema["properties"].items():
            if path or name in ("spec", "status"):
                yield from _objects(child, f"{path}.{name}" if path else name, elsewhere)
    if isinstance(schema.get("items"), dict):
        yield from _objects(schema["items"], f"{path}[]", elsewhere)


def _distinct_objects(root: Schema, elsewhere: Links) -> list[tuple[list[str], Schema]]:
    """The objects of the schema, those of one shape once, with all their places."""
    found: dict[str, tuple[list[str], Schema]] = {}
    for path, schema in _objects(root, "", elsewhere):
        found.setdefault(_shape(schema), ([], schema))[0].append(path)
    return list(found.values())


def _links(page: Page) -> Links:
    """Where each shape that the page has or refers to is described."""
    elsewhere = _links_of_others(page)
    own = {_shape(schema): f"#{_anchor(paths[0])}" for paths, schema in _distinct_objects(page.schema, elsewhere)}
    return elsewhere | own


def _links_of_others(page: Page) -> Links:
    """The same, of the pages that it refers to."""
    found: Links = {}
    for path, other in PAGES.items():
        if other.kind in page.refers_to:
            own = {shape: link for shape, link in _links(other).items() if link.startswith("#")}
            found |= {shape: f"{path.removeprefix('docs/')}{link}" for shape, link in own.items()}
    return found


def _shape(schema: Schema) -> str:
    return json.dumps({key: schema[key] for key in schema if key not in ("description", "default")}, sort_keys=True)


def _section(paths: list[str], schema: Schema, links: Links) -> str:
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
        lines.append(f"| `{name}` | {_type(child, links)} | {default} | {meaning} | {_limits(child)} |")
    rules = _rules(schema)
    return "\n".join([*lines, *(["", "Refused with:", "", *rules] if rules else [])]) + "\n"


def _rules(schema: Schema) -> list[str]:
    rules = schema.get("x-kubernetes-validations", [])
    return [f"- {_subject(rule)}{rule['message']}" for rule in rules]


def _subject(rule: Schema) -> str:
    return f"`{rule['fieldPath'].removeprefix('.')}`: " if "fieldPath" in rule else ""


def _type(schema: Schema, links: Links) -> str:
    if link := links.get(_shape(schema)):
        return f"[object]({link})"
    if schema.get("type") == "array":
        keys = schema.get("x-kubernetes-list-map-keys")
        return f"list{f' by `{keys[0]}`' if keys else ''} of {_type(schema['items'], links)}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_type(schema['additionalProperties'], links)}"
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


def main(root: Path) -> None:
    """Write the pages below `root`."""
    for path, page in PAGES.items():
        (root / path).write_text(render(page))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
