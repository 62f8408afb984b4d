"""One pass over a cluster: read what is there, do what is missing, tell the scheduler, write the status.

Running a pass twice changes nothing; a lost event is healed by the next.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from gpudask.api.resource import Cluster, InvalidSpecError, parse_status
from gpudask.clients.errors import ApiError
from gpudask.desired import support
from gpudask.planning.actions import CreateScheduler, CreateWorker, DeletePod, Plan
from gpudask.planning.markers import at_work
from gpudask.planning.observed import Observation
from gpudask.planning.plan import plan
from gpudask.planning.scheduler import named_by_service
from gpudask.planning.starts import starts
from gpudask.planning.status import report
from gpudask.reconcile.context import Context
from gpudask.reconcile.demand_feed import DemandFeed
from gpudask.reconcile.execute import Executor
from gpudask.reconcile.idle import delete_unused
from gpudask.reconcile.memory import Memory
from gpudask.reconcile.mirror import Mirror
from gpudask.reconcile.observe import observe
from gpudask.reconcile.reporter import Reporter
from gpudask.reconcile.resource_copy import ResourceCopy
from gpudask.reconcile.retiring import retiring
from gpudask.reconcile.support import Support
from gpudask.reconcile.trials import Trials

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
# The slow resync, which reads the caches only.
RESYNC_SECONDS = 600.0
# How soon a Service or ConfigMap that was refused is tried again: whose name it has may be deleted meanwhile.
_SUPPORT_RETRY_SECONDS = 30.0
# How soon the scheduler is told again what is wanted.
_TELL_RETRY_SECONDS = 5.0


class Wakes(Protocol):
    """Whoever makes the passes one after another."""

    def wake(self) -> None:
        """Make a pass now."""

    def heard(self, *, urgent: bool = True) -> None:
        """The scheduler said something new."""

    def seen(self, body: Json) -> None:
        """There is a newer copy of the resource."""


class Passes:
    """What the passes of one cluster share."""

    def __init__(self, context: Context, copy: ResourceCopy, mirror: Mirror, loop: Wakes) -> None:
        self._context = context
        self._copy = copy
        self._mirror = mirror
        self._loop = loop
        self._memory = Memory()
        self._feed = DemandFeed(context, copy.body, loop.heard)
        self._support = Support(context)
        self._executor = Executor(context, self._memory)
        self._trials = Trials(context, self._executor)
        self._reporter = Reporter(context, parse_status(copy.body))
        self._live: set[str] = set()

    def edited(self) -> None:
        """The spec is another one: what was refused may be taken now."""
        self._memory.edited()
        self._trials.forget()

    def stop(self) -> None:
        """No pass follows."""
        self._feed.stop()

    async def tell_defect(self, error: Exception) -> None:
        """Say in the status that a pass failed, which is a defect. The log has its traceback.

        Raises:
            ClusterGoneError: there is no such cluster any more.
        """
        name = type(error).__name__
        message = f"the operator fails on this cluster ({name}): what exists stays, and it tries again; see its log"
        try:
            await self._reporter.write_defect(self._copy.body, message)
        except ApiError as failure:
            _LOG.warning("%s: its status was not written: %s", self._copy.key, failure)

    async def make(self) -> float:
        """One pass; for how many seconds at most the next may wait."""
        try:
            cluster = self._copy.cluster()
        except InvalidSpecError as error:
            await self._reporter.write_invalid(self._copy.body, str(error))
            return RESYNC_SECONDS
        if cluster.deleting:
            self._feed.stop()
            return RESYNC_SECONDS
        newer = await self._mirror.take_in(cluster, self._copy.body, self._reporter.status)
        if newer is not None:
            self._loop.seen(newer)
            self._loop.wake()
            return RESYNC_SECONDS
        return await self._pass_over(cluster)

    async def _pass_over(self, cluster: Cluster) -> float:
        """The pass, of a spec that can be acted on and holds all that people asked for."""
        seen = self._observe(cluster)
        self._memory.saw((pod.uid for pod in seen.pods), at_work(seen), seen.now)
        live = {pod.uid for pod in seen.pods if pod.live}
        if not self._live <= live:
            self._copy.doubt()
        self._live = live
        planned = plan(seen)
        ends = any(isinstance(action, DeletePod) and action.pod.running for action in planned.scheduler)
        if ends or planned.delete_why:
            await self._feed.ask()
            planned = plan(self._observe(cluster))
        creates = any(isinstance(action, CreateScheduler | CreateWorker) for action in planned.actions)
        if creates and not await self._is_current(cluster):
            self._loop.wake()
            return RESYNC_SECONDS
        self._remember(seen, planned)
        trouble = await self._execute(cluster, planned)
        seen = self._observe(cluster)
        told = await self._feed.tell(support.fence(cluster), retiring(seen), planned.offers)
        soon = await self._reporter.write(cluster, seen, report(seen, planned, self._reporter.status))
        if trouble is not None:
            raise trouble
        again = _SUPPORT_RETRY_SECONDS if self._memory.support or self._mirror.refusal else None
        moments = [RESYNC_SECONDS, planned.wake_after_seconds, soon, again, None if told else _TELL_RETRY_SECONDS]
        return max(0.01, min(moment for moment in moments if moment is not None))

    def _remember(self, seen: Observation, planned: Plan) -> None:
        """What later passes have to know of this one."""
        self._memory.froze((name for name, pool in planned.pools.items() if pool.frozen), seen.now)
        for name, pool in planned.pools.items():
            started = starts(seen, name)
            self._memory.started(name, started, empty=not seen.workers(name))
            for start in {start.spec_hash: start for start in started}.values():
                self._context.starts.tell(start, seen.now)
            if not pool.size.is_guess:
                self._memory.sized(name, pool.size.pods)
            if not pool.missing:
                self._memory.satisfied(name)

    async def _execute(self, cluster: Cluster, planned: Plan) -> ApiError | None:
        """Do all of it; the last failure, for which the scheduler is still told and the status still written.

        Raises:
            ApiError: the namespace is being deleted.
        """
        trouble = None
        steps = (self._ensure_support, self._execute_actions, self._trials.make, self._show_mirror, self._delete_unused)
        for step in steps:
            try:
                await step(cluster, planned)
            except ApiError as error:
                if error.ending:
                    raise
                trouble = error
        return trouble

    async def _ensure_support(self, cluster: Cluster, planned: Plan) -> None:
        if any(isinstance(action, CreateScheduler) for action in planned.actions):
            self._support.forget_blind()
        name = named_by_service(self._observe(cluster))
        self._memory.support_refused(await self._support.ensure(cluster, name, guarded=planned.guarded))

    async def _execute_actions(self, cluster: Cluster, planned: Plan) -> None:
        if await self._executor.execute(cluster, (*planned.actions, *planned.markers)):
            self._loop.wake()

    async def _show_mirror(self, cluster: Cluster, planned: Plan) -> None:
        await self._mirror.show(self._observe(cluster), planned)

    async def _delete_unused(self, cluster: Cluster, planned: Plan) -> None:
        if not planned.delete_why:
            return
        try:
            newer = await delete_unused(self._context, cluster, planned.delete_why)
        except ApiError as error:
            if not error.forbidden:
                raise
            self._memory.support_refused([error])  # an administrator's to mend: told, and tried again at times
            return
        if newer is not None:
            self._loop.seen(newer)
        self._loop.wake()

    def _observe(self, cluster: Cluster) -> Observation:
        return observe(self._context, cluster, self._feed, self._memory, mirror_refusal=self._mirror.refusal)

    async def _is_current(self, cluster: Cluster) -> bool:
        """Whether `cluster` is what the API server has; if not, the newer copy is taken in.

        Raises:
            ClusterGoneError: it was deleted, and nobody told.
            ApiError: the API server refuses, or could not be reached.
        """
        body = await self._copy.looked_up(cluster)
        if body is None:
            return True
        self._loop.seen(body)
        metadata = body["metadata"]
        return metadata.get("generation") == cluster.generation and "deletionTimestamp" not in metadata
