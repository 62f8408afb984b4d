"""The mirror's objects as they are, reduced to what a pass reads; which are superfluous, and which are not ours.

A person's change is told from our own writes by an annotation that is written in the same request as the size: the
object's value now against the value of our last write. That works over restarts of the operator and for changes made
while it was down, which the names of field managers alone do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpudask.api import Json, resource
from gpudask.api.pool import Pool
from gpudask.api.resource import (
    ANNOTATION_AUTOSCALE,
    ANNOTATION_MIRRORED,
    ANNOTATION_SERVED_BY,
    ANNOTATION_TAKE_OVER,
    DEFAULT_GROUP,
    STOCK_KIND,
    Cluster,
)
from gpudask.desired import names
from gpudask.mirror import objects
from gpudask.mirror.objects import MadeByPeople
from gpudask.planning.observed import fields
from gpudask.planning.observed.parser import owner_key
from gpudask.stock.autoscale import read_limits
from gpudask.stock.job import bounded_stock_job

_FOREIGN = "kopf.zalando.org/"  # what the stock operator leaves on whatever it handles begins so
_HANDLED = f"{_FOREIGN}last-handled-configuration"
_OURS = "gpudask"
ERROR = "Error"  # the phase, as the stock operator writes it
_RESERVED = (f"{resource.GROUP}/", "dask.org/", _FOREIGN, "kubectl.kubernetes.io/")
_JOB_STATUS = ("jobStatus", "clusterName", "jobRunnerPodName", "startTime", "endTime")
_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
MAX_REFERENCES = 16
_MAX_CONDITIONS = 8
MESSAGE_LENGTH = 2048  # of a condition
_MAX_MARKS = 64
TAKE_OVER_NOW = (ANNOTATION_TAKE_OVER, "now")


@dataclass(frozen=True, slots=True)
class MirrorObject:
    """A `kubernetes.dask.org` object, as far as a pass reads it. Counts are pods.

    `owner`: the cluster that it mirrors, as `namespace/name`, by which it is indexed. `controller`: its owner's
    `Identity.owner_key`, or kind and uid of another kind of owner. `written`: its value when the operator last wrote
    it, as the annotation has it. `editor`: who set the size. `foreign`: another operator handles it.

    `source`: where somebody else made it, who wants it served, its `metadata` and `spec`; None: it mirrors a cluster.
    `owners`: the `Identity.owner_key`s of the clusters, of a DaskJob those of the jobs, of the name it has, or gives,
    that own it, or would if nobody else did (`told.owned`): not of others, with which somebody wants it to end.
    `references`: to its owners, at most one more than MAX_REFERENCES. `told`: its phase and conditions, or a job's
    status. `deleting`: it is being deleted.

    `kopf_marks`: the annotations by which it is `foreign`; `finalizers`: all of them; `take_over_now`: somebody wants
    it taken over from the stock operator whatever it does.

    `limits`: between which its pool follows demand, as its annotation asks for, such as `0..8`; where that cannot be
    read, as it was. Empty: none.
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
    written: str | None = None
    editor: str = ""
    foreign: bool = False
    source: Json | None = None
    owners: tuple[str, ...] = ()
    references: tuple[Json, ...] = ()
    told: Json | None = None
    deleting: bool = False
    kopf_marks: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()
    take_over_now: bool = False
    limits: str = ""

    def serves(self, cluster: Cluster) -> bool:
        """Whether it is somebody's that `cluster` serves, and says so: its owner is that cluster."""
        return self.source is not None and bool(cluster.stock_uid) and cluster.owner_key in self.owners

    @property
    def kopf_finalizers(self) -> tuple[str, ...]:
        """The stock operator's finalizers."""
        return tuple(name for name in self.finalizers if name.startswith(_FOREIGN))

    @property
    def is_refused(self) -> bool:
        """Whether it is somebody's, and says that it is not served as it is now."""
        return self.source is not None and (self.told or {}).get("phase") == ERROR

    @property
    def value(self) -> str:
        """Its present size or limits, in the annotation's form."""
        if self.kind == objects.AUTOSCALER:
            return objects.limits_value(self.minimum, self.maximum)
        return objects.size_value(self.size, self.limits)

    @property
    def set_by_person(self) -> bool:
        """Whether its value differs from what the operator wrote."""
        return self.value != (self.written or "")

    @property
    def limits_removed(self) -> bool:
        """Whether its annotation asked for limits when the operator wrote it last, and is gone."""
        return self.limits_changed and not self.limits

    @property
    def limits_changed(self) -> bool:
        """Whether its annotation asks for other limits than when the operator wrote it last, or for none any more."""
        return self.limits != objects.limits_in(self.written or "")


def _limits_told(item: MirrorObject, pool: Pool | None) -> str:
    """The limits to write down for `item`; those that were taken away stay until its `pool` has none."""
    before = objects.limits_in(item.written or "") if pool is not None and pool.autoscale is not None else ""
    return item.limits or before


