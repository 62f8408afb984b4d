"""One pass over a job: observe, plan, execute, write the status. Run twice, a pass changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from gpudask.api import Json
from gpudask.api.job import (
    Job,
    JobPhase,
    JobReason,
    JobStatus,
    UnreadableStatusError,
    bounded_job,
    parse_job,
    parse_job_again,
    parse_job_status,
)
from gpudask.api.limits import runner_violations
from gpudask.api.pod_template import Template
from gpudask.api.reasons import ConditionType
from gpudask.api.resource import (
    ANNOTATION_SPEC_HASH,
    API_VERSION,
    JOB_KIND,
    JOB_PLURAL,
    LABEL_ATTEMPT,
    Identity,
    InvalidSpecError,
    owner_key,
    parse_status,
)
from gpudask.api.untrusted_text import quote
from gpudask.clients.errors import QUOTA_EXCEEDED, ApiError, ClusterGoneError
from gpudask.clients.flow_control import CLUSTER, Backoff
from gpudask.clients.recheck import found
from gpudask.clients.reflector import Caches
from gpudask.desired.runner import Hashes, hashes
from gpudask.jobs.actions import Action, CreateCluster, CreateRunner, DeleteCluster, DeleteJob, EmptyCluster, JobPlan
from gpudask.jobs.observation import JobObservation, Problem, SeenCluster
from gpudask.jobs.plan import awaits_cluster, is_open, plan
from gpudask.jobs.runner_pods import RunnerPod, is_of_earlier, job_key
from gpudask.jobs.status import LAST_LINES, with_last_lines
from gpudask.planning.observed import fields
from gpudask.planning.observed.pods import current_scheduler
from gpudask.reconcile.context import Context
from gpudask.reconcile.jobs.executor import JobExecutor
from gpudask.reconcile.jobs.measurements import JobMeasurements
from gpudask.reconcile.loop import Registry
from gpudask.reconcile.pass_loop import RESYNC_SECONDS
from gpudask.reconcile.resource_copy import LatestCopy, ParsedOnce

_LOG = logging.getLogger(__name__)
_LIMIT_SECONDS = 60.0  # how soon a job beyond the limits is looked at again
_LOG_SECONDS = 3.0  # the end of a job waits no longer for its last lines
_LOG_BYTES = 256 * 1024
_TRIES, _FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 6, 0.5, 15.0  # to give back what a deleted job's cluster holds
_ATTEMPT_DIGITS = 7
_TOLD = (JobPhase.RUNNING, JobPhase.RETRYING, JobPhase.SUSPENDED, JobPhase.COMPLETE, JobPhase.FAILED)
_WARNED = (JobPhase.RETRYING, JobPhase.FAILED)


class JobReconciler:
    """Makes the passes of one job. `wake` has another one made."""

    def __init__(
        self, context: Context, runners: Caches, clusters: Registry, body: Json, wake: Callable[[], None]
    ) -> None:
        self._context = context
        self._runners = runners
        self._clusters = clusters
        self._wake = wake
        metadata = body["metadata"]
        self._identity = Identity(metadata["name"], metadata["namespace"], metadata["uid"])
        self._never_ran: set[str] = set()
        self._ended = ""  # the uid of the last runner whose end was seen
        self._executor = JobExecutor(context, runners, clusters)
        # As it was when the loop began: if the API server's clock is set, no deadline is over by that.
        self._server_ahead = context.server_ahead()
        self._job: Job | None = None  # as the last pass had it
        self._own_cluster = ""  # its uid, as that pass saw it
        self._status = JobStatus.model_validate({})
        self.measurements = JobMeasurements(context, self._identity)
        self._copy = LatestCopy(context, body, bounded_job)
        self._parsed: ParsedOnce[Job] = ParsedOnce(parse_job, parse_job_again)
        self._hashes: Hashes | None = None  # of the spec that was parsed last
        self._generation: int | None = None
        self._read()

    def changed(self, body: Json) -> bool:
        """Keep a newer copy; whether it was edited. Our own status writes come back here, too."""
        return self._copy.update(body) and self._read()

    def _read(self) -> bool:
        """Read a newer copy; whether it was edited, which may be the cure of what was refused."""
        before, self._generation = self._generation, self._copy.body["metadata"].get("generation")
        if is_edited := before != self._generation:
            self._executor.forget_problem()
        self._unreadable = ""
        try:
            self._status = parse_job_status(self._copy.body)
        except UnreadableStatusError as error:
            self._unreadable = str(error)
        self.measurements.known(self._status, is_readable=not self._unreadable)
        return bool(is_edited)

    def note_never_ran(self, uid: str) -> None:
        """A pod is gone that never had a node."""
        self._never_ran.add(uid)

    def sees_an_end(self) -> bool:
        """Whether the pod of the open attempt is seen to have ended, or to be gone, for the first time."""
        uid = self._status.runner.uid
        if not is_open(self._status) or uid == self._ended:
            return False
        pod = next((pod for pod in self._runners.owned(self._identity.owner_key) if pod.uid == uid), None)
        if pod is not None and not pod.ended:
            return False
        self._ended = uid
        return True

    @property
    def has_begun(self) -> bool:
        """Whether its program may have run."""
        return self._status.attempts > 0

    @property
    def looks_at_clusters(self) -> bool:
        """Whether a change of its cluster may matter now."""
        return awaits_cluster(self._status) or self._status.has_ended

    @property
    def cluster_names(self) -> tuple[str, ...]:
        """The clusters, as `namespace/name`, that it looks at: of its own name, and the one that it uses."""
        cluster = _mapping(_mapping(self._copy.body, "spec"), "cluster")
        names = {self._identity.name, cluster.get("name") or self._identity.name}
        return tuple(f"{self._identity.namespace}/{name}" for name in names if isinstance(name, str))

    async def reconcile(self) -> float:
        """Make a pass; its requeue_after, in seconds.

        Raises:
            ApiError: a request failed; what did not depend on it was done.
            ClusterGoneError: the job does not exist any more.
        """
        if self._unreadable:
            return await self._leave_alone()
        try:
            job = self._parsed.get(self._copy.body)
        except InvalidSpecError as error:
            await self._report(JobPhase.PENDING, JobReason.INVALID, str(error))
            return RESYNC_SECONDS
        version = self._copy.version  # what comes from here on is for another pass
        seen = await self._observe(job)
        self._job, self._own_cluster = job, seen.own.uid if seen.own is not None else ""
        planned = plan(seen)
        makes = [isinstance(action, CreateCluster | CreateRunner) for action in planned.actions]
        is_refreshed = self._copy.is_too_old(makes=any(makes), ends=not all(makes))
        if is_refreshed:
            await self._refresh()
        if (any(makes) or is_refreshed) and version != self._copy.version:
            self._wake()
            return RESYNC_SECONDS
        if seen.named is not None and _ends_hold(job, seen.named, planned):
            self._executor.end_hold(job, seen.named)
        self.measurements.planned(seen, planned)
        failure = await self._execute(seen, planned, version)
        if planned.status != seen.status:
            await self._write(await self._with_log(planned, seen.status), before=seen.status, version=version)
        if self._executor.was_refused_for_good():
            self._wake()
        if failure is not None:
            raise failure
        soon = [planned.requeue_after, self._executor.requeue_after()]
        return max(0.01, min([RESYNC_SECONDS, *(each for each in soon if each is not None)]))

    async def give_back(self) -> None:
        """End what the own cluster of a job holds that was deleted: garbage collection comes later, and in no hurry.

        A cluster that it left behind goes on. What fails again and again is left to the garbage collector.
        """
        CLUSTER.set(self._identity.owner_key)  # who starts this works for no job
        uid = self._own_cluster or self._own_cluster_now()
        if not uid:
            return
        try:
            job = self._job or self._parsed.get(self._copy.body)
        except InvalidSpecError:
            return  # it was edited, and this operator has seen no other
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS, self._context.random)
        for tried in range(1, _TRIES + 1):
            try:
                await self._give_back(job, uid)
            except ApiError as error:
                _LOG.info("%s: its cluster: %s", job.key, error)
                if error.ending or tried == _TRIES:
                    break
                await asyncio.sleep(backoff.delay(tried, error.retry_after_seconds))
            else:
                break

    async def _give_back(self, job: Job, uid: str) -> None:
        get = partial(self._context.api.get_cluster, job.namespace, job.name)
        body = await found(get, self._context.recheck_seconds)
        if body is None or body["metadata"]["uid"] != uid:  # its workers may be there yet, and end slowly
            await self._executor.end_workers(job, uid)
        elif (cluster := self._seen(job, body)).is_own:
            await self._executor.delete_cluster(job, cluster)
        else:
            self._executor.end_hold(job, cluster)

    def _own_cluster_now(self) -> str:
        """The uid of a cluster of the job's own that was made since the last pass looked; empty: there is none."""
        body = self._clusters.find(self._identity.namespace, self._identity.name)
        metadata = body["metadata"] if body is not None else {}
        return str(metadata["uid"]) if metadata and _controller(metadata) == self._identity.owner_key else ""

    async def _leave_alone(self) -> float:
        """Tell that nothing is known of what has run: nothing is begun, and the status is not written over."""
        await self._context.events.record(
            self._identity,
            JobReason.STATUS_UNREADABLE,
            f"nothing is run, since {self._unreadable}: mend status, or upgrade the operator",
            series=self._copy.version,
            warning=True,
            now=self._context.clock(),
            regarding=(API_VERSION, JOB_KIND),
        )
        return RESYNC_SECONDS

    async def report_defect(self, error: Exception) -> None:
        """Write to the status that a pass failed by a defect. The log has its traceback."""
        text = f"the operator fails on this job ({type(error).__name__}): it tries again; see its log"
        try:
            await self._report(JobPhase(self._status.phase or JobPhase.PENDING), JobReason.OPERATOR_FAILED, text)
        except (ApiError, ClusterGoneError, ValueError) as failure:
            _LOG.warning("%s: its status was not written: %s", self._identity.name, failure)

    async def _report(self, phase: JobPhase, reason: JobReason, message: str) -> None:
        if self._status.has_ended or self._unreadable:
            return
        generation = self._copy.body["metadata"].get("generation", 0)
        update = {"observed_generation": generation, "phase": str(phase), "reason": str(reason)}
        status = self._status.model_copy(update=update | {"message": quote(message, 1024)})
        if status != self._status:
            await self._write(status, before=self._status, version=self._copy.version)

    async def _observe(self, job: Job) -> JobObservation:
        """Observe the job. Of a pod that an open attempt misses the API server is asked: the caches may be late."""
        if is_open(self._status):
            self._executor.note_attempt()
            await self._find(self._status.runner.pod, self._status.runner.uid)
        self._hashes = made_of = hashes(job, self._hashes)
        named = await self._cluster(job, job.name)
        used = named if job.cluster_name == job.name else await self._cluster(job, job.cluster_name)
        return JobObservation(
            job,
            self._status,
            tuple(sorted(self._runners.owned(job.owner_key), key=lambda pod: pod.name)),
            named,
            used,
            self._context.clock() + self._server_ahead,
            never_ran=frozenset(self._never_ran),
            wanted=made_of.cluster,
            wanted_runner=made_of.runner,
            problem=self._not_recorded() or self._beyond_limits(job) or self._executor.problem(job),
            gives_way_in=self._executor.gives_way_in(lacks_room=self._lacks_room(job, used)),
        )

    def _lacks_room(self, job: Job, used: SeenCluster | None) -> bool:
        """Whether a runner's pod waits at its gate while a quota refuses the scheduler of the job's own cluster."""
        if used is None or not used.is_own or used.deleting or not used.lacks_room:
            return False
        return any(pod.gated and not pod.deleting for pod in self._runners.owned(job.owner_key))

    def _not_recorded(self) -> Problem | None:
        """Of a cron job's: it runs once its cron job's status has its uid."""
        text = self._context.job_waits_for(self._copy.body["metadata"]) if self._status.attempts == 0 else ""
        return Problem(JobReason.NOT_RECORDED, text, wait_seconds=_LIMIT_SECONDS) if text else None

    def _beyond_limits(self, job: Job) -> Problem | None:
        template = Template(spec=job.spec.runner.template.spec)
        beyond = runner_violations(template, job.namespace, self._context.limits)
        return Problem(JobReason.LIMIT, "; ".join(beyond), wait_seconds=_LIMIT_SECONDS) if beyond else None

    async def _find(self, name: str, uid: str) -> None:
        namespace, context = self._identity.namespace, self._context
        if any(pod.uid == uid for pod in self._runners.owned(self._identity.owner_key)):
            return
        body = await found(partial(context.api.get_pod, namespace, name), context.recheck_seconds)
        if body is not None and body["metadata"]["uid"] == uid:
            self._never_ran.discard(uid)  # it only seemed to be gone, by the watch
            await self._executor.keep_runner(self._identity, body)

    async def _cluster(self, job: Job, name: str) -> SeenCluster | None:
        """The cluster of this name; the API server is asked where none is known, and the job waits for one, or has one.

        An operator that begins knows jobs and pods before clusters: what an attempt's cluster holds waits for no event.
        """
        body = self._clusters.find(job.namespace, name)
        has_one, awaits_one = is_open(self._status), awaits_cluster(self._status)
        if body is None and name == job.cluster_name and (has_one if job.has_own_cluster else awaits_one):
            try:
                body = await self._context.api.get_cluster(job.namespace, name)
            except ApiError as error:
                if not error.object_not_found:
                    raise
        return None if body is None else self._seen(job, body)

    def _seen(self, job: Job, body: Json) -> SeenCluster:
        metadata = body["metadata"]
        key = owner_key(metadata["namespace"], metadata["uid"])
        pods = self._context.pods.owned(key)
        scheduler = current_scheduler(pods)
        conditions = {item.type: item for item in parse_status(body).conditions}
        told = [conditions.get(kind) for kind in (ConditionType.ACCEPTED, ConditionType.SCHEDULER_READY)]
        wrong = [item for item in told if item is not None and item.status == "False"]
        return SeenCluster(
            metadata["name"],
            metadata["uid"],
            str(metadata.get("resourceVersion", "")),
            is_own=_controller(metadata) == job.owner_key,
            attempt=_attempt(_mapping(metadata, "labels").get(LABEL_ATTEMPT)),
            deleting="deletionTimestamp" in metadata or self._executor.has_deleted(metadata["uid"]),
            made_of=str(_mapping(metadata, "annotations").get(ANNOTATION_SPEC_HASH, "")),
            scheduler_ready=scheduler is not None and scheduler.ready and not scheduler.deleting,
            is_invalid=any(item.type == ConditionType.ACCEPTED for item in wrong),
            waits_for=quote(wrong[0].message) if wrong else "",
            lacks_room=scheduler is None and any(QUOTA_EXCEEDED in item.message for item in wrong),
            workers=sum(bool(pod.pool) and not pod.deleting and not pod.finished for pod in pods),
            is_empty=is_empty(body),
            is_of_earlier=is_of_earlier(metadata, job),
        )

    async def _execute(self, seen: JobObservation, planned: JobPlan, version: str) -> ApiError | None:
        """Execute the actions, each on its own; the first failure."""
        failure: ApiError | None = None
        for action in planned.actions:
            try:
                await self._do(seen, action, version)
            except ApiError as error:
                if error.ending:
                    raise
                failure = failure or error
        return failure

    async def _do(self, seen: JobObservation, action: Action, version: str) -> None:
        try:
            await self._executor.execute(seen, action, version)
        except ApiError as error:
            if not isinstance(action, DeleteJob) or not (error.conflict or error.not_found):
                raise
            await self._look_again(version, error)

    async def _with_log(self, planned: JobPlan, before: JobStatus) -> JobStatus:
        """The status to write, with the last lines of a runner that ended: those that can be read in time."""
        pod = planned.read_log_of
        if pod is None or not (pod.running or pod.exit_code is not None):
            return planned.status
        try:
            async with asyncio.timeout(_LOG_SECONDS):
                log = await self._read_log(pod)
        except (ApiError, TimeoutError) as error:
            _LOG.info("%s/%s: its last lines were not read: %s", pod.namespace, pod.name, error)
            return planned.status
        return with_last_lines(planned.status, log) if planned.status != before else planned.status

    async def _read_log(self, pod: RunnerPod) -> str:
        return await self._context.api.read_log(
            pod.namespace, pod.name, container=pod.container, lines=LAST_LINES, at_most=_LOG_BYTES, previous=False
        )

    async def _write(self, status: JobStatus, *, before: JobStatus, version: str) -> None:
        """Write the status to the version that it was made from; of a newer one another pass makes its own.

        What came meanwhile may be the last write of an operator that led before: of an attempt, which is not made anew.
        """
        of = self._identity
        body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        try:
            answer = await self._context.api.write_status(
                of.namespace, of.name, uid=of.uid, version=version, status=body, plural=JOB_PLURAL
            )
        except ApiError as error:
            if error.conflict or error.not_found or error.invalid:  # invalid: the test of the uid fails
                await self._look_again(version, error)
                return
            raise
        if self._copy.written(answer):
            self._read()
        self.measurements.wrote(before, status)
        self._wake()
        await self._tell(before, status)

    async def _tell(self, before: JobStatus, status: JobStatus) -> None:
        if status.phase not in _TOLD or (status.phase, status.attempts) == (before.phase, before.attempts):
            return
        await self._context.events.record(
            self._identity,
            status.reason,
            status.message,
            series=f"{status.attempts}",
            warning=status.phase in _WARNED,
            now=self._context.clock(),
            regarding=(API_VERSION, JOB_KIND),
        )

    async def _look_again(self, version: str, error: ApiError) -> None:
        """Get the job after a write to its `version` that got `error`; of what is new another pass makes its own.

        Raises:
            ClusterGoneError: as `_refresh`.
            ApiError: `error`, where it is as it was; or as `_refresh`.
        """
        await self._refresh()
        if version == self._copy.version:
            raise error
        self._wake()

    async def _refresh(self) -> None:
        """Get the job as it is now.

        Raises:
            ClusterGoneError: it was deleted, and no event came.
            ApiError: the API server refuses, or could not be reached.
        """
        of = self._identity
        await self._copy.refresh(partial(self._context.api.get_job, of.namespace, of.name))
        self._read()


