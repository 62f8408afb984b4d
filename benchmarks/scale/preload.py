"""What the preload costs a real scheduler: its tasks a second and its memory, with the preload and without.

    python -m benchmarks.scale.preload [--tasks 100000] [--batches 400] [--only plain] [--collector] [--json FILE]

Two schedulers, one with and one without, run at the same time, each with real workers and a client over TCP. They get
the same batches of empty tasks, one after the other in the order ABBA, and keep all results until the end, so that the
last batch meets a scheduler that holds `--tasks` tasks. Then all are let go at once. A batch is compared with its
neighbour: what else happens on the machine meets both.

The figure is the ratio of tasks per second *of the scheduler process's CPU time*: on a machine with few or shared
cores the workers and the client, not the scheduler, bound the wall clock. Wall-clock ratios are printed beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.scale.preload_side import Side, Took, running

KINDS = ("plain", "restricted")
WARM_UP_TASKS = 1000


@dataclasses.dataclass(frozen=True)
class Pair:
    """The same batch on both sides."""

    bare: Took
    preload: Took


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one kind of tasks costs: ratios are the scheduler with the preload to the one without."""

    kind: str
    batches: tuple[Pair, ...]
    letting_go: Pair
    bare_mb: float  # resident memory gained by holding all tasks
    preload_mb: float
    polls: int

    @property
    def rate(self) -> float:
        """Tasks per CPU second of the scheduler, over a task's whole life."""
        return self._ratio(lambda took: took.cpu_seconds)

    @property
    def wall_rate(self) -> float:
        """Tasks per second, over a task's whole life."""
        return self._ratio(lambda took: took.wall_seconds)

    @property
    def median_rate(self) -> float:
        """The median of the batches' own ratios of CPU time: an outlier does not move it."""
        return statistics.median(pair.bare.cpu_seconds / pair.preload.cpu_seconds for pair in self.batches)

    @property
    def error(self) -> float:
        """The standard error of the batches' mean ratio: how far off chance may be."""
        ratios = [pair.bare.cpu_seconds / pair.preload.cpu_seconds for pair in self.batches]
        return statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.inf

    @property
    def memory(self) -> float:
        """Memory for all held tasks."""
        return self.preload_mb / self.bare_mb

    def _ratio(self, of: Callable[[Took], float]) -> float:
        pairs = [*self.batches, self.letting_go]
        return sum(of(pair.bare) for pair in pairs) / sum(of(pair.preload) for pair in pairs)


def measure(
    tasks: int,
    batches: int,
    kinds: Iterable[str] = KINDS,
    tell: Callable[[str], None] = print,
    *,
    collector: bool = False,
) -> tuple[Cost, ...]:
    """Return one cost a kind, and tell of each. `collector`: with Python's garbage collector in the schedulers."""
    costs = []
    for kind in kinds:
        cost = _measure(kind, tasks, batches, collector=collector)
        tell(describe(cost))
        costs.append(cost)
    return tuple(costs)


def worst_rate(costs: Iterable[Cost]) -> float:
    """Return the figure of the last line: the rate of the kind of tasks that the preload slows the most."""
    return min(cost.rate for cost in costs)


def _measure(kind: str, tasks: int, batches: int, *, collector: bool) -> Cost:
    with (
        running(kind, preload=False, collector=collector) as bare,
        running(kind, preload=True, collector=collector) as ours,
    ):
        sides = (bare, ours)
        for side in sides:
            side.do(WARM_UP_TASKS)
            side.let_go()
        ours.polls[0] = 0
        pairs = tuple(_pair(sides, lambda side: side.do(tasks // batches), i) for i in range(batches))
        bare_mb, preload_mb = bare.held_mb(), ours.held_mb()
        letting_go = _pair(sides, lambda side: side.let_go(), 0)
        return Cost(kind, pairs, letting_go, bare_mb, preload_mb, polls=ours.polls[0])


def _pair(sides: Sequence[Side], act: Callable[[Side], Took], turn: int) -> Pair:
    if turn % 2:
        preload = act(sides[1])
        return Pair(act(sides[0]), preload)
    bare = act(sides[0])
    return Pair(bare, act(sides[1]))


def describe(cost: Cost) -> str:
    """Return a kind's figures in a few lines."""
    pairs = [*cost.batches, cost.letting_go]
    tasks = sum(pair.bare.tasks for pair in cost.batches)
    lines = [f"{cost.kind}: {tasks} tasks in {len(cost.batches)} batches; {cost.polls} long polls were answered"]
    for name, tooks, megabytes in (
        ("without", [pair.bare for pair in pairs], cost.bare_mb),
        ("with", [pair.preload for pair in pairs], cost.preload_mb),
    ):
        cpu, wall = (sum(getattr(took, field) for took in tooks) for field in ("cpu_seconds", "wall_seconds"))
        rates = f"{tasks / cpu:.0f} tasks per CPU second of the scheduler, {tasks / wall:.0f} tasks/s"
        lines.append(f"  {name:8}{rates}, {cpu * 1e6 / tasks:.0f} us of CPU a task, {megabytes:.0f} MB for all")
    lines.append(
        f"  rate={cost.rate:.3f}x (standard error {cost.error:.3f}, median of batches {cost.median_rate:.3f}x)"
        f" wall_rate={cost.wall_rate:.3f}x memory={cost.memory:.3f}x"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description="what the preload costs a real scheduler")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--collector", action="store_true", help="leave the schedulers' garbage collector on")
    parser.add_argument("--json", type=Path, help="keep all batches in this file")
    given = parser.parse_args()
    costs = measure(given.tasks, given.batches, given.only or KINDS, collector=given.collector)
    if given.json:
        given.json.write_text(json.dumps([dataclasses.asdict(cost) for cost in costs], indent=2))
    print(f"preload: preload_rate={worst_rate(costs):.3f}x")


if __name__ == "__main__":
    main()
