"""The CustomResourceDefinitions, rendered from the models.

`python -m gpudask.api.crd` prints that of GpuDaskCluster, with `record` that of GpuDaskRecord, with `job` that of
GpuDaskJob, with `cron-job` that of GpuDaskCronJob. `make generate` writes them to crds/, and a test fails on drift.
Descriptions of fields belong into the models, not here.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import yaml

from gpudask.api.base import Model
from gpudask.api.cron_job import CronJobSpec, CronJobStatus
from gpudask.api.job import JobSpec, JobStatus
from gpudask.api.record import Record
from gpudask.api.resource import (
    CLUSTER_NAME,
    CRON_JOB_KIND,
    CRON_JOB_NAME_ADVICE,
    CRON_JOB_NAME_LENGTH_ADVICE,
    CRON_JOB_PLURAL,
    CRON_JOB_SHORT,
    CRON_JOB_SINGULAR,
    GROUP,
    JOB_KIND,
    JOB_NAME_ADVICE,
    JOB_NAME_LENGTH_ADVICE,
    JOB_PLURAL,
    JOB_SHORT,
    JOB_SINGULAR,
    KIND,
    MAX_CLUSTER_NAME,
    MAX_CRON_JOB_NAME,
    NAME_ADVICE,
    NAME_LENGTH_ADVICE,
    PLURAL,
    RECORD_KIND,
    RECORD_PLURAL,
    RECORD_SHORT,
    RECORD_SINGULAR,
    SHORT,
    SINGULAR,
    VERSION,
)
from gpudask.api.spec import Spec
from gpudask.api.status import Status

Schema = dict[str, Any]

_KEPT = {
    "type",
    "description",
    "properties",
    "required",
    "items",
    "additionalProperties",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "format",
    "anyOf",
    "default",
}
_LIST_KEYS = {
    "pools": "name",
    "overrides": "pool",
    "env": "name",
    "imagePullSecrets": "name",
    "conditions": "type",
    "causes": "cause",
    "owners": "owner",
}
_COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("CPU", "string", ".status.summary.cpu", 0),
    ("GPU", "string", ".status.summary.gpu", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Address", "string", ".status.scheduler.address", 1),
    ("Worked", "string", ".status.summary.worked", 1),
    ("Reason", "string", ".status.reason", 1),
)
_RECORD_COLUMNS = (
    ("Cluster", "string", ".record.cluster.name", 0),
    ("Began", "date", ".record.began", 0),
    ("Ended", "date", ".record.ended", 0),
    ("Updated", "date", ".record.updated", 1),
)
_JOB_COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Attempts", "integer", ".status.attempts", 0),
    ("Exit", "integer", ".status.runner.exitCode", 0),
    ("Started", "date", ".status.startTime", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Cluster", "string", ".status.cluster", 1),
    ("Runner", "string", ".status.runner.pod", 1),
    ("Reason", "string", ".status.reason", 1),
)
_CRON_JOB_COLUMNS = (
    ("Schedule", "string", ".spec.schedule", 0),
    ("Zone", "string", ".spec.timeZone", 0),
    ("Suspend", "boolean", ".spec.suspend", 0),
    ("Active", "integer", ".status.activeJobs", 0),
    ("Last", "date", ".status.lastScheduleTime", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Next", "string", ".status.nextScheduleTime", 1),
    ("Missed", "integer", ".status.missed", 1),
    ("Accepted", "string", ".status.conditions[?(@.type=='Accepted')].reason", 1),
)


def structural(schema: Schema) -> Schema:
    """A model's JSON schema in Kubernetes' structural form: no references, no null types, no titles."""
    return _inline(schema, schema.get("$defs", {}))


def _inline(node: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        return _inline({**target, **{k: v for k, v in node.items() if k != "$ref"}}, definitions)
    variants = [variant for variant in node.get("anyOf", []) if variant.get("type") != "null"]
    if len(variants) == 1:
        rest = {k: v for k, v in node.items() if k not in ("anyOf", "default")}
        return _inline({**variants[0], **rest}, definitions)
    if "const" in node:
        node = {**node, "enum": [node["const"]]}
    result = {key: node[key] for key in node if key in _KEPT or key.startswith("x-kubernetes-")}
    if isinstance(result.get("default"), dict | list) or result.get("default", 0) is None:
        del result["default"]  # objects get their defaults field by field
    if "properties" in result:
        result["properties"] = {
            name: _with_list_key(name, _inline(child, definitions)) for name, child in result["properties"].items()
        }
    if isinstance(result.get("items"), dict):
        result["items"] = _inline(result["items"], definitions)
    if isinstance(result.get("additionalProperties"), dict):
        result["additionalProperties"] = _inline(result["additionalProperties"], definitions)
    elif result.get("additionalProperties") is True:
        del result["additionalProperties"]
    return result


def _with_list_key(name: str, schema: Schema) -> Schema:
    if name in _LIST_KEYS and schema.get("type") == "array":
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [_LIST_KEYS[name]]}
    return schema


def full_schema(kind: str) -> Schema:
    """The schema of a kind that users write, with all defaults, those that the operator sets as well."""
    models: dict[str, tuple[type[Model], type[Model], _Root]] = {
        KIND: (Spec, Status, _CLUSTER_ROOT),
        JOB_KIND: (JobSpec, JobStatus, _JOB_ROOT),
        CRON_JOB_KIND: (CronJobSpec, CronJobStatus, _CRON_JOB_ROOT),
    }
    spec, status, root = models[kind]
    written = structural(spec.model_json_schema(by_alias=True))
    return _root(written, structural(status.model_json_schema(by_alias=True, mode="serialization")), root)


def _served(kind: str) -> Schema:
    """The same as the API server has it."""
    made = full_schema(kind)
    properties = made["properties"]
    return made | {"properties": properties | {"spec": _without_defaults_in_items(properties["spec"])}}


def _without_defaults_in_items(schema: Schema, *, is_in_item: bool = False) -> Schema:
    """A spec's schema with the defaults inside of list items told in the descriptions alone: docs/adr/0039.

    What kubectl and GitOps tools apply and what is stored then agree; the operator's models have these defaults.
    """
    result = dict(schema)
    if is_in_item and "default" in result:
        default = result.pop("default")
        if default != "":
            text = default if isinstance(default, str) else json.dumps(default)
            result["description"] = f"{result.get('description', '')}; by default {text}"
    for key, child_is_in_item in (("items", True), ("additionalProperties", is_in_item)):
        if isinstance(result.get(key), dict):
            result[key] = _without_defaults_in_items(result[key], is_in_item=child_is_in_item)
    if "properties" in result:
        result["properties"] = {
            name: _without_defaults_in_items(child, is_in_item=is_in_item)
            for name, child in result["properties"].items()
        }
    return result


def render() -> Schema:
    """The CRD as an object."""
    names = _names(KIND, PLURAL, SINGULAR, SHORT) | {"categories": ["dask"]}
    return _definition(names, {"subresources": {"status": {}}}, _COLUMNS, _served(KIND))


def render_job() -> Schema:
    """The CRD of GpuDaskJob as an object."""
    names = _names(JOB_KIND, JOB_PLURAL, JOB_SINGULAR, JOB_SHORT) | {"categories": ["dask"]}
    return _definition(names, {"subresources": {"status": {}}}, _JOB_COLUMNS, _served(JOB_KIND))


def render_cron_job() -> Schema:
    """The CRD of GpuDaskCronJob as an object."""
    names = _names(CRON_JOB_KIND, CRON_JOB_PLURAL, CRON_JOB_SINGULAR, CRON_JOB_SHORT) | {"categories": ["dask"]}
    return _definition(names, {"subresources": {"status": {}}}, _CRON_JOB_COLUMNS, _served(CRON_JOB_KIND))


def render_record() -> Schema:
    """The CRD of GpuDaskRecord as an object. All of it has defaults, which are the operator's to know."""
    record = _without_defaults(structural(Record.model_json_schema(by_alias=True, mode="serialization")))
    made = {
        "type": "object",
        "description": "What stays of a GpuDaskCluster after its pods are gone, and after it is gone itself.",
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": RECORD_KIND},
            "metadata": {"type": "object"},
            "record": record,
        },
    }
    names = _names(RECORD_KIND, RECORD_PLURAL, RECORD_SINGULAR, RECORD_SHORT)
    return _definition(names, {}, _RECORD_COLUMNS, made)


