"""The loop of each cluster, and the registry of all loops, which starts and wakes them.

A loop, woken by events, makes one pass after another (`pass_loop`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

from gpudask.api import Json
from gpudask.api.record import RecordedEvent
from gpudask.api.resource import Identity, bounded_cluster, owner_key, parse_status
from gpudask.clients.errors import ApiError
from gpudask.history.unfinished import GonePods, LastStatus
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.objects import AUTOSCALER
from gpudask.mirror.serving import Serving
from gpudask.mirror.state import MirrorObject
from gpudask.mirror.sync import Mirror
from gpudask.planning.ledger.takeover import Arrival
from gpudask.planning.observed.pods import Pod
from gpudask.reconcile.context import Context
from gpudask.reconcile.election import LONGEST_LEASE_SECONDS
from gpudask.reconcile.loop_memory import LastCounts, OwnCount
from gpudask.reconcile.pass_loop import PassLoop
from gpudask.reconcile.preload_configmaps import SharedByName
from gpudask.reconcile.reconciler import Reconciler
from gpudask.reconcile.records.writer import ClusterRecord
from gpudask.reconcile.resource_copy import LOOK_SECONDS, Change, ResourceCopy, age

_LOG = logging.getLogger(__name__)
# How soon a pass follows a demand in which only counts have changed; the preload sends them about as often.
_COUNTS_SECONDS = 0.2
_CLOSED_KEPT = 1000  # clusters that ended while this operator led
_LAST_KEPT = 200  # clusters that ended, and whose record this operator has not closed
# The former leader may have been killed so long before the next one leads, just as a cluster ended.
_UNTOLD_SECONDS = LONGEST_LEASE_SECONDS + 30.0
# How long an operator that ends waits for records of clusters that are gone; the next one goes on with them.
_CLOSING_SECONDS = 1.0


class ClusterLoop:
    """The loop of one cluster: all that is done for it, one pass at a time."""

    def __init__(self, context: Context, body: Json, definitions: Definitions | None = None) -> None:
        self._context = context
        self._timer: asyncio.TimerHandle | None = None
        metadata = body["metadata"]
        namespace = metadata["namespace"]
        self._owner = owner_key(namespace, metadata["uid"])
        self._copy = ResourceCopy(context, body)
        self.mirror = Mirror(context, definitions)
        cluster = Identity(metadata["name"], namespace, metadata["uid"])
        self.record = ClusterRecord(context, cluster, str(metadata.get("creationTimestamp", "")))
        self._reconciler = Reconciler(context, self._copy, self.mirror, _Waker(self), self.record)
        report = self._reconciler.report_defect
        self._held = _Held(context, self._copy, self._reconciler)
        self._passes = PassLoop(context, self._copy.key, self._owner, self._held.reconcile, report)

    def resource_changed(self, body: Json) -> None:
        """Keep a newer copy of the resource. Our own status writes come back here too: those cause no pass."""
        change = self._copy.update(body)
        if change is Change.EDIT:
            self._reconciler.edited()
            self._passes.retry_now()
        if change is not Change.NONE:
            self.wake()

    def doubt_copy(self, *, ended: bool) -> None:
        """Look whether the cluster exists before anything is made from its copy; where it `ended` before, at once."""
        self._copy.mark_doubtful()
        self._copy.has_older = ended

    @property
    def came_late(self) -> bool:
        """Whether the cluster had ended before, and was not found to exist since."""
        return self._copy.has_older

    def hold(self, seconds: float, *, is_gone: bool = False) -> None:
        """Make no pass for so long, unless it is being deleted; 0 ends that. `is_gone`: whether it may not exist."""
        now = self._context.clock()
        if not seconds:
            self._copy.mark_doubtful()  # it was to be deleted
        self._held.until, self._held.look_at = now + seconds, now + (0.0 if is_gone else LOOK_SECONDS)
        self.wake()

    def wake(self) -> None:
        """Make a pass now: something changed."""
        self._passes.wake()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def inherit(self, came: Arrival | None, own: OwnCount | None, gone: Iterable[tuple[Pod, float]]) -> None:
        """As the reconciler's."""
        self._reconciler.inherit(came, own, gone)

    @property
    def last_count(self) -> OwnCount | None:
        """As the status writer's."""
        return self._reconciler.last_count

    def pod_gone(self, pod: Pod) -> None:
        """Note when a pod of this cluster was gone; the pass that follows counts it."""
        now = self._context.clock()
        self._reconciler.pod_gone(pod, now)
        self.record.pod_gone(pod, now)

    def preloads_changed(self, now: SharedByName) -> None:
        """Make a pass if this cluster misses its reference in the shared ConfigMaps, which are so now."""
        if self._reconciler.misses_preload(now):
            self.wake()

    def demand_changed(self, *, urgent: bool = True) -> None:
        """Make a pass for a new demand: now, or where only counts changed, a moment later."""
        if urgent:
            self.wake()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_COUNTS_SECONDS, self.wake)

    async def run(self) -> None:
        """Make passes until the cluster is gone."""
        try:
            await self._passes.run()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._reconciler.stop()


