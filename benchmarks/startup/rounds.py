"""The whole run: contestants prepared, taken in turns, and cleaned up after, whatever happens."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp

from benchmarks.startup.contestant import Contestant
from benchmarks.startup.sight import PodWatch
from benchmarks.startup.trial import STEP_SECONDS, Figures, StepTookTooLongError, Trial
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

_POLL_SECONDS = 0.2


@dataclass
class Turn:
    """What one contestant's turn gave; with an `error`, its figures do not count.

    `began` is in seconds since the epoch, `load` the machine's one-minute load at the beginning and at the end.
    """

    round: int
    contestant: str
    began: float
    load: list[float]
    figures: Figures = field(default_factory=dict)
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """For the file."""
        return asdict(self)


def order(titles: Sequence[str], number: int) -> list[str]:
    """Who goes when in round `number`: nobody is always the first."""
    start = number % max(1, len(titles))
    return [*titles[start:], *titles[:start]]


async def run(api: Kubernetes, contestants: Sequence[Contestant], repeats: int) -> AsyncGenerator[Turn]:
    """So many rounds; one Turn each, when it ends. Who lost a turn gets another, in at most as many rounds more."""
    complete: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(_session())
        by_title = {contestant.title: contestant for contestant in contestants}
        watches = {c.title: await stack.enter_async_context(_place(api, c)) for c in contestants}
        for number in range(2 * repeats):
            for title in order([title for title in by_title if complete[title] < repeats], number):
                turn = await _turn(by_title[title], api, watches[title], session, number)
                complete[title] += not turn.error
                yield turn


async def _turn(
    contestant: Contestant, api: Kubernetes, watch: PodWatch, session: aiohttp.ClientSession, number: int
) -> Turn:
    turn = Turn(number, contestant.title, time.time(), [os.getloadavg()[0]])
    trial = Trial(contestant, api, watch, session, number)
    try:
        before = (watch.breaks, await contestant.served_by())
        await trial.run()
        if (watch.breaks, await contestant.served_by()) != before:
            turn.error = "disturbed: the API server or the operator was restarted meanwhile"
    except (StepTookTooLongError, TimeoutError, ApiError, OSError) as error:  # the other turns still count
        turn.error = f"{type(error).__name__}: {error}"
    turn.figures = trial.figures
    turn.load.append(os.getloadavg()[0])
    return turn


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(trust_env=False, connector=aiohttp.TCPConnector(force_close=True))


@asynccontextmanager
async def _place(api: Kubernetes, contestant: Contestant) -> AsyncIterator[PodWatch]:
    """The contestant's namespace, its pods watched; the namespace is gone afterwards."""
    name = contestant.namespace
    watch = PodWatch(api, name)
    try:
        await api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
        watching = asyncio.create_task(watch.run())
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await watch.open.wait()
                await contestant.prepare()
            yield watch
        finally:
            watching.cancel()
    finally:
        try:
            await contestant.close()
        finally:
            await _remove_namespace(api, name)


async def _remove_namespace(api: Kubernetes, name: str) -> None:
    path = f"/api/v1/namespaces/{name}"
    async with asyncio.timeout(STEP_SECONDS):
        try:
            await api.request("DELETE", path)
            while True:
                await api.request("GET", path)
                await asyncio.sleep(_POLL_SECONDS)
        except ApiError as error:
            if not error.not_found:
                raise
