"""Executor of a job's actions. What a creation was refused for is remembered, and tried again ever slower."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial

from gpudask.api import Json
from gpudask.api.job import Job, JobReason
from gpudask.api.limits import violations
from gpudask.api.resource import GATE_RECORDED, LABEL_JOB, Cluster, Identity, InvalidSpecError, owner_key, parse
from gpudask.api.status import iso
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import Backoff
from gpudask.clients.recheck import look_again
from gpudask.clients.reflector import Caches
from gpudask.desired.runner import job_cluster, runner_pod
from gpudask.jobs.actions import (
    Action,
    CreateCluster,
    CreateRunner,
    DeleteCluster,
    DeleteJob,
    DeleteRunner,
    EmptyCluster,
    EndContainers,
    GiveWay,
    LiftGate,
)
from gpudask.jobs.observation import JobObservation, Problem, SeenCluster
from gpudask.jobs.runner_pods import RunnerPod, is_of_earlier, job_key
from gpudask.planning.observed.pods import Pod, current_scheduler
from gpudask.planning.scheduler import with_default_image
from gpudask.reconcile.context import Context
from gpudask.reconcile.loop import Registry

_LOG = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 1.0, 60.0
# A pod at its gate for whose scheduler a quota has no room makes room for others: after the first seconds, and as many
# more as chance says, so that not all jobs of a namespace do it at once. The next try follows ever later.
GIVE_WAY_SECONDS, GIVE_WAY_SPREAD_SECONDS = 40.0, 80.0
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 30.0, 300.0
# A worker whose deletion fails is tried again within the two seconds in which GPUs are given back.
_WORKER_TRIES, _FIRST_WORKER_RETRY_SECONDS, _LAST_WORKER_RETRY_SECONDS = 5, 0.1, 0.8
# A cluster whose deletion fails makes no workers for so long: longer than any wait between two tries.
HOLD_SECONDS = 420.0
MANAGER = "gpudask-job"  # of the overrides by which a cluster is kept without workers


@dataclass(frozen=True)
class _Refusal:
    """What a creation was refused for, and the generation of the spec that it was for.

    `next_try`: on the operator's clock.
    """

    generation: int
    reason: JobReason
    message: str
    is_final: bool
    next_try: float


class JobExecutor:
    """Executes actions for one job."""

    def __init__(self, context: Context, runners: Caches, clusters: Registry) -> None:
        self._context = context
        self._runners = runners
        self._clusters = clusters
        self._backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS, context.random)
        self._refusal: _Refusal | None = None
        self._refusals = 0  # in a row
        self._is_refused_for_good = False  # and the pass does not know it yet
        self._deleted: set[str] = set()  # uids of clusters
        self._pause = Backoff(_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS, context.random)
        self._gives_way_at: float | None = None  # on the operator's clock, while there is no room
        self._gave_way = 0  # times in a row

    def problem(self, job: Job) -> Problem | None:
        """What the last creation for the spec that the job has was refused for.

        The answer to one for an older spec may have come after the edit that is the cure.
        """
        if self._refusal is not None and self._refusal.generation != job.generation:
            self.forget_problem()
        if self._refusal is None:
            return None
        wait = max(0.0, self._refusal.next_try - self._context.clock())
        return Problem(self._refusal.reason, self._refusal.message, self._refusal.is_final, wait)

    def requeue_after(self) -> float | None:
        """In how many seconds what was refused is due to be tried again; None: nothing was, or it is due already."""
        left = 0.0 if self._refusal is None else self._refusal.next_try - self._context.clock()
        return left if left > 0 else None

    def was_refused_for_good(self) -> bool:
        """Whether something was, since the last call: the next pass ends the job."""
        was_refused, self._is_refused_for_good = self._is_refused_for_good, False
        return was_refused

    def forget_problem(self) -> None:
        """The job was edited, which may be the cure."""
        self._refusal, self._refusals = None, 0

    def gives_way_in(self, *, lacks_room: bool) -> float | None:
        """In how many seconds the runner's pod makes room for others; None where it does not lack room itself."""
        now = self._context.clock()
        if not lacks_room:
            self._gives_way_at = None
            return None
        if self._gives_way_at is None:
            self._gives_way_at = now + GIVE_WAY_SECONDS + GIVE_WAY_SPREAD_SECONDS * self._context.random()
        return self._gives_way_at - now

    def note_attempt(self) -> None:
        """An attempt is under way: there was room."""
        self._gives_way_at, self._gave_way = None, 0

    def has_deleted(self, uid: str) -> bool:
        """Whether the cluster with this uid was deleted, be it still there."""
        return uid in self._deleted

    async def execute(self, seen: JobObservation, action: Action, version: str) -> None:
        """Execute one action; `version`: of the job as it is known.

        Raises:
            ApiError: the API server could not be reached, or refuses what it should not; a conflict or a 404 of the
                deletion of the job: it may have changed, or be gone.
        """
        match action:
            case CreateCluster(attempt):
                await self._create_cluster(seen.job, attempt)
            case CreateRunner(attempt):
                await self._create_runner(seen, attempt)
            case LiftGate(pod):
                await self._of_pod(pod, self._lift(pod))
            case DeleteRunner(pod):
                await self._of_pod(pod, self._delete_pod(pod))
            case GiveWay(pod):
                self._make_room(seen)
                await self._of_pod(pod, self._delete_pod(pod))
            case EndContainers(pod):
                await self._of_pod(pod, self._context.api.end_containers(pod.namespace, pod.name, uid=pod.uid))
            case DeleteCluster(cluster):
                await self.delete_cluster(seen.job, cluster)
            case EmptyCluster(cluster):
                await self._empty_cluster(seen.job, cluster)
            case DeleteJob():
                await self._delete_job(seen.job, version)

    async def _create_cluster(self, job: Job, attempt: int) -> None:
        try:
            body = await self._context.api.create(job_cluster(job, attempt))
        except ApiError as error:
            if error.conflict:
                body = await self._context.api.get_cluster(job.namespace, job.name)
            else:
                self._refused(job, error, JobReason.CLUSTER_REFUSED)
                return
        self.forget_problem()
        self._clusters.cluster_written(body)

    async def _create_runner(self, seen: JobObservation, attempt: int) -> None:
        job = seen.job
        try:
            cluster = await self._cluster(seen, attempt)
            # Its template is the runner's, too, and may have been edited since its scheduler started.
            if beyond := violations(cluster.spec, job.namespace, self._context.limits):
                self._remember(job, JobReason.LIMIT, f"the cluster {job.cluster_name}: {'; '.join(beyond)}")
                return
            body = runner_pod(job, attempt, cluster)
        except InvalidSpecError as error:
            self._remember(job, JobReason.CLUSTER_INVALID, f"the cluster {job.cluster_name}: {error}")
            return
        except ValueError as error:
            self._remember(job, JobReason.TEMPLATE_REFUSED, f"spec.runner.template.{error}", is_final=True)
            return
        name = body["metadata"]["name"]
        with self._context.namespace_limits.admit(job.namespace, 1, self._context.clock()) as admission:
            if admission.refusal is not None:
                self._remember(job, JobReason.LIMIT, admission.refusal.message)
                return
            if not admission.pods:
                self._remember(job, JobReason.RUNNER_PENDING, "too many pods are made at once in this namespace")
                return
            try:
                made = await self._context.api.create(body)
            except ApiError as error:
                if error.conflict:
                    await self._look_at_name(job, name)
                else:
                    self._refused(job, error, JobReason.RUNNER_REFUSED)
                return
        self.forget_problem()
        _LOG.info("%s: created pod %s", job.key, name)
        self._runners.upsert(job.namespace, made)

    async def _cluster(self, seen: JobObservation, attempt: int) -> Cluster:
        """The cluster that the program uses, with its image; one of the job's own as it will be.

        What is left of an older spec or of an earlier attempt may still be there, and has another image.

        Raises:
            InvalidSpecError: nobody can act on its spec.
        """
        job = seen.job
        body = self._clusters.find(job.namespace, job.cluster_name)
        if job.has_own_cluster and (body is None or not seen.own_fits(attempt)):
            body = job_cluster(job, attempt)
            body["metadata"]["uid"] = ""
        elif body is None:
            body = await self._context.api.get_cluster(job.namespace, job.cluster_name)
        cluster = parse(body)
        scheduler = current_scheduler(self._context.pods_of(cluster))
        return with_default_image(cluster, scheduler, self._context.default_image)

    async def _look_at_name(self, job: Job, name: str) -> None:
        """A pod has the name: ours, of a creation whose answer was lost, or somebody else's."""
        body = await self._context.api.get_pod(job.namespace, name)
        if job_key(body["metadata"]) == job.owner_key:
            if await self.keep_runner(Identity(job.name, job.namespace, job.uid), body):
                self.forget_problem()
            else:
                text = f"the pod {name} of this job cannot be read: delete it"
                self._remember(job, JobReason.RUNNER_NAME_IN_USE, text)
        elif is_of_earlier(body["metadata"], job):
            text = f"the pod {name} of an earlier job of this name is being deleted"
            self._remember(job, JobReason.RUNNER_PENDING, text)
        else:
            text = f"a pod {name} is there that is not this job's: delete it, or give the job another name"
            self._remember(job, JobReason.RUNNER_NAME_IN_USE, text)

    async def keep_runner(self, job: Identity, body: Json) -> bool:
        """Know a runner that the API server has; whether it could be read.

        One whose label somebody took off would stay unknown, as the watch goes by that: it gets it again.

        Raises:
            ApiError: as for any request.
        """
        metadata = body["metadata"]
        if LABEL_JOB not in (metadata.get("labels") or {}):
            name, uid = metadata["name"], metadata["uid"]
            body = await self._context.api.mark_pod(job.namespace, name, uid=uid, labels={LABEL_JOB: job.name})
        return self._runners.upsert(job.namespace, body)

    def _refused(self, job: Job, error: ApiError, reason: JobReason) -> None:
        """Remember a refusal; what is invalid is so for good, what somebody else can mend is tried again.

        Raises:
            ApiError: `error`, where it is no refusal.
        """
        if error.ending or not error.refused:
            raise error
        _LOG.warning("%s: %s", job.key, error)
        is_final = error.invalid
        self._remember(job, JobReason.TEMPLATE_REFUSED if is_final else reason, error.message, is_final=is_final)

    def _remember(self, job: Job, reason: JobReason, message: str, *, is_final: bool = False) -> None:
        self._refusals += 1
        self._is_refused_for_good = is_final
        next_try = self._context.clock() + self._backoff.delay(self._refusals)
        self._refusal = _Refusal(job.generation, reason, message, is_final, 0.0 if is_final else next_try)

    def _make_room(self, seen: JobObservation) -> None:
        """Have no runner made for a while, longer each time. A cluster of the job's own goes for the same reason."""
        self._gives_way_at = None
        self._gave_way += 1
        next_try = self._context.clock() + self._pause.delay(self._gave_way)
        why = seen.used.waits_for if seen.used is not None else ""
        at = iso(next_try + self._context.server_ahead(), to="seconds")
        text = f"its runner and its cluster made room for others, as the scheduler found none ({why}); next try at {at}"
        self._refusal = _Refusal(seen.job.generation, JobReason.GAVE_WAY, text, is_final=False, next_try=next_try)
        _LOG.info("%s: %s", seen.job.key, text)

    async def _of_pod(self, pod: RunnerPod, doing: Awaitable[Json]) -> None:
        """Change this very pod, and know it as it is then; or it has changed, or is gone.

        Raises:
            ApiError: the request failed, or was refused although the pod is as it was.
        """
        try:
            body = await doing
        except ApiError as error:
            if not (error.not_found or error.conflict or error.invalid):
                raise
            await self._look_again(pod, error)
            return
        if body.get("kind") == "Pod" and _stays(body):
            self._runners.upsert(pod.namespace, body)
        else:
            self._runners.forget(pod.namespace, pod.uid)

    async def _look_again(self, pod: RunnerPod, error: ApiError) -> None:
        """Know the pod as it is after a write to it that got `error`; what is new has another pass made.

        Raises:
            ApiError: as `clients.recheck.look_again`.
        """
        get = partial(self._context.api.get_pod, pod.namespace, pod.name)
        await look_again(
            get,
            self._runners,
            pod.namespace,
            uid=pod.uid,
            version=pod.version,
            error=error,
            after_seconds=self._context.recheck_seconds,
        )

    def _lift(self, pod: RunnerPod) -> Awaitable[Json]:
        return self._context.api.lift_gate(pod.namespace, pod.name, GATE_RECORDED, uid=pod.uid)

    def _delete_pod(self, pod: RunnerPod) -> Awaitable[Json]:
        """Delete it; at its gate only as it is: somebody may have let it run meanwhile."""
        version = pod.version if pod.gated else None
        return self._context.api.delete_pod(pod.namespace, pod.name, uid=pod.uid, version=version, never_ran=pod.gated)

    async def delete_cluster(self, job: Job, cluster: SeenCluster) -> None:
        """Delete the cluster, and its workers at once: garbage collection comes later, and a drain takes time.

        The workers wait for no answer about the cluster: its loop makes no others meanwhile.

        Raises:
            ApiError: the API server could not be reached, or refuses.
        """
        self._clusters.hold(job.namespace, cluster.uid, HOLD_SECONDS)
        await _all(self._delete_resource(job, cluster), self.end_workers(job, cluster.uid))

    def end_hold(self, job: Job, cluster: SeenCluster) -> None:
        """Let a cluster make workers that was to end, and is not any more; one that was deleted stays as it is."""
        if cluster.uid not in self._deleted:
            self._clusters.end_hold(job.namespace, cluster.uid)

    async def _delete_resource(self, job: Job, cluster: SeenCluster) -> None:
        try:
            is_gone = await self._context.api.delete_cluster(job.namespace, cluster.name, uid=cluster.uid)
        except ApiError as error:
            if not (error.object_not_found or error.conflict) or await self._is_there(job, cluster):
                raise
            is_gone = True
        if is_gone:  # the event may be lost, as where a watch was too old; and one of before may come only now
            self._clusters.cluster_deleted({"namespace": job.namespace, "name": cluster.name, "uid": cluster.uid})
            self._clusters.hold(job.namespace, cluster.uid, HOLD_SECONDS)
        self._deleted.add(cluster.uid)
        _LOG.info("%s: deleted its cluster", job.key)

    async def _is_there(self, job: Job, cluster: SeenCluster) -> bool:
        """Whether this very cluster exists: a conflict may be of another of its name, or of a request beside ours."""
        try:
            body = await self._context.api.get_cluster(job.namespace, cluster.name)
        except ApiError as error:
            if not error.object_not_found:
                raise
            return False
        return bool(body["metadata"]["uid"] == cluster.uid)

    async def _empty_cluster(self, job: Job, cluster: SeenCluster) -> None:
        """Have the cluster keep no workers, and end those that there are; they do not wait for it either."""
        self._clusters.hold(job.namespace, cluster.uid, HOLD_SECONDS)
        await _all(self._keep_without_workers(job, cluster), self.end_workers(job, cluster.uid))

    async def _keep_without_workers(self, job: Job, cluster: SeenCluster) -> None:
        body = await self._context.api.get_cluster(job.namespace, cluster.name)
        if body["metadata"]["uid"] != cluster.uid:
            self._clusters.cluster_written(body)  # another one of its name by now
            return
        pools = (body.get("spec") or {}).get("pools") or ()
        overrides = [{"pool": pool["name"], "replicas": 0, "by": MANAGER} for pool in pools]
        if (body.get("spec") or {}).get("overrides") != overrides:
            body = await self._context.api.set_overrides(body, overrides, manager=MANAGER)
        self._clusters.cluster_written(body)
        self._clusters.end_hold(job.namespace, cluster.uid)  # its spec says so by now

    async def end_workers(self, job: Job, uid: str) -> None:
        """Delete the worker pods of the cluster with this `uid`, with a second of grace.

        Raises:
            ApiError: one could not be deleted, tried again and again: it is the garbage collector's, or the cluster's.
        """
        key = owner_key(job.namespace, uid)
        pods = [pod for pod in self._context.pods.owned(key) if pod.pool and not pod.deleting]
        await _all(*(self._end_worker(job, pod) for pod in pods))

    async def _end_worker(self, job: Job, pod: Pod) -> None:
        """Delete a worker pod. It is gone, or another one's, where that is said twice: nobody looks again.

        Raises:
            ApiError: it was refused, or the API server could not be reached, tried again and again.
        """
        backoff = Backoff(_FIRST_WORKER_RETRY_SECONDS, _LAST_WORKER_RETRY_SECONDS, self._context.random)
        was_missed = False
        for tries in range(1, _WORKER_TRIES + 1):
            try:
                await self._context.api.delete_pod(pod.namespace, pod.name, uid=pod.uid, never_ran=True)
            except ApiError as error:
                if error.not_found or error.conflict:
                    if was_missed:
                        return
                    was_missed = True
                    continue
                delay = backoff.delay(tries, error.retry_after_seconds)
                if error.refused or tries == _WORKER_TRIES or delay > 2 * _LAST_WORKER_RETRY_SECONDS:
                    _LOG.warning("%s: a worker was not deleted: %s", job.key, error)
                    raise
                await asyncio.sleep(delay)
            else:
                return

    async def _delete_job(self, job: Job, version: str) -> None:
        await self._context.api.delete_job(job.namespace, job.name, uid=job.uid, version=version)
        _LOG.info("%s: deleted: spec.ttlAfterFinished is over", job.key)


async def _all(*doing: Awaitable[None]) -> None:
    """Do all of these beside each other, and each to its end, whatever becomes of the others.

    Raises:
        ApiError: the first one's that failed.
    """
    for result in await asyncio.gather(*doing, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _stays(body: Json) -> bool:
    """Whether a pod, by the answer of the API server, still exists."""
    metadata = body["metadata"]
    return (
        "deletionTimestamp" not in metadata
        or metadata.get("deletionGracePeriodSeconds") != 0
        or bool(metadata.get("finalizers"))
    )