def pool_of(cluster: Cluster, item: MirrorObject) -> Pool | None:
    """The pool whose size or limits `item` has; None: of no pool of `cluster`."""
    if item.source is not None and not item.serves(cluster):
        return None
    if item.kind == objects.WORKER_GROUP:
        return objects.pool_of(cluster, item.name, made_by_person=item.source is not None)
    return objects.default_pool(cluster) if item.name == cluster.name else None


def superfluous(cluster: Cluster, items: tuple[MirrorObject, ...], wanted: list[Json]) -> list[MirrorObject]:
    """The objects to delete: groups of removed pools, and an autoscaler whose limits are no longer in force."""
    known = {(body["kind"], body["metadata"]["name"]) for body in wanted}
    ours = [item for item in items if item.kind != objects.CLUSTER and item.source is None]
    extra = [item for item in ours if (item.kind, item.name) not in known]
    return [item for item in extra if item.controller == cluster.owner_key or _is_our_autoscaler(cluster, item)]


def _is_our_autoscaler(cluster: Cluster, item: MirrorObject) -> bool:
    return item.kind == objects.AUTOSCALER and item.name == cluster.name and not item.controller


def refusal(cluster: Cluster, items: tuple[MirrorObject, ...]) -> str:
    """Why the mirror is not written; empty: it is. Objects that another operator handles are left to it."""
    for item in (item for item in items if item.kind != objects.JOB):  # which mirrors nothing
        if item.foreign:
            return (
                f"{item.kind} {item.name} is handled by another operator, which left {_FOREIGN} on it: remove the stock"
                " Dask operator, or switch the mirror off (mirror.enabled in the chart)"
            )
        if item.source is not None:
            if not cluster.stock_uid and _has_name_of_mirror(cluster, item):
                return f"{item.kind} {item.name} is not the operator's: somebody made it. Delete it"
            continue
        if item.controller not in ("", cluster.owner_key, _stock_owner(cluster.stock_uid)) and (
            item.kind == objects.CLUSTER or pool_of(cluster, item)
        ):
            uid = item.controller.rpartition("/")[2]
            return f"{item.kind} {item.name} belongs to an object with uid {uid}: delete it"
    return ""


def made_by_people(cluster: Cluster, items: tuple[MirrorObject, ...]) -> MadeByPeople:
    """What people made and `cluster` serves."""
    served = [item for item in items if item.serves(cluster)]
    groups = [item for item in served if item.kind == objects.WORKER_GROUP]
    return MadeByPeople(
        groups={pool.name: item.name for item in groups if (pool := pool_of(cluster, item)) is not None},
        limits={(item.kind, item.name): _limits_told(item, pool_of(cluster, item)) for item in served},
    )


def _has_name_of_mirror(cluster: Cluster, item: MirrorObject) -> bool:
    return item.kind == objects.CLUSTER or (
        item.kind == objects.WORKER_GROUP and objects.pool_of(cluster, item.name) is not None
    )


def observe_mirror(kind: str) -> Callable[[Json], MirrorObject]:
    """The reducer of objects of `kind`; it raises UnreadableError where one has another shape."""
    return lambda body: _reduce(kind, body)


def _reduce(kind: str, body: Json) -> MirrorObject:
    """Reduce an object of the mirror.

    Raises:
        UnreadableError: it has not the shape of one.
    """
    meta, spec = fields.mapping(body, "metadata"), fields.mapping(body, "spec")
    annotations = fields.mapping(meta, "annotations")
    name = fields.identifier(meta, "name")
    cluster = name if kind in (objects.CLUSTER, objects.JOB) else fields.text(spec, "cluster")
    written = annotations.get(ANNOTATION_MIRRORED)
    marks, finalizers = _kopf_marks(annotations), tuple(fields.strings(meta, "finalizers"))
    source = None if _is_shown(kind, meta, spec, cluster) else _source(kind, meta, spec)
    written_text = fields.text(annotations, ANNOTATION_MIRRORED)
    return MirrorObject(
        uid=fields.identifier(meta, "uid"),
        name=name,
        kind=kind,
        owner=f"{fields.identifier(meta, 'namespace')}/{cluster}",
        controller=_controller(meta),
        version=fields.version(meta),
        size=fields.number(fields.mapping(spec, "worker"), "replicas"),
        minimum=fields.number(spec, "minimum"),
        maximum=fields.number(spec, "maximum"),
        written=None if written is None else written_text,
        editor=_editor(meta),
        foreign=bool(marks) or any(mark.startswith(_FOREIGN) for mark in finalizers),
        source=source,
        owners=_owners(meta, cluster, resource.JOB_KIND if kind == objects.JOB else resource.KIND),
        references=tuple(fields.items(meta, "ownerReferences")[: MAX_REFERENCES + 1]),
        told=_told(body) if kind != objects.AUTOSCALER and "mirrors" not in spec else None,
        deleting="deletionTimestamp" in meta,
        kopf_marks=marks,
        finalizers=finalizers,
        take_over_now=annotations.get(TAKE_OVER_NOW[0]) == TAKE_OVER_NOW[1],
        limits="" if source is None or kind == objects.JOB else _limits(source, written_text),
    )


