"""What pools and the scheduler have in common: templates, environment, resources, arguments, images."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpudask.api.model import FreeObject, Model
from gpudask.api.reserved import no_reserved_keys
from gpudask.api.rules import Rule
from gpudask.api.values import Quantity

# As long as Kubernetes lets them be: a label's value, also one that nodes are selected by, and an object's annotations.
LabelText = Annotated[str, Field(max_length=63)]
AnnotationText = Annotated[str, Field(max_length=256 * 1024)]


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
Image = Annotated[str, Field(min_length=1, max_length=512)]