class _Held:
    """The passes of a cluster that somebody may hold: none is made `until` a time, unless it is being deleted."""

    def __init__(self, context: Context, copy: ResourceCopy, reconciler: Reconciler) -> None:
        self._context = context
        self._copy = copy
        self._reconciler = reconciler
        self.until = 0.0  # on the operator's clock
        self.look_at = 0.0  # when it is looked up whether the cluster exists, which no event may have told

    async def reconcile(self) -> float:
        """As the reconciler's."""
        now = self._context.clock()
        if (left := self.until - now) > 0 and "deletionTimestamp" not in self._copy.body["metadata"]:
            if now >= self.look_at:
                self.look_at = now + LOOK_SECONDS
                with contextlib.suppress(ApiError):  # then the next look says it
                    await self._copy.refresh()
            return min(left, self.look_at - now)
        return await self._reconciler.reconcile()


class _Waker:
    """A loop as its reconciler knows it, which must not keep it: else the two would wait for the collector.

    Of a thousand clusters that end that is half a million objects, and more than 100 ms in which nothing else is done.
    """

    def __init__(self, loop: ClusterLoop) -> None:
        self._loop = weakref.ref(loop)

    def wake(self) -> None:
        if (loop := self._loop()) is not None:
            loop.wake()

    def demand_changed(self, *, urgent: bool = True) -> None:
        if (loop := self._loop()) is not None:
            loop.demand_changed(urgent=urgent)

    def resource_changed(self, body: Json) -> None:
        if (loop := self._loop()) is not None:
            loop.resource_changed(bounded_cluster(body))


