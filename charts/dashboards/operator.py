"""The operator's health: who leads, how its passes, requests and caches do, and how soon demand is met."""

from __future__ import annotations

from charts.dashboards.grafana import Dashboard, Panel, Query, Row, Variable
from charts.dashboards.words import GOOD, NONE_IS_GOOD, SOME_IS_GOOD, now, over_time, quantile

# Of clusters: they say in which namespace and which one they are of.
_CLUSTERS = 'namespace=~"$namespace", cluster=~"$cluster"'
_JOBS_OF = 'namespace=~"$namespace"'
_MISSED = f"cronjob:gpudask_missed:max{{{_JOBS_OF}}}"
_SHARES = (0.5, 0.9, 0.99)


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def _quantiles(histogram: str, by: str = "") -> tuple[Query, ...]:
    """Quantiles over the panel's steps."""
    name = f"{{{{{by}}}}} " if by else ""
    return tuple(Query(quantile(share, histogram, by=by), f"{name}{share:.0%}") for share in _SHARES)


def _since_demand(histogram: str) -> tuple[Query, ...]:
    """Quantiles over the whole range: pools start rarely."""
    return tuple(
        Query(quantile(share, histogram, by="kind", window="$__range"), f"{{{{kind}}}} {share:.0%}", instant=True)
        for share in (0.5, 0.9)
    )


_NOW = Row(
    "Now",
    (
        Panel(
            "Leaders",
            "One operator of an installation leads; none for more than a quarter of a minute is a fault.",
            "stat",
            over_time("sum(gpudask_leader)"),
            width=4,
            height=4,
            thresholds=SOME_IS_GOOD,
        ),
        Panel(
            "Operators",
            "Those that lead and those that stand by, by version.",
            "stat",
            over_time("count by (version) (gpudask_build_info)", "{{version}}"),
            width=4,
            height=4,
            thresholds=GOOD,
        ),
        Panel(
            "Clusters",
            "Clusters that the operator runs.",
            "stat",
            over_time(f"count(max by (namespace, cluster) (gpudask_cluster_info{{{_CLUSTERS}}}))"),
            width=4,
            height=4,
            thresholds=GOOD,
        ),
        Panel(
            "Schedulers that are not heard",
            "Clusters whose scheduler runs and does not tell its demand.",
            "stat",
            over_time(f"count(max by (namespace, cluster) (gpudask_feed_up{{{_CLUSTERS}}}) == 0) or vector(0)"),
            width=4,
            height=4,
            thresholds=NONE_IS_GOOD,
        ),
        Panel(
            "Objects that cannot be read",
            "They are skipped; the operator's log names them.",
            "stat",
            over_time("max(gpudask_unreadable_objects)"),
            width=4,
            height=4,
            thresholds=NONE_IS_GOOD,
        ),
        Panel(
            "Defects within the range",
            "Tasks and passes of the operator that ended by a defect and were started again.",
            "stat",
            now("sum(increase(gpudask_tasks_restarted_total[$__range]))"),
            width=4,
            height=4,
            thresholds=NONE_IS_GOOD,
        ),
    ),
)

_LATENCY = Row(
    "From demand to result, within the range",
    (
        Panel(
            "To the first pod",
            "From the first demand of a pool without pods until its first pod was created: the operator's part.",
            "bargauge",
            _since_demand("gpudask_demand_to_pod_seconds"),
            unit="s",
        ),
        Panel(
            "To the first worker",
            "Until the scheduler knew it: with the node, the image and the process.",
            "bargauge",
            _since_demand("gpudask_demand_to_worker_seconds"),
            unit="s",
        ),
        Panel(
            "To the first result",
            "Until one of the pool's workers had ended its first task.",
            "bargauge",
            _since_demand("gpudask_demand_to_result_seconds"),
            unit="s",
        ),
    ),
)

_PASSES = Row(
    "Passes",
    (
        Panel(
            "Passes a second",
            "Looks at a cluster, each with what it changes.",
            "timeseries",
            over_time("sum(rate(gpudask_pass_duration_seconds_count[$__rate_interval]))", "passes"),
            unit="ops",
        ),
        Panel(
            "How long they take",
            "Quantiles, requests to the API server included.",
            "timeseries",
            _quantiles("gpudask_pass_duration_seconds"),
            unit="s",
        ),
        Panel(
            "What fails in them",
            "By reason. OperatorFailed is a defect; the others are refusals and outages, as in the clusters' status.",
            "timeseries",
            over_time(_rate("gpudask_pass_errors_total", "reason"), "{{reason}}"),
            unit="ops",
        ),
        Panel(
            "What waits for its turn",
            "Clusters for a pass, and requests to the API server.",
            "timeseries",
            (
                Query("sum(gpudask_waiting_passes)", "passes"),
                Query("sum(gpudask_waiting_requests)", "requests"),
            ),
        ),
        Panel(
            "Event loop: late by",
            "The most within a minute, of each operator: above a tenth of a second it has too little CPU.",
            "timeseries",
            over_time("max by (instance) (gpudask_event_loop_lag_seconds)", "{{instance}}"),
            unit="s",
        ),
        Panel(
            "Schedulers: last heard",
            "How long ago, the ten longest.",
            "timeseries",
            over_time(
                f"topk(10, max by (namespace, cluster) (gpudask_feed_age_seconds{{{_CLUSTERS}}}))",
                "{{namespace}}/{{cluster}}",
            ),
            unit="s",
        ),
    ),
)

