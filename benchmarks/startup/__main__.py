"""The command: who takes part, and what is printed and kept."""

from __future__ import annotations

from benchmarks.startup import report
from benchmarks.startup.participants import Floor, GpudaskOperator, RunsClusters
from benchmarks.startup.peer import Peer
from benchmarks.startup.run import Access, Benchmark
from benchmarks.startup.trial import StartupTrial


def _floor(access: Access, namespace: str) -> RunsClusters:
    return Floor(access.api, namespace)


def _gpudask(access: Access, namespace: str) -> RunsClusters:
    return GpudaskOperator(access.api, namespace)


def _peer(access: Access, namespace: str) -> RunsClusters:
    return access.peer(Peer, namespace)


STARTUP: Benchmark[RunsClusters] = Benchmark(
    name="startup",
    about="How long clusters take to start, grow and shrink",
    makers={"floor": _floor, "gpudask": _gpudask, "peer": _peer},
    default=("floor", "gpudask", "peer"),
    trials=StartupTrial,
    rounds_option="--repeats",
    table=report.table,
    last_line=report.last_line,
)

if __name__ == "__main__":
    STARTUP.main()
