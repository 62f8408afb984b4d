"""A cluster manager's sizes: set, held, given back, and waited for."""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from distributed.core import Status
from distributed.objects import SchedulerInfo

from gpudask.kubecluster import overrides
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.holding import Hold
from gpudask.kubecluster.linked import LinkedCluster
from gpudask.kubecluster.placement import pool_of
from gpudask.kubecluster.pools import add_pool, pool_of_words, remove_pool
from gpudask.kubecluster.progress import Progress
from gpudask.kubecluster.reasons import where_to_look, why_not_ready, why_pool_waits
from gpudask.kubecluster.sizes import set_limits, set_size

_POLL_SECONDS = 0.25
# Asking takes longer the more workers there are: at most a fifth of the time is for that.
_LEAST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _PAUSE_SHARE = 0.02, 2.0, 4
_TELL_SECONDS = 2.0


class SizedCluster(LinkedCluster):
    """What `KubeCluster` does to pools. Sizes are overrides under a field manager of their own: Git keeps its own."""

    def scale(self, n: int | None, pool: str | None = None) -> Any:
        """Set a pool to `n` pods until `unscale`; `None` gives the size back to its manifest.

        Args:
            n: pods, not workers: a pod with 4 GPUs holds 4 workers.
            pool: the pool's name; may be left out where there is only one.

        Raises:
            KubeClusterError: no such pool, several pools and none named, or the API server refuses.
        """
        return self.sync(self._scale, n, pool)

    def unscale(self, pool: str | None = None) -> Any:
        """Remove what `scale` or `adapt` set, so that the manifest's replicas or autoscale hold again."""
        return self.sync(self._scale, None, pool)

    async def _scale(self, n: int | None, pool: str | None) -> None:
        await set_size(self.require_server(), self.name, n, pool)
        await self._read_again()

    def adapt(  # type: ignore[override]  # Dask's takes a class of its own
        self, minimum: int | None = None, maximum: int | None = None, pool: str | None = None
    ) -> Any:
        """Let a pool follow demand between these limits until `unscale`, whatever its manifest says.

        Not Dask's own Adaptive, which is blind to GPUs: the operator does it, and goes on when this program ends.

        Args:
            minimum: pods that stay without demand; the manifest's, or 0, where it is left out.
            maximum: pods at most; the manifest's where it is left out.
            pool: the pool's name; may be left out where there is only one.

        Raises:
            KubeClusterError: as `scale`, or there is no maximum anywhere.
        """
        return self.sync(self._adapt, minimum, maximum, pool)

    async def _adapt(self, minimum: int | None, maximum: int | None, pool: str | None) -> None:
        await set_limits(self.require_server(), self.name, minimum, maximum, pool)
        await self._read_again()

    def hold(self, pool: str, n: int, *, timeout: float | None = 600) -> Hold:
        """A fixed set of workers for a while, for XGBoost, PyTorch or cuML; `async with` in an asynchronous program.

        ```python
        with cluster.hold("gpu", 4) as workers:
            train(client, workers=workers)
        ```

        Sets the pool to `n` pods, waits until exactly their workers run, and gives the size back at the end, also
        after an error. `workers` are their addresses.

        Args:
            pool: the pool's name.
            n: pods.
            timeout: seconds to wait for them; None: for ever.

        Raises:
            KubeClusterError: on entering: they did not come, or others set this pool's size too.
        """
        return Hold(self, pool, n, timeout)

    def add_pool(self, name: str, *, n_workers: Any = None, gpus: Any = None, **fields: Any) -> Any:
        """Add a pool to the running cluster.

        Args:
            name: 1 to 15 lower-case letters and digits, a letter first.
            n_workers: pods of a CPU pool: a number, or the least and the most.
            gpus: pods of one GPU each: the most, or the least and the most.
            **fields: as in a manifest's pool: `resources={"memory": "64Gi"}`, `template={...}`.

        Raises:
            KubeClusterError: there is one of that name, it is not valid, or the API server refuses.
        """
        return self.sync(self._add_pool, pool_of_words(name, n_workers, gpus, fields))

    async def _add_pool(self, pool: dict[str, Any]) -> None:
        await add_pool(self.require_server(), self.name, pool)
        await self._read_again()

    def remove_pool(self, name: str) -> Any:
        """Remove a pool; its pods finish what they run, and hand over their results first.

        Raises:
            KubeClusterError: there is no such pool, it is the last one, or the API server refuses.
        """
        return self.sync(self._remove_pool, name)

    async def _remove_pool(self, name: str) -> None:
        body = await self.require_server().cluster(self.name)
        if name in overrides.own_entries(body):
            await set_size(self.require_server(), self.name, None, name)
        await remove_pool(self.require_server(), self.name, name)
        await self._read_again()

    async def _read_again(self) -> None:
        self._body = await self.require_server().cluster(self.name)

    # ------------------------------------------------------------------ waiting

    def wait_for_workers(self, n_workers: int, timeout: float | None = None, pool: str | None = None) -> Any:
        """Wait until `n_workers` Dask workers run, of `pool` where it is given. It says what it waits for.

        Args:
            n_workers: workers, not pods.
            timeout: seconds; without it, for ever.
            pool: the pool's name.

        Raises:
            KubeClusterError: they did not come in time; the message has the operator's reason. Or nothing would pass to
                them: they have another Python, from an image of their pool's own.
        """
        return self.sync(self._wait_for_pool, n_workers, timeout, pool)

    async def _wait_for_pool(self, n_workers: int, limit_seconds: float | None, pool: str | None) -> None:
        if pool is not None:
            overrides.choose_pool(await self.require_server().cluster(self.name), pool)
        await self._wait(lambda running: running >= n_workers, n_workers, pool, limit_seconds)

    async def wait_for_exactly(self, n_workers: int, pool: str, limit_seconds: float | None) -> list[str]:
        """Wait until `pool` has `n_workers` running workers, no more and no fewer; their addresses."""
        return await self._wait(lambda running: running == n_workers, n_workers, pool, limit_seconds)

    async def _wait(
        self, enough: Callable[[int], bool], n_workers: int, pool: str | None, limit_seconds: float | None
    ) -> list[str]:
        began = told = time.monotonic()
        whose = f" of pool {pool!r}" if pool else ""
        with Progress(f"cluster {self.name}", quiet=self.quiet) as progress:
            while True:
                asked = time.monotonic()
                running = await self._running(pool)
                now = time.monotonic()
                if enough(len(running)):
                    break
                what = f"{len(running)} of {n_workers} workers{whose}"
                if limit_seconds is not None and now - began > limit_seconds:
                    raise await self._too_late(f"{what} came within {limit_seconds:g} s", pool)
                if now - told > _TELL_SECONDS and self._server is not None:
                    told = now
                    progress.show([f"{what} run: {await self._why(pool)}"])
                await self._pause(now - asked)
        await self.compare_versions_again()
        return running

    async def _pause(self, asking_took_seconds: float) -> None:
        """Until the scheduler tells of a worker that came or went, or it is time to ask again."""
        least = min(_LONGEST_PAUSE_SECONDS, max(_LEAST_PAUSE_SECONDS, _PAUSE_SHARE * asking_took_seconds))
        await asyncio.sleep(least)
        # A worker runs some milliseconds after it came, and the scheduler does not tell of that.
        if any(worker["status"] == Status.init.name for worker in self.scheduler_info["workers"].values()):
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news_of_workers.wait(), max(0.0, _POLL_SECONDS - least))

    async def _running(self, pool: str | None) -> list[str]:
        assert self.scheduler_comm is not None
        self._news_of_workers.clear()  # what is told from now on may not be in the answer
        try:
            self.scheduler_info = SchedulerInfo(await self.answered(self.scheduler_comm.identity()))
        except OSError:  # the scheduler or the connection is being replaced: none is known to run
            await asyncio.sleep(_POLL_SECONDS)
            return []
        return [
            address
            for address, worker in self.scheduler_info["workers"].items()
            if worker["status"] == Status.running.name and (pool is None or pool_of(worker["name"], self.name) == pool)
        ]

    async def _why(self, pool: str | None) -> str:
        await self._read_again()
        return why_pool_waits(self._body, pool) or why_not_ready(self._body)

    async def _too_late(self, what: str, pool: str | None) -> KubeClusterError:
        return KubeClusterError(what, reason=await self._why(pool), next_step=where_to_look(self._body))
