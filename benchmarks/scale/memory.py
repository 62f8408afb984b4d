"""(c) How much memory the operator needs as its clusters grow. Resident memory, in MB of 10^6 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from benchmarks.scale.growth import add_clusters, ready, want_gpus
from benchmarks.scale.operator_process import OperatorProcess
from benchmarks.scale.settling import settled
from benchmarks.scale.stage import staged


@dataclass(frozen=True)
class Weight:
    """The operator at so many pods, schedulers included, once nothing moves any more."""

    pods: int
    resident_mb: float
    peak_mb: float


@dataclass(frozen=True)
class Memory:
    """All weights, the first at no cluster; and a second operator, started when all pods were there."""

    weights: tuple[Weight, ...]
    restarted_mb: float
    restart_seconds: float

    @property
    def base_mb(self) -> float:
        """At no cluster."""
        return self.weights[0].resident_mb

    @property
    def mb_a_pod(self) -> float:
        """What a pod costs beyond the base, its share of its cluster included, where there are most pods."""
        most = self.weights[-1]
        return (most.resident_mb - self.base_mb) / most.pods


async def measure(clusters: int, totals: Sequence[int]) -> Memory:
    """Grow `clusters` clusters until they have `totals` pods, one after the other. A total counts the schedulers."""
    async with staged(clusters) as stage:
        async with stage.operating() as operator:
            weights = [await _weight(operator, 0)]
            await add_clusters(stage, gpu_pods_max=-(-totals[-1] // clusters))
            for total in totals:
                want_gpus(stage, _spread(total - clusters, clusters))
                await ready(stage, total)
                weights.append(await _weight(operator, total))
        began = monotonic()
        before = {address: played.polls for address, played in stage.schedulers.by_address.items()}
        async with stage.operating() as operator:
            await settled(operator)
            seconds = monotonic() - began
            unheard = [a for a, played in stage.schedulers.by_address.items() if played.polls == before[a]]
            assert not unheard, f"the restarted operator does not listen to {unheard[:3]}"
            return Memory(tuple(weights), operator.resident_mb, seconds)


async def _weight(operator: OperatorProcess, pods: int) -> Weight:
    await settled(operator)
    return Weight(pods, operator.resident_mb, operator.peak_mb)


def _spread(pods: int, clusters: int) -> list[int]:
    """So many pods over the clusters, as evenly as it goes."""
    return [pods // clusters + (number < pods % clusters) for number in range(clusters)]
