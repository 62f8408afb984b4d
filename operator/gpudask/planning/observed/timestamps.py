"""Times: those that other machines stamped, brought to the operator's own clock; and as RFC 3339 text in UTC.

The API server stamps creations, the kubelet the start and the end of a container, an operator before this one the
beginning of a drain: each by its own clock, which may be wrong, and may be set. So a stamp is compared once, when it is
first seen, and what it says is believed as far as it can be true: nothing happened in the future, or before it was last
seen otherwise. From then on its age grows by the operator's clock alone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from gpudask.planning.observed.pods import Pod


def iso(now: float, *, to: str = "milliseconds") -> str:
    """A time in seconds since the epoch, as text; `to` which of `datetime.isoformat`'s units."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec=to).replace("+00:00", "Z")


def epoch(text: str) -> float | None:
    """The same back; None where this is no such text, which somebody else may have written into a status."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def sighted(pod: Pod, before: Pod | None, *, now: float, server_ahead: float = 0.0, since: float = 0.0) -> Pod:
    """`pod`, read just now, with its times on the operator's clock.

    `before`: as it was last sighted, if it was. `server_ahead`: as `Observation`'s. `since`: when what there is was
    last known; 0.0: never. What is new happened after that.
    """
    ended_at = pod.ended.at if pod.ended is not None else 0.0
    drains_at = pod.retirement.at if pod.retirement is not None else 0.0
    stamps = (pod.created, pod.placed, pod.started, ended_at, drains_at)
    if before is not None and before.stamps:
        known_ended = before.ended.at if before.ended is not None else 0.0
        known_drains = before.retirement.at if before.retirement is not None else 0.0
        known = (before.created, before.placed, before.started, known_ended, known_drains)
        created = before.created
        told = [local if stamp == old else None for local, stamp, old in zip(known, stamps, before.stamps, strict=True)]
    else:
        created = _moment(pod.created, server_ahead, since, now)
        told = [None] * len(stamps)
    since = max(since, created)
    _, placed, started, ended, drains = (
        local if local is not None else _moment(stamp, server_ahead, since, now)
        for local, stamp in zip(told, stamps, strict=True)
    )
    return replace(
        pod,
        created=created,
        placed=placed,
        started=started,
        ended=replace(pod.ended, at=ended) if pod.ended is not None else None,
        retirement=replace(pod.retirement, at=drains) if pod.retirement is not None else None,
        delete_by=_delete_by(pod, before, now),
        stamps=stamps,
    )


def _moment(stamp: float, server_ahead: float, since: float, now: float) -> float:
    """What `stamp` says, as far as it can be true; 0.0, which is none, stays."""
    return max(min(stamp - server_ahead, now), since) if stamp else 0.0


def _delete_by(pod: Pod, before: Pod | None, now: float) -> float:
    """When a pod that is being deleted has had its grace, since its deletion was first seen; 0.0: it is not deleted.

    Not when its stamp says: whatever clock is wrong, its successor comes too late rather than beside it.
    """
    if not pod.deleting:
        return 0.0
    asked = before.delete_by - before.grace_seconds if before is not None and before.deleting else now
    return asked + pod.grace_seconds
