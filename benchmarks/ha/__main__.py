"""The command: what is measured, and what is printed and kept."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.ha.takeover import KILLED, NEITHER, STOPPED, Rest, Takeover, at_rest, two_operators
from benchmarks.testbed.report import describe, is_met, keep, markdown, one_line, with_unit
from local.programs.binaries import KUBERNETES_VERSION

Tell = Callable[[str], None]
_HEAD = ("", "n", "least", "median", "most", "wanted", "met")
# What is wanted on 2 cores: medians.
_KILLED_SECONDS, _STOPPED_SECONDS, _GAP_SECONDS, _STANDBY_MB = 10.0, 1.0, 10.0, 130.0


@dataclass(frozen=True)
class Sizes:
    """`cpu_pods`: of each cluster, beside its scheduler and a GPU pod; `takeovers`: of each kind."""

    clusters: int
    cpu_pods: int
    takeovers: int
    rest_seconds: float


FULL = Sizes(clusters=100, cpu_pods=8, takeovers=10, rest_seconds=60)
SMALL = Sizes(clusters=4, cpu_pods=2, takeovers=2, rest_seconds=10)


@dataclass(frozen=True)
class Results:
    """The figures. `lease_seconds`: how long a Lease holds that nobody renews."""

    takeovers: tuple[Takeover, ...]
    rest: Rest
    lease_seconds: int

    def of(self, how: str) -> list[Takeover]:
        """The takeovers of one kind."""
        return [item for item in self.takeovers if item.how == how]

    @property
    def standby_mb(self) -> list[float]:
        """What each standby held just before it took over."""
        return [item.standby.resident for item in self.takeovers]


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


def last_line(results: Results) -> str:
    """One line for whoever reads figures by machine: medians."""
    killed, stopped = results.of(KILLED), results.of(STOPPED)
    values = {
        "takeover_killed": with_unit(median(item.acts for item in killed), "s"),
        "takeover_stopped": with_unit(median(item.acts for item in stopped), "s"),
        "scale_gap": with_unit(median(item.gap for item in killed), "s"),
        "standby_memory": with_unit(median(results.standby_mb), "MB", 0),
    }
    return one_line("ha", values)


def table(results: Results) -> str:
    """Markdown: what, how often, least, median and most, what is wanted, whether the median is that."""
    return markdown(_HEAD, _rows(results))


def notes(results: Results) -> str:
    """What the table does not say."""
    rest, names = results.rest, (("leader", results.rest.leader), ("standby", results.rest.standby))
    asked = (f"the {name} {rest.rate(requests):.2f} a second {requests or ''}".rstrip() for name, requests in names)
    return (
        f"At rest, {rest.seconds:g} s, requests to the API server beside watches and the Lease: {', '.join(asked)};"
        f" for the Lease {rest.lease / rest.seconds:.1f} a second of both; {rest.polls} long polls of schedulers.\n"
        f"A Lease that nobody can give back, as of a lost node, holds for {results.lease_seconds} s."
    )


def kept(results: Results) -> dict[str, Any]:
    """All figures as JSON."""
    return {"ha": last_line(results), **asdict(results)}


def _rows(results: Results) -> Iterator[tuple[str, ...]]:
    killed, stopped, neither = (results.of(how) for how in (KILLED, STOPPED, NEITHER))
    rows: tuple[tuple[str, Sequence[float], float | None], ...] = (
        ("killed: until the other acts", [item.acts for item in killed], _KILLED_SECONDS),
        ("killed: until the Lease names it", [item.held for item in killed], None),
        ("killed: until a GPU pod is there", [item.gap for item in killed], _GAP_SECONDS),
        ("stopped: until the other acts", [item.acts for item in stopped], _STOPPED_SECONDS),
        ("stopped: until the Lease names it", [item.held for item in stopped], None),
        ("stopped: until a GPU pod is there", [item.gap for item in stopped], None),
        ("neither: until a deleted pod is replaced", [item.acts for item in neither], None),
        ("neither: until a GPU pod is there", [item.gap for item in neither], None),
    )
    for what, seconds, wanted in rows:
        bound = ("", "") if wanted is None else (f"<= {wanted:g} s", is_met(median(seconds) <= wanted))
        yield what, *_spread(seconds, ".2f", "s"), *bound
    held, bound = results.standby_mb, (f"< {_STANDBY_MB:g} MB", is_met(median(results.standby_mb) < _STANDBY_MB))
    yield "the standby's resident memory", *_spread(held, ".0f", "MB"), *bound
    shared = [item.standby.proportional for item in results.takeovers]
    yield "of that, shared pages divided", *_spread(shared, ".0f", "MB"), "", ""


def _spread(values: Sequence[float], form: str, unit: str) -> tuple[str, ...]:
    """How many, the least, the median, the most."""
    return str(len(values)), *(f"{value:{form}} {unit}" for value in (min(values), median(values), max(values)))


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
        keep(arguments.json, about | kept(results))
    print(f"\n{table(results)}\n\n{notes(results)}\n\n{last_line(results)}")


if __name__ == "__main__":
    main()
