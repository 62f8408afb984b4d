"""Colours and words that all dashboards share, and the expressions that several panels have in common."""

from __future__ import annotations

from charts.dashboards.grafana import Query

CAUSES = {
    "working": "green",
    "starting": "blue",
    "draining": "purple",
    "spare": "light-yellow",
    "waitingIdleTimeout": "yellow",
    "heldByUser": "light-orange",
    "heldResult": "orange",
    "frozen": "light-red",
    "unhealthy": "red",
}
GOOD = ((0, "green"),)
NONE_IS_GOOD = ((0, "green"), (1, "orange"))
SOME_IS_GOOD = ((0, "red"), (1, "green"))
SHARE = ((0, "red"), (0.5, "orange"), (0.75, "green"))

CLUSTER_CAUSE, POOL_CAUSE = "cluster_cause:gpudask_gpus:mean5m", "pool_cause:gpudask_gpus:mean5m"
POOL_OWNER = "pool_owner:gpudask_gpus:mean5m"
IDLE = 'cause!~"working|starting|draining"'


def over_time(expression: str, legend: str = "") -> tuple[Query, ...]:
    """One query over the dashboard's range."""
    return (Query(expression, legend),)


def now(expression: str, legend: str = "") -> tuple[Query, ...]:
    """One query at the end of the dashboard's range."""
    return (Query(expression, legend, instant=True),)


def of_pools(metric: str, selector: str) -> str:
    """A gauge of pools, each counted once."""
    return f"max by (namespace, cluster, pool) ({metric}{{{selector}}})"


def gpu_hours(rule: str, selector: str, by: str = "") -> str:
    """GPU-hours within the dashboard's range, of a rule that has GPUs as the mean of five minutes.

    The subquery's steps are as long as that, so they tile the range; twelve of them are an hour.
    """
    labels = f" by ({by})" if by else ""
    return f"sum{labels} (sum_over_time({rule}{{{selector}}}[$__range:5m])) / 12"


def quantile(share: float, histogram: str, *, by: str = "", window: str = "$__rate_interval") -> str:
    """A quantile of a histogram, in its unit: of all operators, whichever led."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({histogram}_bucket[{window}])))"