class Registry:
    """The loops of all clusters, by `owner_key`. The uid is a part of it: one deleted and applied again is another one.

    While another operator leads there are no loops, and the clusters' last copies are kept: so a new leader starts at
    once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._context: Context | None = None
        self._definitions: Definitions | None = None
        self._leads = False
        self._clock = clock  # by which that is noted which stands here alone:
        self._counts = LastCounts(clock)
        self._held: dict[str, float] = {}  # by key: until when, on that clock
        self._gone = GonePods()  # by this clock; also those that a loop counts, which may have to leave that to others
        self._bodies: dict[str, Json] = {}  # by key
        self._named: dict[str, str] = {}  # by namespace/name: the key of the one that exists
        self._loops: dict[str, ClusterLoop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._deleted: set[str] = set()  # clusters that were deleted while their loop runs
        self._ending: dict[str, ClusterRecord] = {}  # by key: of clusters that are gone, whose pods may be there
        self._closing: set[asyncio.Task[None]] = set()  # records that are written for the last time
        self._last: dict[str, LastStatus] = {}  # by key, the last one last: of clusters that ended
        self._closed: dict[str, None] = {}  # by key, the last one last: clusters whose record was closed here
        # Called with `namespace/name` of a cluster that changed, or one of whose objects did.
        self.on_cluster: Callable[[str], None] = lambda _name: None
        # The GpuDaskJob of a `namespace/name`.
        self.find_job: Callable[[str], Json | None] = lambda _name: None
        self._serving: Serving | None = None  # of DaskClusters that people made
        self._serving_task: asyncio.Task[None] | None = None

    def lead(self, context: Context, definitions: Definitions | None = None) -> None:
        """Start the loops of all clusters, and of those to come. `definitions`: of the mirror, if any."""
        self._context, self._definitions, self._leads = context, definitions, True
        self.start_loops()
        if definitions is not None:
            known = lambda key: self._bodies.get(self._named.get(key, ""))  # noqa: E731 - of this registry
            self._serving = Serving(context, definitions, known, self.find_job)
            self._serving_task = context.supervisor.start(self._serving.run, kind="stock", name="objects")

    def start_loops(self) -> None:
        """Start loops in the namespaces whose caches have filled meanwhile; first of the clusters that lack pods."""
        for key, body in sorted(self._bodies.items(), key=lambda item: self._has_its_pods(*item)):
            self._start_loop(key, body, is_news=False)
        self._tell_ends()

    def _tell_ends(self) -> None:
        """Have the ends written of clusters that went just before: who led may have written none, or a part."""
        for key, last in tuple(self._last.items()):
            if last.ended is not None and self._clock() - last.ended <= _UNTOLD_SECONDS and self._may_tell(key):
                namespace, _, uid = key.rpartition("/")
                self.close_anew(Identity(last.name, namespace, uid), last.keep_seconds)

    def _has_its_pods(self, key: str, body: Json) -> bool:
        """Whether there are as many pods as its status says are wanted; the scheduler's is one of them."""
        if self._context is None or key in self._loops:
            return True
        live = [pod for pod in self._context.pods.owned(key) if pod.live]
        return len(live) > sum(pool.desired for pool in parse_status(body).pools)

    async def stand_by(self) -> None:
        """End all loops; the clusters stay as they are."""
        self._leads = False
        tasks = [*self._tasks.values(), *([self._serving_task] if self._serving_task is not None else [])]
        self._serving = self._serving_task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the ends of the loops begin those of their records
        if closing := list(self._closing):
            _, late = await asyncio.wait(closing, timeout=_CLOSING_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*closing, return_exceptions=True)

    def cluster_changed(self, body: Json) -> None:
        """A cluster was created or changed: start its loop, or hand it the new copy."""
        metadata = body["metadata"]
        key = owner_key(metadata["namespace"], metadata["uid"])
        self._named[f"{metadata['namespace']}/{metadata['name']}"] = key
        body = self._bodies[key] = bounded_cluster(body, self._bodies.get(key))
        if (came := self._counts.note(key, body)) is not None:
            self._gone.forget(key, came.sent_after)
        self._cluster_changed(f"{metadata['namespace']}/{metadata['name']}")
        if key in self._loops:
            self._loops[key].resource_changed(body)
        else:
            self._start_loop(key, body, is_news=True)

    def cluster_written(self, body: Json) -> None:
        """As `cluster_changed`, of an answer of the API server, which an event of what came after it may overtake."""
        metadata = body["metadata"]
        key = owner_key(metadata["namespace"], metadata["uid"])
        known = self._bodies.get(key)
        if known is None:
            is_news = key not in self._last and key not in self._closed
        else:
            is_news = age(known["metadata"]) < age(metadata)
        if is_news:
            self.cluster_changed(body)

    def cluster_deleted(self, metadata: Mapping[str, Any]) -> None:
        """The cluster with these metadata was deleted: end its loop. What it owned, Kubernetes collects."""
        key = owner_key(metadata["namespace"], metadata["uid"])
        loop = self._loops.get(key)
        self._forget(key, came_late=loop is None or loop.came_late)
        self._cluster_changed(f"{metadata['namespace']}/{metadata['name']}")
        task = self._tasks.get(key)
        if task is not None:
            self._deleted.add(key)
            task.cancel()

    def hold(self, namespace: str, uid: str, seconds: float) -> None:
        """Let a cluster be as it is for so long: whoever ends it deletes its workers, and none is made in their place.

        A hold lapses by itself: who asked for it may be gone. It is also that of a loop which begins meanwhile.
        """
        key, now = owner_key(namespace, uid), self._clock()
        self._held = {held: until for held, until in self._held.items() if until > now} | {key: now + seconds}
        if (loop := self._loops.get(key)) is not None:
            loop.hold(seconds)

    def end_hold(self, namespace: str, uid: str) -> None:
        """Work for the cluster again, where it is held."""
        key = owner_key(namespace, uid)
        if self._held.pop(key, 0.0) > self._clock() and (loop := self._loops.get(key)) is not None:
            loop.hold(0.0)

    def _start_loop(self, key: str, body: Json, *, is_news: bool) -> None:
        """Start it. What is no news may be long gone: a list after a watch that broke off tells of no deletion."""
        metadata, context = body["metadata"], self._context
        if not self._leads or key in self._loops or context is None or not context.knows(metadata["namespace"]):
            return
        loop = self._loops[key] = ClusterLoop(context, body, self._definitions)
        ended = key in self._last or key in self._closed  # then an event comes late, or a backup was restored
        if ended or not is_news:
            loop.doubt_copy(ended=ended)
        came, own = self._counts.take(key)
        gone, ahead = self._gone_of(key), context.clock() - self._clock()
        last = LastStatus.of(body, came).shifted(ahead)
        loop.inherit(last.came, own, gone)
        loop.record.inherit(last, gone)
        if (left := self._held.get(key, 0.0) - self._clock()) > 0:
            loop.hold(left, is_gone=True)  # a late event may have begun it, of one whose deletion no event tells
        name = f"{metadata['namespace']}/{metadata['name']}"
        task = self._tasks[key] = context.supervisor.start(loop.run, kind="cluster", name=name, may_end=True)
        task.add_done_callback(lambda done: self._ended(key, done))

    def _gone_of(self, key: str) -> tuple[tuple[Pod, float], ...]:
        """Its pods that are gone, and since when by the operator's clock, but for those that were long counted."""
        assert self._context is not None, "who leads asks"
        now, ahead = self._clock(), self._context.clock() - self._clock()
        return tuple((pod, min(at, now) + ahead) for pod, at in self._gone.of(key))

    def find(self, namespace: str, name: str) -> Json | None:
        """The cluster of this name, as last seen."""
        return self._bodies.get(self._named.get(f"{namespace}/{name}", ""))

    def owned_changed(self, owner: str) -> None:
        """Something that the cluster with this `owner_key` owns changed: wake its loop."""
        if (body := self._bodies.get(owner)) is not None:
            self.on_cluster(f"{body['metadata']['namespace']}/{body['metadata']['name']}")
        loop = self._loops.get(owner)
        if loop is not None:
            loop.wake()

    def pod_gone(self, pod: Pod) -> None:
        """A pod does not exist any more: it held its GPUs until now, and was as it was last seen."""
        if (loop := self._loops.get(pod.owner)) is not None:
            loop.pod_gone(pod)
        elif (record := self._ending.get(pod.owner)) is not None and self._context is not None:
            record.pod_gone(pod, self._context.clock())
        if pod.owner not in self._closed:  # of which all is told
            self._gone.add(pod, self._clock())

    def event_recorded(self, cluster: Identity, event: RecordedEvent) -> None:
        """An event was recorded on a cluster."""
        loop = self._loops.get(cluster.owner_key)
        if loop is not None:
            loop.record.note_event(event)

    def has(self, cluster: Identity) -> bool:
        """Whether this cluster is there, as far as is known here."""
        return cluster.owner_key in self._bodies

    def knows_more(self, cluster: Identity) -> bool:
        """Whether this cluster's end, or that of pods of it, was seen here, and nobody here has told of them."""
        key, context = cluster.owner_key, self._context
        if context is None or not self._may_tell(key):
            return False
        return key in self._last or bool(context.pods.owned(key) or self._gone.of(key))

    def _may_tell(self, key: str) -> bool:
        """Whether the end of a cluster that is gone is for this operator to tell, and nothing here does already."""
        if not self._leads or self._context is None or not self._context.knows(key.rpartition("/")[0]):
            return False
        return not any(key in known for known in (self._bodies, self._loops, self._ending, self._closed))

    def close_anew(self, cluster: Identity, keep_seconds: float | None) -> None:
        """Go on with the record of a cluster that is gone, whose end another operator has written in part, or not."""
        if self._context is None:
            return
        gone, last = self._gone_of(cluster.owner_key), self._last.get(cluster.owner_key)
        last = last.shifted(self._context.clock() - self._clock()) if last is not None else None
        record = ClusterRecord(self._context, cluster, "")
        self._run_to_end(record, partial(record.close_anew, gone, keep_seconds, last), cluster.owner_key)

    def wake_all(self) -> None:
        """Wake all loops: something changed that concerns every cluster."""
        for loop in self._loops.values():
            loop.wake()
        if self._serving is not None:
            self._serving.wake_all()

    def _cluster_changed(self, name: str) -> None:
        """Tell who serves a job or a DaskCluster by the cluster of this `namespace/name`."""
        self.on_cluster(name)
        self.wake_serving(name)

    def wake_serving(self, key: str) -> None:
        """Look at what people made of the stock operator's kinds under this `namespace/name`."""
        if self._serving is not None:
            self._serving.wake(key)

    def preloads_changed(self, namespace_key: str) -> None:
        """A ConfigMap that a namespace's clusters share changed: wake the loops of the clusters that miss it now."""
        if self._context is None or not self._leads:
            return
        now = self._context.preloads.known(namespace_key.removesuffix("/"))
        for key, loop in self._loops.items():
            if key.startswith(namespace_key):
                loop.preloads_changed(now)

    def mirror_changed(self, key: str) -> None:
        """An object in the mirror of the cluster `key`, as `namespace/name`, changed: wake its loop."""
        self.owned_changed(self._named.get(key, ""))
        self.wake_serving(key)

    def mirror_deleted(self, item: MirrorObject) -> None:
        """Somebody deleted an object of a cluster's mirror, or an autoscaler of theirs that was not yet part of it."""
        owner = self._named.get(item.owner, "")  # what has another name stands for no cluster, whoever owns it
        if item.source is not None:
            is_part = owner in item.owners
        else:
            is_part = item.controller == owner or (item.kind == AUTOSCALER and not item.controller)
        loop = self._loops.get(owner)
        if loop is not None and is_part:
            loop.mirror.deleted(item)

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        is_gone = key in self._deleted or not task.cancelled()
        self._deleted.discard(key)
        came_late = False
        if self._tasks.get(key) is task:
            loop = self._loops.pop(key)
            came_late = loop.came_late  # then the record is that of the loop before
            self._end_record(loop.record, key, is_gone=is_gone and self._leads and not came_late)
            if self._context is not None and key in self._bodies and (own := loop.last_count) is not None:
                self._counts.keep(key, own, self._context.clock() - self._clock())
            del self._tasks[key]
        if task.cancelled():
            return
        body = self._bodies.get(key)
        self._forget(key, came_late=came_late)
        if body is not None:  # its loop has found that out, and no event may ever come
            self._cluster_changed(f"{body['metadata']['namespace']}/{body['metadata']['name']}")
        if task.exception() is not None:
            _LOG.critical("a cluster's loop failed: this is a defect", exc_info=task.exception())

    def _end_record(self, record: ClusterRecord, key: str, *, is_gone: bool) -> None:
        """Write the end of a cluster that is gone; of one that others go on with, end what runs for its record."""
        if self._context is None:
            return
        ending = self._run_to_end(record, record.close if is_gone else record.stop, key)
        if not is_gone:  # another's cluster, or one that had ended before: of its end perhaps nothing is written yet
            ending.add_done_callback(lambda _: self._tell_ends())

    def _run_to_end(
        self, record: ClusterRecord, work: Callable[[], Coroutine[Any, Any, None]], key: str
    ) -> asyncio.Task[None]:
        assert self._context is not None, "records are of clusters that had a loop, or of a leader"
        task = self._context.supervisor.start(work, kind="record", name=key, may_end=True)
        self._closing.add(task)
        self._ending.setdefault(key, record)
        task.add_done_callback(self._closing.discard)
        task.add_done_callback(lambda done: self._ended_record(key, record, ran=not done.cancelled()))
        return task

    def _ended_record(self, key: str, record: ClusterRecord, *, ran: bool) -> None:
        """Note that nothing runs for a record any more; one that is closed has all, and its pods are forgotten."""
        if self._ending.get(key) is record:
            del self._ending[key]
        if not (ran and record.is_closed):
            return
        if self._context is not None:
            self._context.events.forget(key.rpartition("/")[2])
        self._closed[key] = None
        self._last.pop(key, None)
        if len(self._closed) > _CLOSED_KEPT:
            del self._closed[next(iter(self._closed))]
        self._gone.forget(key)

    def _forget(self, key: str, *, came_late: bool) -> None:
        """Forget a cluster that is gone, but for what may have to be told of its end; the first, if it `came_late`."""
        body, came = self._bodies.pop(key, None), self._counts.forget(key)
        self._held.pop(key, None)
        if body is not None:
            before, last = self._last.pop(key, None), LastStatus.of(body, came, self._clock())
            self._last[key] = before if before is not None and came_late else last
            if len(self._last) > _LAST_KEPT:
                del self._last[next(iter(self._last))]
            name = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
            if self._named.get(name) == key:  # it may be another one's by now
                del self._named[name]
