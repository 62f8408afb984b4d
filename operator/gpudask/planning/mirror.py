"""The mirror for the stock Dask client: what a person's change of it means, and what it should show.

Our own writes are told from a person's by an annotation that is written in the same request as the size: what the
object says now, and what it said when we last wrote it. That outlives restarts of the operator and changes made while
it was away, which the names of field managers alone do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpudask.api.autoscale import MAX_REPLICAS
from gpudask.api.pool import Pool
from gpudask.api.resource import ANNOTATION_MIRRORED, Cluster
from gpudask.api.spec import Override
from gpudask.desired import mirror
from gpudask.planning.reduce import owner_uid
from gpudask.planning.sizes import active_override

Json = dict[str, Any]
_BY_LENGTH = 128  # of an override's `by`
_FOREIGN = "kopf.zalando.org/"  # what the stock operator leaves on whatever it handles
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
        foreign=any(mark.startswith(_FOREIGN) for mark in marks),
    )


def overrides_wanted(
    cluster: Cluster, objects: tuple[Mirrored, ...], now: float, *, given_up: int | None = None
) -> dict[str, Json | None]:
    """By pool, the override that people asked for through the mirror; None: the one there is, is to go.

    Empty where they asked for nothing, or have it. Of several changes for one pool the last one counts. `given_up`:
    somebody deleted the autoscaler just now, while the default pool had so many pods; as with the stock operator it
    keeps them.
    """
    newest: dict[str, Mirrored] = {}
    for item in sorted((item for item in objects if item.set_by_person), key=lambda item: int(item.version)):
        pool = _pool(cluster, item)
        if pool is not None:
            newest[pool.name] = item
    pools = {pool.name: pool for pool in cluster.spec.pools}
    wishes = {name: _entry(pools[name], item) for name, item in newest.items()}
    default = mirror.default_pool(cluster).name
    override = active_override(cluster.spec.overrides, default, now)
    if given_up is not None and default not in wishes and override is not None and override.max is not None:
        by = f"deleting {mirror.AUTOSCALER} {cluster.name}"
        wishes[default] = {"pool": default, "replicas": given_up, "by": by}
    return {name: wish for name, wish in wishes.items() if not _granted(cluster.spec.overrides, name, wish, now)}


def with_overrides(overrides: list[Json], wanted: dict[str, Json | None]) -> list[Json]:
    """The list of the resource with these entries instead of its own for the same pools."""
    kept = [entry for entry in overrides if entry["pool"] not in wanted]
    return [*kept, *(entry for entry in wanted.values() if entry is not None)]


def shown(cluster: Cluster, desired: dict[str, int], ready: dict[str, int], now: float) -> list[Json]:
    """The objects as they should be. By pool, `desired`: pods that it should have; `ready`: those that are.

    A worker group shows a size where somebody set one. Where the pool follows demand it shows none: then whatever
    anybody sets is a change, the size that the pool happens to have as well.
    """
    active = {pool.name: active_override(cluster.spec.overrides, pool.name, now) for pool in cluster.spec.pools}
    sizes = {pool.name: _set_size(pool, active[pool.name]) for pool in cluster.spec.pools}
    default = mirror.default_pool(cluster)
    size, override = sizes[default.name], active[default.name]
    number = desired.get(default.name, 0) if size is None else size
    objects = [
        mirror.dask_cluster(cluster, size=number, ready=ready[default.name]),
        *mirror.worker_groups(cluster, sizes=sizes, ready=ready),
    ]
    if override is not None and override.max is not None:
        objects.append(mirror.autoscaler(cluster, override.min or 0, override.max))
    return objects


def superfluous(cluster: Cluster, objects: tuple[Mirrored, ...], wanted: list[Json]) -> list[Mirrored]:
    """What is to be deleted: groups of removed pools, and an autoscaler whose limits hold no more."""
    known = {(body["kind"], body["metadata"]["name"]) for body in wanted}
    extra = [item for item in objects if (item.kind, item.name) not in known and item.kind != mirror.CLUSTER]
    return [item for item in extra if item.controller == cluster.uid or _is_our_autoscaler(cluster, item)]


def in_the_way(cluster: Cluster, objects: tuple[Mirrored, ...]) -> str:
    """Why the mirror is left alone; empty: it is not. Another operator's objects are not fought over."""
    for item in objects:
        if item.foreign:
            return (
                f"{item.kind} {item.name} is handled by another operator, which left {_FOREIGN} on it: remove the stock"
                " Dask operator, or switch the mirror off (mirror.enabled in the chart)"
            )
        if item.controller not in ("", cluster.uid) and (item.kind == mirror.CLUSTER or _pool(cluster, item)):
            return f"{item.kind} {item.name} belongs to an object with uid {item.controller}: delete it"
    return ""


def _is_our_autoscaler(cluster: Cluster, item: Mirrored) -> bool:
    return item.kind == mirror.AUTOSCALER and item.name == cluster.name and not item.controller


def _pool(cluster: Cluster, item: Mirrored) -> Pool | None:
    if item.kind == mirror.WORKER_GROUP:
        return mirror.pool_of(cluster, item.name)
    return mirror.default_pool(cluster) if item.name == cluster.name else None


def _entry(pool: Pool, item: Mirrored) -> Json | None:
    by = f"{item.editor or 'somebody'} on {item.kind} {item.name}"[:_BY_LENGTH]
    if item.kind == mirror.AUTOSCALER:
        least, most = _limits(pool, item)
        return {"pool": pool.name, "min": least, "max": most, "by": by}
    return None if item.size is None else {"pool": pool.name, "replicas": item.size, "by": by}


def _limits(pool: Pool, item: Mirrored) -> tuple[int, int]:
    """Those given; else the pool's own; else none. One that is given moves the other, which is not."""
    own = pool.autoscale
    least = item.minimum if item.minimum is not None else own.min if own else 0
    most = item.maximum if item.maximum is not None else own.max if own else MAX_REPLICAS
    return (least, max(least, most)) if item.maximum is None else (min(least, most), most)


def _granted(overrides: list[Override], pool: str, wish: Json | None, now: float) -> bool:
    there = active_override(overrides, pool, now)
    if wish is None or there is None:
        return wish is None and there is None
    least = None if there.max is None else there.min or 0
    return (there.replicas, least, there.max) == (wish.get("replicas"), wish.get("min"), wish.get("max"))


def _set_size(pool: Pool, override: Override | None) -> int | None:
    """The size that somebody set; None: it follows demand."""
    if override is not None:
        return override.replicas
    if pool.autoscale is not None:
        return None
    return 1 if pool.replicas is None else pool.replicas


def _editor(meta: Json) -> str:
    """Who set the size last, as the API server calls the program: `kubectl`, for example."""
    found = [entry for entry in meta.get("managedFields", ()) if entry["manager"] != _OURS and _sets_size(entry)]
    return str(max(found, key=lambda entry: entry.get("time", ""))["manager"]) if found else ""


def _sets_size(entry: Json) -> bool:
    spec = entry.get("fieldsV1", {}).get("f:spec", {})
    return "f:replicas" in spec.get("f:worker", {}) or "f:minimum" in spec or "f:maximum" in spec