_API = Row(
    "API server",
    (
        Panel(
            "Requests by verb",
            "Without those of watches that go on.",
            "timeseries",
            over_time(_rate("gpudask_api_requests_total", "verb"), "{{verb}}"),
            unit="reqps",
            width=6,
            stacked=True,
        ),
        Panel(
            "Requests by status",
            "0: no answer came. 404 and 409 are answers as well; 403 also comes from quotas.",
            "timeseries",
            over_time(_rate("gpudask_api_requests_total", "code"), "{{code}}"),
            unit="reqps",
            width=6,
            stacked=True,
        ),
        Panel(
            "Copies: age",
            "Time since the API server last confirmed what an operator knows of a kind; about a minute is usual.",
            "timeseries",
            over_time("max by (kind) (gpudask_reflector_age_seconds)", "{{kind}}"),
            unit="s",
            width=6,
        ),
        Panel(
            "Copies: made anew",
            "Lists of all objects of a kind within an hour: where a watch cannot go on, it begins with one.",
            "timeseries",
            over_time("sum by (kind) (increase(gpudask_reflector_relists_total[1h]))", "{{kind}}"),
            width=6,
        ),
    ),
)

_JOBS = Row(
    "Jobs and cron jobs",
    (
        Panel(
            "Jobs by phase",
            "Those that have ended, too, until they are deleted.",
            "timeseries",
            over_time(f"sum by (phase) (max by (namespace, phase) (gpudask_jobs{{{_JOBS_OF}}}))", "{{phase}}"),
            stacked=True,
        ),
        Panel(
            "Jobs that wait",
            "By the reason in their status: their program should run and does not.",
            "timeseries",
            over_time(
                f"sum by (reason) (max by (namespace, reason) (gpudask_jobs_waiting{{{_JOBS_OF}}}))", "{{reason}}"
            ),
            stacked=True,
        ),
        Panel(
            "Longest wait",
            "Of a job whose program should run, the ten namespaces with the longest.",
            "timeseries",
            over_time(
                f"topk(10, max by (namespace) (gpudask_jobs_longest_wait_seconds{{{_JOBS_OF}}}))", "{{namespace}}"
            ),
            unit="s",
        ),
        Panel(
            "Attempts by outcome",
            "Within an hour. Refused ones never got to run, lost ones went with their pod or its node.",
            "timeseries",
            over_time("sum by (outcome) (increase(gpudask_job_attempts_total[1h]))", "{{outcome}}"),
            stacked=True,
        ),
        Panel(
            "GPUs given back",
            "Quantiles of the time from a program's end until the last pod with GPUs of its cluster was gone.",
            "timeseries",
            _quantiles("gpudask_job_gpu_release_seconds"),
            unit="s",
        ),
        Panel(
            "Cron jobs: times passed over",
            "Within the range, the ten with most.",
            "bargauge",
            now(
                f"sort_desc(topk(10, max by (namespace, cronjob) ({_MISSED} - min_over_time({_MISSED}[$__range]))))",
                "{{namespace}}/{{cronjob}}",
            ),
        ),
    ),
)

_DRAINS = Row(
    "Drains",
    (
        Panel(
            "How long they last",
            "Quantiles of drains that ended with the deletion of their pod.",
            "timeseries",
            _quantiles("gpudask_drain_duration_seconds"),
            unit="s",
            width=12,
        ),
        Panel(
            "Results moved",
            "Bytes of results that went to other workers.",
            "timeseries",
            over_time("sum(rate(gpudask_drain_moved_bytes_total[$__rate_interval]))", "moved"),
            unit="Bps",
            width=12,
        ),
    ),
)

DASHBOARD = Dashboard(
    "operator",
    "gpudask / Operator",
    "The operator's health: passes, requests, caches, schedulers, and how soon demand is met.",
    (
        Variable("namespace", "Clusters in", "label_values(gpudask_cluster_info, namespace)", several=True),
        Variable(
            "cluster", "Cluster", 'label_values(gpudask_cluster_info{namespace=~"$namespace"}, cluster)', several=True
        ),
    ),
    (_NOW, _LATENCY, _JOBS, _PASSES, _API, _DRAINS),
)
