"""The victim: a cluster that stays, and rounds of clusters that come, get a GPU pod, and go."""

from __future__ import annotations

from gpudask.api import Json

import itertools
import json
import time
from dataclasses import astuple, dataclass
from statistics import median
from typing import Any

from gpudask.api.resource import API_VERSION, PLURAL
from gpudask.clients.errors import ApiError
from tests.builders import a_pool
from tests.hostile.attack import MARK
from tests.hostile.impostor import Impostor
from tests.planning.builders import gpu_pool
from tests.reconcile.stage import Stage, eventually

KEEPER = "keeper"
_OWNED = (("pods", ""), ("services", ""), ("configmaps", ""), ("secrets", ""), ("poddisruptionbudgets", "policy/v1"))
_EVENTS = ("events", "events.k8s.io/v1")
_numbers = itertools.count(1)
# A step longer than this is given up: nobody waits so long for a pod.
STEP_SECONDS = 60.0


@dataclass(frozen=True)
class Times:
    """One round, in seconds: from the apply to Ready, from the demand to the GPU pod, from the delete to nothing."""

    create: float
    first_gpu: float
    delete: float

    def __str__(self) -> str:
        """As a line of the output has it."""
        return f"create={self.create:.2f}s gpu={self.first_gpu:.2f}s delete={self.delete:.2f}s"


def medians(rounds: list[Times]) -> Times:
    """Step by step, the median of these rounds."""
    return Times(*(median(step) for step in zip(*map(astuple, rounds), strict=True)))


class Victim:
    """Somebody else's namespace. `keeper_uids`: of all that the cluster that stays has, by kind and name."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.keeper_uids: dict[str, str] = {}

    async def settle(self) -> dict[str, str]:
        """Make the cluster that stays, with a GPU pod that works; what attackers may know of it, to be filled in."""
        await self._stage.apply(a_pool(replicas=2), gpu_pool(), name=KEEPER)
        await self._stage.shows("Ready", "True", KEEPER)
        await (await self._stage.scheduler(KEEPER)).want(1, GPU=1)
        await self._stage.becomes(lambda: self._pods(KEEPER, "gpu"), 1, "the keeper has its GPU pod")
        await self._stage.shows("Ready", "True AllReady", KEEPER)
        self.keeper_uids = await self._uids()
        uid = (await self._stage.cluster(KEEPER))["metadata"]["uid"]
        return {"@VICTIM@": self._stage.namespace, "@VICTIM_UID@": uid}

    async def round(self) -> Times:
        """A cluster comes, is given a GPU task, and goes.

        Raises:
            AssertionError: a step took longer than `STEP_SECONDS`.
        """
        name = f"round-{next(_numbers)}"
        began = time.monotonic()
        await self._stage.apply(a_pool(replicas=1), gpu_pool(), name=name)
        await self._stage.shows("Ready", "True", name, seconds=STEP_SECONDS)
        created = time.monotonic()
        scheduler = await self._stage.scheduler(name)
        wanted = time.monotonic()
        await scheduler.want(1, GPU=1)
        await self._becomes(lambda: self._pods(name, "gpu"), 1, f"{name} has its first GPU pod")
        got = time.monotonic()
        await self._stage.delete_cluster(name)
        await self._becomes(lambda: self._left(name), 0, f"nothing is left of {name}")
        gone = time.monotonic()
        del self._stage.kubelet.schedulers[name]
        await scheduler.stop()
        return Times(created - began, got - wanted, gone - got)

    async def harm(self, impostors: list[Impostor]) -> list[str]:
        """What the attackers have done to what is the victim's, in words."""
        found = []
        uids = await self._uids()
        if uids != self.keeper_uids:
            changed = sorted(set(uids.items()) ^ set(self.keeper_uids.items()))
            found.append(f"objects of the victim were changed: {changed[:4]}")
            self.keeper_uids = uids
        schedulers = self._stage.kubelet.schedulers.values()
        everything = json.dumps([await self._everything(), [scheduler.told for scheduler in schedulers]])
        if MARK in everything:
            at = everything.index(MARK)
            found.append(f"text of the attackers reached the victim: {everything[max(0, at - 150) : at + 100]}")
        condition = await self._stage.condition("Ready", KEEPER)
        if "True AllReady" not in condition:
            found.append(f"the victim's cluster is not ready: {condition}")
        shown = {token for impostor in impostors for token in impostor.tokens}
        if any(shown & scheduler.tokens for scheduler in schedulers):
            found.append("a hostile scheduler was shown the victim's token")
        return found

    async def _uids(self) -> dict[str, str]:
        found = {}
        for plural, group in (*_OWNED, (PLURAL, API_VERSION)):
            for item in await self._stage.list(plural, group):
                name = item["metadata"]["name"]
                if name == KEEPER or name.startswith(f"{KEEPER}-"):
                    found[f"{plural}/{name}"] = item["metadata"]["uid"]
        return found

    async def _everything(self) -> list[Json]:
        kinds = (*_OWNED, _EVENTS, (PLURAL, API_VERSION))
        return [item for plural, group in kinds for item in await self._stage.list(plural, group)]

    async def _pods(self, cluster: str, pool: str) -> int:
        return len(await self._stage.names(cluster, pool))

    async def _left(self, cluster: str) -> int:
        """How many pods there still are, and the cluster itself."""
        pods = [pod for pod in await self._stage.list("pods") if pod["metadata"]["name"].startswith(f"{cluster}-")]
        try:
            await self._stage.cluster(cluster)
        except ApiError as error:
            if error.not_found:
                return len(pods)
            raise
        return len(pods) + 1

    async def _becomes(self, look: Any, wanted: int, what: str) -> None:
        await eventually(look, lambda found: found == wanted, what, seconds=STEP_SECONDS)
