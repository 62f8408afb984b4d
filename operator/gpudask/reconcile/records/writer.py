"""What the passes of one cluster see of it is noted here, and written into its record beside them.

An ended pod is written within about two seconds, with the last lines of its log; sizes, events and tasks once a minute.
What cannot be written is noted on, within bounds, and tried again; it holds up nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from gpudask.api import Json, attribution
from gpudask.api.reasons import Cause
from gpudask.api.record import MAX_MESSAGE, End, Record, RecordedEvent, Sample
from gpudask.api.resource import Cluster, Identity
from gpudask.api.spec import Spec
from gpudask.api.status import Status, epoch, iso
from gpudask.clients.errors import ApiError, SchedulerError
from gpudask.clients.flow_control import CLUSTER, Backoff, FairQueue, RateLimiter
from gpudask.history import pools, record, samples
from gpudask.history.ends import LogSource, PodEnd, PodWatch, gone_end, with_log
from gpudask.history.record import Notes, ended_unseen, recorded_pod
from gpudask.history.tasks import TaskHistory, TaskNews
from gpudask.history.unfinished import LastStatus, unfinished
from gpudask.planning.actions import DeletePod, Plan
from gpudask.planning.ledger.causes import Gone, ended_for_good, holders_unplanned
from gpudask.planning.ledger.counting import Ledger, PodCount, count
from gpudask.planning.ledger.counting import Seen as Counting
from gpudask.planning.observed.pods import Pod, current_scheduler
from gpudask.planning.status import recount
from gpudask.reconcile.context import Context
from gpudask.reconcile.demand_feed import base_url
from gpudask.reconcile.records.pod_logs import PodLogs
from gpudask.reconcile.records.store import (
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    TRIES,
    Records,
    Subject,
    wait_for_turn,
)
from gpudask.reconcile.retries import Work
from gpudask.scaling.demand import Demand

_LOG = logging.getLogger(__name__)
_INTERVAL_SECONDS = 60.0
# Writes for ended pods and failed tasks: so many at once, and one in so many seconds where they come all the time.
_URGENT_BURST, _URGENT_SECONDS = 30.0, 5.0
# Pods that end together are one write.
_GATHER_SECONDS = 0.5
_ENDS_KEPT = 100  # whose log was not read yet: as many as a record has
_GONE_KEPT = 1000  # pods that are gone since the last count
_LOGS_AT_ONCE = 8
_BEFORE_DELETION_SECONDS = 0.5
# The record of a cluster that was deleted: first what is known, then, once its pods have gone, the ends of their logs.
_FIRST_LOGS_SECONDS, _LAST_LOGS_SECONDS = 1.0, 45.0
# Pods that take longer to end are waited for until so long after their grace period, and no longer than this.
_AFTER_GRACE_SECONDS, _LONGEST_SECONDS = 15.0, 600.0
_ANSWER_SECONDS = 1.0
_REPORT_AGAIN_SECONDS = 60.0  # after which a scheduler that was not ended after all writes another one
_UNFOLLOWED = "no log: the operator that led ended meanwhile"


class ClusterRecord:
    """The record of one cluster, from the first pass to the cluster's end. Without `context.records` none is written.

    `created`: the cluster's creationTimestamp.
    """

    def __init__(self, context: Context, cluster: Identity, created: str) -> None:
        self._context = context
        self._cluster = cluster
        self._records: Records | None = context.records
        self._subject = Subject(cluster, created, self._records.settings.keep_seconds if self._records else 0.0)
        self._pods = PodWatch()
        self._ends: list[PodEnd] = []  # whose log is not read yet
        self._fresh: list[PodEnd] = []  # those of the pass under way: it has yet to count what these pods held
        self._notes = Notes()
        connections = self._records.log_connections if self._records is not None else FairQueue(1, 1)
        self._logs = PodLogs(context.api, context.supervisor, f"{cluster.namespace}/{cluster.name}", connections)
        self._limiter = RateLimiter(1 / _URGENT_SECONDS, _URGENT_BURST)
        self._is_read_back = False
        # The first writes of a thousand clusters that a leader begins with are spread over the interval.
        self._written_at = context.clock() - context.random() * _INTERVAL_SECONDS
        self._sampled: Sample | None = None
        self._tasks = TaskNews()
        self._counted: Ledger | None = None  # by the last pass
        self._last: LastStatus | None = None  # until then
        self._saw_all = False  # of the pods since then
        self._unseen_gpus = 0  # of which that has a guess
        self._spec: Spec | None = None  # the last that was valid
        self._status = Status()
        self._gone: dict[str, Gone] = {}  # uid -> a pod that held GPUs, and does not since the last count
        self._pod_gone = asyncio.Event()
        self._counted_ends: dict[str, PodCount] = {}  # uid -> all of a pod that is gone
        self._left = ""  # what the last write returned
        self.is_closed = False  # all is written: nobody has to go on with it
        self._reported = "", 0.0  # the scheduler pod that was last asked for a performance report, and when

    # what is noted: at once, and but for logs without a request

    def look(self, *, cluster_gone: bool = False) -> None:
        """Note the ends of pods since the last look, and follow the logs of those that are about to be gone."""
        if self._records is None:
            return
        context = self._context
        seen = self._pods.look(
            context.pods_of(self._cluster), context.clock(), ahead=context.server_ahead(), cluster_gone=cluster_gone
        )
        self._fresh = [*self._fresh, *seen.ends][-_ENDS_KEPT:]
        for pod in seen.ending:
            self._logs.follow(pod)

    def pod_gone(self, pod: Pod, at: float) -> None:
        """Note that a pod is gone since `at`, by the operator's clock, and its last state."""
        if self._records is None:
            return
        self._pods.last_seen(pod)
        self._note_gone(pod, at)
        self._pod_gone.set()

    def _note_gone(self, pod: Pod, at: float) -> None:
        if pod.pool and pod.node:
            self._gone = dict([*self._gone.items(), (pod.uid, Gone.of(pod, at))][-_GONE_KEPT:])

    def inherit(self, last: LastStatus, gone: Iterable[tuple[Pod, float]]) -> None:
        """Go by another operator's status until a pass has counted; `gone`: pods gone since, and when."""
        self._last, self._saw_all = last, last.came is not None
        for pod, at in gone:
            self._note_gone(pod, at)

    def note_event(self, event: RecordedEvent) -> None:
        """Note an event that was recorded on the cluster."""
        if self._records is not None:
            self._notes.add_event(event)

    def note_status(
        self, cluster: Cluster, status: Status, demand: Demand | None, counted: Ledger, metadata: Json
    ) -> None:
        """Note the sizes, the demand and the ledger of a pass, and that there is news of tasks.

        `metadata`: of the cluster, with the labels and annotations that say who pays.
        """
        if self._records is None:
            return
        self._subject = replace(self._subject, keep_seconds=self._keep_seconds(cluster.spec.history.keep_seconds))
        sample = samples.take(status, self._server_time())
        if samples.is_due(self._sampled, sample):
            self._sampled = sample
            self._notes.add_sample(sample)
        self._spec = cluster.spec
        self.note_count(status, counted)
        said = attribution.read(metadata, self._context.attribution)
        self._notes.attribution = {name: value for name, value in said.items() if value}
        if demand is not None:
            self._tasks.hear(demand)

    def note_count(self, status: Status, counted: Ledger) -> None:
        """Note the ledger of a pass that may have had no plan, as while the spec is invalid."""
        if self._records is None:
            return
        self._status, self._counted, self._last = status, counted, None
        self._notes.pools = pools.rows(self._spec.pools if self._spec is not None else (), status)
        self._counted_ends = dict([*self._counted_ends.items(), *counted.ended.items()][-_ENDS_KEPT:])
        # Those that went while the pass was under way are for the next count; but some are back by now.
        later = counted.pods.keys() - {pod.uid for pod in self._context.pods_of(self._cluster)}
        self._gone = {uid: gone for uid, gone in self._gone.items() if uid in later}

    async def before(self, planned: Plan) -> None:
        """Note what a plan is about to delete; read the logs of pods that have ended, which would be gone with them."""
        if self._records is None:
            return
        self._pods.intend(planned)
        deleted = {action.pod.uid for action in planned.actions if isinstance(action, DeletePod)}
        ends = [*self._ends, *self._fresh]
        ends = [end for end in ends if end.source is LogSource.CURRENT and end.pod.uid in deleted]
        if not ends:
            return
        self._ends = [end for end in self._ends if end not in ends]
        self._fresh = [end for end in self._fresh if end not in ends]
        try:
            async with asyncio.timeout(_BEFORE_DELETION_SECONDS):
                await self._complete(ends)
        except TimeoutError:
            _LOG.info("%s/%s: logs of pods that ended are late", self._cluster.namespace, self._cluster.name)
        finally:
            self._fresh += ends

    async def write_report(self) -> bool:
        """Have the scheduler, which is about to be ended, write its performance report; whether it was asked for one.

        It is not asked again soon: whatever came of it, its end may go on. An end that is called off has another one.
        """
        scheduler = current_scheduler(self._context.pods_of(self._cluster))
        if self._records is None or scheduler is None or not scheduler.ip:
            return False
        asked, at = self._reported
        if scheduler.uid == asked and self._context.clock() < at + _REPORT_AGAIN_SECONDS:
            return False
        name = f"{self._cluster.name}-{iso(self._server_time(), to='seconds')}"
        try:
            self._notes.report = await self._context.schedulers.write_report(
                base_url(scheduler),
                self._context.token(self._cluster.uid),
                name=name,
                namespace=self._cluster.namespace,
            )
        except SchedulerError as error:
            self._notes.report = f"no performance report: {error}"[:MAX_MESSAGE]
        self._reported = scheduler.uid, self._context.clock()
        return True

    # what is written

    def work(self) -> dict[str, Work]:
        """The write that is due now, if any."""
        if self._records is None or self._is_off:
            return {}
        self._take_fresh()
        is_urgent = bool(self._ends) or self._tasks.must_hurry
        if not is_urgent and (self._due_after() > 0 or not self._has_news):
            return {}
        return {"record": partial(self._write, self._records, is_urgent=is_urgent)}

    def requeue_after(self) -> float | None:
        """In how many seconds a write is due; None: there is nothing to write."""
        if self._records is None or self._is_off or not self._has_news:
            return None
        return max(1.0, self._due_after())

    async def stop(self) -> None:
        """End what runs for the record, and wait for that."""
        await self._logs.stop()

    async def close(self) -> None:
        """Write the end of a cluster that is gone: what is known at once, and the ends of its pods' logs as they come.

        What fails again and again is left to the sweep (`keeper`).
        """
        CLUSTER.set(self._cluster.owner_key)  # who starts this works for no cluster
        try:
            if self._records is None or self._is_off:
                self.is_closed = True  # as far as ever
            else:
                with self._records.closing(self._cluster.namespace) as may_close:
                    if may_close:
                        await self._close(self._records)
        finally:
            await self._logs.stop()

    async def close_anew(
        self, gone: Iterable[tuple[Pod, float]], keep_seconds: float | None, last: LastStatus | None = None
    ) -> None:
        """Go on with the end of a cluster that is gone, which another operator has written in part, or not.

        `gone`: its pods that are gone, as last seen, and when, by the operator's clock. `keep_seconds`: of the record.
        `last`: of its status, where this operator has seen it; then its record is begun where there is none.
        """
        CLUSTER.set(self._cluster.owner_key)
        if self._records is None or self._is_off:
            return
        created = last.created if last is not None else None
        before = await self._records.read_back(self._cluster, self._context.random, created=created)
        if before is None:
            return
        self._subject = Subject(self._cluster, before.cluster.created, self._keep_seconds(keep_seconds))
        written = (epoch(before.updated) or 0.0) - self._ahead
        told = {pod.uid for pod in before.pods if not pod.restarted and pod.reason != End.CLUSTER_DELETED}
        since = [(pod, at) for pod, at in gone if at > written and pod.uid not in told]
        held = [replace(pod, phase="Running") for pod, _ in since]  # until they were gone, at the time of the count
        if last is not None:
            self.inherit(last, gone)
        else:
            self._status, self._counted = self._unfinished(before, held, written)
            self._unseen_gpus = max(0, before.unseen_gpus - self._counted.gpus)
        known_end = last.ended if last is not None and not before.ended else None
        ended = (epoch(before.ended) or 0.0) - self._ahead if known_end is None else known_end
        for pod, at in since:
            end = gone_end(pod, at, ahead=self._ahead, cluster_gone=at > ended)
            self._fresh.append(with_log(end, "", _UNFOLLOWED) if end.source is LogSource.FOLLOWED else end)
            self._note_gone(pod, at)
        if not before.ended and last is None:
            self.note_event(ended_unseen(iso(self._server_time(), to="seconds")))
        await self.close()

    def _unfinished(self, before: Record, held: list[Pod], written: float) -> tuple[Status, Ledger]:
        """As `unfinished`; `held`: pods that are gone since, as they were. What had ended before is counted."""
        pods = self._context.pods_of(self._cluster)
        ended = {each.uid: each.at for each in ended_for_good(pods) if each.at <= written}
        held = [*held, *(replace(pod, phase="Running") for pod in pods if pod.finished and pod.uid not in ended)]
        status, counted = unfinished(before, holders_unplanned([*pods, *held], (), {}), written)
        return status, replace(counted, gone=ended)

    def _keep_seconds(self, wanted: float | None) -> float:
        """For how long the record stays, where `wanted` is asked for."""
        longest = self._records.settings.keep_seconds if self._records is not None else 0.0
        return longest if wanted is None else min(wanted, longest)

    async def _close(self, records: Records) -> None:
        self.look(cluster_gone=True)
        self._take_fresh()
        leaving = self._pods.leaving(self._context.clock(), ahead=self._ahead)
        ends, self._ends = [*self._ends, *leaving], []
        for end in leaving:
            if end.source is LogSource.FOLLOWED:
                self._logs.follow(end.pod)
        ended = self._last.ended if self._last is not None else None
        self._notes.ended = iso(self._server_time() if ended is None else ended + self._ahead, to="seconds")
        async with records.closings.slot():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_LOGS_SECONDS):
                    await self._logs.read_present(ends, at_once=_LOGS_AT_ONCE)
            self._notes.history = await self._ask() or self._notes.history
            await self._logs.wait(_FIRST_LOGS_SECONDS)
            self._count_on()
            self._note_ends(self._logs.so_far(end) for end in ends)
            is_written = await self._write_last(records)
        seconds = max((end.pod.grace_seconds for end in leaving), default=0.0) + _AFTER_GRACE_SECONDS
        deadline = asyncio.get_running_loop().time() + min(max(_LAST_LOGS_SECONDS, seconds), _LONGEST_SECONDS)
        while is_written and self._awaits:
            is_over = await self._wait_for_ends(deadline)
            async with records.closings.slot():
                is_written = await self._write_last(records)
            if is_over:
                break
        self.is_closed = is_written

    @property
    def _awaits(self) -> bool:
        """Whether pods of a cluster that is gone have yet to end, or to be told of."""
        return self._pods.awaits or bool(self._fresh) or self._holds_gpus

    @property
    def _holds_gpus(self) -> bool:
        """Whether pods of the last count hold their GPUs still."""
        return self._counted is not None and any(uid not in self._gone for uid in self._counted.pods)

    async def _wait_for_ends(self, deadline: float) -> bool:
        """Wait for ends of pods, by the event loop's time until `deadline`; whether all have ended, or it has passed.

        Pods that end together are told together, and where they end all the time so often and no more.
        """
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                self.look(cluster_gone=True)
                while not self._fresh and self._awaits:
                    self._pod_gone.clear()
                    await self._pod_gone.wait()
                    self.look(cluster_gone=True)
                await asyncio.sleep(max(_GATHER_SECONDS, self._limiter.reserve(loop.time()) - loop.time()))
        self.look(cluster_gone=True)
        return loop.time() >= deadline or not (self._pods.awaits or self._holds_gpus)

    def _count_on(self) -> None:
        """Count what pods of a cluster that is gone have held since the last count; those that are there drain."""
        before = self._counted
        known = {} if before is None else {uid: each.holder.gpus for uid, each in before.pods.items()}
        pods = self._context.pods_of(self._cluster)
        there = holders_unplanned(pods, (), known)
        holding = tuple(replace(holder, rest=Cause.DRAINING) for holder in there if holder.uid not in self._gone)
        ended, unanswered_at = (*self._gone.values(), *ended_for_good(pods)), self._context.unanswered_at()
        now, clocks = self._context.clock(), self._context.clocks()
        seen = Counting(holding, now, gone=ended, clocks=clocks, unanswered_at=unanswered_at)
        if before is not None:
            status, counted = self._status, count(replace(seen, pools=frozenset(before.pools)), before)
        elif self._last is not None:
            status, counted = self._last.gone_on(seen)
            self._unseen_gpus = counted.unseen
        else:
            return
        self.note_count(recount(status, counted.settled()), counted)
        self._notes.unseen_gpus = self._unseen_gpus + counted.gpus
        self._notes.surplus = {name: pool.surplus for name, pool in counted.pools.items()}
        self._notes.is_whole = self._saw_all and not self._notes.unseen_gpus

    @property
    def _is_off(self) -> bool:
        return self._records is None or self._records.is_off(self._cluster.namespace)

    def _take_fresh(self) -> None:
        """Let the ends be written that the last pass saw, and has counted."""
        self._ends, self._fresh = [*self._ends, *self._fresh][-_ENDS_KEPT:], []

    @property
    def _has_news(self) -> bool:
        return bool(self._ends) or not self._notes.is_empty or self._tasks.must_ask

    @property
    def _ahead(self) -> float:
        return self._context.server_ahead()

    def _due_after(self) -> float:
        return self._written_at + _INTERVAL_SECONDS - self._context.clock()

    def _server_time(self) -> float:
        return self._context.clock() + self._ahead

    async def _write(self, records: Records, *, is_urgent: bool) -> bool:
        """Write what was noted by now; what could not be written is noted on. Whether there is more by then."""
        if is_urgent:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(max(_GATHER_SECONDS, self._limiter.reserve(now) - now))
        await wait_for_turn(records.urgent_limiter if is_urgent else records.limiter, self._cluster.namespace)
        await self._complete_ends(records)
        if self._tasks.must_ask:
            self._tasks.asked()
            self._notes.history = await self._ask() or self._notes.history
        await self._flush(records)
        self._written_at = self._context.clock()
        return bool(self._ends)

    async def _flush(self, records: Records) -> None:
        notes, self._notes = self._notes, Notes()
        try:
            self._left = await records.go_on(self._subject, notes, left=self._left)
        except BaseException:
            self._notes = notes.before(self._notes)
            raise

    async def _note_fresh(self) -> None:
        """Note the ends of pods that have outlived their cluster, by now, and what they have held."""
        self.look(cluster_gone=True)
        self._count_on()
        self._take_fresh()
        ends, self._ends = self._ends, []
        await self._complete(ends)
        self._note_ends(ends)

    async def _write_last(self, records: Records) -> bool:
        """Write, and try again for a while; whether it was written."""
        backoff = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, self._context.random)
        for tried in range(1, TRIES + 1):
            await wait_for_turn(records.urgent_limiter, self._cluster.namespace)
            await self._note_fresh()
            try:
                await self._flush(records)
            except ApiError as error:
                if error.ending or self._is_off:
                    return False  # the record goes with its namespace, or there is none
                _LOG.info("%s/%s: its record: %s", self._cluster.namespace, self._cluster.name, error)
                await asyncio.sleep(backoff.delay(tried, error.retry_after_seconds))
            else:
                return True
        return False

    async def _complete_ends(self, records: Records) -> None:
        """Read the logs of the ends by now, but for those that the record has from an operator before this one."""
        ends, self._ends = self._ends, []
        try:
            if ends and not self._is_read_back:
                before = await records.read(self._cluster)
                known = set(record.ends_of(before)) if before is not None else set()
                self._is_read_back = True
                ends = [end for end in ends if end.key not in known]
            await self._complete(ends)
            self._note_ends(ends)
        except BaseException:
            self._ends = [*ends, *self._ends][-_ENDS_KEPT:]
            raise

    async def _complete(self, ends: list[PodEnd]) -> None:
        """Complete `ends` in their place, so that those which are done stay so where the others take too long."""
        turns = asyncio.Semaphore(_LOGS_AT_ONCE)

        async def one(index: int, end: PodEnd) -> None:
            async with turns:
                ends[index] = await self._logs.complete(end)

        await asyncio.gather(*(one(index, end) for index, end in enumerate(ends)))

    def _note_ends(self, ends: Iterable[PodEnd]) -> None:
        for end in ends:
            uid = end.pod.uid
            known = self._counted_ends.get(uid) or (self._counted.pods.get(uid) if self._counted else None)
            self._notes.add_pod(recorded_pod(end, end.pod.gpus, self._ahead, known.seconds if known else {}))

    async def _ask(self) -> TaskHistory | None:
        """The present scheduler's word on its tasks; None where it has none, or does not answer."""
        scheduler = current_scheduler(self._context.pods_of(self._cluster))
        if scheduler is None or not scheduler.ip or not scheduler.running:
            return None
        try:
            return await self._context.schedulers.history(
                base_url(scheduler),
                self._context.token(self._cluster.uid),
                namespace=self._cluster.namespace,
                now=self._server_time(),
                seconds=_ANSWER_SECONDS,
            )
        except SchedulerError as error:
            _LOG.info("%s/%s: the tasks in its record: %s", self._cluster.namespace, self._cluster.name, error)
            return None
