"""Runs of a trace beside the oracle's bounds, as ratios. Values only, but for `measure`, which makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scaling.adaptive import Adaptive
from benchmarks.scaling.fixed import Fixed
from benchmarks.scaling.gpudask_policy import Gpudask
from benchmarks.scaling.oracle import Oracle
from benchmarks.scaling.trace import Trace
from benchmarks.scaling.world import Contestant, Outcome, run

CONTESTANTS: Sequence[Callable[[], Contestant]] = (Gpudask, Adaptive, Fixed)


@dataclass(frozen=True)
class Run:
    """One contestant on one trace. All but counts in seconds or GPU-seconds; `least_…` is the oracle's."""

    trace: str
    family: str
    gpus_per_node: int
    contestant: str
    makespan: float
    least_makespan: float
    turnaround: float
    least_turnaround: float
    gpu_seconds: float
    least_gpu_seconds: float
    node_gpu_seconds: float
    least_node_gpu_seconds: float
    gpu_seconds_used: float
    actions: int
    cut: int
    gpu_pods: tuple[tuple[float, int], ...]

    @property
    def makespan_ratio(self) -> float:
        """The makespan by the oracle's."""
        return self.makespan / self.least_makespan

    @property
    def turnaround_ratio(self) -> float:
        """The time from submission to result, over all submissions, by the oracle's."""
        return self.turnaround / self.least_turnaround

    @property
    def gpu_seconds_ratio(self) -> float:
        """GPU-seconds held by pods, by the oracle's for the same service."""
        return self.gpu_seconds / self.least_gpu_seconds

    @property
    def node_gpu_seconds_ratio(self) -> float:
        """GPU-seconds of the nodes with pods on them, by the oracle's for the same service."""
        return self.node_gpu_seconds / self.least_node_gpu_seconds

    def as_json(self) -> dict[str, Any]:
        """Everything but the course."""
        names = [name for name in self.__dataclass_fields__ if name != "gpu_pods"]
        ratios = ("makespan_ratio", "turnaround_ratio", "gpu_seconds_ratio", "node_gpu_seconds_ratio")
        return {name: getattr(self, name) for name in (*names, *ratios)}


def measure(trace: Trace) -> list[Run]:
    """Every contestant on `trace`."""
    oracle = Oracle(trace)
    return [_figures(trace, oracle, run(trace, contestant())) for contestant in CONTESTANTS]


def _figures(trace: Trace, oracle: Oracle, outcome: Outcome) -> Run:
    least = oracle.least(outcome.jobs)
    return Run(
        trace=str(trace),
        family=trace.name,
        gpus_per_node=trace.machines.gpus_per_node,
        contestant=outcome.contestant,
        makespan=outcome.makespan,
        least_makespan=oracle.makespan,
        turnaround=sum(end - trace.submitted[job] for job, end in outcome.jobs.items()),
        least_turnaround=sum(oracle.job_end(job) - trace.submitted[job] for job in outcome.jobs),
        gpu_seconds=outcome.gpu_seconds,
        least_gpu_seconds=least.by_pods,
        node_gpu_seconds=outcome.node_gpu_seconds,
        least_node_gpu_seconds=least.by_nodes,
        gpu_seconds_used=outcome.gpu_seconds_used,
        actions=outcome.actions,
        cut=outcome.executions - len(trace.tasks),
        gpu_pods=outcome.gpu_pods,
    )
