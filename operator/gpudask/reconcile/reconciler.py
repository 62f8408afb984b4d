"""One pass over the newest copy of a cluster: observe, plan, execute, tell the scheduler, write the status.

Running a pass twice changes nothing; the next pass makes up for a lost event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Protocol

from gpudask.api import Json
from gpudask.api.limits import NO_IMAGE, violations
from gpudask.api.reasons import Reason
from gpudask.api.resource import Cluster, InvalidSpecError
from gpudask.clients.errors import ApiError
from gpudask.desired import spec_hash
from gpudask.desired.scheduler import preload_pools
from gpudask.mirror.sync import Mirror
from gpudask.planning.actions import CreateScheduler, CreateWorker, DeletePod, Deletion, Plan
from gpudask.planning.degraded import failure_message
from gpudask.planning.drain import retirements
from gpudask.planning.eviction import at_work
from gpudask.planning.ledger.causes import Gone, holders_unplanned
from gpudask.planning.ledger.counting import Ledger, Seen, count
from gpudask.planning.ledger.takeover import Arrival, inherit
from gpudask.planning.observed.observation import Failure, Observation
from gpudask.planning.observed.pods import Pod, current_scheduler
from gpudask.planning.plan import plan
from gpudask.planning.pool_view import StartTimes
from gpudask.planning.scheduler import in_force, named_by_service, with_default_image
from gpudask.planning.status import count_gpus, recount, report
from gpudask.reconcile.context import Context
from gpudask.reconcile.demand_feed import DemandFeed
from gpudask.reconcile.drift_repair import DriftRepair
from gpudask.reconcile.executor import DryRuns, Executor, delete_unused
from gpudask.reconcile.loop_memory import Memory, OwnCount, PodEnds
from gpudask.reconcile.measurements import Measurements
from gpudask.reconcile.pass_loop import RESYNC_SECONDS
from gpudask.reconcile.preload_configmaps import SharedByName, SharedPreload
from gpudask.reconcile.records.writer import ClusterRecord
from gpudask.reconcile.resource_copy import LOOK_SECONDS, ResourceCopy
from gpudask.reconcile.retries import Kind, Retries
from gpudask.reconcile.status import StatusWriter

_LOG = logging.getLogger(__name__)
# How soon a mirror that was refused is tried again.
_MIRROR_RETRY_SECONDS = 30.0
# How soon the desired state is sent again that the scheduler did not get.
_SEND_RETRY_SECONDS = 5.0


class _MirrorChanges(Enum):
    """The outcome of applying the changes that people made in the mirror."""

    UNKNOWN = auto()
    APPLIED = auto()
    CLUSTER_CHANGED = auto()  # there is a newer copy of the resource


class Loop(Protocol):
    """The loop that makes the passes one after another."""

    def wake(self) -> None:
        """Make a pass now."""

    def demand_changed(self, *, urgent: bool = True) -> None:
        """There is a new demand."""

    def resource_changed(self, body: Json) -> None:
        """There is a newer copy of the resource."""


class Reconciler:
    """Makes the passes of one cluster, and owns what they share."""

    def __init__(self, context: Context, copy: ResourceCopy, mirror: Mirror, loop: Loop, record: ClusterRecord) -> None:
        self._context = context
        self._copy = copy
        self._mirror = mirror
        self._loop = loop
        self._memory = Memory(context.random)
        self._retries = Retries(
            copy.key,
            context.clock,
            loop.wake,
            context.random,
            context.supervisor,
            deadline_seconds=context.deadline_seconds,
            on_failure=context.metrics.count_error,
        )
        self._feed = DemandFeed(context, copy.body, loop.demand_changed)
        self._measurements = Measurements(context, copy, self._feed)
        self._drift_repair = DriftRepair(context)
        self._preload = SharedPreload(context.preloads, context.pods, context.dependents["ConfigMap"])
        self._executor = Executor(context, self._memory, self._measurements.deleted)
        self._dry_runs = DryRuns(context, self._executor)
        self._status_writer = StatusWriter(context, copy)
        self._record = record
        self._live: set[str] = set()
        self._ends = PodEnds(context.clock)

    def inherit(self, came: Arrival | None, own: OwnCount | None, gone: Iterable[tuple[Pod, float]]) -> None:
        """As the status writer's; and note which pods have gone, and when."""
        self._status_writer.inherit(came, own)
        for pod, at in gone:
            self.pod_gone(pod, at)

    @property
    def last_count(self) -> OwnCount | None:
        """As the status writer's."""
        return self._status_writer.last_count

    def pod_gone(self, pod: Pod, at: float) -> None:
        """Note that a pod is gone since `at`: for the ledger, and for a scheduler that may find room now."""
        self._memory.record_gone(self._context.clock())
        self._ends.note(pod, at)

    def edited(self) -> None:
        """Forget what was refused: the spec was edited."""
        self._memory.forget_refusals()
        self._retries.forget()
        self._dry_runs.forget()

    def misses_preload(self, now: SharedByName) -> bool:
        """Whether this cluster's reference is gone from the shared ConfigMaps, which are so now."""
        return self._preload.has_lost(now)

    async def stop(self) -> None:
        """End all that runs for this cluster; returns when it has ended."""
        self._feed.stop()
        self._measurements.stop()
        await self._retries.stop()

    async def report_defect(self, error: Exception) -> None:
        """Write to the status that a pass failed by a defect. The log has its traceback.

        Raises:
            ClusterGoneError: there is no such cluster any more.
        """
        name = type(error).__name__
        message = f"the operator fails on this cluster ({name}): what exists stays, and it tries again; see its log"
        try:
            await self._write_status(self._status_writer.write_defect(self._copy.body, message))
        except ApiError as failure:
            _LOG.warning("%s: its status was not written: %s", self._copy.key, failure)

    async def reconcile(self) -> float:
        """Make a pass; its requeue_after, in seconds."""
        self._record.look(cluster_gone="deletionTimestamp" in self._copy.body["metadata"])
        seconds = await self._pass()
        await self._retries.run(Kind.RECORD, self._record.work(), wait=False)
        is_under_way = self._retries.is_running(Kind.RECORD) or self._retries.has_failed(Kind.RECORD)
        return self._soonest(seconds, None if is_under_way else self._record.requeue_after())

    async def _pass(self) -> float:
        if self._copy.has_older:
            self._loop.resource_changed(await self._copy.refresh())
        try:
            cluster = self._copy.cluster()
        except InvalidSpecError as error:
            return await self._report_invalid(str(error), Reason.INVALID)
        if cluster.deleting:
            self._feed.stop()
            return await self._report_deletion(cluster)
        if beyond := violations(cluster.spec, cluster.namespace, self._context.limits):
            return await self._report_invalid("; ".join(beyond), Reason.LIMIT)
        scheduler = current_scheduler(self._context.pods_of(cluster))
        cluster = with_default_image(cluster, scheduler, self._context.default_image)
        if cluster.spec.image is None:
            return await self._report_invalid(NO_IMAGE, Reason.INVALID)
        mirrored = await self._apply_mirror_changes(cluster)
        if mirrored is _MirrorChanges.CLUSTER_CHANGED:
            return RESYNC_SECONDS
        return await self._reconcile_valid(cluster, write_mirror=mirrored is _MirrorChanges.APPLIED)

    async def _apply_mirror_changes(self, cluster: Cluster) -> _MirrorChanges:
        """Apply what people changed in the mirror: before a plan is made, since it may change the spec."""
        if self._mirror.off or self._retries.is_running(Kind.MIRROR_READ, Kind.MIRROR_WRITTEN):
            return _MirrorChanges.UNKNOWN
        found = [_MirrorChanges.UNKNOWN]

        async def apply_changes() -> bool:
            newer = await self._mirror.apply_changes(cluster, self._copy.body, self._status_writer.status)
            found.append(_MirrorChanges.APPLIED if newer is None else _MirrorChanges.CLUSTER_CHANGED)
            if newer is not None:
                self._loop.resource_changed(newer)
            return newer is not None

        await self._retries.run(Kind.MIRROR_READ, {"changes of the mirror": apply_changes})
        return found[-1]

    async def _reconcile_valid(self, cluster: Cluster, *, write_mirror: bool) -> float:
        """Make a pass with a valid spec that has all that people asked for."""
        self._memory.retry_names(self._context.clock())
        observation = self._observe(cluster)
        self._memory.record_busy((pod.uid for pod in observation.pods), at_work(observation), observation.now)
        live = {pod.uid for pod in observation.pods if pod.live}
        if not self._live <= live:
            self._copy.mark_doubtful()
        self._live = live
        planned = plan(observation)
        if self._ends_scheduler(planned):
            await self._feed.poll_now()
            observation = self._observe(cluster)
            planned = plan(observation)
            wants = self._ends_scheduler(planned) and cluster.spec.history.performance_report
            if wants and await self._record.write_report():
                self._loop.wake()  # that took up to a minute, in which a graph or an edit may have come
                return RESYNC_SECONDS
        if has_lost := self._drift_repair.has_lost_any(cluster):
            self._copy.mark_doubtful()
        creates = any(isinstance(action, CreateScheduler | CreateWorker) for action in planned.actions)
        if (creates or has_lost) and not await self._is_up_to_date(cluster):
            self._loop.wake()
            return RESYNC_SECONDS
        self._remember(observation, planned)
        self._measurements.planned(observation, planned)
        await self._record.before(planned)
        await self._execute(observation.cluster, planned, write_mirror=write_mirror)
        observation = self._observe(cluster)
        sent = await self._feed.send_desired(
            preload_pools(observation.cluster),  # a protocol that waits for the scheduler's rollout opens nothing
            retirements(observation),
            planned.offers,
            task_stream=cluster.spec.history.performance_report,
        )
        soon = await self._report(cluster, observation, planned)
        again = _MIRROR_RETRY_SECONDS if self._mirror.refusal and not self._mirror.off else None
        send = None if sent else _SEND_RETRY_SECONDS
        refused = self._memory.requeue_after(self._context.clock())  # in this pass: its plan did not know of it
        return self._soonest(
            RESYNC_SECONDS, planned.requeue_after, refused, soon, again, send, self._drift_repair.requeue_after()
        )

    @staticmethod
    def _ends_scheduler(planned: Plan) -> bool:
        """Whether a scheduler that runs is to be ended, with what it knows."""
        ends = (action.pod for action in planned.scheduler if isinstance(action, DeletePod) and not action.pod.pool)
        return any(pod.running for pod in ends) or bool(planned.deletion.why)

    def _soonest(self, *seconds: float | None) -> float:
        """The soonest of these, and of the next retries, in seconds."""
        return max(0.01, min(each for each in (*seconds, self._retries.requeue_after()) if each is not None))

    def _remember(self, observation: Observation, planned: Plan) -> None:
        """Record what later passes have to know of this one."""
        self._memory.record_frozen((name for name, pool in planned.pools.items() if pool.frozen), observation.now)
        for name, pool in planned.pools.items():
            started = StartTimes.of(observation, name).starts
            self._memory.record_starts(name, started, empty=not observation.workers(name))
            for start in {start.spec_hash: start for start in started}.values():
                self._context.starts.record(start, observation.now)
            if not pool.size.is_guess:
                self._memory.record_size(name, pool.size.pods)
            if not pool.missing:
                self._memory.clear_refusal(name)

    async def _execute(self, cluster: Cluster, planned: Plan, *, write_mirror: bool) -> None:
        """Execute the plan, each piece independently.

        Raises:
            ApiError: the namespace is being deleted.
            ClusterGoneError: the cluster does not exist any more.
        """
        creates_scheduler = any(isinstance(action, CreateScheduler) for action in planned.actions)
        if creates_scheduler:
            self._drift_repair.reapply_now()
        name = named_by_service(self._observe(cluster))
        work = self._preload.work(cluster, creates_scheduler=creates_scheduler)
        work |= self._drift_repair.work(cluster, name, protected=planned.protects_scheduler)
        objects = self._retries.run(Kind.OBJECTS, work)
        if creates_scheduler:
            await objects  # the pod mounts them: where they come later, the kubelet retries only after a while
            await self._execute_actions(cluster, planned)
        else:
            await asyncio.gather(objects, self._execute_actions(cluster, planned))
        if write_mirror:
            work = {"writes of the mirror": partial(self._write_mirror, cluster, planned)}
            await self._retries.run(Kind.MIRROR_WRITTEN, work)
        if planned.deletion.why:
            work = {"deletion of the unused cluster": partial(self._delete_unused, cluster, planned.deletion)}
            await self._retries.run(Kind.DELETION, work)

    async def _execute_actions(self, cluster: Cluster, planned: Plan) -> None:
        """Create the scheduler pod, then do all else; no worker is made before it: that could take its room."""
        actions = (*planned.actions, *planned.protections)
        first = tuple(action for action in actions if isinstance(action, CreateScheduler))
        if not self._preload.is_there(cluster):  # or somebody else's code would run in the scheduler
            first = ()
        await self._retries.run(Kind.SCHEDULER, self._executor.work(cluster, first))
        has_scheduler = current_scheduler(self._context.pods_of(cluster)) is not None
        later = CreateScheduler if has_scheduler else CreateScheduler | CreateWorker
        work = self._executor.work(cluster, tuple(action for action in actions if not isinstance(action, later)))
        await self._retries.run(Kind.PODS, work | self._dry_runs.work(cluster, planned))

    async def _write_mirror(self, cluster: Cluster, planned: Plan) -> bool:
        await self._mirror.write(self._observe(cluster), planned)
        return False

    async def _delete_unused(self, cluster: Cluster, deletion: Deletion) -> bool:
        newer = await delete_unused(self._context, cluster, deletion)
        if newer is not None:
            self._loop.resource_changed(newer)
        return True

    async def _report(self, cluster: Cluster, observation: Observation, planned: Plan) -> float | None:
        """Write the status; its requeue_after in seconds, where it is to be written later."""
        if self._copy.status_is_newer:
            self._adopt()
        if self._status_writer.is_inherited and (soon := self._feed.first_answer_in):
            return soon  # a new leader knows less than the status has, for a moment
        writer, gone = self._status_writer, self._take_gone(observation.pods)
        counted = count_gpus(observation, planned, writer.status, writer.ledger, gone=gone, came=writer.came)
        status = report(observation, planned, writer.status, counted)
        writer.status, writer.ledger = status, counted
        self._measurements.passed(observation, planned, status)
        self._record.note_status(cluster, status, observation.demand, counted, self._copy.body["metadata"])
        return await self._try_to_write(lambda: writer.write(cluster, observation, status))

    async def _report_invalid(self, why: str, reason: Reason) -> float:
        """Write that the spec is invalid or beyond the limits, and leave what exists as it is; its GPUs count on."""
        pods = self._context.pods_of(self._copy.identity)
        self._feed.follow(current_scheduler(pods))
        if self._status_writer.is_inherited and (soon := self._feed.first_answer_in):
            return soon
        counted = self._count_unplanned(pods)
        write = partial(self._status_writer.write_invalid, self._copy.body, why, reason, counted)
        return await self._report_unplanned(write, counted)

    async def _report_deletion(self, cluster: Cluster) -> float:
        """Count the GPUs that the pods of a cluster still hold while it is being deleted."""
        counted = self._count_unplanned(self._context.pods_of(cluster))
        write = partial(self._status_writer.write_counters, cluster, counted)
        return min(LOOK_SECONDS, await self._report_unplanned(write, counted))

    async def _report_unplanned(self, writing: Callable[[], Awaitable[float | None]], counted: Ledger) -> float:
        """Report a pass that makes nothing, which would be refused once the cluster is gone: so that is looked up."""
        with contextlib.suppress(ApiError):  # the next look says it
            if (body := await self._copy.refresh_if_old(LOOK_SECONDS)) is not None:
                self._loop.resource_changed(body)
        self._record.note_count(recount(self._status_writer.status, counted), counted)
        soon = await self._try_to_write(writing)
        self._measurements.not_passed(self._status_writer.status)
        return self._soonest(RESYNC_SECONDS, soon)

    async def _try_to_write(self, writing: Callable[[], Awaitable[float | None]]) -> float | None:
        """Write the status, now or at a retry; in how many seconds to look again, None where that says nothing."""
        waits: list[float | None] = []

        async def write() -> bool:
            waits.append(await self._write_status(writing()))
            return False

        await self._retries.run(Kind.STATUS, {"status": write})
        return waits[0] if waits else None

    def _count_unplanned(self, pods: tuple[Pod, ...]) -> Ledger:
        """The ledger after a pass without a plan."""
        writer = self._status_writer
        known = {} if writer.ledger is None else {uid: each.holder.gpus for uid, each in writer.ledger.pods.items()}
        seen = Seen(
            holders_unplanned(pods, self._feed.first_joined, known),
            self._context.clock(),
            self._feed.demand,
            self._feed.demand_at,
            self._take_gone(pods),
            frozenset(pool.name for pool in writer.status.pools),
            self._context.clocks(),
            self._context.unanswered_at(),
            self._context.pods.known_at(self._copy.identity.namespace),
        )
        if writer.ledger is None:
            return inherit(seen, writer.status, writer.came)
        return count(seen, writer.ledger)

    def _take_gone(self, pods: tuple[Pod, ...]) -> tuple[Gone, ...]:
        """As `PodEnds.take`."""
        return self._ends.take(pods, {pod.uid for pod in self._context.pods_of(self._copy.identity)})

    def _adopt(self) -> None:
        """Go on from the copy's status, if it is another operator's."""
        if self._status_writer.adopt():
            self._ends.take_back()

    async def _write_status(self, writing: Awaitable[float | None]) -> float | None:
        """Await a write of the status; its requeue_after. Where the resource changed meanwhile, another pass follows.

        Raises:
            ClusterGoneError: there is no such cluster any more.
            ApiError: it could not be written.
        """
        version = self._copy.version
        try:
            return await writing
        except ApiError as error:
            if not error.conflict:
                raise
            self._loop.resource_changed(await self._copy.refresh())
            self._adopt()
            if self._copy.version == version:
                raise
        self._loop.wake()
        return None

    def _observe(self, cluster: Cluster) -> Observation:
        of_mirror = self._retries.failures(Kind.MIRROR_READ, Kind.MIRROR_WRITTEN)
        of_objects = self._retries.failures(Kind.OBJECTS)
        return observe(
            self._context,
            cluster,
            self._feed,
            self._memory,
            failures=self._retries.failures(Kind.OBJECTS, Kind.SCHEDULER, Kind.PODS, Kind.DELETION),
            mirror_refusal=self._mirror.refusal
            or (failure_message(of_mirror[0]) if of_mirror else self._mirror.refusal),
            network_refusal=self._drift_repair.network_refusal(cluster, of_objects),
        )

    async def _is_up_to_date(self, cluster: Cluster) -> bool:
        """Whether `cluster` is as the API server has it; if not, the newer copy is kept.

        Raises:
            ClusterGoneError: it was deleted, and no event came.
            ApiError: the API server refuses, or could not be reached.
        """
        body = await self._copy.refresh_if_old()
        if body is None:
            return True
        self._loop.resource_changed(body)
        metadata = body["metadata"]
        return metadata.get("generation") == cluster.generation and "deletionTimestamp" not in metadata


