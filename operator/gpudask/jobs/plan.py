"""The plan of a job: one step after another, each on what the one before has left in the status.

An attempt is open from when the status has the uid of its pod until the status has its end. Its number is never used
again. A pod is made at a gate, and may be scheduled once the status has its uid: so

    a pod that runs            => the status has its uid (or somebody else lifted its gate, and it is taken on)
    the status has another uid => a pod at the gate is deleted, and never ran
    attempt n is open          => no pod n + 1 is made before the status has the end of n

and nothing runs twice, whichever answer is lost and whoever is killed between two of these. Every end of an attempt
releases the job's own cluster; the next attempt gets a new one, which is told from the old one by its attempt.

The pod is made before a cluster of the job's own, and waits at its gate for the scheduler: where a ResourceQuota has
room for one of the two, workers that nobody uses would hold GPUs for ever. Where the pods of several jobs fill the
quota none of their schedulers finds room: so a pod at the gate gives way after a while, each job's at another time.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudask.api.job import JobConditionType, JobPhase, JobReason, JobStatus
from gpudask.api.status import epoch, iso
from gpudask.desired.names import runner_pod
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
    JobPlan,
    LiftGate,
)
from gpudask.jobs.observation import JobObservation
from gpudask.jobs.runner_pods import RunnerPod
from gpudask.jobs.status import closed, ended, opened, started, waiting

LONGEST_BACKOFF_SECONDS = 300.0
# A pod that never got to run is replaced: after some time, whatever `backoff` says, and so often in a row.
FIRST_REFUSAL_SECONDS = 1.0
MAX_REFUSALS = 10
_Step = tuple[tuple[Action, ...], JobReason, str]  # what to do, what the job waits for, and the same for people
# After these the runner has no room, or gave it up: a cluster of the job's own may not take it.
_ROOM = (JobReason.RUNNER_REFUSED, JobReason.LIMIT, JobReason.GAVE_WAY)
_EARLIER = "the cluster of an earlier attempt, or of an older spec, is deleted"


def plan(seen: JobObservation) -> JobPlan:
    """The next step."""
    if seen.job.deleting:  # what it owns goes with it
        return JobPlan((), seen.status)
    if seen.status.has_ended:
        return _after_the_end(seen)
    if is_open(seen.status):
        return _attempt(seen)
    return _between(seen)


def is_open(status: JobStatus) -> bool:
    """Whether an attempt is under way, by the status."""
    return bool(status.runner.uid) and not status.runner.ended_at


def awaits_cluster(status: JobStatus) -> bool:
    """Whether the next step depends on the cluster's pods."""
    return not status.has_ended and not is_open(status)


def backoff_seconds(first: float, attempts: int) -> float:
    """How long the job waits after so many attempts: `first`, twice that, four times ..., up to five minutes."""
    doubled = first * 2.0 ** min(max(0, attempts - 1), 60)
    return min(doubled, max(first, LONGEST_BACKOFF_SECONDS))


# An attempt is open.


def _attempt(seen: JobObservation) -> JobPlan:
    status, pod = seen.status, seen.pod(seen.status.runner.uid)
    if pod is None:
        return _closed(seen, None, refused=_never_ran(seen, None))
    if pod.ended:
        return _closed(seen, pod, refused=_never_ran(seen, pod))
    strays = tuple(_strays(seen, keep=pod.uid))
    # Where the job ends what runs, the status says so before anything is ended: what the program makes of that is no
    # failure of its own.
    if seen.job.spec.suspend:
        text = f"spec.suspend ended {pod.name}"
        done = closed(seen, None, reason=JobReason.SUSPENDED)
        return JobPlan(strays, waiting(done, seen, JobPhase.SUSPENDED, JobReason.SUSPENDED, text), read_log_of=pod)
    left = _deadline_left(seen)
    if left is not None and left <= 0:
        return JobPlan(strays, _past_deadline(seen), read_log_of=pod)
    if pod.running:
        status = started(status, seen)
    else:
        why = pod.waits_for or ("it is being deleted" if pod.deleting else "it starts")
        status = waiting(status, seen, _pending(status), JobReason.RUNNER_PENDING, f"{pod.name}: {why}")
    gate = (LiftGate(pod),) if pod.gated and not pod.deleting else ()
    return JobPlan((*strays, *gate), status, left)


