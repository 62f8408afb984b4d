"""The registry of cron jobs: it starts, wakes and ends their loops, and knows which jobs are whose."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.api.cron_job import parse_cron_job_status
from gpudask.api.job import UnreadableStatusError
from gpudask.clients.reflector import Caches
from gpudask.jobs.cron.observation import controller_key
from gpudask.reconcile.context import Context
from gpudask.reconcile.jobs.cron.reconciler import CronJobReconciler
from gpudask.reconcile.jobs.registry import JobRegistry
from gpudask.reconcile.pass_loop import PassLoop

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _CronJob:
    """What runs for one cron job."""

    reconciler: CronJobReconciler
    passes: PassLoop
    task: asyncio.Task[None]


class CronJobRegistry:
    """The loops of all cron jobs, by `owner_key`. `jobs`: the registry of all jobs, which it leads and wakes."""

    def __init__(self, jobs: JobRegistry) -> None:
        self._jobs = jobs
        self._context: Context | None = None
        self._leads = False
        self._running: dict[str, _CronJob] = {}
        self._controllers: dict[str, str] = {}  # a job's key -> that of the cron job that controls it
        self._controlled: dict[str, set[str]] = {}  # the same, the other way round
        self.cron_jobs = Caches([])

    def lead(self, context: Context) -> None:
        """Start the loops of all cron jobs, and of those to come."""
        self._context, self._leads = context, True
        self._jobs.lead(context)
        self.start_loops()

    async def stand_by(self) -> None:
        """End all loops; cron jobs and their jobs stay as they are."""
        self._leads = False
        tasks = [item.task for item in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._jobs.stand_by()

    def start_loops(self) -> None:
        """Start loops in the namespaces whose caches have filled meanwhile."""
        self._jobs.start_loops()
        for reflector in self.cron_jobs.reflectors:
            for copy in reflector.known():
                self.cron_job_changed(copy.owner)

    def waits_for(self, metadata: Json) -> str:
        """What has to happen before the first attempt of the job with these metadata; empty: nothing."""
        key = controller_key(metadata)
        if not key:
            return ""
        copy = next(iter(self.cron_jobs.owned(key)), None)
        try:
            if copy is not None and parse_cron_job_status(copy.body).is_active(metadata["uid"]):
                return ""
        except UnreadableStatusError as error:
            return f"of its GpuDaskCronJob {error}: nobody can tell whether it has recorded it"
        return "its GpuDaskCronJob has not recorded it: it begins a job once for each time, and deletes any other"

    def cron_job_changed(self, key: str) -> None:
        """A cron job was created, changed, or is gone: it, and the jobs that may wait for its status, look again."""
        copy = next(iter(self.cron_jobs.owned(key)), None)
        running = self._running.get(key)
        if copy is None:
            if running is not None:
                running.task.cancel()
        elif running is None:
            self._start(key, copy.body)
        else:
            if running.reconciler.changed(copy.body):
                running.passes.retry_now()
            running.passes.wake()
        for job in tuple(self._controlled.get(key, ())):
            self._jobs.wake_unbegun(job)

    def job_changed(self, key: str) -> None:
        """A job was created, changed, or is gone."""
        self._jobs.job_changed(key)
        copy = next(iter(self._jobs.jobs.owned(key)), None)
        now = controller_key(copy.body["metadata"]) if copy is not None else ""
        before = self._controllers.pop(key, "")
        if before and before != now:
            self._controlled[before].discard(key)
            if not self._controlled[before]:
                del self._controlled[before]
        if now:
            self._controllers[key] = now
            self._controlled.setdefault(now, set()).add(key)
        for controller in {before, now} - {""}:
            if (running := self._running.get(controller)) is not None:
                running.passes.wake()

    def jobs_of(self, key: str) -> list[Json]:
        """The jobs that a cron job controls."""
        return [copy.body for job in self._controlled.get(key, ()) for copy in self._jobs.jobs.owned(job)]

    def _start(self, key: str, body: Json) -> None:
        context, metadata = self._context, body["metadata"]
        if not self._leads or context is None or not self._jobs.jobs.know(metadata["namespace"]):
            return
        name = f"{metadata['namespace']}/{metadata['name']}"
        reconciler = CronJobReconciler(
            context,
            self._jobs.jobs,
            self.cron_jobs,
            body,
            jobs_of=lambda: self.jobs_of(key),
            wake=lambda: self._wake(key),
        )
        passes = PassLoop(context, name, key, reconciler.reconcile, reconciler.report_defect)
        task = context.supervisor.start(passes.run, kind="cron job", name=name, may_end=True)
        self._running[key] = _CronJob(reconciler, passes, task)
        task.add_done_callback(lambda done: self._ended(key, done))

    def _wake(self, key: str) -> None:
        if (running := self._running.get(key)) is not None:
            running.passes.wake()

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        if (item := self._running.get(key)) is not None and item.task is task:
            del self._running[key]
            item.reconciler.stop()
        if not task.cancelled() and task.exception() is not None:
            _LOG.critical("a cron job's loop failed: this is a defect", exc_info=task.exception())
