"""Retries of a pass's work, piece by piece: each has a time limit, an error message and a back-off of its own.

A dead webhook on Services holds back neither pods nor the status. A pass waits for its pieces until a short deadline;
one that takes longer goes on beside the next passes, which leave it alone until it has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from gpudask.api.reasons import Reason
from gpudask.clients.errors import ApiError, ClusterGoneError
from gpudask.clients.flow_control import Backoff
from gpudask.planning.observed.observation import Failure
from gpudask.reconcile.loop_memory import reason_of
from gpudask.reconcile.supervisor import Supervisor

# A piece of work; it returns whether another pass has to follow at once.
Work = Callable[[], Awaitable[bool]]


class Kind(StrEnum):
    """Kinds of work. A failed piece that a pass no longer plans, among those of its kind, is forgotten."""

    MIRROR_READ = "mirror read"
    MIRROR_WRITTEN = "mirror written"
    OBJECTS = "objects"
    SCHEDULER = "scheduler"
    PODS = "pods"
    DELETION = "deletion"
    STATUS = "status"
    RECORD = "record"


_Key = tuple[Kind, str]
_LOG = logging.getLogger(__name__)
_FIRST_SECONDS, _LAST_SECONDS = 0.5, 60.0
# What the API server refuses is reported at once; what merely fails, such as an API server that restarts, after this.
_REPORTED_AFTER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Failed:
    """A failed piece. Its error is not kept: that has the frames of the work, and so all that the work knows."""

    count: int
    since: float
    next_try: float
    reason: Reason
    refused: bool
    text: str


class Retries:
    """The pieces of work of one cluster's passes, by kind and name.

    `deadline_seconds`: for how long a pass waits for those that it started. `on_failure` is called for each failure.
    """

    def __init__(
        self,
        cluster: str,
        clock: Callable[[], float],
        wake: Callable[[], None],
        random: Callable[[], float],
        supervisor: Supervisor,
        *,
        deadline_seconds: float = 1.0,
        on_failure: Callable[[Reason], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._wake = wake
        self._backoff = Backoff(_FIRST_SECONDS, _LAST_SECONDS, random)
        self._supervisor = supervisor
        self._deadline_seconds = deadline_seconds
        self._on_failure = on_failure
        self._running: dict[_Key, asyncio.Task[None]] = {}
        self._failed: dict[_Key, _Failed] = {}
        self._considered: set[Kind] = set()  # by the present pass
        self._end: Exception | None = None

    async def run(self, kind: Kind, work: Mapping[str, Work], *, wait: bool = True) -> None:
        """Do what is due of `work`, concurrently. It is all the work of its kind: other failures are forgotten.

        `wait`: whether the pass waits for it, for a while; else it goes on beside the passes at once.

        Raises:
            ClusterGoneError: the cluster does not exist any more.
            ApiError: its namespace is being deleted.
        """
        self._considered.add(kind)
        self._failed = {key: failed for key, failed in self._failed.items() if key[0] != kind or key[1] in work}
        started = [self._start((kind, what), do) for what, do in work.items() if self._is_due((kind, what))]
        if started:
            _, late = await asyncio.wait(started, timeout=self._deadline_seconds if wait else 0.0)
            for task in late:
                task.add_done_callback(lambda _: self._wake())
        if self._end is not None:
            try:
                raise self._end
            finally:
                self._end = None  # which has the frame of this function now

    def is_running(self, *kinds: Kind) -> bool:
        """Whether work of these kinds, which an earlier pass started, has not ended yet."""
        return any(key[0] in kinds for key in self._running)

    def has_failed(self, kind: Kind) -> bool:
        """Whether work of this kind failed, and waits for its next try."""
        return any(key[0] == kind for key in self._failed)

    def failures(self, *kinds: Kind) -> tuple[Failure, ...]:
        """The failures of these kinds that are to be reported, the oldest first."""
        reported = [
            Failure(what, failed.reason, failed.text, failed.since, failed.next_try)
            for (kind, what), failed in self._failed.items()
            if kind in kinds and (failed.refused or self._clock() - failed.since >= _REPORTED_AFTER_SECONDS)
        ]
        return tuple(sorted(reported, key=lambda failure: (failure.since, failure.what)))

    def requeue_after(self) -> float | None:
        """The requeue_after of the present pass's failed work, in seconds; None: nothing failed. Called at its end."""
        considered, self._considered = self._considered, set()
        tries = [
            failed.next_try
            for key, failed in self._failed.items()
            if key[0] in considered and key not in self._running  # running work wakes the loop when it ends
        ]
        return max(0.0, min(tries) - self._clock()) if tries else None

    def forget(self) -> None:
        """Forget all failures, so that everything is tried at once: the spec was edited."""
        self._failed.clear()

    async def stop(self) -> None:
        """Cancel all work; returns when none runs any more."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _is_due(self, key: _Key) -> bool:
        failed = self._failed.get(key)
        return key not in self._running and (failed is None or failed.next_try <= self._clock())

    def _start(self, key: _Key, do: Work) -> asyncio.Task[None]:
        attempt = partial(self._attempt, key, do)
        task = self._supervisor.start(attempt, kind="piece", name=f"{self._cluster}: {key[1]}", may_end=True)
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return task

    async def _attempt(self, key: _Key, do: Work) -> None:
        try:
            again = await do()
        except ClusterGoneError as error:
            self._end = error.with_traceback(None)  # whose frames have this object
        except ApiError as error:
            if error.ending:
                self._end = error.with_traceback(None)
            else:
                self._record_failure(key, error, error.retry_after_seconds)
                _LOG.warning("%s: %s: %s", self._cluster, key[1], error)
        except Exception as error:  # noqa: BLE001 - one defect must not end all work for a cluster
            self._record_failure(key, error, None)
            self._supervisor.restarts["piece"] += 1
            _LOG.exception("%s: %s: a defect", self._cluster, key[1])
        else:
            self._failed.pop(key, None)
            if again:
                self._wake()

    def _record_failure(self, key: _Key, error: Exception, retry_after_seconds: float | None) -> None:
        now, before = self._clock(), self._failed.get(key)
        count = before.count + 1 if before is not None else 1
        delay = self._backoff.delay(count, retry_after_seconds)
        self._failed[key] = _Failed(
            count,
            since=before.since if before is not None else now,
            next_try=now + delay,
            reason=reason_of(error) if isinstance(error, ApiError) else Reason.API_FAILED,
            refused=isinstance(error, ApiError) and error.refused,
            text=str(error),
        )
        self._on_failure(reason_of(error) if isinstance(error, ApiError) else Reason.OPERATOR_FAILED)
