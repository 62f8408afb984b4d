"""What a stock object that somebody made is told: its owner, its phase as the stock operator writes it, conditions.

Phases are those of dask-kubernetes 2026.3.0: Created, Pending, Running, Error. `Running` is written by the loop of the
GpuDaskCluster (`sync`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpudask.api import Json, resource
from gpudask.api.reasons import ConditionType, Reason
from gpudask.api.resource import (
    ANNOTATION_MIRRORED,
    ANNOTATION_SERVED_BY,
    LABEL_CLUSTER,
    LABEL_DASK_CLUSTER,
    LABEL_DASK_COMPONENT,
)
from gpudask.api.status import iso
from gpudask.api.untrusted_text import quote
from gpudask.mirror import objects
from gpudask.mirror.state import ERROR, MAX_REFERENCES, MESSAGE_LENGTH, MirrorObject
from gpudask.stock.notes import Kind, Note
from gpudask.stock.served import Served

SERVED, CARRIED_OVER, TAKEN_OVER = "Served", "CarriedOver", "TakenOver"
PENDING = "Pending"
HANDLED_BY_ANOTHER = (
    "another operator handles it, which left kopf.zalando.org/ on it: remove the stock Dask operator, or switch the"
    " mirror off (mirror.enabled in the chart)"
)
_NOTES_SHOWN = 16


@dataclass(frozen=True)
class Condition:
    """One condition. `holds`: whether its status is True."""

    type: str
    reason: Reason
    message: str
    holds: bool = False


def refused(reason: Reason, why: str) -> tuple[Condition, ...]:
    """The conditions of an object that is not served."""
    return (Condition(SERVED, reason, quote(why, MESSAGE_LENGTH)),)


def name_taken(name: str) -> str:
    """The message where a GpuDaskCluster of the name is somebody's own."""
    return (
        f"metadata.name: there is a GpuDaskCluster {name} already, which this DaskCluster did not make: choose another"
        " name, or delete that one. Programs find it with KubeCluster.from_name once this DaskCluster is deleted"
    )


TOO_MANY_OWNERS = f"metadata.ownerReferences: more than {MAX_REFERENCES}: its cluster has to become one: remove some"


def has_too_many_owners(item: MirrorObject) -> bool:
    """Whether one more owner cannot be added to a worker group: of its references not all are known."""
    return item.kind == objects.WORKER_GROUP and not item.owners and len(item.references) > MAX_REFERENCES


def orphan(key: str, *, has_ours: bool) -> str:
    """The message of a worker group that no DaskCluster has."""
    name = key.partition("/")[2]
    if not name:
        return "spec.cluster: missing: write the name of a DaskCluster in this namespace"
    if has_ours:
        return f"spec.cluster: {name} is a GpuDaskCluster of its own: add a pool to its spec.pools instead"
    return f"spec.cluster: there is no DaskCluster {name} in this namespace yet"


def refusal_of(body: Json) -> tuple[Reason, str] | None:
    """Why the GpuDaskCluster `body` is not accepted as it is; None: it is, as far as known."""
    conditions = resource.parse_status(body).conditions
    found = next((item for item in conditions if item.type == ConditionType.ACCEPTED and item.status == "False"), None)
    return None if found is None else (Reason.INVALID, found.message)


def cluster_conditions(served: Served, refusal: tuple[Reason, str] | None) -> tuple[Condition, ...]:
    """The conditions of a DaskCluster; `refusal`: why its GpuDaskCluster is not accepted."""
    groups = {f"{objects.WORKER_GROUP} {name}" for name in served.pools}
    notes = [note for note in served.notes if note.source not in groups]
    if refusal is not None:
        return (*refused(*refusal), carried_over(notes))
    return (_served("by the GpuDaskCluster of this name"), carried_over(notes))


def group_conditions(served: Served, name: str) -> tuple[Condition, ...]:
    """The conditions of the DaskWorkerGroup `name`, which is a pool."""
    notes = [note for note in served.notes if note.source == f"{objects.WORKER_GROUP} {name}"]
    return (_served(f"by the pool {served.pools[name]}"), carried_over(notes))


