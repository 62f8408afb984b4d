"""Trials: attacks beside the victim, and what harm they did.

A step of the victim's rounds may take twice its time without attacks, or `Limits.floor_seconds` if that is longer: calm
steps take a fraction of a second, and a machine whose two processors also run the API server, the played nodes and the
attackers adds as much by itself. Each trial has several rounds beside the attacks; their median is held against that
limit, and each single step against `Limits.longest_seconds`. Where that is broken the calm is measured anew, once the
attacks are over: a machine that is busy with something else is slow then, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import astuple, dataclass, fields

from tests.hostile.attack import Attack, Attacker, Expected
from tests.hostile.impostor import SILENT
from tests.hostile.platform import AttackersNamespace, Platform
from tests.hostile.victim import Times, Victim, medians

_ASKED_SECONDS = 30.0
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """Limits of harm. `memory_share`: of the operator's memory at rest, so much may have come to it in the end."""

    floor_seconds: float = 1.5
    longest_seconds: float = 10.0
    memory_share: float = 0.10


@dataclass(frozen=True)
class Outcome:
    """Of one trial. `harm`: what was seen, in words; empty: none. `missed`: attacks that were none."""

    times: Times | None
    harm: tuple[str, ...]
    missed: tuple[str, ...]
    seconds: float
    resident_mb: float
    cpu_seconds: float  # of the operator


class Trials:
    """Trials on one platform, one after another. `calm`: the victim's rounds without attacks."""

    def __init__(self, platform: Platform, tell: Tell, limits: Limits, *, rounds: int) -> None:
        self._platform = platform
        self._tell = tell
        self._rounds = rounds
        self._limits = limits
        self._victim = Victim(platform.victim)
        self._count = 0
        self._elsewhere = 0
        self._calm: Times | None = None

    async def begin(self, calm_rounds: int) -> None:
        """Measure the victim without attacks, after rounds that warm everything up."""
        self._platform.victim_known.update(await self._victim.settle())
        for _ in range(2):
            await self._victim.round()
        self._calm = medians([await self._victim.round() for _ in range(calm_rounds)])
        self._platform.operator.complaints()
        self._tell(f"calm: {self._calm}, limits {self._longest()}")

    async def rehearse(self, attacks: Sequence[Attack]) -> None:
        """These attacks at once, as long as in a trial, unwatched: what a process has ever needed it keeps in part."""
        self._count += 1
        answers = {cluster: text for attack in attacks for cluster, text in attack.schedulers.items()}
        async with self._platform.attackers_namespace(self._count, answers) as theirs:
            async with _acting([(attack, theirs.attacker()) for attack in attacks]):
                await asyncio.sleep(max(2.0, *(attack.seconds for attack in attacks)))
                await self._watch()
            await self._victim.harm([])

    async def hold(self, attacks: Sequence[Attack]) -> Outcome:
        """These attacks at once, beside the victim."""
        self._count += 1
        began, operator = time.monotonic(), self._platform.operator
        cpu_seconds = operator.process.cpu_seconds
        answers = {cluster: text for attack in attacks for cluster, text in attack.schedulers.items()}
        harm: list[str] = []
        async with self._platform.attackers_namespace(self._count, answers) as theirs:
            attackers = [(attack, theirs.attacker()) for attack in attacks]
            async with _acting(attackers):
                await asyncio.sleep(max(attack.seconds for attack in attacks))
                rounds = await self._watch()
            harm += await self._victim.harm(list(theirs.impostors.values()))
            missed = [
                f"{attack.name}: {text}"
                for attack, attacker in attackers
                if (text := await _missed(attack, attacker, theirs))
            ]
        harm += [rounds] if isinstance(rounds, str) else await self._late(rounds)
        harm += await self._harm_to_operator()
        resident_mb = 0.0 if operator.has_ended else operator.process.resident_mb
        times = None if isinstance(rounds, str) else medians(rounds)
        used = 0.0 if operator.has_ended else operator.process.cpu_seconds - cpu_seconds
        return Outcome(times, tuple(harm), tuple(missed), time.monotonic() - began, resident_mb, used)

    async def _watch(self) -> list[Times] | str:
        """The victim's rounds beside the attacks; or how it did not get on."""
        try:
            return [await self._victim.round() for _ in range(self._rounds)]
        except AssertionError as error:
            return f"the victim's cluster did not get on: {str(error)[:300]}"

    async def _late(self, rounds: list[Times]) -> list[str]:
        """Which steps took too long, after another look at how long they take without attacks."""
        if not self._beyond(rounds):
            return []
        now = medians([await self._victim.round() for _ in range(3)])
        first = self._known
        self._calm = Times(*map(max, zip(astuple(first), astuple(now), strict=True)))
        late = self._beyond(rounds)
        self._calm = first
        return late

    def _beyond(self, rounds: list[Times]) -> list[str]:
        steps = [field.name for field in fields(Times)]
        table = zip(steps, astuple(medians(rounds)), astuple(self._known), astuple(self._longest()), strict=True)
        late = [
            f"{step} took {took:.2f} s (calm {calm:.2f} s, at most {limit:.2f} s)"
            for step, took, calm, limit in table
            if took > limit
        ]
        longest = max(max(astuple(each)) for each in rounds)
        allowed = max(self._limits.longest_seconds, *(2 * limit for limit in astuple(self._longest())))
        return late + ([f"a step took {longest:.1f} s"] if longest > allowed else [])

    async def _harm_to_operator(self) -> list[str]:
        operator = self._platform.operator
        found = [f"the operator's log: {line}" for line in operator.complaints()]
        if operator.has_ended:
            return [*found, f"the operator ended: {operator.process.returncode}"]
        health = await operator.process.health()
        if not health.startswith("200 it leads") or "restarts" in health:
            found.append(f"the operator's health: {health.strip()}")
        if self._platform.elsewhere.asked > self._elsewhere:
            self._elsewhere = self._platform.elsewhere.asked
            found.append("the operator followed a redirect")
        return found

    @property
    def _known(self) -> Times:
        assert self._calm is not None, "begin comes first"
        return self._calm

    def _longest(self) -> Times:
        return Times(*(max(2 * step, self._limits.floor_seconds) for step in astuple(self._known)))


@contextlib.asynccontextmanager
async def _acting(attackers: Sequence[tuple[Attack, Attacker]]) -> AsyncIterator[None]:
    """All attacks: what is sent is sent, and what goes on goes on until the block ends."""
    await asyncio.gather(*(_send(attack, attacker) for attack, attacker in attackers))
    tasks = [asyncio.create_task(attack.acts(attacker)) for attack, attacker in attackers if attack.acts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def _send(attack: Attack, attacker: Attacker) -> None:
    for request in attack.requests:
        await attacker.send(request)


async def _missed(attack: Attack, attacker: Attacker, theirs: AttackersNamespace) -> str:
    """Why this was no attack, or was let in though it should not be; empty: it came as it was meant."""
    if attack.expected is Expected.REFUSED:
        return f"{attacker.admitted} requests were let in" if attacker.admitted or not attacker.refused else ""
    if attack.requests and attacker.refused and not attack.acts:
        return f"{attacker.refused} requests were refused: {attacker.said}"
    if not attacker.admitted:
        return f"nothing was let in: {attacker.said}"
    deadline = time.monotonic() + _ASKED_SECONDS
    for cluster, answers in attack.schedulers.items():
        while answers != SILENT and not (cluster in theirs.impostors and theirs.impostors[cluster].asked):
            if time.monotonic() > deadline:
                return f"the operator never asked the scheduler of {cluster}"
            await asyncio.sleep(0.1)
    return ""
