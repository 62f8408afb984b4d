"""The command: all attacks, group by group, beside one victim. `python -m tests.hostile --list` names them.

The last line is `hostile: attacks=N harmed=H`. A group that did harm is taken apart: each of its attacks is tried
alone, and those that do harm alone are counted; where none does, the group counts as one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.attack import Attack
from tests.hostile.attacks import ALL, groups
from tests.hostile.platform import Platform, bare_platform
from tests.hostile.trial import Limits, Outcome, Tell, Trials


@dataclass(frozen=True)
class Result:
    """Of a run."""

    attacks: int
    harmed: tuple[str, ...]

    def __str__(self) -> str:
        """The last line."""
        return f"hostile: attacks={self.attacks} harmed={len(self.harmed)}"


@dataclass(frozen=True)
class Plan:
    """A plan of trials: groups of attacks by title, all of them so many `times`; rounds of the victim, and limits."""

    groups: Sequence[tuple[str, Sequence[Attack]]]
    rounds: int = 3
    calm_rounds: int = 7
    times: int = 1
    takes_apart: bool = True
    limits: Limits = field(default_factory=Limits)


async def run(plan: Plan, scratch: Path, tell: Tell) -> Result:
    """Try `plan`; the operator's log is left in `scratch`."""
    harmed: list[str] = []
    async with bare_platform(scratch) as platform:
        trials = Trials(platform, tell, plan.limits, rounds=plan.rounds)
        await trials.begin(plan.calm_rounds)
        tell(f"memory at rest, before any attack: {await platform.operator.at_rest():.1f} MB")
        for _, group in plan.groups:
            await trials.rehearse(group)
        before_mb = await platform.operator.at_rest()
        tell(f"memory at rest, after a rehearsal of all: {before_mb:.1f} MB")
        for title, group in [*plan.groups] * plan.times:
            outcome = await trials.hold(group)
            tell(_line(title, group, outcome))
            harmed += outcome.missed
            harmed += await _apart(trials, group if plan.takes_apart else (), outcome, tell)
            if platform.operator.has_ended:
                break
        harmed += await _memory(platform, before_mb * (1 + plan.limits.memory_share), tell)
    for text in harmed:
        tell(f"HARMED {text}")
    return Result(sum(len(group) for _, group in plan.groups) * plan.times, tuple(harmed))


async def _apart(trials: Trials, group: Sequence[Attack], outcome: Outcome, tell: Tell) -> list[str]:
    """Which of the group's attacks did what harm."""
    if not outcome.harm:
        return []
    if len(group) == 1:
        return [f"{group[0].name}: {'; '.join(outcome.harm)}"]
    alone = []
    for attack in group:
        again = await trials.hold([attack])
        tell("  alone: " + _line(attack.section, [attack], again))
        if again.harm:
            alone.append(f"{attack.name}: {'; '.join(again.harm)}")
    together = " + ".join(attack.name for attack in group) or "a group"
    return alone or [f"{together}: {'; '.join(outcome.harm)}"]


async def _memory(platform: Platform, limit_mb: float, tell: Tell) -> list[str]:
    if platform.operator.has_ended:
        return []
    after_mb = await platform.operator.at_rest()
    tell(
        f"memory at rest, in the end: {after_mb:.1f} MB, limit {limit_mb:.1f} MB; log {platform.operator.log_mb:.1f} MB"
    )
    if after_mb > limit_mb:
        after_mb, seconds = await platform.operator.comes_down(limit_mb)
        tell(f"memory at rest, {seconds:.0f} s later: {after_mb:.1f} MB")
    return [f"memory: {after_mb:.1f} MB are left, {limit_mb:.1f} MB at most"] if after_mb > limit_mb else []


def _line(section: str, group: Sequence[Attack], outcome: Outcome) -> str:
    times = str(outcome.times) if outcome.times else "no round ended"
    harm = "; ".join((*outcome.harm, *outcome.missed)) or "no harm"
    names = group[0].name if len(group) == 1 else f"{len(group)} attacks"
    used = f"cpu={outcome.cpu_seconds:.1f}s memory={outcome.resident_mb:.0f}MB"
    return f"{section}: {names}: {times} {used} in {outcome.seconds:.0f}s: {harm}"


def _chosen(only: str) -> list[Attack]:
    words = only.split(",")
    return [attack for attack in ALL if any(word in f"{attack.section}: {attack.name}" for word in words)]


def main() -> int:
    """Run what the arguments say; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--only", default="", help="attacks whose section or name has one of these words, by commas")
    parser.add_argument("--size", type=int, default=12, help="attacks at once (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of the victim, beside each group (%(default)s)")
    parser.add_argument("--calm", type=int, default=7, help="of the victim, before (%(default)s)")
    parser.add_argument("--times", type=int, default=1, help="all of it again and again: a leak grows each time")
    parser.add_argument("--scratch", type=Path, help="keep the operator's log in this directory")
    parser.add_argument("--list", action="store_true", help="print the attacks")
    arguments = parser.parse_args()
    attacks = _chosen(arguments.only)
    if arguments.list:
        print("\n".join(f"{attack.section}: {attack.name} ({attack.expected.value})" for attack in attacks))
        return 0
    scratch = arguments.scratch or Path(tempfile.mkdtemp(prefix="hostile-"))
    scratch.mkdir(parents=True, exist_ok=True)
    print(f"the operator's log: {scratch / 'operator.log'}", flush=True)
    plan = Plan([*groups(attacks, arguments.size)], arguments.rounds, arguments.calm, arguments.times)
    result = asyncio.run(run(plan, scratch, lambda words: print(words, flush=True)))
    print(result)
    return 1 if result.harmed else 0


if __name__ == "__main__":
    sys.exit(main())
