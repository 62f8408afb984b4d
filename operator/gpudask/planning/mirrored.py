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
from gpudask.desired import mirror
from gpudask.planning.reduce import owner_uid

Json = dict[str, Any]
FOREIGN = "kopf.zalando.org/"
"""What the stock operator leaves on whatever it handles."""
_OURS = "gpudask"


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A `kubernetes.dask.org` object, as far as it matters. Counts are pods.

    `owner`: the cluster that it is of, as `namespace/name`, by which it is found. `controller`: its owner's uid.
    `mirrored`: what it said when the operator last wrote it. `editor`: who set the size. `foreign`: another operator
    handles it.
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
    meta, spec = body["metadata"], body.get("spec") or {}
    annotations = meta.get("annotations") or {}
    cluster = meta["name"] if kind == mirror.CLUSTER else spec.get("cluster", "")
    marks = [*annotations, *meta.get("finalizers", ())]
    return Mirrored(
        uid=meta["uid"],
        name=meta["name"],
        kind=kind,
        owner=f"{meta['namespace']}/{cluster}",
        controller=owner_uid(meta),
        version=meta["resourceVersion"],
        size=(spec.get("worker") or {}).get("replicas"),
        minimum=spec.get("minimum"),
        maximum=spec.get("maximum"),
        mirrored=annotations.get(ANNOTATION_MIRRORED),
        editor=_editor(meta),
        foreign=any(mark.startswith(FOREIGN) for mark in marks),
    )


def _editor(meta: Json) -> str:
    """Who set the size last, as the API server calls the program: `kubectl`, for example."""
    found = [entry for entry in meta.get("managedFields", ()) if entry["manager"] != _OURS and _sets_size(entry)]
    return str(max(found, key=lambda entry: entry.get("time", ""))["manager"]) if found else ""


def _sets_size(entry: Json) -> bool:
    spec = entry.get("fieldsV1", {}).get("f:spec", {})
    return "f:replicas" in spec.get("f:worker", {}) or "f:minimum" in spec or "f:maximum" in spec
