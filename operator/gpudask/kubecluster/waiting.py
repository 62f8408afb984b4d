"""Waiting for a cluster's workers, and saying why they are not there yet.

Workers are counted by asking the scheduler. The API server is asked only for the reasons: a program that may not read
them, or meets an API server that restarts, waits all the same.
"""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from distributed.core import Status
from distributed.objects import SchedulerInfo

from gpudask.kubecluster import overrides
from gpudask.kubecluster.away import AwayCluster
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.placement import pool_of
from gpudask.kubecluster.progress import Progress
from gpudask.kubecluster.reasons import where_to_look, why_workers_wait
from gpudask.kubecluster.timing import Deadline

# Asking takes longer the more workers there are: at most a fifth of the time is for that.
_PAUSE_SHARE = 4
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


@dataclass
class _Wait:
    """One wait: for how many workers of which pool (None: of all), how long, and what stood in its way last."""

    n_workers: int
    pool: str | None
    deadline: Deadline
    unreached: str = ""  # why the scheduler did not answer; empty where it did
    refusal: KubeClusterError | None = None  # why the cluster may not be read

    @property
    def whose(self) -> str:
        return f"{self.n_workers} workers" + (f" of pool {self.pool!r}" if self.pool else "")


class WaitingCluster(AwayCluster):
    """What `KubeCluster` does to wait for workers."""

    def wait_for_workers(self, n_workers: int, timeout: float | str | None = None, pool: str | None = None) -> Any:
        """Wait until `n_workers` Dask workers run, of `pool` where it is given. It says what it waits for.

        A scheduler or an API server that does not answer for a while does not end the wait.

        Args:
            n_workers: workers, not pods.
            timeout: seconds, or a duration such as `10m`; without it, for ever.
            pool: the pool's name.

        Raises:
            KubeClusterError: they did not come in time; the message has the operator's reason. Or there is no such
                pool or cluster any more; or nothing would pass to the workers: they have another Python, from an
                image of their pool's own.
        """
        return self.sync(self._wait_for_pool, n_workers, timeout, pool)

    async def _wait_for_pool(self, n_workers: int, limit_seconds: float | str | None, pool: str | None) -> None:
        wait = _Wait(n_workers, pool, Deadline(limit_seconds, self._timing))
        if pool is not None:
            await self._read_for(wait)
        await self._wait(lambda running: running >= n_workers, wait)

    async def wait_for_exactly(self, n_workers: int, pool: str, limit_seconds: float | None) -> list[str]:
        """Wait until `pool` has `n_workers` running workers, no more and no fewer; their addresses."""
        wait = _Wait(n_workers, pool, Deadline(limit_seconds, self._timing))
        return await self._wait(lambda running: running == n_workers, wait)

    async def _wait(self, enough: Callable[[int], bool], wait: _Wait) -> list[str]:
        clock = self._timing.clock
        told = clock.monotonic()
        with Progress(f"cluster {self.name}", self._timing, quiet=self.quiet) as progress:
            while True:
                asked = clock.monotonic()
                running = await self._running(wait)
                now = clock.monotonic()
                if not wait.unreached and enough(len(running)):
                    break
                if wait.deadline.is_over:
                    raise await self._too_late(len(running), wait)
                if now - told > self._timing.workers_tell_seconds:
                    told = now
                    what = _not_reached(wait) if wait.unreached else f"{len(running)} of {wait.whose} run"
                    progress.show([f"{what}: {await self._why(wait)}"])
                await self._pause(now - asked)
        await self.compare_versions_again()
        return running

    async def _pause(self, asking_took_seconds: float) -> None:
        """Until the scheduler tells of a worker that came or went, or it is time to ask again."""
        timing = self._timing
        least = min(timing.workers_most_seconds, max(timing.workers_least_seconds, _PAUSE_SHARE * asking_took_seconds))
        await timing.clock.sleep(least)
        # A worker runs some milliseconds after it came, and the scheduler does not tell of that.
        if any(worker["status"] == Status.init.name for worker in self.scheduler_info["workers"].values()):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, timing.workers_poll_seconds - least)):
                await self._news_of_workers.wait()

    async def _running(self, wait: _Wait) -> list[str]:
        assert self.scheduler_comm is not None
        self._news_of_workers.clear()  # what is told from now on may not be in the answer
        try:
            within_seconds = wait.deadline.within(self._timing.workers_answer_seconds)
            answer = self.answered(self.scheduler_comm.identity(), within_seconds)
            self.scheduler_info = SchedulerInfo(await answer)
        except OSError as error:  # the scheduler or the connection is being replaced: none is known to run
            wait.unreached = str(error) or type(error).__name__
            await self._timing.clock.sleep(self._timing.workers_poll_seconds)
            return []
        wait.unreached = ""
        return [
            address
            for address, worker in self.scheduler_info["workers"].items()
            if worker["status"] == Status.running.name
            and (wait.pool is None or pool_of(worker["name"], self.name) == wait.pool)
        ]

    # ------------------------------------------------------------------ reasons

    async def _read_for(self, wait: _Wait) -> None:
        """Read the cluster again, where that is allowed and the API server answers."""
        if self._server is None or wait.refusal is not None:
            return
        try:
            body = await wait.deadline.ask(self._server.cluster(self.name))
        except KubeClusterError as error:
            if error.status not in _REFUSED:
                raise
            wait.refusal = error
            return
        self._body = body or self._body
        if body is not None and wait.pool is not None:
            overrides.choose_pool(body, wait.pool)

    async def _why(self, wait: _Wait) -> str:
        await self._read_for(wait)
        if wait.unreached:
            return (await self.why_away()).reason
        if wait.refusal is not None:
            return f"why is not known, {wait.refusal.reason}"
        if self._server is None or not self._body:
            return "why is not known without an API server"
        return wait.deadline.trouble or why_workers_wait(self._body, wait.pool)

    async def _too_late(self, running: int, wait: _Wait) -> KubeClusterError:
        limit = f"within {wait.deadline.limit_seconds:g} s"
        if wait.unreached:
            cause = await self.why_away()
            reason = f"{_not_reached(wait)}; {cause.reason}"
            return KubeClusterError(f"{wait.whose} did not come {limit}", reason=reason, next_step=cause.next_step)
        why = await self._why(wait)
        log = f"kubectl logs -l gpudask.dev/cluster={self.name},dask.org/component=scheduler -n {self.namespace}"
        step = where_to_look(self._body) if self._body else f"See the scheduler's log: {log}"
        step = wait.refusal.next_step if wait.refusal else step
        return KubeClusterError(f"{running} of {wait.whose} came {limit}", reason=why, next_step=step)


def _not_reached(wait: _Wait) -> str:
    return f"the scheduler is not reached ({wait.unreached})"
