"""How large the measurement is, and in what order things happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.ha import rest
from benchmarks.ha.report import Results
from benchmarks.ha.takeover import KILLED, NEITHER, STOPPED, Takeover, theatre

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """`cpu_pods`: of each cluster, beside its scheduler and a GPU pod; `takeovers`: of each kind."""

    clusters: int
    cpu_pods: int
    takeovers: int
    rest_seconds: float


FULL = Sizes(clusters=100, cpu_pods=8, takeovers=10, rest_seconds=60)
SMALL = Sizes(clusters=4, cpu_pods=2, takeovers=2, rest_seconds=10)


async def measure(sizes: Sizes, tell: Tell, *, seed: int) -> Results:
    """Rest first, then takeovers of each kind."""
    tell(f"{sizes.clusters} clusters, {sizes.clusters * (2 + sizes.cpu_pods)} pods, two operators")
    async with theatre(sizes.clusters, sizes.cpu_pods, seed=seed) as stage:
        tell(f"they rest; requests are counted for {sizes.rest_seconds:g} s")
        quiet = await rest.measure(stage, sizes.rest_seconds)
        takeovers: list[Takeover] = []
        for how in (NEITHER, STOPPED, KILLED):
            for number in range(sizes.takeovers):
                found = await stage.take_over(how)
                takeovers.append(found)
                tell(
                    f"{how} {number + 1}: the Lease {found.held:.2f} s, acts {found.acts:.2f} s,"
                    f" GPU pod {found.gap:.2f} s, the standby held {found.standby.resident:.0f} MB"
                )
        return Results(tuple(takeovers), quiet, stage.sight.lease_seconds)