def _never_ran(seen: JobObservation, pod: RunnerPod | None) -> bool:
    """Whether the open attempt ended, and its program certainly did not begin.

    A kubelet that was restarted may refuse what it ran before.
    """
    runner = seen.status.runner
    return not runner.started_at and (runner.uid in seen.never_ran if pod is None else pod.never_ran)


def _closed(seen: JobObservation, pod: RunnerPod | None, *, refused: bool) -> JobPlan:
    """The attempt has ended by itself: so has the job, or another attempt follows."""
    status, wait = _status_closed(seen, pod, refused=refused)
    # What holds GPUs first: a request for another pod may hang.
    return JobPlan((*_release(seen, status), *_strays(seen, keep="")), status, wait, read_log_of=pod)


def _status_closed(seen: JobObservation, pod: RunnerPod | None, *, refused: bool) -> tuple[JobStatus, float | None]:
    """The status once the attempt has ended, and in how many seconds the next one follows, where one does."""
    if pod is not None and pod.exit_code == 0:
        done = closed(seen, pod, reason=pod.reason or "Completed")
        text = f"{pod.name} exited with code 0"
        return ended(done, seen, JobConditionType.COMPLETE, JobReason.COMPLETED, text), None
    spec, text = seen.job.spec, _failure_text(seen, pod)
    reason = (pod.reason or "Error") if pod is not None else str(JobReason.RUNNER_LOST)
    done = closed(seen, pod, reason=reason, counts=not refused, refused=refused)
    if done.refusals >= MAX_REFUSALS:
        text = f"{text}; {done.refusals} pods in a row never got to run"
        return ended(done, seen, JobConditionType.FAILED, JobReason.NODES_REFUSED, text), None
    if pod is not None and pod.exit_code in spec.fail_exit_codes:
        text = f"{text}, which spec.failExitCodes has"
        return ended(done, seen, JobConditionType.FAILED, JobReason.FAIL_EXIT_CODE, text), None
    if done.failures > spec.retries:
        text += f", attempt {done.attempts}, and spec.retries is {spec.retries}" if spec.retries else ""
        return ended(done, seen, JobConditionType.FAILED, JobReason.RETRIES_SPENT, text), None
    wait = _retry_wait(done, seen)
    text = f"{text}: attempt {done.attempts + 1} follows {wait:.0f} s after its end"
    return waiting(done, seen, JobPhase.RETRYING, JobReason.BACKING_OFF, text), wait


def _failure_text(seen: JobObservation, pod: RunnerPod | None) -> str:
    if pod is None:
        return f"{seen.status.runner.pod} is gone: its node was lost, or somebody deleted it"
    if pod.exit_code is None:
        return f"{pod.name} ended without an exit code: {pod.reason or 'unknown'}"
    return f"{pod.name} exited with code {pod.exit_code}" + (f" ({pod.reason})" if pod.reason else "")


def _past_deadline(seen: JobObservation) -> JobStatus:
    status = closed(seen, None, reason=JobReason.DEADLINE, counts=True) if is_open(seen.status) else seen.status
    text = f"spec.activeDeadline, {seen.job.spec.active_deadline}, is over since status.startTime"
    return ended(status, seen, JobConditionType.FAILED, JobReason.DEADLINE, text)


def _deadline_left(seen: JobObservation) -> float | None:
    """Seconds until the deadline; None: there is none, or the job has not started yet."""
    limit, since = seen.job.spec.deadline_seconds, epoch(seen.status.start_time)
    return None if limit is None or since is None else since + limit - seen.now


# No attempt is open, and the job has not ended.


