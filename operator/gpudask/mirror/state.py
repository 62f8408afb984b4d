"""An object of the mirror for the stock Dask client, as it is: reduced to what a pass reads of it.

Our own writes are told from a person's by an annotation that is written in the same request as the size: what the
object says now, and what it said when we last wrote it. That outlives restarts of the operator and changes made while
it was away, which the names of field managers alone do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpudask.api.resource import ANNOTATION_MIRRORED
from gpudask.mirror import objects as mirror
from gpudask.planning import fields
from gpudask.planning.reduce import owner_key

Json = dict[str, Any]
FOREIGN = "kopf.zalando.org/"
"""What the stock operator leaves on whatever it handles."""
_OURS = "gpudask"


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A `kubernetes.dask.org` object, as far as it matters. Counts are pods.

    `owner`: the cluster that it is of, as `namespace/name`, by which it is found. `controller`: its owner's
    `Identity.owner_key`, or the words for another kind of owner. `mirrored`: what it said when the operator last wrote
    it. `editor`: who set the size. `foreign`: another operator handles it.
    """

    uid: str
    name: str
    kind: str
    owner: str
    controller: str
    version: str
    size: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    mirrored: str | None = None
    editor: str = ""
    foreign: bool = False

    @property
    def said(self) -> str:
        """What it says now, in the annotation's words."""
        if self.kind == mirror.AUTOSCALER:
            return mirror.limits(self.minimum, self.maximum)
        return "" if self.size is None else str(self.size)

    @property
    def set_by_person(self) -> bool:
        """Whether it says something else than the operator wrote."""
        return self.said != (self.mirrored or "")


def observe_mirrored(kind: str) -> Callable[[Json], Mirrored]:
    """How objects of `kind` are reduced."""
    return lambda body: _reduce(kind, body)


def _reduce(kind: str, body: Json) -> Mirrored:
    """An object of the mirror, reduced.

    Raises:
        UnreadableError: it has not the shape of one.
    """
    meta, spec = fields.mapping(body, "metadata"), fields.mapping(body, "spec")
    annotations = fields.mapping(meta, "annotations")
    name = fields.identifier(meta, "name")
    cluster = name if kind == mirror.CLUSTER else fields.text(spec, "cluster")
    mirrored = annotations.get(ANNOTATION_MIRRORED)
    return Mirrored(
        uid=fields.identifier(meta, "uid"),
        name=name,
        kind=kind,
        owner=f"{fields.identifier(meta, 'namespace')}/{cluster}",
        controller=_controller(meta),
        version=fields.version(meta),
        size=fields.number(fields.mapping(spec, "worker"), "replicas"),
        minimum=fields.number(spec, "minimum"),
        maximum=fields.number(spec, "maximum"),
        mirrored=None if mirrored is None else fields.text(annotations, ANNOTATION_MIRRORED),
        editor=_editor(meta),
        foreign=any(mark.startswith(FOREIGN) for mark in (*annotations, *fields.strings(meta, "finalizers"))),
    )


def _controller(meta: Json) -> str:
    """Its cluster's `owner_key`; of what something else controls, what that is, which is no cluster's key."""
    if key := owner_key(meta):
        return key
    controllers = [item for item in fields.items(meta, "ownerReferences") if item.get("controller") is True]
    return " ".join(f"{fields.text(item, 'kind')} {fields.text(item, 'uid')}" for item in controllers[:1])


def _editor(meta: Json) -> str:
    """Who set the size last, as the API server calls the program: `kubectl`, for example."""
    found = [entry for entry in fields.items(meta, "managedFields") if _sets_size(entry)]
    editors = [(fields.text(entry, "time"), fields.text(entry, "manager")) for entry in found]
    return max((item for item in editors if item[1] != _OURS), key=lambda item: item[0], default=("", ""))[1]


def _sets_size(entry: Json) -> bool:
    spec = fields.mapping(fields.mapping(entry, "fieldsV1"), "f:spec")
    return "f:replicas" in fields.mapping(spec, "f:worker") or "f:minimum" in spec or "f:maximum" in spec
