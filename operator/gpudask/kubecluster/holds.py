"""Holds: a pool kept at a fixed set of workers while they are renewed, as XGBoost, PyTorch and cuML need it.

`spec.overrides` has one entry for a pool: the newest hold's. What is below it is noted beside it, in an annotation of
the cluster, because holds may end in any order, and those of several programs know nothing of each other.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from gpudask.api import Json
from gpudask.kubecluster import overrides
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.session import Purpose, requests_for
from gpudask.kubecluster.manifest import user
from gpudask.kubecluster.overrides import put, refuse_shared
from gpudask.kubecluster.resource import Resource
from gpudask.kubecluster.timing import Deadline, Timing, end_task, limit_of, run_or_cancel
from gpudask.kubecluster.workers import Workers

logger = logging.getLogger(__name__)

_MAX_CHARACTERS = 120  # of `by` the API server takes 128


class Hold:
    """`with cluster.hold("gpu", 4) as workers:` sets the size, waits for exactly those workers, and gives it back.

    What `with` (or `async with`) gives are the workers' addresses, as `workers=` of Dask takes them.
    The size is set for 15 minutes, and again every 4 while this program runs. Holds of one pool may lie one over the
    other, of one program or of several, and end in any order: the newest one counts.
    """

    def __init__(
        self,
        resource: Resource,
        workers: Workers,
        pool: str,
        n: int,
        timeout: float | str | None,
        *,
        sync: Callable[..., Any],
        timing: Timing,
    ) -> None:
        self._resource, self._workers = resource, workers
        self._sync = sync  # runs what is asynchronous, for a program that is not
        self._timing = timing
        self._pool = pool
        self._pods = n
        self._timeout_seconds = limit_of(timeout)
        self._by = _name_of_hold()
        self._is_acquired = False
        self._renewing: asyncio.Task[None] | None = None

    def __enter__(self) -> list[str]:
        return run_or_cancel(self._sync, self._begin)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self._sync(self._end, error)
        except RuntimeError as failure:  # Dask's, of a cluster that was closed in the block
            if error is None:
                raise
            self._warn(failure)

    async def __aenter__(self) -> list[str]:
        return await self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self._end(error)

    async def _begin(self) -> list[str]:
        try:
            body = await self._write(self._acquire)
            self._renewing = asyncio.create_task(self._renew())
            from gpudask.api.pool import Pool  # noqa: PLC0415 - the models take long to load

            section = overrides.section_of(body, self._pool)
            expected = self._pods * Pool.model_validate(section).workers_per_pod
            return await self._workers.wait_for_exactly(expected, self._pool, self._timeout_seconds)
        except BaseException as error:
            await self._end(error)
            raise

    async def _write(self, write: Callable[[Json], Awaitable[Json]]) -> Json:
        """Write the cluster, and return it as it is then."""
        body = (await self._resource.require_server().rewrite(self._resource.name, write))[1]
        self._resource.update(body)
        return body

    async def _acquire(self, body: Json) -> Json:
        overrides.choose_pool(body, self._pool)
        refuse_shared(body, self._pool)
        self._is_acquired = True  # before it is: an answer that is lost leaves a size that is set
        return await self._put(body, self._holds_of(body).put(self._wanted()))

    def _holds_of(self, body: Json) -> Holds:
        return Holds.of(body, self._pool, now=self._timing.clock.now(), own=self._by)

    async def _put(self, body: Json, holds: Holds) -> Json:
        size, note = holds.size(self._timing.clock.now()), holds.note()
        return await put(self._resource.require_server(), body, {self._pool: size}, {self._pool: note})

    def _wanted(self) -> Json:
        until = self._timing.clock.now() + timedelta(seconds=self._timing.hold_lease_seconds)
        ending = until.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"pool": self._pool, "replicas": self._pods, "by": self._by, "until": ending}

    async def _renew(self) -> None:
        """Renew the hold until it ends, or somebody sets another size."""
        pause_seconds = self._timing.hold_renew_seconds
        while True:
            await self._timing.clock.sleep(pause_seconds)
            try:
                with requests_for(Purpose.UPKEEP):
                    holds = self._holds_of(await self._write(self._extend))
                pause_seconds = _until_renewal(holds, self._timing)
                if not holds.has(self._by):
                    logger.warning("gpudask: somebody changed the size of pool %s, which was held", self._pool)
                    return
            except KubeClusterError as error:
                logger.warning("gpudask: the hold of pool %s was not renewed: %s", self._pool, error)

    async def _extend(self, body: Json) -> Json:
        holds = self._holds_of(body)
        return await self._put(body, holds.put(self._wanted())) if holds.has(self._by) else body

    async def _end(self, error: BaseException | None) -> None:
        await end_task(self._renewing)
        if not self._is_acquired:
            return
        deadline = Deadline(self._timing.hold_release_seconds, self._timing)
        try:
            while await deadline.attempt(self._write(self._release)) is None:
                if deadline.is_over:
                    raise self._not_released(deadline)
                await self._timing.clock.sleep(self._timing.retry_seconds)
        except KubeClusterError as failure:
            if error is None:
                raise
            self._warn(failure)

    def _warn(self, failure: Exception) -> None:
        """Not raised beside an error of the program, which is what its author has to see."""
        logger.warning("gpudask: the size of pool %s was not given back: %s", self._pool, failure)

    async def _release(self, body: Json) -> Json:
        """Restore the override from before, whoever set it; one that somebody has set since stays."""
        holds = self._holds_of(body)
        if not holds.has(self._by):
            return body
        left = holds.without(self._by)
        if left.size(self._timing.clock.now()) is None:
            refuse_shared(body, self._pool)
        return await self._put(body, left)

    def _not_released(self, deadline: Deadline) -> KubeClusterError:
        return KubeClusterError(
            f"the size of pool {self._pool!r} was not given back",
            reason=deadline.trouble,
            next_step=f"It ends by itself within {self._timing.hold_lease_seconds / 60:.0f} minutes",
        )


@dataclass(frozen=True)
class Holds:
    """The holds of one pool that have not ended.

    Attributes:
        before: the override that stood before the first; None: there was none.
        entries: the overrides that the holds want, the newest last. `by` tells them apart.
    """

    before: Json | None = None
    entries: tuple[Json, ...] = ()

    @classmethod
    def of(cls, body: Json, pool: str, *, now: datetime, own: str = "") -> Self:
        """The holds of `pool`; none where somebody else has set its size since.

        Args:
            body: the cluster.
            pool: one of its pools.
            now: holds whose time is over have ended: their programs were killed.
            own: `by` of a hold whose program is alive, whatever the time: it asks.
        """
        entry = overrides.entry_of(body, pool)
        noted = cls.read(overrides.note_of(body, pool))
        if entry is None or not noted.entries or not _is_same(entry, noted.entries[-1]):
            return cls(before=entry)
        living = tuple(item for item in noted.entries if item.get("by") == own or not _has_ended(item, now))
        # Those that were killed give nothing back, and nobody knows how old that would be.
        return cls(before=noted.before, entries=living) if living else cls()

    @classmethod
    def read(cls, note: str | None) -> Self:
        """The holds that an annotation notes; none where it is somebody's own text."""
        try:
            noted = json.loads(note or "{}")
        except (ValueError, RecursionError):
            return cls()
        noted = noted if isinstance(noted, dict) else {}
        before, entries = noted.get("before"), noted.get("entries", [])
        is_ours = isinstance(before, dict | None) and isinstance(entries, list)
        if not is_ours or not all(isinstance(item, dict) for item in entries):
            return cls()
        return cls(before, tuple(entries))

    def size(self, now: datetime) -> Json | None:
        """The override that counts: the newest hold's, else what stood before and has not ended; None: the manifest."""
        if self.entries:
            return self.entries[-1]
        return None if self.before is None or _has_ended(self.before, now) else self.before

    def note(self) -> str | None:
        """The annotation to write on the cluster; None: none."""
        return json.dumps(asdict(self), separators=(",", ":")) if self.entries else None

    def has(self, by: str) -> bool:
        """True if the hold `by` is among them."""
        return any(item.get("by") == by for item in self.entries)

    def put(self, entry: Json) -> Self:
        """With this entry of a hold: in the place of its last one, else on top."""
        kept = tuple(entry if item.get("by") == entry["by"] else item for item in self.entries)
        return type(self)(before=self.before, entries=kept if self.has(entry["by"]) else (*kept, entry))

    def without(self, by: str) -> Self:
        """Without the hold `by`."""
        return type(self)(before=self.before, entries=tuple(item for item in self.entries if item.get("by") != by))


def _is_same(one: Json, other: Json) -> bool:
    return (one.get("by"), one.get("replicas")) == (other.get("by"), other.get("replicas"))


def _has_ended(entry: Json, now: datetime) -> bool:
    return "until" in entry and datetime.fromisoformat(entry["until"]) <= now


def _until_renewal(holds: Holds, timing: Timing) -> float:
    """Seconds; fewer where the newest hold ends before, unrenewed: then one below it is to take its place."""
    ends = [datetime.fromisoformat(entry["until"]) for entry in holds.entries[-1:] if "until" in entry]
    left = [(end - timing.clock.now()).total_seconds() + timing.retry_seconds for end in ends]
    return max(timing.retry_seconds, min([timing.hold_renew_seconds, *left]))


def _name_of_hold() -> str:
    """A name for one hold, as status and table show it, unlike any other's: `hold:ada@notebook-7#3f2a1c`."""
    return f"hold:{user()}@{socket.gethostname()}"[:_MAX_CHARACTERS] + f"#{secrets.token_hex(3)}"