def _between(seen: JobObservation) -> JobPlan:
    status, spec = seen.status, seen.job.spec
    if spec.suspend:
        text = status.message if status.phase == JobPhase.SUSPENDED else "spec.suspend is true: nothing runs"
        status = waiting(status, seen, JobPhase.SUSPENDED, JobReason.SUSPENDED, text)
        return JobPlan((*_strays(seen, keep=""), *_release(seen, status)), status)
    left = _deadline_left(seen)
    if left is not None and left <= 0:
        return JobPlan((), _past_deadline(seen))
    problem = seen.problem
    if problem is not None and problem.is_final:
        return JobPlan((), ended(status, seen, JobConditionType.FAILED, problem.reason, problem.message))
    attempt = status.attempts + 1
    name = runner_pod(seen.job.name, attempt, is_stock=bool(seen.job.stock_uid))
    pod = next((pod for pod in seen.pods if pod.name == name), None)
    strays = tuple(_strays(seen, keep=pod.uid if pod is not None else ""))
    is_stale = pod is not None and pod.made_of != seen.wanted_runner  # it waits for long where its cluster does
    if pod is not None and (not pod.gated or (_can_begin(seen, attempt) and not pod.deleting and not is_stale)):
        return JobPlan(strays, opened(status, seen, pod, attempt))
    if pod is not None and is_stale and not pod.deleting:
        strays = (*strays, DeleteRunner(pod))
    stale = _stale_cluster(seen, attempt) or _in_the_way(seen, pod)
    wait = _retry_wait(status, seen)
    if wait > 0:
        status = waiting(status, seen, JobPhase.RETRYING, JobReason.BACKING_OFF, status.message)
        return JobPlan((*strays, *stale), status, _soonest(wait, left))
    actions, reason, text = (stale, JobReason.CLUSTER_ENDING, _EARLIER) if stale else _next(seen, attempt, pod)
    # What was refused is told until it is made, or until the next step is another one by now.
    is_tried = any(isinstance(action, CreateRunner | CreateCluster) for action in actions)
    if problem is not None and not stale and (is_tried or problem.wait_seconds > 0):
        reason, text = problem.reason, problem.message
        if problem.wait_seconds > 0:
            actions, left = (), _soonest(problem.wait_seconds, left)
    left = _soonest(left, seen.gives_way_in)
    return JobPlan((*strays, *actions), waiting(status, seen, _pending(status), reason, text), left)


def _can_begin(seen: JobObservation, attempt: int) -> bool:
    """Whether a program of this attempt can connect to the cluster that it is meant to."""
    used = seen.used
    if used is None or _is_foreign(seen) or _stale_cluster(seen, attempt):
        return False
    return used.scheduler_ready and not used.deleting


def _next(seen: JobObservation, attempt: int, pod: RunnerPod | None) -> _Step:
    """What the next attempt needs first, and what the job waits for. `pod`: has its name."""
    if pod is not None and pod.deleting:
        return (), JobReason.RUNNER_PENDING, f"{pod.name} is being deleted"
    if pod is not None and pod.gated and seen.gives_way_in is not None:
        return _without_room(seen, pod, seen.gives_way_in)
    if pod is None and seen.job.has_own_cluster and not _is_foreign(seen):
        return (CreateRunner(attempt),), JobReason.RUNNER_PENDING, "the runner's pod is made, then its cluster"
    if seen.used is None or not seen.used.scheduler_ready or seen.used.deleting or _is_foreign(seen):
        return _next_of_cluster(seen, attempt)
    if pod is None:
        return (CreateRunner(attempt),), JobReason.RUNNER_PENDING, "the runner's pod is made"
    return (), JobReason.RUNNER_PENDING, f"{pod.name} is made anew: the spec was edited"


def _without_room(seen: JobObservation, pod: RunnerPod, seconds: float) -> _Step:
    """The same, where `pod` waits at its gate and a quota refuses the scheduler: in so many seconds it makes room."""
    why = seen.used.waits_for if seen.used is not None else ""
    if seconds <= 0:
        return (GiveWay(pod),), JobReason.GAVE_WAY, f"{pod.name} makes room for others: {why}"
    at = iso(seen.now + seconds, to="seconds")
    text = f"{pod.name}, which waits for that, takes room, too, and makes it for others at {at}"
    return (), JobReason.NO_ROOM, f"the cluster {seen.job.cluster_name}: {why}; {text}"


def _is_foreign(seen: JobObservation) -> bool:
    """Whether somebody else's cluster has the name of the job's own."""
    return seen.job.has_own_cluster and seen.used is not None and not seen.used.is_own


