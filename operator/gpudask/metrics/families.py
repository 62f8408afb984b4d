"""The metrics: name, type, labels and meaning of each family, in the order in which they are exported.

The names follow https://prometheus.io/docs/practices/naming: base units, and `_total` for what only grows. Published
names, labels and meanings stay: people's alerts stand on them. docs/metrics.md is made from this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpudask.api.job import JobPhase, JobReason
from gpudask.api.reasons import Cause, Reason


class Kind(StrEnum):
    """The types of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A family of series. `buckets`: a histogram's upper bounds, in the unit with which the name ends.

    `states`: the values of the last label that are always exported, so that what counts begins at zero.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    states: tuple[str, ...] = ()


_CLUSTER = ("namespace", "cluster")
_POOL = (*_CLUSTER, "pool")

CAUSES = tuple(cause.value for cause in Cause)
TERMINATIONS = ("Completed", "Error", "OOMKilled", "Evicted", "Other")
POOL_KINDS = ("cpu", "gpu")
PASS_ERRORS = tuple(
    reason.value
    for reason in (
        Reason.API_FAILED,
        Reason.FORBIDDEN,
        Reason.NAME_CONFLICT,
        Reason.OPERATOR_FAILED,
        Reason.QUOTA,
        Reason.TEMPLATE_REFUSED,
    )
)
JOB_PHASES = tuple(phase.value for phase in JobPhase)
JOB_REASONS = tuple(reason.value for reason in JobReason)
JOB_STARTS = ("first", "retry", "resumed")
JOB_OUTCOMES = ("succeeded", "failed", "refused", "lost", "deadline", "suspended")
JOB_ENDS = tuple(
    reason.value
    for reason in (
        JobReason.COMPLETED,
        JobReason.RETRIES_SPENT,
        JobReason.FAIL_EXIT_CODE,
        JobReason.DEADLINE,
        JobReason.NODES_REFUSED,
        JobReason.TEMPLATE_REFUSED,
    )
)

