"""What operators expose: every metric with its labels, and text as one of two operators would answer at a moment.

A test holds the table to what the operator declares; rules and dashboards are held to the table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

Labels = dict[str, str]

CLUSTERS: tuple[Labels, ...] = (
    {"namespace": "lab", "cluster": "demo"},
    {"namespace": "lab", "cluster": "hungry"},
    {"namespace": "shop", "cluster": "demo"},
)
_POOLS = tuple({**cluster, "pool": pool} for cluster in CLUSTERS for pool in ("cpu", "gpu"))
_GPU_POOLS = tuple(pool for pool in _POOLS if pool["pool"] == "gpu")
_NONE: tuple[Labels, ...] = ({},)
_CAUSES = (
    "working",
    "unhealthy",
    "starting",
    "draining",
    "frozen",
    "heldResult",
    "heldByUser",
    "spare",
    "waitingIdleTimeout",
)
_BUCKETS = ("0.1", "1.0", "10.0", "+Inf")


@dataclass(frozen=True)
class Metric:
    """One metric. `series`: the labels of some of its series."""

    name: str
    kind: str
    series: tuple[Labels, ...] = _NONE

    @property
    def labels(self) -> set[str]:
        """The names of its labels, but for a histogram's `le`."""
        return set(self.series[0])

    @property
    def names(self) -> set[str]:
        """What queries call it."""
        parts = ("_bucket", "_count", "_sum") if self.kind == "histogram" else ("",)
        return {self.name + part for part in parts}


def _with(series: tuple[Labels, ...], label: str, *values: str) -> tuple[Labels, ...]:
    return tuple({**labels, label: value} for labels, value in itertools.product(series, values))


_CONDITIONS = tuple(
    {**cluster, "condition": condition, "reason": reason}
    for cluster in CLUSTERS
    for condition, reason in (("Ready", "AllReady"), ("SchedulerReady", "SchedulerRunning"), ("Degraded", "PodsFail"))
)
_INFO = tuple(
    {**cluster, "label_team": team, "label_project": "maps", "label_user": ""}
    for cluster, team in zip(CLUSTERS, ("vision", "speech", ""), strict=True)
)
_KINDS = _with(_NONE, "kind", "cpu", "gpu")
_REFLECTED = _with(_NONE, "kind", "pods", "services", "configmaps")

METRICS = (
    Metric("gpudask_cluster_info", "gauge", _INFO),
    Metric("gpudask_cluster_condition", "gauge", _CONDITIONS),
    Metric("gpudask_cluster_unservable_tasks", "gauge", CLUSTERS),
    Metric("gpudask_feed_up", "gauge", CLUSTERS),
    Metric("gpudask_feed_age_seconds", "gauge", CLUSTERS),
    Metric("gpudask_pool_pods", "gauge", _with(_POOLS, "state", "ready", "pending", "unschedulable", "retiring")),
    Metric("gpudask_pool_desired_pods", "gauge", _POOLS),
    Metric("gpudask_pool_min_pods", "gauge", _POOLS),
    Metric("gpudask_pool_max_pods", "gauge", _POOLS),
    Metric("gpudask_pool_demand_tasks", "gauge", _with(_POOLS, "state", "waiting", "running")),
    Metric("gpudask_pool_gpus_held", "gauge", _GPU_POOLS),
    Metric("gpudask_pool_gpus_busy", "gauge", _GPU_POOLS),
    Metric("gpudask_pool_gpu_seconds_total", "counter", _with(_GPU_POOLS, "cause", *_CAUSES)),
    Metric("gpudask_pool_owner_gpu_seconds_total", "counter", _with(_GPU_POOLS, "owner", "ada", "")),
    Metric("gpudask_pool_unschedulable_seconds_total", "counter", _POOLS),
    Metric("gpudask_pool_drains_total", "counter", _POOLS),
    Metric("gpudask_pool_oldest_drain_seconds", "gauge", _POOLS),
    Metric("gpudask_pool_forced_deletions_total", "counter", _POOLS),
    Metric("gpudask_pool_fallback_active", "gauge", _GPU_POOLS),
    Metric("gpudask_pool_fallbacks_total", "counter", _GPU_POOLS),
    Metric(
        "gpudask_pool_terminations_total",
        "counter",
        _with(_POOLS, "reason", "Completed", "Error", "OOMKilled", "Evicted", "Other"),
    ),
    Metric("gpudask_demand_to_pod_seconds", "histogram", _KINDS),
    Metric("gpudask_demand_to_worker_seconds", "histogram", _KINDS),
    Metric("gpudask_demand_to_result_seconds", "histogram", _KINDS),
    Metric("gpudask_drain_duration_seconds", "histogram"),
    Metric("gpudask_drain_moved_bytes_total", "counter"),
    Metric("gpudask_pass_duration_seconds", "histogram"),
    Metric("gpudask_pass_errors_total", "counter", _with(_NONE, "reason", "OperatorFailed", "ApiServerFailed")),
    Metric("gpudask_reflector_relists_total", "counter", _REFLECTED),
    Metric("gpudask_reflector_age_seconds", "gauge", _REFLECTED),
    Metric("gpudask_api_requests_total", "counter", _with(_with(_NONE, "verb", "GET", "POST"), "code", "200", "0")),
    Metric("gpudask_waiting_requests", "gauge"),
    Metric("gpudask_waiting_passes", "gauge"),
    Metric("gpudask_event_loop_lag_seconds", "gauge"),
    Metric("gpudask_tasks_restarted_total", "counter"),
    Metric("gpudask_unreadable_objects", "gauge"),
    Metric("gpudask_leader", "gauge"),
    Metric("gpudask_build_info", "gauge", _with(_NONE, "version", "0.1.0")),
)


def exposition(seconds: float, *, leads: bool = True) -> str:
    """The answer of an operator that has run for so many seconds; one that stands by tells nothing of clusters.

    Gauges waver, and counters grow, each at its own rate.
    """
    return "".join(
        line for metric in METRICS if leads or "cluster" not in metric.labels for line in _lines(metric, seconds, leads)
    )


def _lines(metric: Metric, seconds: float, leads: bool) -> Iterator[str]:
    yield f"# HELP {metric.name} For tests.\n# TYPE {metric.name} {metric.kind}\n"
    for number, labels in enumerate(metric.series):
        if metric.kind == "histogram":
            yield from _histogram(metric.name, labels, seconds)
        elif metric.kind == "counter":
            yield _sample(metric.name, labels, seconds * (number % 5 + 1) / 5)
        elif metric.name in ("gpudask_leader", "gpudask_build_info", "gpudask_cluster_info"):
            yield _sample(metric.name, labels, float(leads or metric.name != "gpudask_leader"))
        else:
            yield _sample(metric.name, labels, (int(seconds) + number) % 3)


def _histogram(name: str, labels: Labels, seconds: float) -> Iterator[str]:
    for number, bound in enumerate(_BUCKETS, 1):
        yield _sample(f"{name}_bucket", {**labels, "le": bound}, int(seconds) * number)
    yield _sample(f"{name}_count", labels, int(seconds) * len(_BUCKETS))
    yield _sample(f"{name}_sum", labels, seconds)


def _sample(name: str, labels: Labels, value: float) -> str:
    written = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{written}}} {value}\n"
