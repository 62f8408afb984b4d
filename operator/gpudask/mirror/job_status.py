"""The status of a DaskJob that somebody made, as the stock operator writes it, from that of the GpuDaskJob.

dask-kubernetes 2026.3.0 writes `jobStatus` (JobCreated, ClusterCreated, Running, Successful, Failed), `clusterName`,
`jobRunnerPodName`, `startTime` and `endTime`, and others compare all of these: so there are conditions only where
something is wrong, and what is well is an event.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpudask.api import Json
from gpudask.api.job import JobConditionType, JobReason, JobStatus
from gpudask.api.reasons import Reason
from gpudask.api.resource import ANNOTATION_SERVED_BY, API_VERSION, JOB_KIND
from gpudask.api.status import epoch, iso
from gpudask.mirror import leftovers, told
from gpudask.mirror.state import MirrorObject
from gpudask.mirror.told import Condition

CREATED, CLUSTER_CREATED, RUNNING = "JobCreated", "ClusterCreated", "Running"
SUCCESSFUL, FAILED = "Successful", "Failed"
_NOT_OF_JOB = {"phase", "conditions"}
# What keeps a job from going on, though it waits: somebody has to mend it.
_WRONG = frozenset(
    {
        JobReason.INVALID,
        JobReason.TEMPLATE_REFUSED,
        JobReason.LIMIT,
        JobReason.CLUSTER_NAME_IN_USE,
        JobReason.CLUSTER_INVALID,
        JobReason.CLUSTER_REFUSED,
        JobReason.RUNNER_NAME_IN_USE,
        JobReason.RUNNER_REFUSED,
    }
)


def rendered(status: JobStatus, name: str) -> Json:
    """The status of the DaskJob `name` that the GpuDaskJob with `status` serves."""
    runner = status.runner.pod
    known = {"clusterName": name, "jobRunnerPodName": runner} if runner else {}
    times = {"startTime": _time(status.start_time), "endTime": _time(status.completion_time)}
    return {"jobStatus": _word(status), **known, **{key: value for key, value in times.items() if value}}


def invalid(item: MirrorObject, now: float) -> Json:
    """The status of a DaskJob that nothing can serve as it is: failed, since whoever made it waits for an end."""
    before = item.told or {}
    has_ended = before.get("jobStatus") == FAILED and before.get("endTime")
    return {"jobStatus": FAILED, "endTime": before["endTime"] if has_ended else iso(now, to="seconds")}


def wrong(status: JobStatus) -> tuple[Condition, ...]:
    """The conditions of a DaskJob whose GpuDaskJob has `status`."""
    return told.refused(Reason.INVALID, status.message) if status.reason in _WRONG else ()


def kept(item: MirrorObject) -> Json:
    """The status of a DaskJob that another operator runs: what that wrote."""
    return {key: value for key, value in (item.told or {}).items() if key not in _NOT_OF_JOB}


def outcome(runner: str) -> str:
    """The end of a DaskJob whose program another operator began; empty: it goes on, or has not begun.

    `runner`: the phase of its pod, empty: it is gone, and with it how it ended.
    """
    if runner not in leftovers.ENDED:
        return ""
    return SUCCESSFUL if runner == leftovers.SUCCEEDED else FAILED


def has_ended_elsewhere(item: MirrorObject) -> bool:
    """Whether another operator ran it to its end: it is not run again."""
    before = item.told or {}
    is_ours = bool(item.owners) or any(
        entry.get("type") == told.SERVED and entry.get("reason") != Reason.MIRROR_REFUSED
        for entry in before.get("conditions") or ()
    )
    return not is_ours and before.get("jobStatus") in (SUCCESSFUL, FAILED)


def changes(
    item: MirrorObject, wanted: Json, conditions: Iterable[Condition], now: float
) -> tuple[Json, list[Condition]]:
    """The status to merge into `item`, empty where nothing differs; and the conditions that are new."""
    before = item.told or {}
    known = {str(entry.get("type")): entry for entry in before.get("conditions") or ()}
    entries, news = told.entries(known, (each for each in conditions if not each.holds), now)
    merged: Json = {key: value for key, value in wanted.items() if before.get(key) != value}
    merged |= dict.fromkeys(before.keys() - wanted.keys() - _NOT_OF_JOB)
    if entries != (before.get("conditions") or []):
        merged["conditions"] = entries or None
    return merged, news


def owned(item: MirrorObject, job: Json) -> Json:
    """The metadata of `item` once the GpuDaskJob with the metadata `job` owns it; a note where others own it.

    Kubernetes deletes what has no owner left, so these two would keep each other once the others are gone.
    """
    if others := told.others_of(item, job["uid"]):
        owners = {"ownerReferences": others} if len(others) < len(item.references) else {}
        return {"annotations": {ANNOTATION_SERVED_BY: f"{item.uid}/{job['uid']}"}, **owners}
    reference = {"apiVersion": API_VERSION, "kind": JOB_KIND, "name": job["name"], "uid": job["uid"]}
    return {"ownerReferences": [reference | {"controller": True}]}


def _word(status: JobStatus) -> str:
    if status.has_ended:
        return SUCCESSFUL if status.holds(JobConditionType.COMPLETE) else FAILED
    if status.runner.uid and not status.runner.ended_at:
        return RUNNING if status.runner.started_at else CLUSTER_CREATED
    return CREATED


def _time(text: str) -> str:
    """A time in whole seconds, which is how the stock operator writes it; empty where it is none."""
    at = epoch(text) if text else None
    return "" if at is None else iso(at, to="seconds")
