"""The sync of a DaskJob that somebody made: a GpuDaskJob of its name serves it, made once and never changed.

The order of writes, each of which a pass repeats where the operator ended before it: the GpuDaskJob is created under
that one name, owned by the DaskJob, so nothing runs twice; then the DaskJob gets it as an owner, or notes it.

From then on its status is that of the GpuDaskJob, as the stock operator writes it. dask-kubernetes 2026.3.0 writes
`jobStatus` (JobCreated, ClusterCreated, Running, Successful, Failed), `clusterName`, `jobRunnerPodName`, `startTime`
and `endTime`, and others compare all of these: so there are conditions only where something is wrong, and what is well
is an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from gpudask.api import Json
from gpudask.api.job import JobConditionType, JobReason, JobStatus, parse_job_status
from gpudask.api.reasons import Reason
from gpudask.api.resource import (
    ANNOTATION_SERVED_BY,
    API_VERSION,
    JOB_KIND,
    STOCK_JOB_KIND,
    Identity,
    owner_key,
    stock_uid,
)
from gpudask.api.status import epoch, iso
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import namespace_of
from gpudask.clients.recheck import Missed
from gpudask.mirror import leftovers, objects, told
from gpudask.mirror.context import Context
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.state import MirrorObject
from gpudask.mirror.told import Condition
from gpudask.stock.job import ServedJob, serve_job
from gpudask.stock.served import UnservableError

_LOG = logging.getLogger(__name__)
_REFUSED_RETRY_SECONDS = 30.0
_TERMINATING_RETRY_SECONDS = 5.0  # where the event of its end was lost
_CREATED, _CLUSTER_CREATED, _RUNNING = "JobCreated", "ClusterCreated", "Running"
_SUCCESSFUL, _FAILED = "Successful", "Failed"
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


class JobServing:
    """Serves DaskJobs. `find`: the GpuDaskJob of a `namespace/name`, as far as known."""

    def __init__(self, context: Context, definitions: Definitions, find: Callable[[str], Json | None]) -> None:
        self._context = context
        self._definitions = definitions
        self._find = find
        self._missed = Missed()  # DaskJobs whose GpuDaskJob was

    async def serve(self, item: MirrorObject) -> float | None:
        """Make what is there for one DaskJob as it should be; in how many seconds to look again, None: not by itself.

        Raises:
            ApiError: a request failed, or what is there changed meanwhile.
        """
        if _has_ended_elsewhere(item):
            return None
        if item.foreign:
            refused = told.refused(Reason.MIRROR_REFUSED, told.HANDLED_BY_ANOTHER)
            await self._tell(item, _kept_status(item), refused)
            return None
        body = self._find(item.owner)
        if item.owners and (body is None or _key(body) not in item.owners):
            body = await self._get(item)
            if body is None or _key(body) not in item.owners:
                await self._delete(item)
                return None
        if body is None:
            return await self._make(item)
        if stock_uid(body["metadata"], STOCK_JOB_KIND) != item.uid:
            return await self._name_taken(item, body)
        await self._show(item, body, None if _key(body) in item.owners else await self._served_once(item))
        return None

    async def end(self, cluster: MirrorObject, items: Iterable[MirrorObject], runner: str) -> bool:
        """Whether the program has ended that the stock operator began for the DaskJob, of `items`, that made `cluster`.

        The DaskJob is told so. `runner`: the phase of its pod, empty: it is gone.

        Raises:
            ApiError: a request failed, or what is there changed meanwhile.
        """
        uid = leftovers.job_uid(cluster)
        item = next((item for item in items if item.kind == objects.JOB and item.uid == uid), None)
        if item is None or _has_ended_elsewhere(item):
            return item is not None
        word = _outcome(runner)
        if not word:
            return False
        end = {"jobStatus": word, "endTime": iso(self._now(), to="seconds")}
        await self._tell(item, _kept_status(item) | end, ())
        return True

    async def _make(self, item: MirrorObject) -> float | None:
        """Create the GpuDaskJob."""
        try:
            served = await self._convert(item)
        except UnservableError as error:
            await self._invalid(item, str(error))
            return None
        try:
            made = await self._context.api.create(_job(item, served))
        except ApiError as error:
            return await self._not_made(item, error)
        _LOG.info("%s: created the job that serves the DaskJob of this name", item.owner)
        await self._show(item, made, served)
        return None

    async def _convert(self, item: MirrorObject) -> ServedJob:
        """What serves it.

        Raises:
            UnservableError: nothing does.
        """
        assert item.source is not None, "jobs mirror nothing"
        try:
            return await asyncio.to_thread(serve_job, item.source, self._context.limits.service_types)
        except UnservableError:
            raise
        except Exception as error:
            _LOG.exception("%s: it cannot be read: a defect", item.owner)
            why = f"spec: the operator fails on it ({type(error).__name__}); its log says more"
            raise UnservableError(why) from error

    async def _served_once(self, item: MirrorObject) -> ServedJob | None:
        """What its GpuDaskJob was made from, where that has not been told: the write after the creation failed."""
        try:
            return await self._convert(item)
        except UnservableError:
            return None  # it was edited since

    async def _not_made(self, item: MirrorObject, error: ApiError) -> float | None:
        """The creation of the GpuDaskJob failed, or so it seems.

        Raises:
            ApiError: `error`, where it is no refusal.
        """
        if error.conflict:
            body = await self._get(item)
            if body is not None and stock_uid(body["metadata"], STOCK_JOB_KIND) != item.uid:
                return await self._name_taken(item, body)
            return 0.0  # it was made, and the answer was lost
        if error.ending or not (error.invalid or error.forbidden or error.quota):
            raise error
        why = error.message or str(error)
        if error.invalid:
            await self._invalid(item, why)
            return None
        await self._tell(item, {"jobStatus": _CREATED}, told.refused(Reason.FORBIDDEN, why))
        return _REFUSED_RETRY_SECONDS

    async def _show(self, item: MirrorObject, body: Json, served: ServedJob | None = None) -> None:
        """Show the GpuDaskJob `body` in the status of `item`, and make it an owner. `served`: where that is new.

        Whether everything was carried over is found once: what is told of it stays.
        """
        status = parse_job_status(body)
        carried_over = None if served is None else told.carried_over(list(served.notes))
        conditions = [*_wrong_conditions(status), *(_kept_conditions(item) if carried_over is None else [carried_over])]
        is_settled = told.is_settled(item, _key(body), body["metadata"]["uid"])
        metadata = None if is_settled else _owned(item, body["metadata"])
        await self._tell(item, _stock_status(status, item.name), conditions, metadata=metadata)
        if carried_over is not None and carried_over.holds:
            words = carried_over.message or "everything of it"
            await self._record(item, carried_over.reason, words, warning=False)
        for words in served.replaced if served is not None else ():
            await self._record(item, Reason.COMMAND_REPLACED, words, warning=False)

    async def _invalid(self, item: MirrorObject, why: str) -> None:
        await self._tell(item, _failed_status(item, self._now()), told.refused(Reason.INVALID, why))

    async def _name_taken(self, item: MirrorObject, body: Json) -> float:
        """The GpuDaskJob of the name, `body`, serves another one: an earlier one of this name, whose end is waited for.

        Else it is somebody's own, which is told.
        """
        if stock_uid(body["metadata"], STOCK_JOB_KIND) or "deletionTimestamp" in body["metadata"]:
            await self._tell(item, {"jobStatus": _CREATED}, ())
            return _TERMINATING_RETRY_SECONDS
        why = (
            f"metadata.name: there is a GpuDaskJob {item.name} already, which this DaskJob did not make: choose another"
            " name, or delete that one"
        )
        await self._tell(item, {"jobStatus": _CREATED}, told.refused(Reason.NAME_TAKEN, why))
        return _REFUSED_RETRY_SECONDS

    async def _delete(self, item: MirrorObject) -> None:
        """The GpuDaskJob was deleted, and the DaskJob goes with it."""
        try:
            await self._context.api.delete(_reference(item), uid=item.uid, version=item.version)
        except ApiError as error:
            if not error.not_found or await self._definitions.look_again(self._context.api, item, error) is not None:
                raise
        _LOG.info("%s: deleted: its GpuDaskJob was deleted", item.owner)

    async def _get(self, item: MirrorObject) -> Json | None:
        """The GpuDaskJob of its name; None: it does not exist, as was said before.

        Raises:
            ApiError: a request failed, or did not find it for the first time.
        """
        context = self._context
        get = partial(context.api.get_job, namespace_of(item.owner), item.name)
        return await self._missed.get(item.uid, get, context.clock(), context.recheck_seconds)

    async def _tell(
        self,
        item: MirrorObject,
        wanted: Json,
        conditions: list[Condition] | tuple[Condition, ...],
        *,
        metadata: Json | None = None,
    ) -> None:
        """Write the status and `metadata`, where something differs; a condition that is new is an event, too."""
        status, news = _changes(item, wanted, conditions, self._now())
        if metadata is None and not status:
            return
        body = _reference(item, metadata)
        answer = await self._context.api.merge(body | ({"status": status} if status else {}), version=item.version)
        self._definitions.caches[item.kind].upsert(namespace_of(item.owner), answer)
        for condition in news:
            await self._record(item, condition.reason, condition.message, warning=True)

    async def _record(self, item: MirrorObject, reason: Reason, message: str, *, warning: bool) -> None:
        identity = Identity(item.name, namespace_of(item.owner), item.uid)
        at, regarding = self._context.clock(), (objects.API_VERSION, item.kind)
        await self._context.events.record(
            identity, reason, message, series=message, warning=warning, now=at, regarding=regarding
        )

    def _now(self) -> float:
        return self._context.clock() + self._context.server_ahead()


def _job(item: MirrorObject, served: ServedJob) -> Json:
    """The GpuDaskJob to create."""
    reference = {"apiVersion": objects.API_VERSION, "kind": item.kind, "name": item.name, "uid": item.uid}
    metadata = {"name": item.name, "namespace": namespace_of(item.owner)}
    owners = [reference | {"controller": True}]
    return {
        "apiVersion": API_VERSION,
        "kind": JOB_KIND,
        "metadata": {**served.metadata, **metadata, "ownerReferences": owners},
        "spec": served.spec,
    }


def _kept_conditions(item: MirrorObject) -> list[Condition]:
    """What was told of the fields that were not carried over."""
    known = (item.told or {}).get("conditions") or ()
    found = (entry for entry in known if entry.get("type") == told.CARRIED_OVER)
    return [Condition(told.CARRIED_OVER, Reason.NOT_CARRIED_OVER, entry.get("message", "")) for entry in found][:1]


def _stock_status(status: JobStatus, name: str) -> Json:
    """The status of the DaskJob `name` that the GpuDaskJob with `status` serves."""
    runner = status.runner.pod
    known = {"clusterName": name, "jobRunnerPodName": runner} if runner else {}
    times = {"startTime": _time(status.start_time), "endTime": _time(status.completion_time)}
    return {"jobStatus": _word(status), **known, **{key: value for key, value in times.items() if value}}


def _failed_status(item: MirrorObject, now: float) -> Json:
    """The status of a DaskJob that nothing can serve as it is: failed, since whoever made it waits for an end."""
    before = item.told or {}
    has_ended = before.get("jobStatus") == _FAILED and before.get("endTime")
    return {"jobStatus": _FAILED, "endTime": before["endTime"] if has_ended else iso(now, to="seconds")}


def _wrong_conditions(status: JobStatus) -> tuple[Condition, ...]:
    """The conditions of a DaskJob whose GpuDaskJob has `status`."""
    return told.refused(Reason.INVALID, status.message) if status.reason in _WRONG else ()


def _kept_status(item: MirrorObject) -> Json:
    """The status of a DaskJob that another operator runs: what that wrote."""
    return {key: value for key, value in (item.told or {}).items() if key not in _NOT_OF_JOB}


def _outcome(runner: str) -> str:
    """The end of a DaskJob whose program another operator began; empty: it goes on, or has not begun.

    `runner`: the phase of its pod, empty: it is gone, and with it how it ended.
    """
    if runner not in leftovers.ENDED:
        return ""
    return _SUCCESSFUL if runner == leftovers.SUCCEEDED else _FAILED


def _has_ended_elsewhere(item: MirrorObject) -> bool:
    """Whether another operator ran it to its end: it is not run again."""
    before = item.told or {}
    is_ours = bool(item.owners) or any(
        entry.get("type") == told.SERVED and entry.get("reason") != Reason.MIRROR_REFUSED
        for entry in before.get("conditions") or ()
    )
    return not is_ours and before.get("jobStatus") in (_SUCCESSFUL, _FAILED)


def _changes(
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


def _owned(item: MirrorObject, job: Json) -> Json:
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
        return _SUCCESSFUL if status.holds(JobConditionType.COMPLETE) else _FAILED
    if status.runner.uid and not status.runner.ended_at:
        return _RUNNING if status.runner.started_at else _CLUSTER_CREATED
    return _CREATED


def _time(text: str) -> str:
    """A time in whole seconds, which is how the stock operator writes it; empty where it is none."""
    at = epoch(text) if text else None
    return "" if at is None else iso(at, to="seconds")


def _reference(item: MirrorObject, metadata: Json | None = None) -> Json:
    named = {"name": item.name, "namespace": namespace_of(item.owner)}
    return {"apiVersion": objects.API_VERSION, "kind": item.kind, "metadata": {**(metadata or {}), **named}}


def _key(body: Json) -> str:
    return owner_key(body["metadata"]["namespace"], body["metadata"]["uid"])