def _names(kind: str, plural: str, singular: str, short: str) -> Schema:
    return {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": singular, "shortNames": [short]}


def _definition(names: Schema, more: Schema, columns: tuple[tuple[str, str, str, int], ...], of: Schema) -> Schema:
    """A CRD with the schema `of` its objects; `more`: of its version."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    **more,
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path} | ({"priority": wide} if wide else {})
                        for name, kind, path, wide in columns
                    ],
                    "schema": {"openAPIV3Schema": of},
                }
            ],
        },
    }


def _without_defaults(schema: Schema) -> Schema:
    """A schema in which nothing is filled in, or required, and lists are replaced whole: one writer writes it."""
    left_out = ("default", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
    result = {key: value for key, value in schema.items() if key not in left_out}
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), dict):
            result[key] = _without_defaults(result[key])
    if "properties" in result:
        result["properties"] = {name: _without_defaults(child) for name, child in result["properties"].items()}
    return result


@dataclass(frozen=True)
class _Root:
    """What the schemas of the kinds that users write differ in: a name's limits are the same, for different reasons."""

    kind: str
    description: str
    name_length_advice: str
    name_advice: str
    name_length: int = MAX_CLUSTER_NAME


_CLUSTER_ROOT = _Root(
    KIND,
    "A Dask cluster of CPU and GPU worker pools, each with a size of its own.",
    NAME_LENGTH_ADVICE,
    NAME_ADVICE,
)
_JOB_ROOT = _Root(
    JOB_KIND,
    "A program that runs to its end beside a Dask cluster, which is its own or one that is there.",
    JOB_NAME_LENGTH_ADVICE,
    JOB_NAME_ADVICE,
)

_CRON_JOB_ROOT = _Root(
    CRON_JOB_KIND,
    "Makes a GpuDaskJob at each time of a schedule.",
    CRON_JOB_NAME_LENGTH_ADVICE,
    CRON_JOB_NAME_ADVICE,
    MAX_CRON_JOB_NAME,
)


def _root(spec: Schema, status: Schema, root: _Root) -> Schema:
    return {
        "type": "object",
        "description": root.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": root.kind},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name.size() <= {root.name_length}",
                "message": root.name_length_advice,
                "fieldPath": ".metadata.name",
            },
            {
                "rule": f"self.metadata.name.matches('{CLUSTER_NAME}')",
                "message": root.name_advice,
                "fieldPath": ".metadata.name",
            },
        ],
    }


def dump(definition: Schema) -> str:
    """A CRD as the text of its file in crds/."""
    header = "# Made by `make generate` from operator/gpudask/api. Do not edit.\n"
    return header + yaml.dump(definition, Dumper=_Plain, sort_keys=False, width=110)


class _Plain(yaml.SafeDumper):
    """Writes every part out: people and some tools read no YAML aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the library's
        return True


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record"]:
            made = dump(render_record())
        case ["job"]:
            made = dump(render_job())
        case ["cron-job"]:
            made = dump(render_cron_job())
        case _:
            made = dump(render())
    sys.stdout.write(made)
