"""One cluster's loop: woken by events, each pass reads what is there and does what is missing.

Running a pass twice changes nothing; a lost event is healed by the next. Whatever fails is tried again, ever slower.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import Any

from gpudask.api.resource import Cluster, InvalidSpecError, parse, parse_again, parse_status
from gpudask.clients.errors import ApiError
from gpudask.desired import spec_hash, support, workers
from gpudask.planning import drains
from gpudask.planning.actions import CreateScheduler, CreateWorker, DeletePod, Plan
from gpudask.planning.markers import at_work
from gpudask.planning.observed import Observation, current_scheduler
from gpudask.planning.plan import plan
from gpudask.planning.starts import starts
from gpudask.planning.status import report
from gpudask.reconcile.context import Context
from gpudask.reconcile.definitions import Definitions
from gpudask.reconcile.demand_feed import DemandFeed
from gpudask.reconcile.execute import Executor
from gpudask.reconcile.gone import ClusterGoneError
from gpudask.reconcile.idle import delete_unused
from gpudask.reconcile.memory import Memory
from gpudask.reconcile.mirror import Mirror
from gpudask.reconcile.reporter import Reporter
from gpudask.reconcile.support import Support

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.5, 60.0
# A copy of the resource older than this, or than the loss of a pod, is looked at again before pods are made from it:
# it may be gone, and its pods with it.
_FRESH_SECONDS = 5.0
# How soon a Service or ConfigMap that was refused is tried again: whose name it has may be deleted meanwhile.
_SUPPORT_RETRY_SECONDS = 30.0
# How soon demand is looked at again of which only counts have changed; the preload says them about as often.
_COUNTS_SECONDS = 0.2
# How soon the scheduler is told again what is wanted.
_TELL_RETRY_SECONDS = 5.0
# The slow resync, which reads the caches only.
_RESYNC_SECONDS = 600.0


class ClusterLoop:
    """Everything that is done for one cluster is done here, one pass at a time."""

    def __init__(self, context: Context, body: Json, definitions: Definitions | None = None) -> None:
        self._context = context
        self._body = body
        self._seen_at = context.clock()
        self._cluster: Cluster | None = None  # as last parsed, from this body:
        self._parsed_from: Json | None = None
        self._wake = asyncio.Event()
        self._edited = asyncio.Event()
        self._memory = Memory()
        self._soon: asyncio.TimerHandle | None = None
        self._feed = DemandFeed(context, body, self._heard)
        self._support = Support(context)
        self.mirror = Mirror(context, definitions)
        self._executor = Executor(context, self._memory)
        self._reporter = Reporter(context, parse_status(body))
        self._tried_out: set[str] = set()
        self._live: set[str] = set()
        self._doubtful = False  # a pod was lost since the resource was last looked at

    def seen(self, body: Json) -> None:
        """Take in a newer copy of the resource. Our own status writes come back here too: those wake nobody."""
        old, new = self._body["metadata"], body["metadata"]
        if new.get("generation", 0) < old.get("generation", 0):
            return  # older than what one of our own writes returned
        self._body, self._seen_at = body, self._context.clock()
        if old.get("generation") != new.get("generation"):
            self._memory.edited()
            self._tried_out.clear()
            self._edited.set()
            self.wake()
        elif "deletionTimestamp" in new:
            self.wake()

    def wake(self) -> None:
        """Something changed: make a pass now."""
        self._wake.set()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def _heard(self, *, urgent: bool = True) -> None:
        """The scheduler said something new: counts alone are looked at a moment later, or when it is our turn."""
        if urgent:
            self.wake()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_COUNTS_SECONDS, self._wake_in_turn)

    def _wake_in_turn(self) -> None:
        loop = asyncio.get_running_loop()
        self._soon = loop.call_at(self._context.count_turns.take(loop.time()), self.wake)

    async def run(self) -> None:
        """Make passes until the cluster is gone."""
        self._wake.set()
        delay, wait = _FIRST_RETRY_SECONDS, _RESYNC_SECONDS
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), wait)
                self._wake.clear()
                try:
                    wait = await self._pass()
                    delay = _FIRST_RETRY_SECONDS
                except ClusterGoneError:
                    raise
                except ApiError as error:
                    if error.ending:
                        _LOG.info("%s: its namespace is being deleted: nothing is made for it any more", self._key)
                        return
                    _LOG.warning("%s: %s; trying again in %.1f s", self._key, error, delay)
                    delay = await self._hold_off(delay)
                except Exception:  # noqa: BLE001 - one defect must not leave a cluster alone for ever
                    _LOG.exception("%s: a defect; trying again in %.1f s", self._key, delay)
                    delay = await self._hold_off(delay)
        except ClusterGoneError:
            _LOG.info("%s: gone", self._key)
        finally:
            self._feed.stop()
            if self._soon is not None:
                self._soon.cancel()

    async def _hold_off(self, delay: float) -> float:
        """Wait before the next try, but for an edit, which is perhaps the cure; how long the one after it waits."""
        self._edited.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._edited.wait(), delay)
        self._wake.set()
        return min(2 * delay, _LAST_RETRY_SECONDS)

    @property
    def _key(self) -> str:
        metadata = self._body["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def _parsed(self) -> Cluster:
        """The resource; its spec is parsed once a generation.

        Raises:
            InvalidSpecError: as `parse`.
        """
        if self._parsed_from is not self._body or self._cluster is None:
            metadata, known = self._body["metadata"], self._cluster
            same = known is not None and (known.uid, known.generation) == (metadata["uid"], metadata.get("generation"))
            self._cluster = parse_again(self._body, known) if known is not None and same else parse(self._body)
            self._parsed_from = self._body
        return self._cluster

    async def _pass(self) -> float:
        """One pass; for how many seconds at most the next may wait."""
        try:
            cluster = self._parsed()
        except InvalidSpecError as error:
            await self._reporter.write_invalid(self._body, str(error))
            return _RESYNC_SECONDS
        if cluster.deleting:
            self._feed.stop()
            return _RESYNC_SECONDS
        newer = await self.mirror.take_in(cluster, self._body, self._reporter.status)
        if newer is not None:
            self.seen(newer)
            self.wake()
            return _RESYNC_SECONDS
        return await self._pass_over(cluster)

    async def _pass_over(self, cluster: Cluster) -> float:
        """The pass, of a spec that can be acted on and holds all that people asked for."""
        seen = self._observe(cluster)
        self._memory.saw((pod.uid for pod in seen.pods), at_work(seen), seen.now)
        live = {pod.uid for pod in seen.pods if pod.live}
        self._doubtful |= not self._live <= live
        self._live = live
        planned = plan(seen)
        ends = any(isinstance(action, DeletePod) and action.pod.running for action in planned.scheduler)
        if ends or planned.delete_why:
            await self._feed.ask()
            planned = plan(self._observe(cluster))
        if any(isinstance(action, CreateScheduler | CreateWorker) for action in planned.actions):
            refreshed = await self._still_there(cluster)
            if refreshed is not cluster:
                self.wake()
                return _RESYNC_SECONDS
        self._memory.froze((name for name, pool in planned.pools.items() if pool.frozen), seen.now)
        for name, pool in planned.pools.items():
            self._memory.started(name, starts(seen, name), empty=not seen.workers(name))
            if not pool.size.is_guess:
                self._memory.sized(name, pool.size.pods)
            if not pool.missing:
                self._memory.satisfied(name)
        trouble = await self._execute(cluster, planned)
        seen = self._observe(cluster)
        told = await self._feed.tell(support.fence(cluster), _retiring(seen), planned.offers)
        soon = await self._reporter.write(cluster, seen, report(seen, planned, self._reporter.status))
        if trouble is not None:
            raise trouble
        again = _SUPPORT_RETRY_SECONDS if self._memory.support or self.mirror.refusal else None
        moments = [_RESYNC_SECONDS, planned.wake_after_seconds, soon, again, None if told else _TELL_RETRY_SECONDS]
        return max(0.01, min(moment for moment in moments if moment is not None))

    async def _execute(self, cluster: Cluster, planned: Plan) -> ApiError | None:
        """Do all of it; the last failure, for which the scheduler is still told and the status still written.

        Raises:
            ApiError: the namespace is being deleted.
        """
        trouble = None
        steps = (self._ensure_support, self._execute_actions, self._try_out, self._show_mirror, self._delete_unused)
        for step in steps:
            try:
                await step(cluster, planned)
            except ApiError as error:
                if error.ending:
                    raise
                trouble = error
        return trouble

    async def _ensure_support(self, cluster: Cluster, planned: Plan) -> None:
        new = next((action.name for action in planned.actions if isinstance(action, CreateScheduler)), "")
        if new:
            self._support.forget_blind()
        current = self._observe(cluster).scheduler
        name = new or (current.name if current else "")
        self._memory.support_refused(await self._support.ensure(cluster, name, guarded=planned.guarded))

    async def _execute_actions(self, cluster: Cluster, planned: Plan) -> None:
        if await self._executor.execute(cluster, (*planned.actions, *planned.markers)):
            self.wake()

    async def _show_mirror(self, cluster: Cluster, planned: Plan) -> None:
        await self.mirror.show(self._observe(cluster), planned)

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
            self.seen(newer)
        self.wake()

    def _observe(self, cluster: Cluster) -> Observation:
        pods = self._context.pods_of(cluster.uid)
        self._feed.listen_to(current_scheduler(pods))
        self._feed.forget_workers_but_of(pod.dask_name for pod in pods)
        return Observation(
            cluster,
            pods,
            self._context.clock(),
            demand=self._feed.demand,
            demand_at=self._feed.heard_at,
            demand_problem=self._feed.problem,
            deaf=self._feed.deaf,
            support_refusal=self._memory.support,
            scheduler_since=self._feed.scheduler_since,
            refused=self._feed.refused,
            joined=self._feed.joined,
            first_joined=self._feed.first_joined,
            memory=dict(self._memory.pools),
            busy_at=self._memory.busy_at,
            frozen_at=self._memory.frozen_at,
            mirror=self.mirror.refusal,
        )

    async def _still_there(self, cluster: Cluster) -> Cluster:
        """The same cluster where the copy of it is current; a newer one where it changed.

        Raises:
            ClusterGoneError: it was deleted, and nobody told.
        """
        if not self._doubtful and self._context.clock() - self._seen_at < _FRESH_SECONDS:
            return cluster
        try:
            body = await self._context.api.get_cluster(cluster.namespace, cluster.name)
        except ApiError as error:
            if error.not_found:
                raise ClusterGoneError from error
            raise
        if body["metadata"]["uid"] != cluster.uid:
            raise ClusterGoneError
        unchanged = (
            body["metadata"].get("generation") == cluster.generation and "deletionTimestamp" not in body["metadata"]
        )
        self._doubtful = False
        self.seen(body)
        return cluster if unchanged else parse(body)

    async def _try_out(self, cluster: Cluster, planned: Plan) -> None:
        """Once for each template that no pod was made from yet: would the API server take it?"""
        for pool in cluster.spec.pools:
            digest = f"{pool.name}/{spec_hash.of_worker(cluster.spec, pool)}"
            made = any(
                pod.pool == pool.name and pod.spec_hash == digest.partition("/")[2]
                for pod in self._context.pods_of(cluster.uid)
            )
            if digest in self._tried_out or made or planned.pools[pool.name].size.pods:
                continue
            await self._executor.try_out(pool.name, partial(workers.worker_pod, cluster, pool, 0, "trial"))
            self._tried_out.add(digest)


def _retiring(seen: Observation) -> list[Json]:
    """What the preload is to retire, whole, every time: all pods so marked, and those that end for whatever reason.

    A pod that somebody else deletes has its grace period left: what it holds may still be moved, and nothing is to be
    moved to it. One whose drain took too long is waited for no more, by its own hook either.
    """
    pools = {pool.name: pool for pool in seen.cluster.spec.pools}
    asked = [
        {
            "pod": pod.dask_name,
            "data": "release" if pod.retirement.release else "move",
            "if_idle": pod.retirement.if_idle and not pod.deleting,
            **({"forced": True} if pod.pool in pools and drains.is_overdue(seen, pools[pod.pool], pod) else {}),
        }
        for pod in seen.pods
        if pod.pool and pod.retirement is not None and not pod.finished
    ]
    ending = [pod for pod in seen.pods if pod.pool and pod.deleting and pod.retirement is None and not pod.finished]
    return asked + [{"pod": pod.dask_name, "data": "move", "if_idle": False} for pod in ending]
