"""A history of a seed: pods, faults and operators beside each other, and then a while without faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from unittest import mock

from gpudask.reconcile import loop
from tests.takeovers.api_server import ApiServer
from tests.takeovers.cluster_loop import ClusterLoop
from tests.takeovers.faults import Faults
from tests.takeovers.operators import Operator
from tests.takeovers.oracle import Oracle
from tests.takeovers.pods import Pods
from tests.takeovers.timeline import Line, Timeline

TROUBLE_SECONDS: Final = 200.0  # in which pods come and go, and faults strike
CALM_SECONDS: Final = 60.0  # after that
_JUMP = 4.0  # GPU-seconds, from one status to the next


@dataclass(frozen=True)
class Outcome:
    """What became of a history. `wrong`: how the count differs from what the pods lived; empty where it is right.

    `gap`: the part of all GPU-seconds by which they differ, from 0 to 1.
    """

    seed: int
    wrong: str
    gap: float
    course: tuple[Line, ...]

    def told(self) -> Iterator[str]:
        """The course line by line, and where the error jumps: there somebody has counted wrongly."""
        last = 0.0
        for line in self.course:
            yield line.told()
            if line.error is not None:
                if abs(line.error - last) > _JUMP:
                    yield f"-- the error jumps from {last:+.1f} to {line.error:+.1f} GPU-seconds"
                last = line.error


def play(seed: int, *, outages: bool = False, clock_is_set: bool = False) -> Outcome:
    """Play the history of a seed, and judge it; `outages`: as `ApiServer`'s.

    `clock_is_set`: somebody sets the API server's clock.
    """
    timeline = Timeline(seed)
    server = ApiServer(timeline, outages=outages)
    oracle = Oracle(timeline, server)
    pods = Pods(timeline, server)
    operators = [Operator(name, timeline, server) for name in ("A", "B")]
    faults = Faults(timeline, server, operators)
    if clock_is_set:
        faults.set_clock(TROUBLE_SECONDS)
    with mock.patch.object(loop, "ClusterLoop", ClusterLoop):
        while timeline.now < TROUBLE_SECONDS + CALM_SECONDS:
            timeline.advance()
            if timeline.now < TROUBLE_SECONDS:
                pods.change()
                faults.strike()
            for operator in operators:
                operator.step()
    found = oracle.comparison()
    return Outcome(seed, "; ".join(found.verdict.wrong), found.gap, tuple(timeline.course))
