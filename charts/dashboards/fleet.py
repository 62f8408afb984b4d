"""The fleet: GPUs of all clusters, who holds them, for what, and who waits for some."""

from __future__ import annotations

from charts.dashboards.grafana import Dashboard, Panel, Row, Variable
from charts.dashboards.words import (
    CAUSES,
    CLUSTER_CAUSE,
    GOOD,
    IDLE,
    NONE_IS_GOOD,
    POOL_CAUSE,
    POOL_OWNER,
    SHARE,
    gpu_hours,
    now,
    of_pools,
    over_time,
)

_OF = 'namespace=~"$namespace", cluster=~"$cluster"'
_WAITING = (
    f'gpudask_pool_demand_tasks{{{_OF}, state="waiting"}} and on (namespace, cluster, pool) gpudask_pool_gpus_held'
)
_UNSCHEDULABLE = f'{_OF}, state="unschedulable"'

_NOW = Row(
    "Now",
    (
        Panel(
            "GPUs held",
            "GPUs of pods that have a node.",
            "stat",
            over_time(f"sum({of_pools('gpudask_pool_gpus_held', _OF)})"),
            width=4,
            height=4,
            thresholds=GOOD,
        ),
        Panel(
            "GPUs busy",
            "GPUs on which a task of their pool's own runs, or waits for its turn.",
            "stat",
            over_time(f"sum({of_pools('gpudask_pool_gpus_busy', _OF)})"),
            width=4,
            height=4,
            thresholds=GOOD,
        ),
        Panel(
            "GPUs idle",
            "GPUs that neither work, start nor drain, as the mean of five minutes.",
            "stat",
            over_time(f"sum(pool:gpudask_idle_gpus:mean5m{{{_OF}}})"),
            width=4,
            height=4,
            thresholds=NONE_IS_GOOD,
        ),
        Panel(
            "Share that worked",
            "Of the GPU-seconds within the range, those in which a task ran.",
            "stat",
            now(gpu_hours(CLUSTER_CAUSE, _OF + ', cause="working"') + " / (" + gpu_hours(CLUSTER_CAUSE, _OF) + ")"),
            unit="percentunit",
            width=4,
            height=4,
            thresholds=SHARE,
        ),
        Panel(
            "Clusters",
            "Clusters that the operator runs.",
            "stat",
            over_time(f"count(max by (namespace, cluster) (gpudask_cluster_info{{{_OF}}}))"),
            width=4,
            height=4,
            thresholds=GOOD,
        ),
        Panel(
            "Pools without the GPUs that they want",
            "GPU pools whose tasks wait, and whose pods no node takes or a quota forbids.",
            "stat",
            over_time(f"count(pool:gpudask_starved_tasks:max{{{_OF}}}) or vector(0)"),
            width=4,
            height=4,
            thresholds=NONE_IS_GOOD,
        ),
    ),
)

_GPUS = Row(
    "GPUs over time",
    (
        Panel(
            "By cause",
            "Each GPU that is held has one cause at a time; docs/alerts.md says what to do about idle ones.",
            "timeseries",
            over_time(f"sum by (cause) ({CLUSTER_CAUSE}{{{_OF}}})", "{{cause}}"),
            width=12,
            stacked=True,
            colors=CAUSES,
        ),
        Panel(
            "By $by",
            "Who holds GPUs, by what is chosen above: a namespace, or a label that the chart's attribution lists.",
            "timeseries",
            over_time(f"sum by ($by) ({CLUSTER_CAUSE}{{{_OF}}})", "{{$by}}"),
            width=12,
            stacked=True,
        ),
        Panel(
            "Idle share",
            "Of the GPUs held, those that neither work, start nor drain.",
            "timeseries",
            over_time(
                f"sum by ($by) ({CLUSTER_CAUSE}{{{_OF}, {IDLE}}}) / sum by ($by) ({CLUSTER_CAUSE}{{{_OF}}} > 0)",
                "{{$by}}",
            ),
            unit="percentunit",
            width=12,
        ),
        Panel(
            "Tasks that wait for GPUs",
            "By pool, the ten with most.",
            "timeseries",
            over_time(
                f"topk(10, max by (namespace, cluster, pool) ({_WAITING}))", "{{namespace}}/{{cluster}} {{pool}}"
            ),
            width=12,
        ),
    ),
)

_COSTS = Row(
    "GPU-hours within the range",
    (
        Panel(
            "By $by and cause",
            "What `gpudask cost` puts a price on. Clusters that are gone count for the time that they were there.",
            "table",
            now(f"sort_desc({gpu_hours(CLUSTER_CAUSE, _OF, '$by, cause')})"),
            width=12,
            columns={
                "namespace": "Namespace",
                "label_team": "Team",
                "label_project": "Project",
                "label_user": "User",
                "cause": "Cause",
                "Value": "GPU-hours",
            },
        ),
        Panel(
            "By cause",
            "All clusters that are chosen.",
            "bargauge",
            now(f"sort_desc({gpu_hours(CLUSTER_CAUSE, _OF, 'cause')})", "{{cause}}"),
            width=12,
            colors=CAUSES,
        ),
        Panel(
            "Clusters that cost most",
            "The ten with most GPU-hours.",
            "bargauge",
            now(
                f"sort_desc(topk(10, {gpu_hours(CLUSTER_CAUSE, _OF, 'namespace, cluster')}))",
                "{{namespace}}/{{cluster}}",
            ),
        ),
        Panel(
            "Pools that idle most",
            "The ten with most GPU-hours in which GPUs neither worked, started nor drained.",
            "bargauge",
            now(
                f"sort_desc(topk(10, {gpu_hours(POOL_CAUSE, f'{_OF}, {IDLE}', 'namespace, cluster, pool, cause')}))",
                "{{namespace}}/{{cluster}} {{pool}}: {{cause}}",
            ),
        ),
        Panel(
            "Owners of tasks",
            "Working GPU-hours by the tasks' Dask annotation `owner`, the ten with most; empty: tasks without one.",
            "bargauge",
            now(f"sort_desc(topk(10, {gpu_hours(POOL_OWNER, _OF, 'owner')}))", "{{owner}}"),
        ),
    ),
)

_PODS = Row(
    "Pods that do not come",
    (
        Panel(
            "Unschedulable pods",
            "Pods that no node takes, the ten pools with most.",
            "timeseries",
            over_time(
                f"topk(10, {of_pools('gpudask_pool_pods', _UNSCHEDULABLE)})", "{{namespace}}/{{cluster}} {{pool}}"
            ),
            width=12,
        ),
        Panel(
            "Clusters that are Degraded",
            "By reason.",
            "timeseries",
            over_time(
                "count by (reason) (max by (namespace, cluster, reason)"
                f' (gpudask_cluster_condition{{{_OF}, condition="Degraded"}}) == 1) or vector(0)',
                "{{reason}}",
            ),
            width=12,
            stacked=True,
        ),
    ),
)

DASHBOARD = Dashboard(
    "fleet",
    "gpudask / Fleet",
    "GPUs of all clusters: who holds them, for what, and who waits for some.",
    (
        Variable("namespace", "Namespace", "label_values(gpudask_cluster_info, namespace)", several=True),
        Variable(
            "cluster", "Cluster", 'label_values(gpudask_cluster_info{namespace=~"$namespace"}, cluster)', several=True
        ),
        # The same words as in the rules: the chart replaces both where `attribution` has other names.
        Variable("by", "Split by", "namespace, label_team, label_project, label_user"),
    ),
    (_NOW, _GPUS, _COSTS, _PODS),
    since="now-24h",
)
