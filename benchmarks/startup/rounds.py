"""The whole run: participants prepared, taken in turns, and cleaned up after, whatever happens."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeVar

from benchmarks.startup.contestant import Participant
from benchmarks.startup.room import room
from benchmarks.startup.sight import PodWatch
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

Figures = dict[str, float]
P = TypeVar("P", bound=Participant)


class StepTookTooLongError(Exception):
    """A step was given up."""


class Trial(Protocol):
    """The steps of one turn. `figures`: name -> seconds, filled as steps end: a failure keeps what went well."""

    figures: Figures

    async def run(self) -> None:
        """All steps.

        Raises:
            StepTookTooLongError: what was asked for did not come; the text shows the pods.
            ApiError: a request was refused.
        """


# Makes the trial of a participant's turn in a round of this number.
Trials = Callable[[P, Kubernetes, PodWatch, int], Trial]


@dataclass
class Turn:
    """What one participant's turn gave; with an `error`, its figures do not count.

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


async def run(api: Kubernetes, participants: Sequence[P], repeats: int, trials: Trials[P]) -> AsyncGenerator[Turn]:
    """So many rounds; one Turn each, when it ends. Who lost a turn gets another, in at most as many rounds more."""
    complete: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        by_title = {participant.title: participant for participant in participants}
        watches = {p.title: await stack.enter_async_context(room(api, p)) for p in participants}
        for number in range(2 * repeats):
            for title in order([title for title in by_title if complete[title] < repeats], number):
                turn = await _turn(by_title[title], api, watches[title], number, trials)
                complete[title] += not turn.error
                yield turn


async def _turn(participant: P, api: Kubernetes, watch: PodWatch, number: int, trials: Trials[P]) -> Turn:
    turn = Turn(number, participant.title, time.time(), [os.getloadavg()[0]])
    trial = trials(participant, api, watch, number)
    try:
        before = (watch.breaks, await participant.served_by())
        await trial.run()
        if (watch.breaks, await participant.served_by()) != before:
            turn.error = "disturbed: the API server or the operator was restarted meanwhile"
    except (StepTookTooLongError, TimeoutError, ApiError, OSError) as error:  # the other turns still count
        turn.error = f"{type(error).__name__}: {error}"
    turn.figures = trial.figures
    turn.load.append(os.getloadavg()[0])
    return turn
