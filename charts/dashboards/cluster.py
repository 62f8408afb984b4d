"""One cluster: its pools, their demand, GPUs, drains and failures."""

from __future__ import annotations

from charts.dashboards.grafana import Dashboard, Panel, Query, Row, Variable
from charts.dashboards.words import (
    CAUSES,
    GOOD,
    NONE_IS_GOOD,
    POOL_CAUSE,
    POOL_OWNER,
    SHARE,
    gpu_hours,
    now,
    over_time,
)

_OF = 'namespace="$namespace", cluster="$cluster"'
_CONDITION = {1: ("True", "blue"), 0: ("False", "yellow"), -1: ("Unknown", "purple")}
_STATES = {
    "ready": "green",
    "pending": "blue",
    "unschedulable": "red",
    "retiring": "purple",
}


def _by(labels: str, metric: str, extra: str = "") -> str:
    return f"max by ({labels}) ({metric}{{{_OF}{extra}}})"


def _counted(metric: str, by: str = "pool") -> str:
    """What happened in the steps of the panel, by whichever operator counted it."""
    return f"sum by ({by}) (increase({metric}{{{_OF}}}[$__rate_interval]))"


_STATE = Row(
    "State",
    (
        Panel(
            "Conditions",
            "As in the cluster's status. Degraded is good where it is False.",
            "state-timeline",
            over_time(_by("condition", "gpudask_cluster_condition"), "{{condition}}"),
            width=12,
            words=_CONDITION,
        ),
        Panel(
            "Conditions now, with their reasons",
            "docs/getting-started.md says what to do about each reason.",
            "table",
            now(_by("condition, reason", "gpudask_cluster_condition")),
            width=12,
            words=_CONDITION,
            columns={"condition": "Condition", "Value": "Status", "reason": "Reason"},
        ),
        Panel(
            "GPUs held",
            "GPUs of pods that have a node.",
            "stat",
            over_time(f"sum({_by('pool', 'gpudask_pool_gpus_held')})"),
            width=4,
            height=4,
            thresholds=GOOD,
        ),
        Panel(
            "GPUs busy",
            "GPUs on which a task of their pool's own runs, or waits for its turn.",
            "stat",
            over_time(f"sum({_by('pool', 'gpudask_pool_gpus_busy')})"),
            width=4,
            height=4,
            thresholds=GOOD,
        ),
        Panel(
            "Share that worked",
            "Of the GPU-seconds within the range, those in which a task ran.",
            "stat",
            now(gpu_hours(POOL_CAUSE, _OF + ', cause="working"') + " / (" + gpu_hours(POOL_CAUSE, _OF) + ")"),
            unit="percentunit",
            width=4,
            height=4,
            thresholds=SHARE,
        ),
        Panel(
            "Tasks that no pool serves",
            "They ask for what no worker offers, and wait for ever.",
            "stat",
            over_time(f"max(gpudask_cluster_unservable_tasks{{{_OF}}})"),
            width=4,
            height=4,
            thresholds=NONE_IS_GOOD,
        ),
        Panel(
            "Scheduler heard",
            "How long ago the scheduler last told its demand; empty where none runs.",
            "stat",
            over_time(f"max(gpudask_feed_age_seconds{{{_OF}}})"),
            unit="s",
            width=4,
            height=4,
            thresholds=((0, "green"), (120, "orange")),
        ),
        Panel(
            "Longest drain",
            "How long the longest drain of now has lasted.",
            "stat",
            over_time(f"max(gpudask_pool_oldest_drain_seconds{{{_OF}}})"),
            unit="s",
            width=4,
            height=4,
            thresholds=((0, "green"), (600, "orange")),
        ),
    ),
)