def _next_of_cluster(seen: JobObservation, attempt: int) -> _Step:
    """The same, where the cluster is not ready."""
    job, used = seen.job, seen.used
    if used is None:
        if job.has_own_cluster:
            return (CreateCluster(attempt),), JobReason.CLUSTER_PENDING, f"the cluster {job.name} is made"
        text = f"there is no GpuDaskCluster {job.cluster_name} in this namespace: apply it"
        return (), JobReason.CLUSTER_MISSING, text
    if _is_foreign(seen) and (used.deleting or used.is_of_earlier):
        return (), JobReason.CLUSTER_ENDING, f"the cluster {used.name} of an earlier job of this name is being deleted"
    if _is_foreign(seen):
        text = f"a GpuDaskCluster {job.name} is there that is not this job's: delete it, or give the job another name"
        return (), JobReason.CLUSTER_NAME_IN_USE, text
    if used.deleting:
        return (), JobReason.CLUSTER_ENDING, f"the cluster {used.name} is being deleted"
    reason = JobReason.CLUSTER_INVALID if used.is_invalid else JobReason.CLUSTER_PENDING
    return (), reason, f"the cluster {used.name}: {used.waits_for or 'its scheduler starts'}"


def _stale_cluster(seen: JobObservation, attempt: int) -> tuple[Action, ...]:
    """The deletion of a cluster of the job's own that the next attempt cannot use."""
    own = seen.own
    if own is None or own.deleting:
        return ()
    return () if seen.own_fits(attempt) else (DeleteCluster(own),)


def _in_the_way(seen: JobObservation, pod: RunnerPod | None) -> tuple[Action, ...]:
    """The deletion of a cluster of the job's own that may have taken the room of its runner."""
    own, problem = seen.own, seen.problem
    if pod is not None or own is None or own.deleting or problem is None:
        return ()
    return (DeleteCluster(own),) if problem.reason in _ROOM else ()


def _retry_wait(status: JobStatus, seen: JobObservation) -> float:
    """Seconds until the next attempt may begin; 0.0 where the last one did not fail."""
    since = epoch(status.runner.ended_at)
    if since is None or status.runner.reason == JobReason.SUSPENDED:
        return 0.0
    seconds = backoff_seconds(seen.job.spec.backoff_seconds, status.attempts)
    if status.refusals:
        seconds = max(seconds, backoff_seconds(FIRST_REFUSAL_SECONDS, status.refusals))
    return min(seconds, max(0.0, since + seconds - seen.now))


def _pending(status: JobStatus) -> JobPhase:
    return JobPhase.RETRYING if status.failures else JobPhase.PENDING


# The job has ended.


def _after_the_end(seen: JobObservation) -> JobPlan:
    status, spec = seen.status, seen.job.spec
    at = epoch(status.completion_time)
    since = seen.now if at is None else min(at, seen.now)
    actions: list[Action] = [*_strays(seen, keep="")]
    times: list[float | None] = []
    own = seen.own
    if own is not None and not own.deleting:
        left = since + _keep_seconds(seen, status) - seen.now
        if left <= 0:
            actions.append(DeleteCluster(own))
        else:
            times.append(left)
            actions += [] if own.is_empty and not own.workers else [EmptyCluster(own)]
    if spec.ttl_seconds is not None:
        left = since + spec.ttl_seconds - seen.now
        actions += [DeleteJob()] if left <= 0 else []
        times.append(left if left > 0 else None)
    # Of the spec as it is now: nothing else of it changes any more.
    status = status.model_copy(update={"observed_generation": seen.job.generation})
    return JobPlan(tuple(actions), status, _soonest(*times))


# What several of these do.


def _release(seen: JobObservation, status: JobStatus) -> Iterator[Action]:
    """Give back at once what the job's own cluster holds; where its end keeps it, all but the scheduler."""
    own = seen.own
    if own is not None and not own.deleting:
        yield EmptyCluster(own) if status.has_ended and _keep_seconds(seen, status) > 0 else DeleteCluster(own)


def _keep_seconds(seen: JobObservation, status: JobStatus) -> float:
    """For how long the job's own cluster stays after the end that `status` has."""
    return seen.job.spec.keep_seconds(succeeded=status.holds(JobConditionType.COMPLETE))


def _strays(seen: JobObservation, *, keep: str) -> Iterator[Action]:
    """The end of pods that run, or might, and are of no use; of what goes on in a pod beside a program that ended."""
    for pod in seen.pods:
        if pod.uid == keep or pod.finished or pod.deleting:
            continue
        if not pod.ended:
            yield DeleteRunner(pod)
        elif not pod.stopping:
            yield EndContainers(pod)


def _soonest(*seconds: float | None) -> float | None:
    return min((each for each in seconds if each is not None), default=None)
