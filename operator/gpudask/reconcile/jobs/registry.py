"""The registry of jobs: it starts, wakes and ends their loops. While another operator leads there are none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from gpudask.api import Json
from gpudask.api.cron_job import bounded_cron_job
from gpudask.api.job import bounded_job
from gpudask.api.resource import owner_key
from gpudask.clients.reflector import Caches
from gpudask.jobs.runner_pods import RunnerPod
from gpudask.planning.observed import fields
from gpudask.reconcile.context import Context
from gpudask.reconcile.jobs.reconciler import JobReconciler
from gpudask.reconcile.loop import Registry
from gpudask.reconcile.pass_loop import PassLoop

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobCopy:
    """A job as the API server has it. `owner`: its own `owner_key`, by which it is found."""

    uid: str
    owner: str
    version: str
    body: Json


class _Observer:
    """Reduces a job or cron job of the API server; a spec that is as it is kept is not measured again.

    Events come for each write of a status or an annotation, and a measurement stops everybody.
    """

    def __init__(self, bounded: Callable[[Json], Json]) -> None:
        self._bounded = bounded
        self._kept: WeakValueDictionary[str, JobCopy] = WeakValueDictionary()

    def __call__(self, body: Json) -> JobCopy:
        """The copy that may be kept.

        Raises:
            UnreadableError: it has not the shape of an object.
        """
        metadata = fields.mapping(body, "metadata")
        uid, namespace = fields.identifier(metadata, "uid"), fields.identifier(metadata, "namespace")
        fields.identifier(metadata, "name")
        before = self._kept.get(uid)
        is_known = before is not None and before.body.get("spec") == body.get("spec")
        kept = body if is_known else self._bounded(body)
        copy = self._kept[uid] = JobCopy(uid, owner_key(namespace, uid), fields.version(metadata), kept)
        return copy


observe_job, observe_cron_job = _Observer(bounded_job), _Observer(bounded_cron_job)


@dataclass(frozen=True)
class _Job:
    """What runs for one job."""

    name: str  # namespace/name
    reconciler: JobReconciler
    passes: PassLoop
    task: asyncio.Task[None]


class JobRegistry:
    """The loops of all jobs, by `owner_key`. `clusters`: the registry that knows the clusters that jobs use."""

    def __init__(self, clusters: Registry) -> None:
        self._clusters = clusters
        self._context: Context | None = None
        self._leads = False
        self._running: dict[str, _Job] = {}
        self._giving_back: set[asyncio.Task[None]] = set()  # what jobs hold that were deleted
        self._named: dict[str, str] = {}  # by namespace/name: the key of the one that exists
        self._names: dict[str, str] = {}  # the same, the other way round, of all that are known
        # Called with `namespace/name` of a job that changed, or is gone.
        self.on_job: Callable[[str], None] = lambda _name: None
        self._users: dict[str, set[str]] = {}  # namespace/name of a cluster -> keys of the jobs that look at it
        self._used: dict[str, set[str]] = {}  # the same, the other way round
        self.jobs = Caches([])
        self.runners = Caches([])

    def lead(self, context: Context) -> None:
        """Start the loops of all jobs, and of those to come."""
        self._context, self._leads = context, True
        self.start_loops()

    async def stand_by(self) -> None:
        """End all loops; jobs stay as they are."""
        self._leads = False
        tasks = [*(job.task for job in self._running.values()), *self._giving_back]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def start_loops(self) -> None:
        """Start loops in the namespaces whose caches have filled meanwhile."""
        for reflector in self.jobs.reflectors:
            for copy in reflector.known():
                self.job_changed(copy.owner)

    def job_changed(self, key: str) -> None:
        """A job was created, changed, or is gone."""
        copy = next(iter(self.jobs.owned(key)), None)
        self._note_name(key, copy)
        running = self._running.get(key)
        if copy is None:
            if running is not None:
                running.task.cancel()
        elif running is None:
            self._start(key, copy.body)
        else:
            if running.reconciler.changed(copy.body):
                running.passes.retry_now()
            self._note_cluster(key, running.reconciler)
            running.passes.wake()

    def find(self, name: str) -> Json | None:
        """The job of this `namespace/name`, as last seen."""
        copy = next(iter(self.jobs.owned(self._named.get(name, ""))), None)
        return None if copy is None else copy.body

    def _note_name(self, key: str, copy: JobCopy | None) -> None:
        if copy is not None:
            name = f"{copy.body['metadata']['namespace']}/{copy.body['metadata']['name']}"
            self._named[name], self._names[key] = key, name
        else:
            name = self._names.pop(key, "")
            if self._named.get(name) != key:  # another one has its name by now
                return
            del self._named[name]
        self.on_job(name)

    def wake_unbegun(self, key: str) -> None:
        """Have a job look again at what it waits for, unless it has begun."""
        if (job := self._running.get(key)) is None:
            self.job_changed(key)
        elif not job.reconciler.has_begun:
            job.passes.wake()

    def runner_changed(self, key: str) -> None:
        """A pod of a job's changed. What its program's end gives back waits for no failure of before."""
        if (job := self._running.get(key)) is not None:
            if job.reconciler.sees_an_end():
                job.passes.retry_now()
            job.passes.wake()

    def runner_deleted(self, pod: RunnerPod) -> None:
        """Somebody deleted a pod, which was as it was last seen."""
        if not pod.node and (job := self._running.get(pod.owner)) is not None:
            job.reconciler.note_never_ran(pod.uid)

    def cluster_changed(self, name: str) -> None:
        """A cluster, as `namespace/name`, or one of its objects changed: wake the jobs that look at it."""
        for key in tuple(self._users.get(name, ())):
            if (job := self._running.get(key)) is not None and job.reconciler.looks_at_clusters:
                job.passes.wake()

    def _start(self, key: str, body: Json) -> None:
        context, metadata = self._context, body["metadata"]
        if not self._leads or context is None or not self.runners.know(metadata["namespace"]):
            return
        name = f"{metadata['namespace']}/{metadata['name']}"
        reconciler = JobReconciler(context, self.runners, self._clusters, body, lambda: self.runner_changed(key))
        # A program that ended while nobody led holds its GPUs until this pass: it waits for no other job or cluster.
        is_urgent = reconciler.sees_an_end()
        passes = PassLoop(context, name, key, reconciler.reconcile, reconciler.report_defect, is_urgent=is_urgent)
        task = context.supervisor.start(passes.run, kind="job", name=name, may_end=True)
        self._running[key] = _Job(name, reconciler, passes, task)
        self._note_cluster(key, reconciler)
        task.add_done_callback(lambda done: self._ended(key, done))

    def _note_cluster(self, key: str, reconciler: JobReconciler) -> None:
        for name in reconciler.cluster_names:
            self._users.setdefault(name, set()).add(key)
            self._used.setdefault(key, set()).add(name)

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        if (job := self._running.get(key)) is not None and job.task is task:
            del self._running[key]
            job.reconciler.measurements.stop()
            if not task.cancelled() or not self.jobs.owned(key):
                self._give_back(job)
        for name in self._used.pop(key, ()):
            self._users[name].discard(key)
            if not self._users[name]:
                del self._users[name]
        if not task.cancelled() and task.exception() is not None:
            _LOG.critical("a job's loop failed: this is a defect", exc_info=task.exception())

    def _give_back(self, job: _Job) -> None:
        """Have given back what a job holds that is gone, unless another operator leads now."""
        if not self._leads or self._context is None:
            return
        task = self._context.supervisor.start(job.reconciler.give_back, kind="job", name=job.name, may_end=True)
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)
