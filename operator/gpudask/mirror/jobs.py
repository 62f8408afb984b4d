"""The sync of a DaskJob that somebody made: a GpuDaskJob of its name serves it, made once and never changed.

The order of writes, each of which a pass repeats where the operator ended before it: the GpuDaskJob is created under
that one name, owned by the DaskJob, so nothing runs twice; then the DaskJob gets it as an owner, or notes it. From then
on its status is that of the GpuDaskJob, in the stock operator's words.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from gpudask.api import Json
from gpudask.api.job import parse_job_status
from gpudask.api.reasons import Reason
from gpudask.api.resource import API_VERSION, JOB_KIND, STOCK_JOB_KIND, Identity, owner_key, stock_uid
from gpudask.api.status import iso
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import namespace_of
from gpudask.clients.recheck import Missed
from gpudask.mirror import job_status, leftovers, objects, told
from gpudask.mirror.context import Context
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.state import MirrorObject
from gpudask.mirror.told import Condition
from gpudask.stock.job import ServedJob, serve_job
from gpudask.stock.served import UnservableError

_LOG = logging.getLogger(__name__)
_REFUSED_RETRY_SECONDS = 30.0
_TERMINATING_RETRY_SECONDS = 5.0  # where the event of its end was lost


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
        if job_status.has_ended_elsewhere(item):
            return None
        if item.foreign:
            refused = told.refused(Reason.MIRROR_REFUSED, told.HANDLED_BY_ANOTHER)
            await self._tell(item, job_status.kept(item), refused)
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
        if item is None or job_status.has_ended_elsewhere(item):
            return item is not None
        word = job_status.outcome(runner)
        if not word:
            return False
        end = {"jobStatus": word, "endTime": iso(self._now(), to="seconds")}
        await self._tell(item, job_status.kept(item) | end, ())
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
        await self._tell(item, {"jobStatus": job_status.CREATED}, told.refused(Reason.FORBIDDEN, why))
        return _REFUSED_RETRY_SECONDS

    async def _show(self, item: MirrorObject, body: Json, served: ServedJob | None = None) -> None:
        """Show the GpuDaskJob `body` in the status of `item`, and make it an owner. `served`: where that is new.

        Whether everything was carried over is found once: what is told of it stays.
        """
        status = parse_job_status(body)
        carried_over = None if served is None else told.carried_over(list(served.notes))
        conditions = [*job_status.wrong(status), *(_kept(item) if carried_over is None else [carried_over])]
        is_settled = told.is_settled(item, _key(body), body["metadata"]["uid"])
        metadata = None if is_settled else job_status.owned(item, body["metadata"])
        await self._tell(item, job_status.rendered(status, item.name), conditions, metadata=metadata)
        if carried_over is not None and carried_over.holds:
            words = carried_over.message or "everything of it"
            await self._record(item, carried_over.reason, words, warning=False)
        for words in served.replaced if served is not None else ():
            await self._record(item, Reason.COMMAND_REPLACED, words, warning=False)

    async def _invalid(self, item: MirrorObject, why: str) -> None:
        await self._tell(item, job_status.invalid(item, self._now()), told.refused(Reason.INVALID, why))

    async def _name_taken(self, item: MirrorObject, body: Json) -> float:
        """The GpuDaskJob of the name, `body`, serves another one: an earlier one of this name, whose end is waited for.

        Else it is somebody's own, which is told.
        """
        if stock_uid(body["metadata"], STOCK_JOB_KIND) or "deletionTimestamp" in body["metadata"]:
            await self._tell(item, {"jobStatus": job_status.CREATED}, ())
            return _TERMINATING_RETRY_SECONDS
        why = (
            f"metadata.name: there is a GpuDaskJob {item.name} already, which this DaskJob did not make: choose another"
            " name, or delete that one"
        )
        await self._tell(item, {"jobStatus": job_status.CREATED}, told.refused(Reason.NAME_TAKEN, why))
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
        status, news = job_status.changes(item, wanted, conditions, self._now())
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


def _kept(item: MirrorObject) -> list[Condition]:
    """What was told of the fields that were not carried over."""
    known = (item.told or {}).get("conditions") or ()
    found = (entry for entry in known if entry.get("type") == told.CARRIED_OVER)
    return [Condition(told.CARRIED_OVER, Reason.NOT_CARRIED_OVER, entry.get("message", "")) for entry in found][:1]


def _reference(item: MirrorObject, metadata: Json | None = None) -> Json:
    named = {"name": item.name, "namespace": namespace_of(item.owner)}
    return {"apiVersion": objects.API_VERSION, "kind": item.kind, "metadata": {**(metadata or {}), **named}}


def _key(body: Json) -> str:
    return owner_key(body["metadata"]["namespace"], body["metadata"]["uid"])