CLUSTER_INFO = Family(
    "gpudask_cluster_info",
    Kind.GAUGE,
    "1 for each cluster, with a label for each name in the chart's attribution.",
    _CLUSTER,
)
CLUSTER_CONDITION = Family(
    "gpudask_cluster_condition",
    Kind.GAUGE,
    "A condition of the cluster's status and its reason: 1 if it is True, 0 if False, -1 if Unknown.",
    (*_CLUSTER, "condition", "reason"),
)
UNSERVABLE_TASKS = Family(
    "gpudask_cluster_unservable_tasks",
    Kind.GAUGE,
    "Tasks that no pool of the cluster can serve.",
    _CLUSTER,
)
FEED_UP = Family(
    "gpudask_feed_up",
    Kind.GAUGE,
    "Whether the cluster's scheduler answers with its demand: 1 or 0. Of clusters whose scheduler runs.",
    _CLUSTER,
)
FEED_AGE = Family(
    "gpudask_feed_age_seconds",
    Kind.GAUGE,
    "Time since the scheduler's last answer, or since it was to give its first one.",
    _CLUSTER,
)
PODS = Family(
    "gpudask_pool_pods",
    Kind.GAUGE,
    "Pods of the pool by state. They overlap: unschedulable ones are pending, too, and retiring ones may be ready.",
    (*_POOL, "state"),
    states=("ready", "pending", "unschedulable", "retiring"),
)
DESIRED_PODS = Family("gpudask_pool_desired_pods", Kind.GAUGE, "Pods that the pool should have.", _POOL)
MIN_PODS = Family(
    "gpudask_pool_min_pods", Kind.GAUGE, "Pods that the pool has at least, by its spec and overrides.", _POOL
)
MAX_PODS = Family(
    "gpudask_pool_max_pods", Kind.GAUGE, "Pods that the pool has at most, by its spec and overrides.", _POOL
)
DEMAND_TASKS = Family(
    "gpudask_pool_demand_tasks",
    Kind.GAUGE,
    "Tasks by which the pool is sized: those that wait for a worker, and those on its workers.",
    (*_POOL, "state"),
    states=("waiting", "running"),
)
GPUS_HELD = Family("gpudask_pool_gpus_held", Kind.GAUGE, "GPUs of the pool's pods that have a node.", _POOL)
GPUS_BUSY = Family(
    "gpudask_pool_gpus_busy", Kind.GAUGE, "GPUs on which a task of the pool's own runs, or waits for its turn.", _POOL
)
GPU_SECONDS = Family(
    "gpudask_pool_gpu_seconds_total",
    Kind.COUNTER,
    "GPU-seconds that the pool's pods held, each by one cause. It survives the operator's restarts.",
    (*_POOL, "cause"),
    states=CAUSES,
)
OWNER_GPU_SECONDS = Family(
    "gpudask_pool_owner_gpu_seconds_total",
    Kind.COUNTER,
    "Of the GPU-seconds of cause working, those of each owner by the tasks' Dask annotation; empty: of all others.",
    (*_POOL, "owner"),
)
UNSCHEDULABLE_SECONDS = Family(
    "gpudask_pool_unschedulable_seconds_total",
    Kind.COUNTER,
    "Time for which pods of the pool found no node, summed over its pods.",
    _POOL,
)
DRAINS = Family("gpudask_pool_drains_total", Kind.COUNTER, "Drains that ended with the deletion of their pod.", _POOL)
OLDEST_DRAIN = Family(
    "gpudask_pool_oldest_drain_seconds",
    Kind.GAUGE,
    "How long the longest drain of now has lasted; 0 without one.",
    _POOL,
)
FORCED_DELETIONS = Family(
    "gpudask_pool_forced_deletions_total",
    Kind.COUNTER,
    "Pods that were deleted by the operator though they may have held work or results.",
    _POOL,
)
FALLBACK_ACTIVE = Family(
    "gpudask_pool_fallback_active",
    Kind.GAUGE,
    "Whether tasks of the pool run on its fallback pools: 1 or 0. Of pools that have some.",
    _POOL,
)
FALLBACKS = Family(
    "gpudask_pool_fallbacks_total", Kind.COUNTER, "How often tasks of the pool began to fall back on others.", _POOL
)
TERMINATIONS_TOTAL = Family(
    "gpudask_pool_terminations_total",
    Kind.COUNTER,
    "Terminations of the pool's containers and pods that nobody asked for, by the kubelet's reason.",
    (*_POOL, "reason"),
    states=TERMINATIONS,
)
CLUSTER_FAMILIES = (
    CLUSTER_INFO,
    CLUSTER_CONDITION,
    UNSERVABLE_TASKS,
    FEED_UP,
    FEED_AGE,
    PODS,
    DESIRED_PODS,
    MIN_PODS,
    MAX_PODS,
    DEMAND_TASKS,
    GPUS_HELD,
    GPUS_BUSY,
    GPU_SECONDS,
    OWNER_GPU_SECONDS,
    UNSCHEDULABLE_SECONDS,
    DRAINS,
    OLDEST_DRAIN,
    FORCED_DELETIONS,
    FALLBACK_ACTIVE,
    FALLBACKS,
    TERMINATIONS_TOTAL,
)
"""Those of clusters and their pools, by the leader alone: a new leader's counters begin anew, but for GPU-seconds."""