_POOLS = Row(
    "Pools and demand",
    (
        Panel(
            "Pods: desired, least and most",
            "What the pool's size is, and between which it may be.",
            "timeseries",
            (
                Query(_by("pool", "gpudask_pool_desired_pods"), "{{pool}} desired"),
                Query(_by("pool", "gpudask_pool_min_pods"), "{{pool}} min"),
                Query(_by("pool", "gpudask_pool_max_pods"), "{{pool}} max"),
            ),
        ),
        Panel(
            "Pods ready",
            "Pods whose workers are registered.",
            "timeseries",
            over_time(_by("pool", "gpudask_pool_pods", ', state="ready"'), "{{pool}}"),
        ),
        Panel(
            "Pods by state",
            "Of all pools. Unschedulable ones are pending, too, and those that retire may be ready.",
            "timeseries",
            over_time(f"sum by (state) ({_by('pool, state', 'gpudask_pool_pods')})", "{{state}}"),
            colors=_STATES,
        ),
        Panel(
            "Tasks that wait",
            "Tasks that could run if a worker of the pool had room.",
            "timeseries",
            over_time(_by("pool", "gpudask_pool_demand_tasks", ', state="waiting"'), "{{pool}}"),
        ),
        Panel(
            "Tasks that run",
            "Tasks on the pool's workers, those in their queues included.",
            "timeseries",
            over_time(_by("pool", "gpudask_pool_demand_tasks", ', state="running"'), "{{pool}}"),
        ),
        Panel(
            "Pods that no node takes",
            "How many, as the mean of each step.",
            "timeseries",
            over_time(
                f"sum by (pool) (rate(gpudask_pool_unschedulable_seconds_total{{{_OF}}}[$__rate_interval]))", "{{pool}}"
            ),
        ),
    ),
)

_GPUS = Row(
    "GPUs",
    (
        Panel(
            "By cause",
            "Each GPU that is held has one cause at a time.",
            "timeseries",
            over_time(f"sum by (cause) ({POOL_CAUSE}{{{_OF}}})", "{{cause}}"),
            stacked=True,
            colors=CAUSES,
        ),
        Panel(
            "By pool",
            "GPUs held, as the mean of five minutes.",
            "timeseries",
            over_time(f"sum by (pool) ({POOL_CAUSE}{{{_OF}}})", "{{pool}}"),
            stacked=True,
        ),
        Panel(
            "By owner of the tasks",
            "Working GPUs by the tasks' Dask annotation `owner`; empty: tasks without one.",
            "timeseries",
            over_time(f"sum by (owner) ({POOL_OWNER}{{{_OF}}})", "{{owner}}"),
            stacked=True,
        ),
        Panel(
            "GPU-hours within the range",
            "By pool and cause.",
            "table",
            now(f"sort_desc({gpu_hours(POOL_CAUSE, _OF, 'pool, cause')})"),
            width=12,
            columns={"pool": "Pool", "cause": "Cause", "Value": "GPU-hours"},
        ),
        Panel(
            "GPU-seconds so far",
            "Since the cluster was made, by cause.",
            "bargauge",
            now(f"sort_desc(sum by (cause) ({_by('pool, cause', 'gpudask_pool_gpu_seconds_total')}))", "{{cause}}"),
            unit="s",
            width=12,
            colors=CAUSES,
        ),
    ),
)

_LEAVING = Row(
    "Drains, fallbacks and failures",
    (
        Panel(
            "Drains",
            "Pods that left, drained or not.",
            "timeseries",
            over_time(_counted("gpudask_pool_drains_total"), "{{pool}}"),
        ),
        Panel(
            "Deleted though not drained",
            "Pods that the operator deleted though they may have held work or results.",
            "timeseries",
            over_time(_counted("gpudask_pool_forced_deletions_total"), "{{pool}}"),
        ),
        Panel(
            "Longest drain",
            "How long the longest drain of now has lasted.",
            "timeseries",
            over_time(_by("pool", "gpudask_pool_oldest_drain_seconds"), "{{pool}}"),
            unit="s",
        ),
        Panel(
            "Terminations",
            "Containers and pods that ended and nobody had asked to, by the kubelet's reason.",
            "timeseries",
            over_time(_counted("gpudask_pool_terminations_total", "pool, reason"), "{{pool}}: {{reason}}"),
        ),
        Panel(
            "Tasks on fallback pools",
            "Whether tasks of the pool run on its fallback pools.",
            "state-timeline",
            over_time(_by("pool", "gpudask_pool_fallback_active"), "{{pool}}"),
            words={1: ("falls back", "orange"), 0: ("no", "green")},
        ),
        Panel(
            "Fallbacks begun",
            "How often tasks of the pool began to fall back.",
            "timeseries",
            over_time(_counted("gpudask_pool_fallbacks_total"), "{{pool}}"),
        ),
    ),
)

DASHBOARD = Dashboard(
    "cluster",
    "gpudask / Cluster",
    "One cluster: its pools, their demand, GPUs, drains and failures.",
    (
        Variable("namespace", "Namespace", "label_values(gpudask_cluster_info, namespace)"),
        Variable("cluster", "Cluster", 'label_values(gpudask_cluster_info{namespace="$namespace"}, cluster)'),
    ),
    (_STATE, _POOLS, _GPUS, _LEAVING),
)
