"""A pool held at a fixed set of workers for a while: what XGBoost, PyTorch and cuML want."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gpudask.api.pool import Pool
from gpudask.kubecluster import overrides
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.sizes import refuse_shared, set_override, user

if TYPE_CHECKING:
    from types import TracebackType

    from gpudask.kubecluster.sized import SizedCluster

logger = logging.getLogger(__name__)

Json = dict[str, Any]
# A program that is killed gives nothing back: its hold ends by itself after so long, and one that lives renews it.
_LEASE = timedelta(minutes=15)
_RENEW_SECONDS = 240.0


class Hold:
    """`with cluster.hold("gpu", 4) as workers:` sets the size, waits for exactly those workers, and gives it back.

    What `with` (or `async with`) gives are the workers' addresses, as `workers=` of Dask takes them.
    The size is set for 15 minutes, and again every 4 while this program runs.
    """

    def __init__(self, cluster: SizedCluster, pool: str, n: int, timeout_seconds: float | None) -> None:
        self._cluster = cluster
        self._pool = pool
        self._pods = n
        self._timeout_seconds = timeout_seconds
        self._by = f"{user()}, who holds it"
        self._before: Json | None = None
        self._beginning: asyncio.Task[Any] | None = None
        self._renewing: asyncio.Task[None] | None = None

    def __enter__(self) -> list[str]:
        try:
            workers: list[str] = self._cluster.sync(self._begin)
        except KeyboardInterrupt:
            self._cluster.sync(self._give_up)  # else it goes on in the loop's thread
            raise
        return workers

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._cluster.sync(self._end, error)

    async def __aenter__(self) -> list[str]:
        return await self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self._end(error)

    async def _give_up(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.wait([self._beginning])

    async def _begin(self) -> list[str]:
        self._beginning = asyncio.current_task()
        server, name = self._cluster.require_server(), self._cluster.name
        body = await server.cluster(name)
        overrides.choose_pool(body, self._pool)
        refuse_shared(body, self._pool)
        self._before = overrides.own_entries(body).get(self._pool)
        try:
            await set_override(server, name, self._pool, self._wanted())
            self._renewing = asyncio.create_task(self._renew())
            section = next(pool for pool in body["spec"]["pools"] if pool["name"] == self._pool)
            expected = self._pods * Pool.model_validate(section).workers_per_pod
            return await self._cluster.wait_for_exactly(expected, self._pool, self._timeout_seconds)
        except BaseException as error:
            await self._end(error)
            raise

    def _wanted(self) -> Json:
        until = datetime.now(UTC) + _LEASE
        return {"replicas": self._pods, "by": self._by, "until": until.strftime("%Y-%m-%dT%H:%M:%SZ")}

    async def _renew(self) -> None:
        """Until it is ended, or somebody sets another size."""
        server, name = self._cluster.require_server(), self._cluster.name
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                if not await self._is_ours():
                    logger.warning("gpudask: somebody changed the size of pool %s, which was held", self._pool)
                    return
                await set_override(server, name, self._pool, self._wanted())
            except KubeClusterError as error:
                logger.warning("gpudask: the hold of pool %s was not renewed: %s", self._pool, error)

    async def _is_ours(self) -> bool:
        """Whether the pool has the size that this hold has set."""
        body = await self._cluster.require_server().cluster(self._cluster.name)
        entry = overrides.own_entries(body).get(self._pool, {})
        return (entry.get("by"), entry.get("replicas")) == (self._by, self._pods)

    async def _end(self, error: BaseException | None) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        before = None if self._before is None else {key: self._before[key] for key in self._before if key != "pool"}
        try:
            if await self._is_ours():  # else what somebody else has set since is theirs to give back
                await set_override(self._cluster.require_server(), self._cluster.name, self._pool, before)
        except KubeClusterError as failure:
            if error is None:
                raise
            # The error of the program is what its author has to see.
            logger.warning("gpudask: the size of pool %s was not given back: %s", self._pool, failure)