_STARTS_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0)
DEMAND_TO_POD = Family(
    "gpudask_demand_to_pod_seconds",
    Kind.HISTOGRAM,
    "From the first demand of a pool without pods until its first pod was created.",
    ("kind",),
    (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
    POOL_KINDS,
)
DEMAND_TO_WORKER = Family(
    "gpudask_demand_to_worker_seconds",
    Kind.HISTOGRAM,
    "From the first demand of a pool without pods until the scheduler knew its first worker.",
    ("kind",),
    _STARTS_SECONDS,
    POOL_KINDS,
)
DEMAND_TO_RESULT = Family(
    "gpudask_demand_to_result_seconds",
    Kind.HISTOGRAM,
    "From the first demand of a pool without pods until one of its workers had ended its first task.",
    ("kind",),
    _STARTS_SECONDS,
    POOL_KINDS,
)
DRAIN_DURATION = Family(
    "gpudask_drain_duration_seconds",
    Kind.HISTOGRAM,
    "How long drains lasted that ended with the deletion of their pod.",
    (),
    (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0),
)
DRAIN_MOVED_BYTES = Family(
    "gpudask_drain_moved_bytes_total",
    Kind.COUNTER,
    "Bytes of results by which workers became lighter while they drained, but for those that were released.",
)
PASS_DURATION = Family(
    "gpudask_pass_duration_seconds",
    Kind.HISTOGRAM,
    "How long passes over a cluster took, their requests to the API server included.",
    (),
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
PASS_ERRORS_TOTAL = Family(
    "gpudask_pass_errors_total",
    Kind.COUNTER,
    "Failures of passes and of their steps, by the reason that the conditions have.",
    ("reason",),
    states=PASS_ERRORS,
)
RELISTS = Family(
    "gpudask_reflector_relists_total",
    Kind.COUNTER,
    "Lists of all objects of a kind, the first one included: where a watch cannot go on, it begins with one.",
    ("kind",),
)
REFLECTOR_AGE = Family(
    "gpudask_reflector_age_seconds",
    Kind.GAUGE,
    "Time since the API server last confirmed what the operator knows of a kind. Bookmarks come about once a minute.",
    ("kind",),
)
API_REQUESTS = Family(
    "gpudask_api_requests_total",
    Kind.COUNTER,
    "Requests to the API server by verb and HTTP status; 0 where no answer came. Those of kopf do not count.",
    ("verb", "code"),
)
WAITING_REQUESTS = Family(
    "gpudask_waiting_requests", Kind.GAUGE, "Requests to the API server that wait for their turn."
)
WAITING_PASSES = Family("gpudask_waiting_passes", Kind.GAUGE, "Clusters whose pass waits for its turn.")
EVENT_LOOP_LAG = Family(
    "gpudask_event_loop_lag_seconds",
    Kind.GAUGE,
    "By how much the event loop was late at most in the last minute.",
)
TASKS_RESTARTED = Family(
    "gpudask_tasks_restarted_total",
    Kind.COUNTER,
    "The operator's own asyncio tasks and passes that ended by a defect and were started again.",
)
UNREADABLE_OBJECTS = Family(
    "gpudask_unreadable_objects", Kind.GAUGE, "Objects that the operator cannot read; its log names them."
)
LEADER = Family("gpudask_leader", Kind.GAUGE, "Whether this operator leads: 1 or 0.")
BUILD_INFO = Family("gpudask_build_info", Kind.GAUGE, "1, with the operator's version.", ("version",))

_JOBS = ("namespace",)
_CRON_JOB = ("namespace", "cronjob")
JOBS = Family("gpudask_jobs", Kind.GAUGE, "Jobs of the namespace by phase.", (*_JOBS, "phase"), states=JOB_PHASES)
JOBS_WAITING = Family(
    "gpudask_jobs_waiting",
    Kind.GAUGE,
    "Jobs whose program should run and does not, by the reason in their status. Suspended ones and back-offs aside.",
    (*_JOBS, "reason"),
)
JOBS_LONGEST_WAIT = Family(
    "gpudask_jobs_longest_wait_seconds",
    Kind.GAUGE,
    "For how long that of these which has waited longest has waited; 0 without one.",
    _JOBS,
)
CRON_JOBS = Family("gpudask_cronjobs", Kind.GAUGE, "Cron jobs of the namespace.", _JOBS)
CRON_JOB_CONDITION = Family(
    "gpudask_cronjob_condition",
    Kind.GAUGE,
    "A condition of the cron job's status and its reason: 1 if it is True, 0 if False, -1 if Unknown.",
    (*_CRON_JOB, "condition", "reason"),
)
CRON_JOB_ACTIVE = Family("gpudask_cronjob_active_jobs", Kind.GAUGE, "Its jobs that have not ended.", _CRON_JOB)
CRON_JOB_SUSPENDED = Family(
    "gpudask_cronjob_suspended", Kind.GAUGE, "Whether its spec says that it makes no jobs: 1 or 0.", _CRON_JOB
)
CRON_JOB_LAST = Family(
    "gpudask_cronjob_last_schedule_time_seconds",
    Kind.GAUGE,
    "The last time of its schedule that was begun, since the epoch. Absent: none was.",
    _CRON_JOB,
)
CRON_JOB_LAST_SUCCESS = Family(
    "gpudask_cronjob_last_successful_time_seconds",
    Kind.GAUGE,
    "When a job of it last succeeded, since the epoch. Absent: none has.",
    _CRON_JOB,
)
CRON_JOB_NEXT = Family(
    "gpudask_cronjob_next_schedule_time_seconds",
    Kind.GAUGE,
    "The next time of its schedule, since the epoch. Absent: none, or it is suspended.",
    _CRON_JOB,
)
CRON_JOB_MISSED = Family(
    "gpudask_cronjob_missed_total",
    Kind.COUNTER,
    "Times of its schedule that were passed over. It survives the operator's restarts.",
    _CRON_JOB,
)
JOB_FAMILIES = (
    JOBS,
    JOBS_WAITING,
    JOBS_LONGEST_WAIT,
    CRON_JOBS,
    CRON_JOB_CONDITION,
    CRON_JOB_ACTIVE,
    CRON_JOB_SUSPENDED,
    CRON_JOB_LAST,
    CRON_JOB_LAST_SUCCESS,
    CRON_JOB_NEXT,
    CRON_JOB_MISSED,
)
"""Those of jobs and cron jobs, by the leader alone."""

JOB_STARTS_TOTAL = Family(
    "gpudask_job_starts_total",
    Kind.COUNTER,
    "Attempts of jobs that began: the first one of a job, one after a failure, or one after its suspension.",
    ("attempt",),
    states=JOB_STARTS,
)
JOB_ATTEMPTS_TOTAL = Family(
    "gpudask_job_attempts_total",
    Kind.COUNTER,
    "Attempts of jobs that ended: refused ones never got to run, lost ones went with their pod or its node.",
    ("outcome",),
    states=JOB_OUTCOMES,
)
JOB_ENDS_TOTAL = Family(
    "gpudask_job_ends_total",
    Kind.COUNTER,
    "Jobs that ended, by the reason of their condition Complete or Failed.",
    ("reason",),
    states=JOB_ENDS,
)
JOB_GPU_RELEASE = Family(
    "gpudask_job_gpu_release_seconds",
    Kind.HISTOGRAM,
    "From when a runner was seen to have ended until the last pod with GPUs of the job's own cluster was gone.",
    (),
    (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0),
)

OPERATOR_FAMILIES = (
    DEMAND_TO_POD,
    DEMAND_TO_WORKER,
    DEMAND_TO_RESULT,
    DRAIN_DURATION,
    DRAIN_MOVED_BYTES,
    PASS_DURATION,
    PASS_ERRORS_TOTAL,
    JOB_STARTS_TOTAL,
    JOB_ATTEMPTS_TOTAL,
    JOB_ENDS_TOTAL,
    JOB_GPU_RELEASE,
    RELISTS,
    REFLECTOR_AGE,
    API_REQUESTS,
    WAITING_REQUESTS,
    WAITING_PASSES,
    EVENT_LOOP_LAG,
    TASKS_RESTARTED,
    UNREADABLE_OBJECTS,
    LEADER,
    BUILD_INFO,
)
"""Those of the operator's process, by the leader and by those that stand by."""
