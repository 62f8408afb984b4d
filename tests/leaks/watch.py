"""A watch over the namespace of a run: which clusters and which of their pods are there, and since when no more."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import time
from collections.abc import Callable

from gpudask.api.resource import API_VERSION, LABEL_CLUSTER, PLURAL
from local.errors import LocalClusterError
from tests.leaks.report import Seen

Get = Callable[[str], Json | None]
_LOOK_SECONDS = 1.0


class Watch:
    """What was seen.

    Args:
        get: what the API server has at a path; raises LocalClusterError.
        namespace: of the programs.
    """

    def __init__(self, get: Get, namespace: str) -> None:
        self._get = get
        self._clusters = f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._gone_at: dict[str, float] = {}
        self._left: dict[str, tuple[str, ...]] = {}

    @property
    def count(self) -> int:
        """The clusters of which something is there, as last seen."""
        return len(self._left)

    @property
    def seen(self) -> Seen:
        """All of it, as last seen."""
        return Seen(dict(self._gone_at), dict(self._left))

    async def keep(self) -> None:
        """Look again and again, until this is cancelled; what is not answered is asked again."""
        while True:
            try:
                await self.look()
            except LocalClusterError as error:
                print(f"the API server: {error}", flush=True)
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Look once.

        Raises:
            LocalClusterError: the API server does not answer.
        """
        # Pods first: a cluster whose pods are listed before it exists is seen by its own list.
        pods = await asyncio.to_thread(self._get, self._pods)
        clusters = await asyncio.to_thread(self._get, self._clusters)
        self.note(items(clusters), items(pods), time.monotonic())

    def note(self, clusters: list[Json], pods: list[Json], now: float) -> None:
        """Note what is there now."""
        found: dict[str, list[str]] = {}
        for body in clusters:
            name = body["metadata"]["name"]
            found.setdefault(name, []).append(f"cluster {name}")
        for body in pods:
            of = body["metadata"].get("labels", {}).get(LABEL_CLUSTER, "")
            found.setdefault(of or "no cluster", []).append(f"pod {body['metadata']['name']}")
        for name in self._left.keys() - found.keys():
            self._gone_at[name] = now
        for name in found:
            self._gone_at.pop(name, None)
        self._left = {name: tuple(what) for name, what in found.items()}

    async def has(self, cluster: str, *, uncalled: bool = False) -> bool:
        """Whether the resource is there; `uncalled`: and nobody has asked for its deletion.

        Raises:
            LocalClusterError: the API server does not answer.
        """
        body = await asyncio.to_thread(self._get, f"{self._clusters}/{cluster}")
        return body is not None and not (uncalled and "deletionTimestamp" in body["metadata"])

    async def until_gone(self, seconds: float) -> None:
        """Wait until nothing is left, so many seconds at most; a last look then says what is."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                await self.look()
            except LocalClusterError:
                if time.monotonic() > deadline:
                    raise
            else:
                if not self._left or time.monotonic() > deadline:
                    return
            await asyncio.sleep(_LOOK_SECONDS)


def items(listed: Json | None) -> list[Json]:
    """The items of a list."""
    return list((listed or {}).get("items") or ())
