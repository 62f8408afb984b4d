"""The parts of a pod that pools and the scheduler have in common: templates, environment, resources, arguments, images.

Labels and annotations of the operator, or Dask's in the operator's hand, are reserved. By them the operator knows its
pods, and what it meant to do with them: one that a template set would have it create and delete the same pod for ever.
The CRD refuses them; where an older CRD let them in they are left out, and the condition `Accepted` says so.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpudask.api.base import FreeObject, Model, Quantity, Rule

# As long as Kubernetes lets them be: a label's value, also one that nodes are selected by, and an object's annotations.
LabelText = Annotated[str, Field(max_length=63)]
AnnotationText = Annotated[str, Field(max_length=256 * 1024)]

RESERVED_PREFIXES = ("gpudask.dev/", "dask.org/")
_LISTED = " or ".join(RESERVED_PREFIXES)


def without_reserved(metadata: dict[str, str]) -> dict[str, str]:
    """`metadata`, labels or annotations, without the keys that are reserved."""
    return {key: value for key, value in metadata.items() if not key.startswith(RESERVED_PREFIXES)}


def reserved(metadata: dict[str, str]) -> list[str]:
    """The reserved keys of `metadata`, labels or annotations."""
    return sorted(key for key in metadata if key.startswith(RESERVED_PREFIXES))


def no_reserved_keys(field: str) -> Rule:
    """A rule: `field`, labels or annotations, has no reserved key. The operator leaves such keys out, no more."""
    starts = " || ".join(f"k.startsWith('{prefix}')" for prefix in RESERVED_PREFIXES)
    return Rule(
        f"!has(self.{field}) || !self.{field}.exists(k, {starts})",
        f"keys that start with {_LISTED} belong to the operator, which knows its pods by them: remove them, or write a"
        " prefix of your own, such as example.com/team",
        None,
        f".{field}",
    )


class TemplateMetadata(Model):
    """Labels and annotations added to pods. Keys of the operator are refused, and left out where they got in."""

    rules = (no_reserved_keys("labels"), no_reserved_keys("annotations"))

    labels: Annotated[dict[str, LabelText], Field(default_factory=dict, max_length=64, description="added to ours")]
    annotations: Annotated[
        dict[str, AnnotationText], Field(default_factory=dict, max_length=64, description="added to ours")
    ]


class Template(Model):
    """A partial pod template, merged over ours with Kubernetes' strategic-merge meaning.

    The main container is called `dask`. Whatever a pod can have is reachable here.
    """

    metadata: TemplateMetadata = Field(default_factory=lambda: TemplateMetadata.model_validate({}))
    spec: Annotated[FreeObject, Field(description="any part of a pod's spec")] = Field(default_factory=dict)


class EnvVar(Model):
    """An environment variable of the main container, as in a pod."""

    rules = (
        Rule(
            "!self.name.startsWith('GPUDASK_')",
            "names that start with GPUDASK_ belong to the operator: choose another name",
            lambda env: not env.name.startswith("GPUDASK_"),
            ".name",
        ),
        Rule(
            "!(has(self.value) && has(self.valueFrom))",
            "a variable has value or valueFrom, not both: remove one",
            lambda env: env.value is None or env.value_from is None,
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=128, description="does not start with GPUDASK_")]
    value: Annotated[str, Field(max_length=32768)] | None = Field(default=None, description="a string: quote numbers")
    value_from: FreeObject | None = Field(default=None, description="as in a pod, e.g. a secretKeyRef")


class LocalObjectReference(Model):
    """The name of an object in the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253, description="in the cluster's namespace")]


ResourceList = Annotated[dict[str, Quantity], Field(max_length=16)]


def default_resources(cpu: str | int, memory: str) -> ResourceList:
    """The resources of a pod that names none."""
    return {"cpu": cpu, "memory": memory}


EnvList = Annotated[
    list[EnvVar],
    Field(default_factory=list, max_length=64, description="environment variables of the main container, as in a pod"),
]
ExtraArgs = Annotated[
    list[Annotated[str, Field(max_length=1024)]],
    Field(default_factory=list, max_length=32, description="arguments added to the command, as dask knows them"),
]
MAX_IMAGE = 512
Image = Annotated[str, Field(min_length=1, max_length=MAX_IMAGE)]
