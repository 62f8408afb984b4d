"""(e) What one event of the API server costs the operator: pods change, and nothing needs to be done."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.scale import bare
from benchmarks.scale.manifests import CPU, NAMESPACE, cluster_name
from benchmarks.scale.operator_process import OperatorProcess, Work
from benchmarks.scale.settling import settled
from benchmarks.scale.stage import Stage
from gpudask.desired.names import worker_pod


@dataclass(frozen=True)
class EventCost:
    """So many changes of pods, and what the operator did for them."""

    changes: int
    work: Work


async def measure(stage: Stage, operator: OperatorProcess, *, clusters: int, cpu_pods: int, rounds: int) -> EventCost:
    """Change an annotation on every CPU pod, `rounds` times."""
    lines = [
        bare.line(
            "PATCH",
            f"/api/v1/namespaces/{NAMESPACE}/pods/{worker_pod(cluster_name(which), CPU, number)}",
            {"metadata": {"annotations": {"scale.gpudask.dev/round": str(turn)}}},
            bare.MERGE_PATCH,
        )
        for turn in range(rounds)
        for number in range(cpu_pods)
        for which in range(clusters)
    ]
    client = await stage.prepared(lines)
    await settled(operator)
    before = operator.work
    await client.send()
    await settled(operator)
    return EventCost(len(lines), operator.work - before)
