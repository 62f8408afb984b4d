"""Jobs and cron jobs with their loops on an API server in memory, of which no watch ever tells."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, CRON_JOB_PLURAL, JOB_PLURAL, PLURAL
from gpudask.clients.reflector import Caches, Reflector
from gpudask.jobs.runner_pods import parse_runner_pod
from gpudask.reconcile.jobs.cron.registry import CronJobRegistry
from gpudask.reconcile.jobs.registry import JobRegistry, observe_job
from gpudask.reconcile.loop import Registry
from tests.clients.fake_api_server import FakeApiServer
from tests.reconcile.in_memory import Operated

NAMESPACE = "lab"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_OURS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}"
JOBS, CRON_JOBS, CLUSTERS = f"{_OURS}/{JOB_PLURAL}", f"{_OURS}/{CRON_JOB_PLURAL}", f"{_OURS}/{PLURAL}"


class OperatedJobs:
    """The loops of jobs and cron jobs. Clusters have none, and no pod ever gets a node."""

    def __init__(self) -> None:
        self.server = FakeApiServer()
        self.clusters = Registry()
        jobs = JobRegistry(self.clusters)
        self.crons = CronJobRegistry(jobs)
        self.clusters.on_cluster = jobs.cluster_changed
        jobs.jobs = self.jobs = self._caches(JOBS, observe_job, self.crons.job_changed)
        jobs.runners = self.runners = self._caches(PODS, parse_runner_pod, jobs.runner_changed)
        self.crons.cron_jobs = self._caches(CRON_JOBS, observe_job, self.crons.cron_job_changed)
        self.operated = Operated(self.server, runners=self.runners, job_waits_for=self.crons.waits_for)
        self.pods = self.operated.context.pods
        self.crons.lead(self.operated.context)

    def put(self, kind: str, body: Json) -> Json:
        """An object that is there; `kind`: its path but for the name."""
        stored = self.server.put(f"{kind}/{body['metadata']['name']}", body)
        if kind == CLUSTERS:
            self.clusters.cluster_changed(stored)
        elif kind == PODS:
            for caches in (self.runners, self.pods):
                caches.upsert(NAMESPACE, stored)
        return stored

    def begin(self, kind: str, body: Json) -> None:
        """A job or cron job is there from now on, and somebody works for it."""
        stored = self.put(kind, body)
        (self.jobs if kind == JOBS else self.crons.cron_jobs).upsert(NAMESPACE, stored)

    def there(self, kind: str, name: str) -> Json:
        """An object as the API server has it; empty: there is none."""
        return self.server.objects.get(f"{kind}/{name}", {})

    async def stop(self) -> None:
        await self.crons.stand_by()
        await self.operated.stop()

    def _caches(self, path: str, reduce: Any, changed: Callable[[str], None]) -> Caches:
        reflector: Reflector[Any] = Reflector(self.server, path, label="", reduce=reduce, on_change=changed)
        reflector.synced.set()
        return Caches([reflector])


@contextlib.asynccontextmanager
async def operated_jobs() -> AsyncIterator[OperatedJobs]:
    """Loops of jobs in memory, until the block ends."""
    on = OperatedJobs()
    try:
        yield on
    finally:
        await on.stop()
