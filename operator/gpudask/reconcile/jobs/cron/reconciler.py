"""One pass over a cron job: observe, plan, execute, write the status. Run twice, a pass changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from gpudask.api import Json
from gpudask.api.cron_job import (
    CronJob,
    CronJobConditionType,
    CronJobReason,
    CronJobStatus,
    bounded_cron_job,
    parse_cron_job,
    parse_cron_job_again,
    parse_cron_job_status,
)
from gpudask.api.job import JobReason, UnreadableStatusError
from gpudask.api.limits import runner_violations
from gpudask.api.pod_template import Template
from gpudask.api.resource import API_VERSION, CRON_JOB_KIND, CRON_JOB_PLURAL, Identity, InvalidSpecError
from gpudask.api.status import iso
from gpudask.clients.errors import ApiError, ClusterGoneError
from gpudask.clients.flow_control import Backoff
from gpudask.clients.recheck import confirmed, look_again
from gpudask.clients.reflector import Caches
from gpudask.jobs.cron.observation import (
    Action,
    CreateJob,
    CronJobObservation,
    DeleteJob,
    JobReader,
    Problem,
    SeenJob,
    controller_key,
    job_name,
)
from gpudask.jobs.cron.plan import plan, with_condition
from gpudask.reconcile.context import Context
from gpudask.reconcile.pass_loop import RESYNC_SECONDS
from gpudask.reconcile.resource_copy import LatestCopy, ParsedOnce

_LOG = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 1.0, 60.0
_LIMIT_SECONDS = 60.0  # how soon a cron job beyond the limits is looked at again
_WARNED = (CronJobReason.MISSED, CronJobReason.TOO_MANY_MISSED)


class CronJobReconciler:
    """Makes the passes of one cron job. `jobs_of`: the jobs that it controls. `wake` has another pass made."""

    def __init__(
        self,
        context: Context,
        jobs: Caches,
        cron_jobs: Caches,
        body: Json,
        *,
        jobs_of: Callable[[], list[Json]],
        wake: Callable[[], None],
    ) -> None:
        self._context = context
        self._jobs = jobs
        self._cron_jobs = cron_jobs
        self._jobs_of = jobs_of
        self._reader = JobReader()
        self._wake = wake
        metadata = body["metadata"]
        self._identity = Identity(metadata["name"], metadata["namespace"], metadata["uid"])
        self._backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS, context.random)
        self._problem: Problem | None = None
        self._problem_of = 0  # the generation of the spec for which a job was refused
        self._refusals, self._next_try = 0, 0.0  # in a row; on the operator's clock
        self._status = CronJobStatus.model_validate({})
        self._copy = LatestCopy(context, body, bounded_cron_job)
        self._parsed: ParsedOnce[CronJob] = ParsedOnce(parse_cron_job, parse_cron_job_again)
        self._generation: int | None = None
        self._read()

    def changed(self, body: Json) -> bool:
        """Keep a newer copy; whether it was edited. Our own status writes come back here, too."""
        return self._copy.update(body) and self._read()

    def _read(self) -> bool:
        """Read a newer copy; whether it was edited, which may be the cure of what was refused."""
        before, self._generation = self._generation, self._copy.body["metadata"].get("generation")
        if is_edited := before != self._generation:
            self._forget_problem()
        self._unreadable = ""
        try:
            self._status = parse_cron_job_status(self._copy.body)
        except UnreadableStatusError as error:
            self._unreadable = str(error)
        spec = self._copy.body.get("spec")
        is_suspended = isinstance(spec, dict) and spec.get("suspend") is True
        of, jobs = self._identity, self._context.metrics.jobs
        jobs.set_cron_job(of.owner_key, of.name, self._status, suspended=is_suspended)
        return bool(is_edited)

    def stop(self) -> None:
        """Export the cron job no more."""
        self._context.metrics.jobs.forget_cron_job(self._identity.owner_key)

    async def reconcile(self) -> float:
        """Make a pass; its requeue_after, in seconds.

        Raises:
            ApiError: a request failed; what did not depend on it was done.
            ClusterGoneError: the cron job does not exist any more.
        """
        if self._unreadable:
            return await self._leave_alone()
        try:
            cron_job = self._parsed.get(self._copy.body)
        except InvalidSpecError as error:
            await self._report(CronJobReason.INVALID, str(error))
            return RESYNC_SECONDS
        version = self._copy.version  # what comes from here on is for another pass
        seen = await self._observe(cron_job)
        planned = plan(seen)
        makes = [isinstance(action, CreateJob) for action in planned.actions]
        is_refreshed = self._copy.is_too_old(makes=any(makes), ends=not all(makes))
        if is_refreshed:
            await self._refresh()
        if (any(makes) or is_refreshed) and version != self._copy.version:
            self._wake()
            return RESYNC_SECONDS
        failure = await self._execute(seen, planned.actions)
        if planned.status != seen.status:
            await self._write(planned.status, before=seen.status, version=version)
        if failure is not None:
            raise failure
        waits = [planned.requeue_after, self._retry_in()]
        return max(0.01, min([RESYNC_SECONDS, *(each for each in waits if each)]))

    async def _leave_alone(self) -> float:
        """Tell that nothing is known of what was begun: nothing is, and the status is not written over."""
        await self._context.events.record(
            self._identity,
            JobReason.STATUS_UNREADABLE,
            f"no jobs are made, since {self._unreadable}: mend status, or upgrade the operator",
            series=self._copy.version,
            warning=True,
            now=self._context.clock(),
            regarding=(API_VERSION, CRON_JOB_KIND),
        )
        return RESYNC_SECONDS

    async def report_defect(self, error: Exception) -> None:
        """Write to the status that a pass failed by a defect. The log has its traceback."""
        text = f"the operator fails on this cron job ({type(error).__name__}): it tries again; see its log"
        try:
            await self._report(CronJobReason.OPERATOR_FAILED, text)
        except (ApiError, ClusterGoneError, ValueError) as failure:
            _LOG.warning("%s: its status was not written: %s", self._identity.name, failure)

    async def _report(self, reason: CronJobReason, message: str) -> None:
        if self._unreadable:
            return
        told = (False, reason, message)
        status = with_condition(self._status, self._now(), CronJobConditionType.ACCEPTED, told)
        generation = self._copy.body["metadata"].get("generation", 0)
        status = status.model_copy(update={"observed_generation": generation})
        if status != self._status:
            await self._write(status, before=self._status, version=self._copy.version)

    def _now(self) -> float:
        return self._context.clock() + self._context.server_ahead()

    async def _observe(self, cron_job: CronJob) -> CronJobObservation:
        """Observe it. Of a job that its status has, and the caches have not, the API server is asked."""
        known = {body["metadata"]["uid"] for body in self._jobs_of()}
        for item in self._status.active:
            if item.uid not in known:
                await self._find(item.name, item.uid)
        jobs = self._reader.read(self._jobs_of(), cron_job.name)
        return CronJobObservation(cron_job, self._status, jobs, self._now(), self._trouble(cron_job))

    def _trouble(self, cron_job: CronJob) -> Problem | None:
        template = Template(spec=cron_job.spec.job_template.spec.runner.template.spec)
        if beyond := runner_violations(template, cron_job.namespace, self._context.limits):
            return Problem(CronJobReason.LIMIT, "; ".join(beyond), _LIMIT_SECONDS)
        if self._problem_of != cron_job.generation:  # the answer came after the edit that may be the cure
            self._forget_problem()
        if self._problem is None:
            return None
        return Problem(self._problem.reason, self._problem.message, self._retry_in() or 0.0)

    def _retry_in(self) -> float | None:
        return None if self._problem is None else max(0.0, self._next_try - self._context.clock())

    async def _find(self, name: str, uid: str) -> None:
        """Have the API server's copy of a job, where it is there."""
        namespace, api = self._identity.namespace, self._context.api
        try:
            body = await confirmed(lambda: api.get_job(namespace, name), uid, self._context.recheck_seconds)
        except ClusterGoneError:
            return
        self._jobs.upsert(self._identity.namespace, body)

    async def _execute(self, seen: CronJobObservation, actions: tuple[Action, ...]) -> ApiError | None:
        """Execute the actions, each on its own; the first failure."""
        failure: ApiError | None = None
        for action in actions:
            try:
                match action:
                    case CreateJob(time):
                        await self._create(seen.cron_job, time)
                    case DeleteJob(job):
                        await self._delete(job)
            except ApiError as error:
                if error.ending:
                    raise
                failure = failure or error
        return failure

    async def _create(self, cron_job: CronJob, time: float) -> None:
        name = job_name(cron_job.name, time)
        try:
            body = await self._context.api.create(cron_job.job_at(iso(time, to="seconds"), name))
        except ApiError as error:
            if not error.conflict:
                self._refused(cron_job, error)
                return
            body = await self._context.api.get_job(cron_job.namespace, name)
            if controller_key(body["metadata"]) != cron_job.owner_key:
                text = f"a GpuDaskJob {name} is there that is not this cron job's: delete it"
                self._remember(cron_job, CronJobReason.NAME_IN_USE, text)
                return
        self._forget_problem()
        self._jobs.upsert(cron_job.namespace, body)
        self._wake()

    def _forget_problem(self) -> None:
        self._problem, self._refusals = None, 0

    def _refused(self, cron_job: CronJob, error: ApiError) -> None:
        """Remember a refusal.

        Raises:
            ApiError: `error`, where it is no refusal.
        """
        if error.ending or not error.refused:
            raise error
        _LOG.warning("%s/%s: %s", self._identity.namespace, self._identity.name, error)
        reason = CronJobReason.TEMPLATE_REFUSED if error.invalid else CronJobReason.REFUSED
        self._remember(cron_job, reason, f"no job can be made: {error.message}")

    def _remember(self, cron_job: CronJob, reason: CronJobReason, message: str) -> None:
        self._refusals += 1
        self._problem_of = cron_job.generation
        self._next_try = self._context.clock() + self._backoff.delay(self._refusals)
        self._problem = Problem(reason, message)
        self._wake()

    async def _delete(self, job: SeenJob) -> None:
        namespace = self._identity.namespace
        try:
            await self._context.api.delete_job(namespace, job.name, uid=job.uid, version=job.version)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
            # One that is there is kept: what is forgotten does not come back in the version that is known already.
            get = partial(self._context.api.get_job, namespace, job.name)
            await look_again(
                get,
                self._jobs,
                namespace,
                uid=job.uid,
                version=job.version,
                error=error,
                after_seconds=self._context.recheck_seconds,
            )
        else:
            _LOG.info("%s/%s: deleted job %s", namespace, self._identity.name, job.name)
            self._jobs.forget(namespace, job.uid)
        self._wake()

    async def _write(self, status: CronJobStatus, *, before: CronJobStatus, version: str) -> None:
        """Write the status to the version that it was made from; of a newer one another pass makes its own."""
        of = self._identity
        body = {
            key: value
            for key, value in status.model_dump(mode="json", by_alias=True, exclude_none=True).items()
            if value != ""
        }
        try:
            answer = await self._context.api.write_status(
                of.namespace, of.name, uid=of.uid, version=version, status=body, plural=CRON_JOB_PLURAL
            )
        except ApiError as error:
            if error.conflict or error.not_found or error.invalid:  # invalid: the test of the uid fails
                await self._refresh()
                if version == self._copy.version:
                    raise
                self._wake()
                return
            raise
        if self._copy.written(answer):
            self._read()
        self._cron_jobs.upsert(of.namespace, answer)  # the jobs that wait for it look there
        self._wake()
        await self._tell(before, status)

    async def _tell(self, before: CronJobStatus, status: CronJobStatus) -> None:
        starting = status.condition(CronJobConditionType.STARTING)
        told: list[tuple[str, str, bool]] = []
        if status.last_schedule_time != before.last_schedule_time and status.active:
            job = status.active[-1]
            told.append((CronJobReason.BEGUN, f"began {job.name}, of {job.scheduled_time}", False))
        if status.missed != before.missed and starting is not None and starting.reason in _WARNED:
            told.append((starting.reason, starting.message, True))
        for reason, message, is_warning in told:
            await self._context.events.record(
                self._identity,
                reason,
                message,
                series=status.decided_time,
                warning=is_warning,
                now=self._context.clock(),
                regarding=(API_VERSION, CRON_JOB_KIND),
            )

    async def _refresh(self) -> None:
        """Get the cron job as it is now.

        Raises:
            ClusterGoneError: it was deleted, and no event came.
            ApiError: the API server refuses, or could not be reached.
        """
        of = self._identity
        await self._copy.refresh(partial(self._context.api.get_cron_job, of.namespace, of.name))
        self._read()
