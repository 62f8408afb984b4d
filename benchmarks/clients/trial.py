"""One turn: a user gets a cluster."""

from __future__ import annotations

import asyncio

from benchmarks.clients.contestants import Connects
from benchmarks.startup.room import PATIENCE_SECONDS, clear, shown
from benchmarks.startup.rounds import Figures, StepTookTooLongError
from benchmarks.startup.sight import PodWatch
from gpudask.clients.kubernetes import Kubernetes

# So that no turn pays for what the one before it left to do.
_SETTLE_SECONDS = 2.0


class ClientTrial:
    """A cluster that is asked for, waited for, used once, and swept away."""

    def __init__(self, contestant: Connects, api: Kubernetes, watch: PodWatch, number: int) -> None:
        self._contestant = contestant
        self._api = api
        self._watch = watch
        self._cluster = f"pair{number}"
        self.figures: Figures = {}

    async def run(self) -> None:
        """All of it; `rounds.Trial` says what is raised."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._contestant.connect(self._cluster, self.figures)
        except TimeoutError as error:
            seen = await shown(self._api, self._contestant.namespace, self._cluster)
            raise StepTookTooLongError(f"not within {PATIENCE_SECONDS:.0f} s; {seen}") from error
        finally:
            await clear(self._api, self._contestant, self._watch, self._cluster)
        await asyncio.sleep(_SETTLE_SECONDS)
