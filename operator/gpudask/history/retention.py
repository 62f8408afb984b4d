"""How long records stay: which are to be completed, since their cluster is gone, and which are to be removed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.api.resource import ANNOTATION_ENDED, ANNOTATION_KEEP, ANNOTATION_UID, LABEL_CLUSTER, Identity, record_name
from gpudask.api.status import epoch
from gpudask.planning.observed import fields
from gpudask.planning.observed.fields import UnreadableError

# For so long after a cluster's end its record may lack what the pods that outlived it have come to.
UNFINISHED_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Kept:
    """A record by its metadata, which anybody who may edit the namespace may have written.

    `cluster`: whose it says to be; None: nobody can tell. `ended`, `created`: seconds since the epoch; `ended` is None
    while its cluster is there.
    """

    uid: str
    name: str
    namespace: str
    version: str
    created: float
    cluster: Identity | None
    ended: float | None
    keep_seconds: float | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a look at all records brought: those whose cluster may be gone, and those that are to be removed.

    `recent`: those of clusters that ended so lately that somebody may have been writing their end still.
    """

    unended: tuple[Kept, ...] = ()
    recent: tuple[Kept, ...] = ()
    expired: tuple[Kept, ...] = ()
    requeue_after: float | None = None


def parse(body: Json) -> Kept | None:
    """A record's metadata, reduced; None where they cannot be read at all."""
    try:
        metadata = fields.mapping(body, "metadata")
        uid, name = fields.identifier(metadata, "uid"), fields.identifier(metadata, "name")
        namespace, version = fields.identifier(metadata, "namespace"), fields.version(metadata)
        created = fields.time(metadata, "creationTimestamp")
        labels, annotations = fields.mapping(metadata, "labels"), fields.mapping(metadata, "annotations")
    except UnreadableError:
        return None
    cluster, of_uid = labels.get(LABEL_CLUSTER), annotations.get(ANNOTATION_UID)
    known = isinstance(cluster, str) and isinstance(of_uid, str) and cluster and of_uid
    whose = Identity(str(cluster), namespace, str(of_uid)) if known else None
    return Kept(
        uid=uid,
        name=name,
        namespace=namespace,
        version=version,
        created=created,
        cluster=whose if whose is not None and record_name(whose) == name else None,
        ended=_time(annotations.get(ANNOTATION_ENDED)),
        keep_seconds=_seconds(annotations.get(ANNOTATION_KEEP)),
    )


def sweep(records: Iterable[Kept], *, now: float, keep_seconds: float, per_namespace: int) -> Sweep:
    """What is to be done about `records`. `now`: the API server's time.

    `keep_seconds`: for how long records are kept after their cluster's end at most. `per_namespace`: so many of
    clusters that are gone; beyond that those that ended first go. One whose cluster nobody can tell counts as ended
    when it was made.
    """
    unended, recent, expired = [], [], []
    gone: dict[str, list[tuple[float, Kept]]] = defaultdict(list)
    next_end = math.inf
    for record in records:
        if record.ended is None and record.cluster is not None:
            unended.append(record)
            continue
        ended = min(record.ended if record.ended is not None else record.created, now)
        kept_for = min(keep_seconds, record.keep_seconds if record.keep_seconds is not None else keep_seconds)
        if ended + kept_for <= now:
            expired.append(record)
        else:
            gone[record.namespace].append((ended, record))
            if record.cluster is not None and record.ended is not None and ended + UNFINISHED_SECONDS > now:
                recent.append(record)
            next_end = min(next_end, ended + kept_for)
    for rows in gone.values():
        rows.sort(key=lambda row: row[0])
        expired += [record for _, record in rows[: max(0, len(rows) - per_namespace)]]
    surplus = set(expired)
    recent = [record for record in recent if record not in surplus]
    return Sweep(tuple(unended), tuple(recent), tuple(expired), None if math.isinf(next_end) else next_end - now)


def _time(text: object) -> float | None:
    return epoch(text) if isinstance(text, str) and len(text) <= 40 else None  # noqa: PLR2004 - a time's length


def _seconds(text: object) -> float | None:
    if not isinstance(text, str) or len(text) > 12 or not (text.isascii() and text.isdecimal()):  # noqa: PLR2004
        return None
    return float(text)
