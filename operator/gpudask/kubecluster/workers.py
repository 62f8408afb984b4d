"""Waiting for a cluster's workers, and saying why they are not there yet.

Workers are counted by asking the scheduler. The API server is asked only for the reasons: a program that may not read
them, or meets an API server that restarts, waits all the same.
"""

# mypy: disallow-untyped-calls=False
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
from gpudask.kubecluster.conditions import Conditions, Trouble, too_few_allowed, troubles
from gpudask.kubecluster.display import Progress, pool_of
from gpudask.kubecluster.errors import (
    KubeClusterError,
    KubeClusterTimeoutError,
    not_observed,
    where_to_look,
    why_workers_wait,
)
from gpudask.kubecluster.resource import Resource
from gpudask.kubecluster.scheduler.connection import SchedulerConnection
from gpudask.kubecluster.scheduler.outage import Reconnector
from gpudask.kubecluster.timing import Deadline, Timing

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


class Workers:
    """The workers of one cluster, as its scheduler tells of them.

    Args:
        resource: the cluster.
        connection: to its scheduler.
        reconnector: which knows why the scheduler is away.
        conditions: which know what else is wrong, and are told of each wait.
        progress: what shows a wait.
        timing: intervals and deadlines.

    Attributes:
        info: what Dask's scheduler says of itself and of them.
        news: set when a worker came or went.
    """

    def __init__(
        self,
        resource: Resource,
        connection: SchedulerConnection,
        reconnector: Reconnector,
        conditions: Conditions,
        *,
        progress: Callable[[], Progress],
        timing: Timing,
    ) -> None:
        self.info: Any = {"workers": {}}
        self.news = asyncio.Event()
        self._resource, self._connection, self._reconnector = resource, connection, reconnector
        self._conditions = conditions
        self._progress, self._timing = progress, timing

    async def subscribe(self) -> Any:
        """Ask the scheduler to tell of its workers; the connection over which it does."""
        comm = await self._connection.rpc.live_comm()
        await comm.write({"op": "subscribe_worker_status"})
        self.info = SchedulerInfo(await comm.read())
        return comm

    def update(self, op: str, msg: Any) -> None:
        """Note what the scheduler tells: workers and what else is new of `identity` (`add`), or who went (`remove`).

        New dicts take the place of the old ones, in which the program's thread may be reading.
        """
        if op == "add":
            self.info = SchedulerInfo({**self.info, **msg, "workers": {**self.info["workers"], **msg["workers"]}})
        elif op == "remove":
            left = {address: worker for address, worker in self.info["workers"].items() if address != msg}
            self.info = SchedulerInfo({**self.info, "workers": left})
        else:
            raise ValueError(f"worker status: expected add or remove, got {op!r}")
        self.news.set()

    async def wait_for(self, n_workers: int, limit_seconds: float | str | None, pool: str | None) -> None:
        """Wait until `n_workers` run, of `pool` where it is given; `KubeCluster.wait_for_workers` says more."""
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
        shown_at = clock.monotonic()
        with self._progress() as progress, self._conditions.waiting(wait.n_workers, wait.pool):
            while True:
                asked = clock.monotonic()
                running = await self._running(wait)
                now = clock.monotonic()
                if not wait.unreached and enough(len(running)):
                    break
                if wait.deadline.is_over:
                    raise await self._too_late(len(running), wait)
                if now - shown_at > self._timing.workers_progress_seconds:
                    shown_at = now
                    what = _not_reached(wait) if wait.unreached else f"{len(running)} of {wait.whose} run"
                    progress.show([f"{what}: {await self._why(wait)}"])
                await self._pause(now - asked)
        await self._connection.compare_versions_again()
        return running

    async def _pause(self, asking_took_seconds: float) -> None:
        """Until the scheduler tells of a worker that came or went, or it is time to ask again."""
        timing = self._timing
        least = min(timing.workers_most_seconds, max(timing.workers_least_seconds, _PAUSE_SHARE * asking_took_seconds))
        await timing.clock.sleep(least)
        # A worker runs some milliseconds after it came, and the scheduler does not tell of that.
        if any(worker["status"] == Status.init.name for worker in self.info["workers"].values()):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, timing.workers_poll_seconds - least)):
                await self.news.wait()

    async def _running(self, wait: _Wait) -> list[str]:
        self.news.clear()  # what is shown_at from now on may not be in the answer
        try:
            within_seconds = wait.deadline.within(self._timing.workers_answer_seconds)
            answer = self._connection.call(self._connection.rpc.identity(), within_seconds)
            self.info = SchedulerInfo(await answer)
        except OSError as error:  # the scheduler or the connection is being replaced: none is known to run
            wait.unreached = str(error) or type(error).__name__
            await self._timing.clock.sleep(self._timing.workers_poll_seconds)
            return []
        wait.unreached = ""
        return [
            address
            for address, worker in self.info["workers"].items()
            if worker["status"] == Status.running.name
            and (wait.pool is None or pool_of(worker["name"], self._resource.name) == wait.pool)
        ]

    # ------------------------------------------------------------------ reasons

    async def _read_for(self, wait: _Wait) -> None:
        """Read the cluster again, where that is allowed and the API server answers."""
        if self._resource.server is None or wait.refusal is not None:
            return
        try:
            body = await wait.deadline.attempt(self._resource.server.cluster(self._resource.name))
        except KubeClusterError as error:
            if error.status not in _REFUSED:
                raise
            wait.refusal = error
            return
        self._resource.update(body or self._resource.body)
        if body is not None and wait.pool is not None:
            overrides.choose_pool(body, wait.pool)

    async def _why(self, wait: _Wait) -> str:
        await self._read_for(wait)
        if wait.unreached:
            return (await self._reconnector.find_cause()).reason
        if wait.refusal is not None:
            return f"why is not known, {wait.refusal.reason}"
        if self._resource.server is None or not self._resource.body:
            return "why is not known without an API server"
        why = wait.deadline.trouble or why_workers_wait(self._resource.body, wait.pool)
        limited = self._limited(wait)
        return f"{why}; {limited.message}" if limited is not None else why

    def _limited(self, wait: _Wait) -> Trouble | None:
        """What forbids so many workers, as far as what was read is what the operator has seen."""
        body = self._resource.body
        return (
            too_few_allowed(body, wait.pool, wait.n_workers)
            if not (wait.deadline.trouble or not_observed(body))
            else None
        )

    async def _too_late(self, running: int, wait: _Wait) -> KubeClusterError:
        limit = f"within {wait.deadline.limit_seconds:g} s"
        if wait.unreached:
            cause = await self._reconnector.find_cause()
            reason = f"{_not_reached(wait)}; {cause.reason}"
            return KubeClusterTimeoutError(
                f"{wait.whose} did not come {limit}", reason=reason, next_step=cause.next_step
            )
        why = await self._why(wait)
        name, namespace = self._resource.name, self._resource.namespace
        log = f"kubectl logs -l gpudask.dev/cluster={name},dask.org/component=scheduler -n {namespace}"
        body = self._resource.body
        found = [self._limited(wait), *(troubles(body) if not wait.deadline.trouble else [])]
        steps = [each.next_step for each in found if each is not None and each.next_step]
        steps += [where_to_look(body) if body else f"See the scheduler's log: {log}"]
        step = wait.refusal.next_step if wait.refusal else steps[0]
        return KubeClusterTimeoutError(f"{running} of {wait.whose} came {limit}", reason=why, next_step=step)


def _not_reached(wait: _Wait) -> str:
    return f"the scheduler is not reached ({wait.unreached})"