def owned(item: MirrorObject, cluster: Json, size: str) -> Json:
    """The metadata of `item` once the GpuDaskCluster with the metadata `cluster` owns it. `size`: what it shows.

    A DaskCluster that others own gets no further owner, but a note: Kubernetes deletes what has no owner left, so these
    two would keep each other once the others are gone.
    """
    has_controller = any(reference.get("controller") is True for reference in item.references)
    reference = {
        "apiVersion": resource.API_VERSION,
        "kind": resource.KIND,
        "name": cluster["name"],
        "uid": cluster["uid"],
        **({} if has_controller else {"controller": True}),
    }
    component = {LABEL_DASK_COMPONENT: "workergroup"} if item.kind == objects.WORKER_GROUP else {}
    annotations = {ANNOTATION_MIRRORED: size}
    owners: Json = {"ownerReferences": [*item.references, reference]}
    if item.kind == objects.CLUSTER and (others := others_of(item, cluster["uid"])):
        annotations[ANNOTATION_SERVED_BY] = f"{item.uid}/{cluster['uid']}"
        owners = {"ownerReferences": others} if len(others) < len(item.references) else {}
    return {
        "labels": {LABEL_CLUSTER: cluster["name"], LABEL_DASK_CLUSTER: cluster["name"], **component},
        "annotations": annotations,
        **owners,
    }


def others_of(item: MirrorObject, uid: str) -> list[Json]:
    """The references of `item` to its owners, but for the one with this uid."""
    return [reference for reference in item.references if reference.get("uid") != uid]


def is_settled(item: MirrorObject, owner: str, uid: str) -> bool:
    """Whether what serves `item`, with this `owner_key` and uid, owns it as it should.

    Not where somebody else became an owner beside it, of what is no part of a cluster: these two would keep each other.
    """
    if owner not in item.owners:
        return False
    others = others_of(item, uid)
    is_shared = bool(others) and len(others) < len(item.references) <= MAX_REFERENCES
    return item.kind == objects.WORKER_GROUP or not is_shared


def status(item: MirrorObject, conditions: Iterable[Condition], now: float) -> tuple[Json | None, list[Condition]]:
    """The status to merge into `item`, None where nothing differs; and the conditions that are new."""
    before = item.told or {}
    known = {str(entry.get("type")): entry for entry in before.get("conditions") or ()}
    told, news = entries(known, conditions, now)
    written: Json = {"conditions": told}
    if item.kind == objects.CLUSTER:
        written["phase"] = _phase(before.get("phase"), conditions)
    if told == (before.get("conditions") or []) and written.get("phase") == before.get("phase"):
        return None, []
    return written, news


def entries(
    known: Mapping[str, Json], conditions: Iterable[Condition], now: float
) -> tuple[list[Json], list[Condition]]:
    """The conditions as they stand in a status, and those that are new. `known`: the entries so far, by type."""
    made: list[Json] = []
    news: list[Condition] = []
    for condition in conditions:
        entry = {
            "type": condition.type,
            "status": str(condition.holds),
            "reason": str(condition.reason),
            "message": condition.message,
        }
        old = known.get(condition.type, {})
        if {key: old.get(key) for key in entry} == entry:
            made.append(old)
            continue
        same = old.get("status") == entry["status"] and isinstance(old.get("lastTransitionTime"), str)
        made.append(entry | {"lastTransitionTime": old["lastTransitionTime"] if same else iso(now, to="seconds")})
        if condition.message:
            news.append(condition)
    return made, news


def _phase(before: object, conditions: Iterable[Condition]) -> object:
    if any(condition.type == SERVED and not condition.holds for condition in conditions):
        return ERROR
    return before if before not in (None, "", "Created", ERROR) else PENDING


def _served(how: str) -> Condition:
    return Condition(SERVED, Reason.SERVED, how, holds=True)


def carried_over(notes: list[Note]) -> Condition:
    """The condition that says whether everything was carried over, by what the conversion noted."""
    lost = [note for note in notes if note.kind is Kind.LOST]
    shown = (lost or notes)[:_NOTES_SHOWN]
    lines = [f"{note.path}: {note.text}" for note in shown]
    if more := len(lost or notes) - len(shown):
        lines.append(f"and {more} more: gpudask convert shows all")
    text = "; ".join(lines)
    if lost:
        return Condition(CARRIED_OVER, Reason.NOT_CARRIED_OVER, quote(text, MESSAGE_LENGTH))
    return Condition(
        CARRIED_OVER,
        Reason.CARRIED_OVER,
        quote(f"assumed: {text}" if text else "", MESSAGE_LENGTH),
        holds=True,
    )
