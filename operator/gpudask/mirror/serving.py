"""The sync of DaskClusters that people made: each becomes a GpuDaskCluster of its name, which serves it.

`stock.served` has what the objects mean, `told` what is written to them. The order of writes, each of which a pass
repeats where the operator ended before it: the GpuDaskCluster is created, owned by the DaskCluster; the DaskCluster
gets it as an owner, too; then the worker groups. So Kubernetes deletes both with either, also while the operator is
away. From then on the loop of the GpuDaskCluster shows sizes and readiness there, as in any mirror (`sync`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from gpudask.api import Json
from gpudask.api.reasons import Reason
from gpudask.api.resource import (
    API_VERSION,
    DEFAULT_GROUP,
    KIND,
    STOCK_KIND,
    Identity,
    Outline,
    owner_key,
    stock_uid,
)
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import CLUSTER, Backoff, RateLimiter, namespace_of
from gpudask.clients.recheck import Missed
from gpudask.mirror import leftovers, objects, told
from gpudask.mirror.context import Context
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.jobs import JobServing
from gpudask.mirror.state import MirrorObject
from gpudask.mirror.takeover import Takeover
from gpudask.mirror.told import Condition
from gpudask.stock.served import Served, UnservableError, merged_spec, own_limits, same_spec, serve, sizes

_LOG = logging.getLogger(__name__)
_AT_ONCE = 4  # DaskClusters that are worked on
_PASSES_PER_SECOND, _PASSES_BURST = 2.0, 20.0  # of one DaskCluster, whatever wakes it
_BACKOFF = Backoff(0.5, 30.0)
_REFUSED_RETRY_SECONDS = 30.0
_PROGRAM_ENDED = "the program of its DaskJob, of the stock operator, has ended"
# Between two looks at the pod of a program that the stock operator began, and where that pod is gone.
_RUNNER_SECONDS, _NO_RUNNER_SECONDS = 6.0, 60.0
# Programs for the stock operator connect from pods of the namespace. Afterwards it is anybody's to change.
_OPEN: Json = {"allowFrom": [{"podSelector": {}}]}


@dataclass(frozen=True)
class _Stock:
    """What people made under one name, and the GpuDaskCluster of that name; None: there is none."""

    cluster: MirrorObject
    groups: tuple[MirrorObject, ...]
    body: Json | None

    @property
    def is_served(self) -> bool:
        """Whether the GpuDaskCluster serves this very DaskCluster."""
        return self.body is not None and stock_uid(self.body["metadata"]) == self.cluster.uid


class Serving:
    """Serves all DaskClusters and DaskJobs, a few at a time, in turns by namespace.

    `find`, `find_job`: the GpuDaskCluster, the GpuDaskJob of a `namespace/name`, as far as known.
    """

    def __init__(
        self,
        context: Context,
        definitions: Definitions,
        find: Callable[[str], Json | None],
        find_job: Callable[[str], Json | None],
    ) -> None:
        self._context = context
        self._definitions = definitions
        self._find = find
        self._jobs = JobServing(context, definitions, find_job)
        self._takeover = Takeover(context, definitions)
        self._queue = _Queue(context.clock)
        self._failures: dict[str, int] = {}
        self._missed = Missed()  # DaskClusters whose GpuDaskCluster was
        self._converted: dict[str, tuple[tuple[Json, ...], Served | UnservableError]] = {}
        self._compared: dict[str, tuple[tuple[Json, Json], bool]] = {}  # specs, and whether they mean the same

    def wake(self, key: str) -> None:
        """Look at what people made for the cluster `key`, as `namespace/name`."""
        self._queue.add(key)

    def wake_all(self) -> None:
        """Look at all that people made."""
        for key in self._definitions.every_key():
            self._queue.add(key)

    async def run(self) -> None:
        """Serve until cancelled."""
        self.wake_all()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(self._work())
        finally:
            self._takeover.close()

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            CLUSTER.set(key)
            try:
                delay = await self._attempt(key)
            finally:
                self._queue.done(key)
            if delay is not None:
                self._queue.add_later(key, delay)

    async def _attempt(self, key: str) -> float | None:
        """Make a pass; in how many seconds the next one is due, None where an event will tell."""
        try:
            delay = await self._pass(key)
        except ApiError as error:
            if not error.conflict and not error.not_found:
                _LOG.warning("%s: what serves it: %s", key, error)
            return self._failed(key, error.retry_after_seconds)
        except Exception:  # noqa: BLE001 - what one tenant made must not end the service of all others
            _LOG.exception("%s: serving it failed: a defect", key)
            return self._failed(key)
        self._failures.pop(key, None)
        return delay

    def _failed(self, key: str, retry_after_seconds: float | None = None) -> float:
        self._failures[key] = self._failures.get(key, 0) + 1
        return _BACKOFF.delay(self._failures[key], retry_after_seconds)

    async def _pass(self, key: str) -> float | None:
        """Make what is there as it should be.

        Raises:
            ApiError: a request failed, or what is there changed meanwhile.
        """
        if self._definitions.refusal or not self._definitions.know(namespace_of(key)):
            return None
        every = self._definitions.at(key)
        await self._takeover.release_ending(every)
        made = [item for item in every if item.source is not None and not item.deleting]
        crowded = [item for item in made if told.has_too_many_owners(item)]
        groups = tuple(item for item in made if item.kind == objects.WORKER_GROUP and item not in crowded)
        cluster = next((item for item in made if item.kind == objects.CLUSTER), None)
        job = next((item for item in made if item.kind == objects.JOB), None)
        for item in crowded:
            await self._tell(item, told.refused(Reason.INVALID, told.TOO_MANY_OWNERS))
        if cluster is None or not cluster.foreign:
            self._takeover.forget(key)
        delay = None if job is None else await self._jobs.serve(job)
        if cluster is None:
            self._converted.pop(key, None)
            self._compared.pop(key, None)
            await self._tell_orphans(key, groups)
            return delay
        stock = await self._with_cluster(_Stock(cluster, groups, self._find(key)))
        again = None if stock is None else await self._pass_over(key, stock)
        ends = await self._end_with(job, stock) if stock is not None and job is not None else None
        return min((each for each in (delay, again, ends) if each is not None), default=None)

    async def _pass_over(self, key: str, stock: _Stock) -> float | None:
        """`_pass`, where there is a DaskCluster."""
        cluster = stock.cluster
        if stock.body is not None and not stock.is_served:
            if not stock_uid(stock.body["metadata"]):
                await self._refuse(stock, Reason.NAME_TAKEN, told.name_taken(cluster.name))
            return None  # else it serves an earlier DaskCluster, and is deleted with that
        if cluster.foreign:
            if stock.is_served:
                await self._refuse(stock, Reason.MIRROR_REFUSED, told.HANDLED_BY_ANOTHER)
                return None
            return await self._take_over(key, stock)
        found = await self._convert(key, stock)
        if isinstance(found, UnservableError):
            await self._refuse(stock, Reason.INVALID, str(found))
            return None
        return await self._serve(stock, found)

    async def _take_over(self, key: str, stock: _Stock) -> float:
        """Go on with the takeover of a cluster that the stock operator ran."""
        items = self._definitions.at(key)
        waiting = await self._takeover.look(stock.cluster, items)
        has_ended = waiting.runner is not None and await self._jobs.end(stock.cluster, items, waiting.runner)
        if has_ended and waiting.is_cleared:
            await self._delete(stock.cluster, _PROGRAM_ENDED)
            return 0.0
        if waiting.conditions is not None:
            for item in (stock.cluster, *(group for group in stock.groups if not group.foreign)):
                await self._tell(item, waiting.conditions)
        return waiting.requeue_after

    async def _end_with(self, job: MirrorObject, stock: _Stock) -> float | None:
        """Delete a cluster once the program has ended for which the stock operator made it; None: it made it for none.

        Somebody had it taken over before that end.
        """
        cluster = stock.cluster
        if cluster.foreign or not job.foreign or leftovers.job_uid(cluster) != job.uid:
            return None
        phase = await self._takeover.runner_phase(cluster)
        if not await self._jobs.end(cluster, (job,), phase):
            return _RUNNER_SECONDS if phase else _NO_RUNNER_SECONDS
        await self._delete(cluster, _PROGRAM_ENDED)
        return None

    async def _with_cluster(self, stock: _Stock) -> _Stock | None:
        """`stock` with the GpuDaskCluster as it is; None: that was deleted, and the DaskCluster with it.

        Raises:
            ApiError: a request failed, or did not find it for the first time.
        """
        cluster = stock.cluster
        if not cluster.owners or (stock.body is not None and _key(stock.body) in cluster.owners):
            return stock
        body = await self._get(cluster)
        if body is not None and _key(body) in cluster.owners:
            return _Stock(cluster, stock.groups, body)
        await self._delete(cluster, "its GpuDaskCluster was deleted")
        return None

    async def _delete(self, cluster: MirrorObject, why: str) -> None:
        reference = {
            "apiVersion": objects.API_VERSION,
            "kind": cluster.kind,
            "metadata": {"name": cluster.name, "namespace": namespace_of(cluster.owner)},
        }
        try:
            await self._context.api.delete(reference, uid=cluster.uid, version=cluster.version)
        except ApiError as error:
            if not error.not_found or await self._definitions.look_again(self._context.api, cluster, error) is not None:
                raise
        _LOG.info("%s: deleted: %s", cluster.owner, why)

    async def _get(self, cluster: MirrorObject) -> Json | None:
        """The GpuDaskCluster of its name; None: it does not exist, as was said before.

        Raises:
            ApiError: a request failed, or did not find it for the first time.
        """
        context = self._context
        get = partial(context.api.get_cluster, namespace_of(cluster.owner), cluster.name)
        return await self._missed.get(cluster.uid, get, context.clock(), context.recheck_seconds)

    async def _convert(self, key: str, stock: _Stock) -> Served | UnservableError:
        """What serves it; once for the same documents, and in a thread: they may be large."""
        documents = tuple(item.source for item in (stock.cluster, *stock.groups) if item.source is not None)
        known = self._converted.get(key)
        if known is not None and known[0] == documents:
            return known[1]
        found: Served | UnservableError
        try:
            found = await asyncio.to_thread(serve, documents[0], documents[1:], self._context.limits.service_types)
        except UnservableError as error:
            found = error
        except Exception as error:  # noqa: BLE001 - it is told, and the next pass of others goes on
            _LOG.exception("%s: it cannot be read: a defect", key)
            found = UnservableError(f"spec: the operator fails on it ({type(error).__name__}); its log says more")
        self._converted[key] = documents, found
        return found

    async def _serve(self, stock: _Stock, served: Served) -> float | None:
        try:
            body = await self._write_cluster(stock, served)
        except ApiError as error:
            if error.ending or not (error.invalid or error.forbidden or error.quota):
                raise
            reason = Reason.INVALID if error.invalid else Reason.FORBIDDEN
            await self._refuse(stock, reason, error.message or str(error))
            return _REFUSED_RETRY_SECONDS
        if body is None:
            return 0.0  # somebody else's, which the next pass tells
        refusal = told.refusal_of(body)
        await self._adopt(stock.cluster, body, DEFAULT_GROUP, told.cluster_conditions(served, refusal))
        for group in stock.groups:
            if (why := served.refused.get(group.name)) is not None:
                await self._tell(group, told.refused(Reason.INVALID, why))
            else:
                conditions = told.group_conditions(served, group.name)
                await self._adopt(group, body, served.pools[group.name], conditions)
        return None

    async def _write_cluster(self, stock: _Stock, served: Served) -> Json | None:
        """Create the GpuDaskCluster, or change its spec; None: there is one by now.

        Raises:
            ApiError: it was refused, or changed meanwhile.
        """
        api, cluster = self._context.api, stock.cluster
        if (present := stock.body) is not None:
            if isinstance(present["spec"], Outline):  # what people set on it is to stay, all of it
                uid, whole = present["metadata"]["uid"], await self._get(cluster)
                if whole is None or whole["metadata"]["uid"] != uid:
                    return None
                present = whole
            spec = merged_spec(served.spec, present["spec"], served.kept, _released(stock, served))
            # What was too large to be kept is not kept for this either.
            means_the_same = same_spec if present is not stock.body else partial(self._means_the_same, cluster.owner)
            if "deletionTimestamp" in present["metadata"] or means_the_same(spec, present["spec"]):
                return present
            return await api.replace_spec(present, spec)
        namespace = namespace_of(cluster.owner)
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                **served.metadata,
                "name": cluster.name,
                "namespace": namespace,
                "ownerReferences": [
                    {
                        "apiVersion": objects.API_VERSION,
                        "kind": STOCK_KIND,
                        "name": cluster.name,
                        "uid": cluster.uid,
                        "controller": True,
                    }
                ],
            },
            "spec": {**served.spec, "network": _OPEN},
        }
        try:
            made = await api.create(body)
        except ApiError as error:
            if not error.conflict:
                raise
            found = await self._get(cluster)
            if found is None or stock_uid(found["metadata"]) == cluster.uid:
                return found
            if not stock_uid(found["metadata"]):
                await self._refuse(stock, Reason.NAME_TAKEN, told.name_taken(cluster.name))
            return None
        _LOG.info("%s: created, which serves the DaskCluster of this name", cluster.owner)
        for words in served.replaced:
            await self._record(cluster, Reason.COMMAND_REPLACED, words, warning=False)
        return made

    def _means_the_same(self, key: str, wanted: Json, present: Json) -> bool:
        """`same_spec`, once for the same two: to validate them stops everybody for as long as they are large.

        Of most clusters they differ, by defaults that are written out in one of them.
        """
        known = self._compared.get(key)
        try:
            is_known = known is not None and known[0] == (wanted, present)
        except RecursionError:  # they are too deep, which `same_spec` says
            is_known = False
        if known is None or not is_known:
            known = self._compared[key] = (wanted, present), same_spec(wanted, present)
        return known[1]

    async def _adopt(self, item: MirrorObject, body: Json, pool: str, conditions: tuple[Condition, ...]) -> None:
        """Make the GpuDaskCluster `body` an owner of `item`, which shows size or limits of its `pool`; and tell.

        What differs from these later, somebody set.
        """
        if told.is_settled(item, _key(body), body["metadata"]["uid"]):
            await self._tell(item, conditions)
            return
        size, limits = sizes(body["spec"]).get(pool), own_limits(body["spec"]).get(pool)
        shown = item.value if size is None else objects.size_value(size)
        if limits is not None:
            shown = objects.size_value(item.size, limits)
        if _key(body) in item.owners:  # it is no longer new: what was written last holds
            shown = item.written or ""
        await self._tell(item, conditions, metadata=told.owned(item, body["metadata"], shown))

    async def _refuse(self, stock: _Stock, reason: Reason, why: str) -> None:
        await self._tell(stock.cluster, told.refused(reason, why))

    async def _tell_orphans(self, key: str, groups: Iterable[MirrorObject]) -> None:
        for group in groups:
            if group.owners:
                continue  # its cluster was deleted, and it goes with it
            await self._tell(group, told.refused(Reason.NO_CLUSTER, told.orphan(key, has_ours=bool(self._find(key)))))

    async def _tell(
        self, item: MirrorObject, conditions: tuple[Condition, ...], *, metadata: Json | None = None
    ) -> None:
        """Write the conditions, and `metadata`, where something differs; what is new is an event, too."""
        now = self._context.clock() + self._context.server_ahead()
        status, news = told.status(item, conditions, now)
        if metadata is None and status is None:
            return
        body: Json = {
            "apiVersion": objects.API_VERSION,
            "kind": item.kind,
            "metadata": {**(metadata or {}), "name": item.name, "namespace": namespace_of(item.owner)},
        }
        answer = await self._context.api.merge(body | ({"status": status} if status else {}), version=item.version)
        self._definitions.caches[item.kind].upsert(namespace_of(item.owner), answer)
        for condition in news:
            await self._record(item, condition.reason, condition.message, warning=not condition.holds)

    async def _record(self, item: MirrorObject, reason: Reason, message: str, *, warning: bool) -> None:
        identity = Identity(item.name, namespace_of(item.owner), item.uid)
        await self._context.events.record(
            identity,
            reason,
            message,
            series=message,
            warning=warning,
            now=self._context.clock(),
            regarding=(objects.API_VERSION, item.kind),
        )


def _released(stock: _Stock, served: Served) -> frozenset[str]:
    """The pools whose limits somebody took away; `sync` writes down that they are gone once the spec has none."""
    pools = {stock.cluster.name: DEFAULT_GROUP} if stock.cluster.limits_removed else {}
    pools |= {item.name: served.pools.get(item.name, "") for item in stock.groups if item.limits_removed}
    return frozenset(pools.values())


class _Queue:
    """The clusters to look at, in turns by namespace. One that is looked at comes again only afterwards."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()  # by namespace
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._limiters: dict[str, RateLimiter] = {}
        self._added = asyncio.Event()

    def add(self, key: str) -> None:
        """Have `key` looked at."""
        if key in self._busy:
            self._again.add(key)
            return
        self._waiting.setdefault(namespace_of(key), OrderedDict())[key] = None
        self._added.set()

    def add_later(self, key: str, seconds: float) -> None:
        """Have it looked at in so many seconds, or sooner where that is due already."""
        loop = asyncio.get_running_loop()
        at, timer = loop.time() + seconds, self._timers.get(key)
        if timer is not None:
            if timer.when() <= at:
                return
            timer.cancel()

        def due() -> None:
            self._timers.pop(key, None)
            self.add(key)

        self._timers[key] = loop.call_at(at, due)

    async def take(self) -> str:
        """The next one; `done` has to follow."""
        while True:
            while not self._waiting:
                self._added.clear()
                await self._added.wait()
            namespace, keys = next(iter(self._waiting.items()))
            key, _ = keys.popitem(last=False)
            self._waiting.move_to_end(namespace)
            if not keys:
                del self._waiting[namespace]
            now = self._clock()
            self._limiters = {name: each for name, each in self._limiters.items() if each.full_at > now or name == key}
            limiter = self._limiters.setdefault(key, RateLimiter(_PASSES_PER_SECOND, _PASSES_BURST))
            if (at := limiter.available_at(now)) > now:
                self.add_later(key, at - now)
                continue
            limiter.reserve(now)
            self._busy.add(key)
            return key

    def done(self, key: str) -> None:
        """It was looked at."""
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)


def _key(body: Json) -> str:
    return owner_key(body["metadata"]["namespace"], body["metadata"]["uid"])
