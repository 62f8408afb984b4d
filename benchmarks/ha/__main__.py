"""The command: what is measured, and what is printed and kept."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.ha import report
from benchmarks.ha.report import Results
from benchmarks.ha.takeover import KILLED, NEITHER, STOPPED, Takeover, at_rest, two_operators
from benchmarks.testbed.report import describe, keep
from local.programs.binaries import KUBERNETES_VERSION

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
    async with two_operators(sizes.clusters, sizes.cpu_pods, seed=seed) as operators:
        tell(f"they rest; requests are counted for {sizes.rest_seconds:g} s")
        quiet = await at_rest(operators, sizes.rest_seconds)
        takeovers: list[Takeover] = []
        for how in (NEITHER, STOPPED, KILLED):
            for number in range(sizes.takeovers):
                found = await operators.take_over(how)
                takeovers.append(found)
                tell(
                    f"{how} {number + 1}: the Lease {found.held:.2f} s, acts {found.acts:.2f} s,"
                    f" GPU pod {found.gap:.2f} s, the standby held {found.standby.resident:.0f} MB"
                )
        return Results(tuple(takeovers), quiet, operators.observer.lease_seconds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ha", description=__doc__)
    parser.add_argument("--json", type=Path, help="keep all figures, versions and the machine in this file")
    parser.add_argument("--small", action="store_true", help="a quick check that everything works; no figures to quote")
    parser.add_argument("--takeovers", type=int, help="how many of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which leaders end: %(default)s")
    return parser.parse_args()


def main() -> None:
    """Measure, print the table, and end with the line for machines."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends with it
    about = describe(KUBERNETES_VERSION, ("kopf", "kubernetes", "aiohttp", "distributed"))
    sizes = SMALL if arguments.small else FULL
    sizes = replace(sizes, takeovers=arguments.takeovers or sizes.takeovers)
    results = asyncio.run(measure(sizes, lambda words: print(words, flush=True), seed=arguments.seed))
    if arguments.json:
        keep(arguments.json, about | report.kept(results))
    print(f"\n{report.table(results)}\n\n{report.notes(results)}\n\n{report.last_line(results)}")


if __name__ == "__main__":
    main()
