"""All metrics of one operator: what its own parts count, and the clusters for which it is responsible.

One object, made by the operator and passed on. What is read at a moment, such as the length of a queue, is a function
that is called when the metrics are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gpudask.api.reasons import Reason
from gpudask.metrics import families
from gpudask.metrics.clusters import ClusterMetrics
from gpudask.metrics.exposition import header, utf8
from gpudask.metrics.families import Family
from gpudask.metrics.jobs import JobMetrics

T = TypeVar("T", Counter, Histogram)
_LOG = logging.getLogger(__name__)
# Lines that are written in one step of the event loop: less than a millisecond.
_LINES_A_STEP = 400
_METHODS = ("GET", "LIST", "WATCH", "POST", "PATCH", "PUT", "DELETE")
_OK = "200"
_CODE_DIGITS = 3


class Metrics:
    """The operator's metrics. `leads`: whether it is the leader, who alone exports clusters.

    `clock`: the operator's, in seconds, by which reports of clusters are stamped. `tasks_restarted`: how many were.
    """

    def __init__(self, *, clock: Callable[[], float] = lambda: 0.0, version: str = "unknown") -> None:
        # When a counter began would be one more series for each: nobody asks for it.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.clock = clock
        self.leads: Callable[[], bool] = lambda: False
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._clusters: dict[str, ClusterMetrics] = {}
        self._demand_to_pod = self._histogram(families.DEMAND_TO_POD)
        self._demand_to_worker = self._histogram(families.DEMAND_TO_WORKER)
        self._demand_to_result = self._histogram(families.DEMAND_TO_RESULT)
        self.drain_seconds = self._histogram(families.DRAIN_DURATION)
        self.drain_moved_bytes = self._counter(families.DRAIN_MOVED_BYTES)
        self.pass_seconds = self._histogram(families.PASS_DURATION)
        self._pass_errors = self._counter(families.PASS_ERRORS_TOTAL)
        self._job_starts = self._counter(families.JOB_STARTS_TOTAL)
        self._job_attempts = self._counter(families.JOB_ATTEMPTS_TOTAL)
        self._job_ends = self._counter(families.JOB_ENDS_TOTAL)
        self.jobs = JobMetrics(self._histogram(families.JOB_GPU_RELEASE).observe)
        self._relists = self._counter(families.RELISTS)
        self.reflector_age = self._gauge(families.REFLECTOR_AGE)
        self._requests = self._counter(families.API_REQUESTS)
        for method in _METHODS:
            self._requests.labels(method, _OK)
        self.waiting_requests = self._gauge(families.WAITING_REQUESTS)
        self.waiting_passes = self._gauge(families.WAITING_PASSES)
        self.event_loop_lag = self._gauge(families.EVENT_LOOP_LAG)
        self.tasks_restarted: Callable[[], int] = lambda: 0
        self.registry.register(_Restarts(self))
        self.unreadable_objects = self._gauge(families.UNREADABLE_OBJECTS)
        self._gauge(families.LEADER).set_function(lambda: float(self.leads()))
        self._gauge(families.BUILD_INFO).labels(version).set(1)

    # what happens

    def count_request(self, method: str, status: int) -> None:
        """Count a request to the API server; `status`: its HTTP status, 0 where no answer came."""
        code = str(status) if status == 0 or len(str(status)) == _CODE_DIGITS else "other"
        self._requests.labels(method, code).inc()

    def count_error(self, reason: Reason) -> None:
        """Count a failure of a pass or of a step of it; the conditions have the same reason."""
        self._pass_errors.labels(reason.value).inc()

    def count_job_start(self, attempt: str) -> None:
        """Count an attempt of a job that began; `attempt`: one of `families.JOB_STARTS`."""
        self._job_starts.labels(attempt).inc()

    def count_job_attempt(self, outcome: str) -> None:
        """Count an attempt of a job that ended; `outcome`: one of `families.JOB_OUTCOMES`."""
        self._job_attempts.labels(outcome).inc()

    def count_job_end(self, reason: str) -> None:
        """Count a job that ended, by the reason of its condition."""
        self._job_ends.labels(reason if reason in families.JOB_ENDS else "Other").inc()

    def relists(self, kind: str) -> Callable[[], None]:
        """What is to be called for each list of all objects of a kind."""
        return self._relists.labels(kind).inc

    def record_start(self, step: str, seconds: float, *, has_gpus: bool) -> None:
        """Record how long after its first demand a pool had its `pod`, `worker` or `result`: one of these is `step`."""
        histogram = {
            "pod": self._demand_to_pod,
            "worker": self._demand_to_worker,
            "result": self._demand_to_result,
        }[step]
        histogram.labels("gpu" if has_gpus else "cpu").observe(max(0.0, seconds))

    # clusters

    def keep(self, key: str, cluster: ClusterMetrics) -> None:
        """Export a cluster, by its `owner_key`, until it is forgotten."""
        self._clusters[key] = cluster

    def forget(self, key: str) -> None:
        """Export a cluster no more."""
        self._clusters.pop(key, None)

    # what is read

    def exposition(self) -> Iterator[bytes]:
        """All of it in Prometheus' text format, in pieces that each take less than a millisecond, as a rule.

        So a thousand clusters hold nobody up, and are never in memory as one text. The clusters are those of the
        moment in which it begins.
        """
        yield generate_latest(self.registry)
        if not self.leads():
            return
        clusters, now = tuple(self._clusters.values()), self.clock()
        yield from self._of_jobs(now)
        for family in families.CLUSTER_FAMILIES:
            lines = [header(family)]
            for cluster in clusters:
                lines.extend(self._samples(cluster, family, now))
                if len(lines) >= _LINES_A_STEP:
                    yield utf8(lines)
                    lines.clear()
            yield utf8(lines)

    def _of_jobs(self, now: float) -> Iterator[bytes]:
        for family in families.JOB_FAMILIES:
            yield utf8([header(family)])
            samples = self.jobs.samples(family, now)
            while lines := list(islice(samples, _LINES_A_STEP)):
                yield utf8(lines)

    def _samples(self, cluster: ClusterMetrics, family: Family, now: float) -> list[str]:
        """The samples of a cluster; none where they cannot be made: the others' are read all the same."""
        try:
            return cluster.samples(family, now)
        except Exception:  # noqa: BLE001 - no cluster may stop the metrics of all others
            _LOG.exception("%s of one cluster: a defect; it is not exported until its next pass", family.name)
            self._clusters = {key: other for key, other in self._clusters.items() if other is not cluster}
            return []

    def _counter(self, family: Family) -> Counter:
        return _with_states(Counter(family.name, family.help, family.labels, registry=self.registry), family)

    def _gauge(self, family: Family) -> Gauge:
        return Gauge(family.name, family.help, family.labels, registry=self.registry)

    def _histogram(self, family: Family) -> Histogram:
        made = Histogram(family.name, family.help, family.labels, buckets=family.buckets, registry=self.registry)
        return _with_states(made, family)


class _Restarts(Collector):
    """`gpudask_tasks_restarted_total`, which the supervisor counts."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        family = families.TASKS_RESTARTED
        yield CounterMetricFamily(family.name, family.help, value=self._metrics.tasks_restarted())


def _with_states(metric: T, family: Family) -> T:
    """`metric` with the series that are known in advance: a first event is an increase then."""
    for state in family.states:
        metric.labels(state)
    return metric