def _limits(source: Json, written: str) -> str:
    """The limits that the annotation of `source` asks for; what cannot be read changes nothing, and is told."""
    try:
        return str(read_limits(source["metadata"]) or "")
    except ValueError:
        return objects.limits_in(written)


def _is_shown(kind: str, meta: Json, spec: Json, cluster: str) -> bool:
    """Whether it is the operator's to write: an autoscaler, or what shows a cluster of ours, or will.

    The default worker group of a DaskCluster is the stock operator's own, made from it; ours takes its place, and the
    size that it has.
    """
    if kind == objects.AUTOSCALER or "mirrors" in spec:
        return True
    return (
        kind == objects.WORKER_GROUP
        and fields.text(meta, "name") == names.worker_group(cluster, DEFAULT_GROUP)
        and any(
            (item.get("kind"), item.get("name"), item.get("controller")) == (STOCK_KIND, cluster, True)
            for item in fields.items(meta, "ownerReferences")
        )
    )


def _stock_owner(uid: str) -> str:
    """A `controller` that is the DaskCluster with this uid, which the cluster serves; empty: it serves none."""
    return f"{STOCK_KIND} {uid}" if uid else ""


def _kopf_marks(annotations: Json) -> tuple[str, ...]:
    """The annotations that another operator left: what it handled last, and how far a handler came.

    The last is a JSON object. Other annotations that begin so are people's, and no operator's.
    """
    found = (
        key
        for key, value in annotations.items()
        if key == _HANDLED or (key.startswith(_FOREIGN) and str(value).startswith("{"))
    )
    return tuple(sorted(found)[:_MAX_MARKS])


def _source(kind: str, meta: Json, spec: Json) -> Json:
    """What somebody wants served, without what the operator and others noted on it."""
    metadata: Json = {key: fields.identifier(meta, key) for key in ("name", "namespace")}
    for part in ("labels", "annotations"):
        given = fields.mapping(meta, part).items()
        kept = {key: value for key, value in given if key == ANNOTATION_AUTOSCALE or not key.startswith(_RESERVED)}
        metadata |= {part: kept} if kept else {}
    bounded = bounded_stock_job(spec) if kind == objects.JOB else resource.bounded_spec(spec)
    return {"kind": kind, "metadata": metadata, "spec": bounded}


def _owners(meta: Json, cluster: str, kind: str) -> tuple[str, ...]:
    namespace, noted = fields.identifier(meta, "namespace"), fields.mapping(meta, "annotations")
    noted_on, _, uid = fields.text(noted, ANNOTATION_SERVED_BY).partition("/")
    is_own = noted_on == meta["uid"]  # else it is a copy of another one
    return *([resource.owner_key(namespace, uid)] if is_own else ()), *(
        resource.owner_key(namespace, fields.identifier(item, "uid"))
        for item in fields.items(meta, "ownerReferences")
        if (item.get("kind"), item.get("name")) == (kind, cluster)
        and fields.text(item, "apiVersion").startswith(f"{resource.GROUP}/")
    )


def _told(body: Json) -> Json:
    """The status that somebody may read, as far as it may be ours, or the stock operator's; anybody can write one."""
    status = body.get("status")
    status = status if isinstance(status, dict) else {}
    conditions = status.get("conditions")
    known = conditions if isinstance(conditions, list) and all(isinstance(item, dict) for item in conditions) else []
    told: Json = {"phase": None, "conditions": [_texts(item, _CONDITION) for item in known[:_MAX_CONDITIONS]]}
    return told | _texts(status, ("phase", *_JOB_STATUS))


def _texts(body: Json, names: Iterable[str]) -> Json:
    """The fields of these names that are texts, each at most as long as what the operator writes there."""
    given = {name: body.get(name) for name in names}
    longest = {"message": MESSAGE_LENGTH}
    return {
        name: fields.clean(text[: longest.get(name, fields.NAME_LENGTH)])
        for name, text in given.items()
        if isinstance(text, str)
    }


def _controller(meta: Json) -> str:
    """Its cluster's `owner_key`; of another kind of controller its kind and uid, which is no cluster's key."""
    if key := owner_key(meta):
        return key
    controllers = [item for item in fields.items(meta, "ownerReferences") if item.get("controller") is True]
    return " ".join(f"{fields.text(item, 'kind')} {fields.text(item, 'uid')}" for item in controllers[:1])


def _editor(meta: Json) -> str:
    """The field manager that set the size last: `kubectl`, for example."""
    found = [entry for entry in fields.items(meta, "managedFields") if _sets_size(entry)]
    editors = [(fields.text(entry, "time"), fields.text(entry, "manager")) for entry in found]
    return max((item for item in editors if item[1] != _OURS), key=lambda item: item[0], default=("", ""))[1]


def _sets_size(entry: Json) -> bool:
    spec = fields.mapping(fields.mapping(entry, "fieldsV1"), "f:spec")
    return "f:replicas" in fields.mapping(spec, "f:worker") or "f:minimum" in spec or "f:maximum" in spec
