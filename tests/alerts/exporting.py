"""Two operators' metrics, as their own exporters write them: one leads and runs three clusters, the other stands by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from gpudask.api.cron_job import CronJobStatus
from gpudask.api.job import JobPhase, JobReason
from gpudask.api.reasons import ConditionType, Reason
from gpudask.api.status import CauseSeconds, Condition, Demand, OwnerSeconds, PoolStatus, Status
from gpudask.metrics.clusters import ClusterMetrics, Feed, Report
from gpudask.metrics.jobs import JobState
from gpudask.metrics.operator import Metrics
from gpudask.metrics.pools import PoolLimits
from tests.alerts.scraping import Target

CLUSTERS = (("lab", "demo"), ("lab", "hungry"), ("shop", "demo"))
_ATTRIBUTION = {"team": "vision", "project": "maps", "user": ""}
_LIMITS = {"cpu": PoolLimits(1, 4), "gpu": PoolLimits(0, 8, has_gpus=True, has_fallback=True)}
_CONDITIONS = {
    ConditionType.READY: Reason.ALL_READY,
    ConditionType.SCHEDULER_READY: Reason.SCHEDULER_RUNNING,
    ConditionType.DEGRADED: Reason.CRASHING,
}
_CRON_JOB = {
    "missed": 1,
    "lastScheduleTime": "2026-11-27T12:00:00Z",
    "nextScheduleTime": "2026-11-28T12:00:00Z",
    "conditions": [{"type": "Accepted", "status": "False", "reason": "LimitExceeded"}],
}


@contextmanager
def operators() -> Iterator[list[Target]]:
    """Both, where Prometheus finds them; each time that it looks, something more has happened."""
    leader, standby = Metrics(clock=time.monotonic, version="1"), Metrics(version="1")
    leader.leads = lambda: True
    clusters = [_cluster(namespace, name) for namespace, name in CLUSTERS]
    for number, cluster in enumerate(clusters):
        leader.keep(str(number), cluster)
    leader.jobs.set_job("lab/1", JobState(JobPhase.RUNNING))
    leader.jobs.set_job("lab/2", JobState(JobPhase.PENDING, JobReason.CLUSTER_PENDING, time.monotonic()))
    leader.jobs.set_cron_job("lab/3", "nightly", CronJobStatus.model_validate(_CRON_JOB), suspended=False)

    def worked() -> str:
        for cluster in clusters:
            _go_on(leader, cluster)
        return _text(leader)

    with _serving(worked) as first, _serving(lambda: _text(standby)) as second:
        yield [Target(first, "gpudask-0"), Target(second, "gpudask-1")]


def _cluster(namespace: str, name: str) -> ClusterMetrics:
    """A cluster with two GPUs, of which one works for its owner."""
    made = ClusterMetrics(namespace, name, attribution=_ATTRIBUTION, feed=lambda: Feed(up=True, age_seconds=1.0))
    causes = [CauseSeconds(cause=cause, gpus=1, gpu_seconds=9.0) for cause in ("working", "spare")]
    owners = [OwnerSeconds(owner="ada", gpu_seconds=9.0)]
    demand = Demand(waiting=3, running=1)
    gpu = PoolStatus(name="gpu", gpus_held=2, gpus_busy=1, causes=causes, owners=owners, demand=demand, unschedulable=1)
    conditions = [Condition(type=kind, status="True", reason=reason) for kind, reason in _CONDITIONS.items()]
    status = Status(conditions=conditions, pools=[PoolStatus(name="cpu", ready=1), gpu])
    made.set_report(Report(status, time.monotonic(), limits=_LIMITS, unservable=2))
    return made


def _go_on(leader: Metrics, cluster: ClusterMetrics) -> None:
    """One more pass over a cluster, in which something of everything happens."""
    leader.pass_seconds.observe(0.01)
    leader.count_request("POST", 201)
    leader.count_request("GET", 0)
    leader.count_error(Reason.OPERATOR_FAILED)
    leader.relists("pods")()
    leader.count_job_start("first")
    leader.count_job_attempt("failed")
    leader.count_job_end("RetriesSpent")
    leader.jobs.runner_ended(["pod"], time.monotonic() - 1)
    leader.jobs.pod_gone("pod", time.monotonic())
    leader.reflector_age.labels("pods").set(1)
    leader.drain_seconds.observe(3)
    leader.drain_moved_bytes.inc(1000)
    for step in ("pod", "worker", "result"):
        leader.record_start(step, 2, has_gpus=True)
    pool = cluster.pool("gpu")
    pool.drains += 1
    pool.terminations["OOMKilled"] += 1


def _text(metrics: Metrics) -> str:
    return b"".join(metrics.exposition()).decode()


@contextmanager
def _serving(text: Callable[[], str]) -> Iterator[str]:
    """An HTTP server of this process that answers with `text()`; its address as `host:port`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
