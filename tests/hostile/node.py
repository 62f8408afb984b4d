"""The node of the attackers' namespace, played: it runs whatever pod there is, and their schedulers are impostors."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import json
from collections.abc import Mapping

from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from tests.hostile.impostor import Impostor
from tests.reconcile.fake_dask import free_address
from tests.reconcile.fake_kubelet import FakeKubelet

# On a pod: what its status says once it runs, as far as a user's container has a say in it.
STATUS = "hostile.example/status"


class Node(FakeKubelet):
    """`answers`: cluster -> what its impostor answers. Of a cluster that is not named there the scheduler is honest."""

    def __init__(self, api: Kubernetes, namespace: str, answers: Mapping[str, str]) -> None:
        super().__init__(api, namespace)
        self._answers = answers
        self._busy = asyncio.Semaphore(32)
        self.impostors: dict[str, Impostor] = {}

    async def stop(self) -> None:
        """End, and all schedulers."""
        await super().stop()
        await asyncio.gather(*(impostor.stop() for impostor in self.impostors.values()))

    async def _begin(self, body: Json, cluster: str, pool: str) -> None:
        metadata = body["metadata"]
        async with self._busy:
            try:
                await super()._begin(body, cluster, pool)
                if text := metadata.get("annotations", {}).get(STATUS):
                    await self._status(metadata["name"], json.loads(text))
            except (KeyError, ApiError):
                return  # it says that it is a worker, and has no name of one; or it is gone

    async def _end(self, body: Json) -> None:
        async with self._busy:
            await super()._end(body)

    async def _scheduler(self, cluster: str) -> str:
        if cluster in self.schedulers:
            return self.schedulers[cluster].address
        if cluster not in self._answers:
            return await super()._scheduler(cluster)
        if cluster not in self.impostors:
            self.impostors[cluster] = Impostor(self._answers[cluster], free_address())
            await self.impostors[cluster].start()
        return self.impostors[cluster].address