def observe(
    context: Context,
    cluster: Cluster,
    feed: DemandFeed,
    memory: Memory,
    *,
    failures: tuple[Failure, ...],
    mirror_refusal: str | None,
    network_refusal: str | None,
) -> Observation:
    """Observe `cluster` as it is now, from the caches; the feed polls its present scheduler from now on.

    It makes no request. Of the spec it has what is in force (`planning.scheduler.in_force`).
    `failures`: as `Retries.failures`. `mirror_refusal`: as `Mirror.refusal`. `network_refusal`: as
    `Observation.network`.
    """
    pods, now = context.pods_of(cluster), context.clock()
    scheduler = current_scheduler(pods)
    feed.follow(scheduler)
    feed.keep_workers_of(pod.dask_name for pod in pods)
    written, spec = cluster.spec, in_force(cluster.spec, scheduler)
    if spec is not written:
        cluster = replace(cluster, spec=spec)
    return Observation(
        cluster,
        pods,
        now,
        demand=feed.demand,
        demand_at=feed.demand_at,
        demand_problem=feed.problem,
        preload_unavailable=feed.unavailable,
        failures=failures,
        scheduler_since=feed.scheduler_since,
        refused=feed.refused,
        joined=feed.joined,
        first_joined=feed.first_joined,
        memory=dict(memory.pools),
        busy_at=memory.busy_at,
        frozen_at=memory.frozen_at,
        known_starts=_known_starts(context, cluster, now),
        mirror=mirror_refusal,
        network=network_refusal,
        clocks=context.clocks(),
        unanswered_at=context.unanswered_at(),
        pods_known_at=context.pods.known_at(cluster.namespace),
        wanted=written,
    )


def _known_starts(context: Context, cluster: Cluster, now: float) -> dict[str, float]:
    known = {
        pool.name: context.starts.seconds(spec_hash.of_worker(cluster.spec, pool), now) for pool in cluster.spec.pools
    }
    return {pool: seconds for pool, seconds in known.items() if seconds is not None}
