"""The command: who takes part, and what is printed and kept."""

from __future__ import annotations

from benchmarks.startup import report
from benchmarks.startup.contestant import Contestant
from benchmarks.startup.floor import Floor
from benchmarks.startup.gpudask_operator import GpudaskOperator
from benchmarks.startup.occasion import Occasion, Stage
from benchmarks.startup.peer import Peer
from benchmarks.startup.trial import StartupTrial


def _floor(stage: Stage, namespace: str) -> Contestant:
    return Floor(stage.api, namespace)


def _gpudask(stage: Stage, namespace: str) -> Contestant:
    return GpudaskOperator(stage.api, namespace)


def _peer(stage: Stage, namespace: str) -> Contestant:
    return stage.peer(Peer, namespace)


STARTUP: Occasion[Contestant] = Occasion(
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