def is_empty(body: Json) -> bool:
    """Whether the overrides of a cluster leave none of its pools a worker."""
    spec = _mapping(body, "spec")
    zero = {item.get("pool") for item in _objects(spec.get("overrides")) if item.get("replicas") == 0}
    return all(pool.get("name") in zero for pool in _objects(spec.get("pools")))


def _ends_hold(job: Job, cluster: SeenCluster, planned: JobPlan) -> bool:
    """Whether the cluster of the job's name need not be held: no job ends it or its workers, and it makes none, or may.

    It makes none where its spec says so, also if the answer to that edit was lost. It may where the job goes on, or
    left it behind.
    """
    if not cluster.is_own:
        return not cluster.is_of_earlier
    if any(isinstance(action, DeleteCluster | EmptyCluster) for action in planned.actions):
        return False
    return cluster.is_empty or not (job.deleting or planned.status.has_ended)


def _controller(metadata: Json) -> str:
    """The `owner_key` of the job that controls an object, empty where none does, or it cannot be read."""
    try:
        return job_key(metadata)
    except fields.UnreadableError:
        return ""


def _attempt(text: Any) -> int:
    return (
        int(text)
        if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= _ATTEMPT_DIGITS
        else 0
    )


def _mapping(body: Json, name: str) -> Json:
    value = body.get(name)
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
