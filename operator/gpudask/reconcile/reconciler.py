"""One pass over a cluster: read what is there, do what is missing, tell the scheduler, write the status.

Running a pass twice changes nothing; a lost event is healed by the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Protocol

from gpudask.api.json_object import Json
from gpudask.api.limits import violations
from gpudask.api.resource import Cluster, InvalidSpecError
from gpudask.api.status import Reason
from gpudask.clients.errors import ApiError
from gpudask.desired import spec_hash
from gpudask.desired.scheduler import fence
from gpudask.mirror.sync import Mirror
from gpudask.planning.actions import CreateScheduler, CreateWorker, DeletePod, Plan
from gpudask.planning.degraded import failure_message
from gpudask.planning.drain import retirements
from gpudask.planning.eviction import at_work
from gpudask.planning.observed.observation import Failure, Observation
from gpudask.planning.observed.pods import current_scheduler
from gpudask.planning.plan import plan
from gpudask.planning.pool_view import StartTimes
from gpudask.planning.scheduler import in_force, named_by_service
from gpudask.planning.status import report
from gpudask.reconcile.context import Context
from gpudask.reconcile.demand_feed import DemandFeed
from gpudask.reconcile.executor import DryRuns, Executor, delete_unused
from gpudask.reconcile.memory import Memory
from gpudask.reconcile.preload import SharedPreload, There
from gpudask.reconcile.resource import ResourceCopy
from gpudask.reconcile.retries import Kind, Retries
from gpudask.reconcile.status import StatusWriter
from gpudask.reconcile.support import Support

_LOG = logging.getLogger(__name__)
# The slow resync, which reads the caches only.
RESYNC_SECONDS = 600.0
# How soon a mirror that was refused is tried again.
_MIRROR_RETRY_SECONDS = 30.0
# How soon the scheduler is told again what is wanted.
_TELL_RETRY_SECONDS = 5.0


class _Mirrored(Enum):
    """What became of the changes that people made in the mirror."""

    UNKNOWN = auto()
    TAKEN_IN = auto()
    CHANGED = auto()  # the cluster, of which there is a newer copy


class Wakes(Protocol):
    """Whoever makes the passes one after another."""

    def wake(self) -> None:
        """Make a pass now."""

    def heard(self, *, urgent: bool = True) -> None:
        """The scheduler said something new."""

    def seen(self, body: Json) -> None:
        """There is a newer copy of the resource."""


class Reconciler:
    """What the passes of one cluster share."""

    def __init__(self, context: Context, copy: ResourceCopy, mirror: Mirror, loop: Wakes) -> None:
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
            patience_seconds=context.patience_seconds,
        )
        self._feed = DemandFeed(context, copy.body, loop.heard)
        self._support = Support(context)
        self._preload = SharedPreload(context.preloads, context.pods, context.support["ConfigMap"])
        self._executor = Executor(context, self._memory)
        self._dry_runs = DryRuns(context, self._executor)
        self._reporter = StatusWriter(context, copy)
        self._live: set[str] = set()

    def edited(self) -> None:
        """The spec is another one: what was refused may be taken now."""
        self._memory.edited()
        self._retries.forget()
        self._dry_runs.forget()

    def misses_preload(self, now: There) -> bool:
        """Whether the ConfigMaps that this cluster shares are not as it saw them last."""
        return self._preload.lost(now)

    async def stop(self) -> None:
        """No pass follows: returns when nothing of this cluster acts any more."""
        self._feed.stop()
        await self._retries.stop()

    async def tell_defect(self, error: Exception) -> None:
        """Say in the status that a pass failed, which is a defect. The log has its traceback.

        Raises:
            ClusterGoneError: there is no such cluster any more.
        """
        name = type(error).__name__
        message = f"the operator fails on this cluster ({name}): what exists stays, and it tries again; see its log"
        try:
            await self._written(self._reporter.write_defect(self._copy.body, message))
        except ApiError as failure:
            _LOG.warning("%s: its status was not written: %s", self._copy.key, failure)

    async def make(self) -> float:
        """One pass; for how many seconds at most the next may wait."""
        if self._copy.is_contradicted:
            self._loop.seen(await self._copy.look_up())
        try:
            cluster = self._copy.cluster()
        except InvalidSpecError as error:
            return await self._refuse(str(error), Reason.INVALID)
        if cluster.deleting:
            self._feed.stop()
            return RESYNC_SECONDS
        if beyond := violations(cluster.spec, cluster.namespace, self._context.limits):
            return await self._refuse("; ".join(beyond), Reason.LIMIT)
        mirrored = await self._take_in(cluster)
        if mirrored is _Mirrored.CHANGED:
            return RESYNC_SECONDS
        return await self._pass_over(cluster, show_mirror=mirrored is _Mirrored.TAKEN_IN)

    async def _take_in(self, cluster: Cluster) -> _Mirrored:
        """Act on what people changed in the mirror: before a plan is made, since it may change the spec."""
        if self._mirror.off or self._retries.is_running(Kind.MIRROR_READ, Kind.MIRROR_WRITTEN):
            return _Mirrored.UNKNOWN
        found = [_Mirrored.UNKNOWN]

        async def take_in() -> bool:
            newer = await self._mirror.apply_changes(cluster, self._copy.body, self._reporter.status)
            found.append(_Mirrored.TAKEN_IN if newer is None else _Mirrored.CHANGED)
            if newer is not None:
                self._loop.seen(newer)
            return newer is not None

        await self._retries.run(Kind.MIRROR_READ, {"what people changed there": take_in})
        return found[-1]

    async def _pass_over(self, cluster: Cluster, *, show_mirror: bool) -> float:
        """The pass, of a spec that can be acted on and holds all that people asked for."""
        self._memory.free_names(self._context.clock())
        seen = self._observe(cluster)
        self._memory.saw((pod.uid for pod in seen.pods), at_work(seen), seen.now)
        live = {pod.uid for pod in seen.pods if pod.live}
        if not self._live <= live:
            self._copy.doubt()
        self._live = live
        planned = plan(seen)
        ends = any(isinstance(action, DeletePod) and action.pod.running for action in planned.scheduler)
        if ends or planned.delete_reason:
            await self._feed.ask()
            seen = self._observe(cluster)
            planned = plan(seen)
        creates = any(isinstance(action, CreateScheduler | CreateWorker) for action in planned.actions)
        if creates and not await self._is_current(cluster):
            self._loop.wake()
            return RESYNC_SECONDS
        self._remember(seen, planned)
        await self._execute(seen.cluster, planned, show_mirror=show_mirror)
        seen = self._observe(cluster)
        told = await self._feed.tell(fence(cluster), retirements(seen), planned.offers)
        soon = await self._report(cluster, seen, planned)
        again = _MIRROR_RETRY_SECONDS if self._mirror.refusal and not self._mirror.off else None
        tell = None if told else _TELL_RETRY_SECONDS
        return self._at_most(RESYNC_SECONDS, planned.requeue_after, soon, again, tell, self._support.check_in())

    def _at_most(self, *moments: float | None) -> float:
        """The soonest of `moments`, and of the next tries of what failed, in seconds."""
        return max(0.01, min(moment for moment in (*moments, self._retries.next_try_in()) if moment is not None))

    def _remember(self, seen: Observation, planned: Plan) -> None:
        """What later passes have to know of this one."""
        self._memory.froze((name for name, pool in planned.pools.items() if pool.frozen), seen.now)
        for name, pool in planned.pools.items():
            started = StartTimes.of(seen, name).starts
            self._memory.started(name, started, empty=not seen.workers(name))
            for start in {start.spec_hash: start for start in started}.values():
                self._context.starts.tell(start, seen.now)
            if not pool.size.is_guess:
                self._memory.sized(name, pool.size.pods)
            if not pool.missing:
                self._memory.satisfied(name)

    async def _execute(self, cluster: Cluster, planned: Plan, *, show_mirror: bool) -> None:
        """Do all of it, each piece by itself.

        Raises:
            ApiError: the namespace is being deleted.
            ClusterGoneError: the cluster does not exist any more.
        """
        creates_scheduler = any(isinstance(action, CreateScheduler) for action in planned.actions)
        if creates_scheduler:
            self._support.check_now()
        name = named_by_service(self._observe(cluster))
        work = self._preload.work(cluster, creates_scheduler=creates_scheduler)
        work |= self._support.work(cluster, name, guarded=planned.protects_scheduler)
        objects = self._retries.run(Kind.OBJECTS, work)
        if creates_scheduler:
            await objects  # the pod mounts them: where they come later, the kubelet looks again only after a while
            await self._execute_actions(cluster, planned)
        else:
            await asyncio.gather(objects, self._execute_actions(cluster, planned))
        if show_mirror:
            work = {"what it shows": partial(self._show_mirror, cluster, planned)}
            await self._retries.run(Kind.MIRROR_WRITTEN, work)
        if planned.delete_reason:
            work = {"deletion of the unused cluster": partial(self._delete_unused, cluster, planned.delete_reason)}
            await self._retries.run(Kind.DELETION, work)

    async def _execute_actions(self, cluster: Cluster, planned: Plan) -> None:
        actions = (*planned.actions, *planned.protections)
        if not self._preload.is_there(cluster):  # or somebody else's code would run in the scheduler
            actions = tuple(action for action in actions if not isinstance(action, CreateScheduler))
        work = self._executor.work(cluster, actions)
        await self._retries.run(Kind.PODS, work | self._dry_runs.work(cluster, planned))

    async def _show_mirror(self, cluster: Cluster, planned: Plan) -> bool:
        await self._mirror.write(self._observe(cluster), planned)
        return False

    async def _delete_unused(self, cluster: Cluster, why: str) -> bool:
        newer = await delete_unused(self._context, cluster, why)
        if newer is not None:
            self._loop.seen(newer)
        return True

    async def _report(self, cluster: Cluster, seen: Observation, planned: Plan) -> float | None:
        """Write the status; in how many seconds to come back for that, where its turn is later."""
        if self._copy.status_is_news:
            self._reporter.adopt()
        if self._reporter.goes_on and (soon := self._feed.first_answer_in):
            return soon  # who begins to lead knows less than the status says, for a moment
        status = report(seen, planned, self._reporter.status, counted_at=self._reporter.counted_at)
        self._reporter.status, self._reporter.counted_at = status, seen.now
        waits: list[float | None] = []

        async def write() -> bool:
            waits.append(await self._written(self._reporter.write(cluster, seen, status)))
            return False

        await self._retries.run(Kind.STATUS, {"status": write})
        return waits[0] if waits else None

    async def _refuse(self, why: str, reason: Reason) -> float:
        """Say that the spec cannot or may not be acted on, and leave what exists as it is."""

        async def write() -> bool:
            await self._written(self._reporter.write_invalid(self._copy.body, why, reason))
            return False

        await self._retries.run(Kind.STATUS, {"status": write})
        return self._at_most(RESYNC_SECONDS)

    async def _written(self, writing: Awaitable[float | None]) -> float | None:
        """When to come back to write the status, as `StatusWriter.write`; at once where the resource is another by now.

        Raises:
            ClusterGoneError: there is no such cluster any more.
            ApiError: it could not be written.
        """
        try:
            return await writing
        except ApiError as error:
            if not error.conflict:
                raise
        self._loop.seen(await self._copy.look_up())
        self._reporter.adopt()
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
            failures=self._retries.failures(Kind.OBJECTS, Kind.PODS, Kind.DELETION),
            mirror_refusal=self._mirror.refusal
            or (failure_message(of_mirror[0]) if of_mirror else self._mirror.refusal),
            network_refusal=self._support.network_refusal(cluster, of_objects),
        )

    async def _is_current(self, cluster: Cluster) -> bool:
        """Whether `cluster` is what the API server has; if not, the newer copy is taken in.

        Raises:
            ClusterGoneError: it was deleted, and nobody told.
            ApiError: the API server refuses, or could not be reached.
        """
        body = await self._copy.looked_up()
        if body is None:
            return True
        self._loop.seen(body)
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
    """`cluster` as it is now; the feed listens to the scheduler that is there from now on.

    Nothing is asked of a server. Of the spec it has what is in force (`planning.scheduler.in_force`).
    `failures`: as `Retries.failures`. `mirror_refusal`: as `Mirror.refusal`. `network_refusal`: as
    `Observation.network`.
    """
    pods, now = context.pods_of(cluster), context.clock()
    scheduler = current_scheduler(pods)
    feed.listen_to(scheduler)
    feed.forget_workers_but_of(pod.dask_name for pod in pods)
    written, spec = cluster.spec, in_force(cluster.spec, scheduler)
    if spec is not written:
        cluster = replace(cluster, spec=spec)
    return Observation(
        cluster,
        pods,
        now,
        demand=feed.demand,
        demand_at=feed.heard_at,
        demand_problem=feed.problem,
        preload_unavailable=feed.deaf,
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
        server_ahead=context.server_ahead(),
        wall_ahead=context.wall_ahead(),
        wanted=written,
    )


def _known_starts(context: Context, cluster: Cluster, now: float) -> dict[str, float]:
    known = {
        pool.name: context.starts.recall(spec_hash.of_worker(cluster.spec, pool), now) for pool in cluster.spec.pools
    }
    return {pool: seconds for pool, seconds in known.items() if seconds is not None}
