"""The CustomResourceDefinition, rendered from the models.

`python -m gpudask.api.crd` prints it; `make generate` writes it to crds/, and a test fails on drift.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml

from gpudask.api.resource import (
    GROUP,
    KIND,
    NAME_ADVICE,
    NAME_LENGTH_ADVICE,
    PLURAL,
    SHORT,
    SINGULAR,
    VERSION,
)
from gpudask.api.spec import CLUSTER_NAME, MAX_CLUSTER_NAME, Spec
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
_LIST_KEYS = {"pools": "name", "overrides": "pool", "env": "name", "imagePullSecrets": "name", "conditions": "type"}
_COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("CPU", "string", ".status.summary.cpu", 0),
    ("GPU", "string", ".status.summary.gpu", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Address", "string", ".status.scheduler.address", 1),
    ("Reason", "string", ".status.reason", 1),
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


def render() -> Schema:
    """The CRD as an object."""
    spec = structural(Spec.model_json_schema(by_alias=True))
    status = structural(Status.model_json_schema(by_alias=True, mode="serialization"))
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": [SHORT],
                "categories": ["dask"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path} | ({"priority": wide} if wide else {})
                        for name, kind, path, wide in _COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": _root(spec, status)},
                }
            ],
        },
    }


def _root(spec: Schema, status: Schema) -> Schema:
    return {
        "type": "object",
        "description": "A Dask cluster of CPU and GPU worker pools, each with a size of its own.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": KIND},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name.size() <= {MAX_CLUSTER_NAME}",
                "message": NAME_LENGTH_ADVICE,
                "fieldPath": ".metadata.name",
            },
            {
                "rule": f"self.metadata.name.matches('{CLUSTER_NAME}')",
                "message": NAME_ADVICE,
                "fieldPath": ".metadata.name",
            },
        ],
    }


def dump() -> str:
    """The CRD as the text of crds/gpudaskclusters.yaml."""
    header = "# Made by `make generate` from operator/gpudask/api. Do not edit.\n"
    return header + yaml.dump(render(), Dumper=_Plain, sort_keys=False, width=110)


class _Plain(yaml.SafeDumper):
    """Writes every part out: people and some tools read no YAML aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the library's
        return True


if __name__ == "__main__":
    sys.stdout.write(dump())
