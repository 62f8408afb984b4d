"""The records as the API server keeps them: one is read, gone on with and replaced; nothing of it stays in memory."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.api.record import Record
from gpudask.api.resource import API_VERSION, RECORD_PLURAL, Identity, record_name
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import Backoff, FairQueue, FairRateLimiter
from gpudask.clients.kubernetes import Kubernetes
from gpudask.history import record as history
from gpudask.settings import HistorySettings

_LOG = logging.getLogger(__name__)
# Writes of all clusters: each takes some 10 ms here, and is a version of up to 200 kB, which etcd keeps for minutes.
_WRITES_PER_SECOND, _WRITES_BURST = 5.0, 10.0
# Those for ended pods, failed tasks and ends of clusters wait for none of the others.
_URGENT_PER_SECOND, _URGENT_BURST = 5.0, 20.0
# Logs that are followed, each a connection to the API server and from there to a node: of all, of a cluster, of a
# namespace. Ends of clusters that are written down at a time.
_FOLLOWED, _FOLLOWED_PER_CLUSTER, _FOLLOWED_PER_NAMESPACE = 128, 16, 32
_CLOSINGS, _CLOSINGS_PER_NAMESPACE = 32, 16
TRIES, FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 8, 0.5, 15.0  # at what tells the end of a cluster
_MEND = "kubectl apply --server-side --force-conflicts -f crds/gpudaskrecords.yaml, and upgrade the chart's roles"


@dataclass(frozen=True)
class Subject:
    """Whose record it is. `created`: of the cluster, as its metadata have it. `keep_seconds`: after its end."""

    cluster: Identity
    created: str
    keep_seconds: float


class Records:
    """Reads and writes records. `off`: why none can be written at present, empty where they can.

    `now`: the API server's time, in seconds since the epoch. `limiter`, `urgent_limiter`: each write takes a token of
    one of them. `log_connections`, `closings`: bound the logs that are followed at once, and the clusters whose end is
    being written. `on_write(namespace)` is called after a new record, after the last write of a cluster that is gone,
    and where the API server says that it does not know records, or refuses them for the first time.
    """

    def __init__(self, api: Kubernetes, settings: HistorySettings, now: Callable[[], float]) -> None:
        self._api = api
        self.settings = settings
        self.now = now
        self.limiter = FairRateLimiter(_WRITES_PER_SECOND, _WRITES_BURST)
        self.urgent_limiter = FairRateLimiter(_URGENT_PER_SECOND, _URGENT_BURST)
        self.log_connections = FairQueue(_FOLLOWED, _FOLLOWED_PER_CLUSTER, _FOLLOWED_PER_NAMESPACE)
        self.closings = FairQueue(_CLOSINGS, 1, _CLOSINGS_PER_NAMESPACE)
        self._closing: Counter[str] = Counter()  # namespace -> clusters whose end is being written, or waits for that
        self._off: dict[str, str] = {}  # namespace -> why none can be written there; "": anywhere
        self._refused: set[str] = set()  # namespaces that refused records since one was written there
        self.on_write: Callable[[str], None] = lambda _: None

    @contextmanager
    def closing(self, namespace: str) -> Iterator[bool]:
        """For as long as the end of a cluster is being written, or waits for that; whether it may.

        No more do than records of a namespace stay: who makes and deletes clusters faster than their ends are written
        would fill the memory with what the sweep takes away. It notes the ends of the others.
        """
        self._closing[namespace] += 1
        try:
            yield self._closing[namespace] <= self.settings.per_namespace
        finally:
            self._closing[namespace] -= 1
            if not self._closing[namespace]:
                del self._closing[namespace]

    async def read(self, cluster: Identity) -> Record | None:
        """The record of `cluster` as it is now; None where there is none, or something else under its name.

        Raises:
            ApiError: the API server refuses, or could not be reached.
        """
        body = await self._get(cluster)
        return history.read(body, cluster) if body is not None else None

    async def read_back(
        self, cluster: Identity, random: Callable[[], float], *, created: str | None = None
    ) -> Record | None:
        """As `read`, tried again for a while, and None, too, where it cannot be had.

        `created`: of a cluster that is known to have been there: then it is an empty record where there is none.
        """
        backoff = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, random)
        for tried in range(1, TRIES + 1):
            try:
                async with self.closings.slot():
                    found = await self.read(cluster)
            except ApiError as error:
                if self.is_off(cluster.namespace):
                    break
                _LOG.info("%s/%s: its record: %s", cluster.namespace, cluster.name, error)
                await asyncio.sleep(backoff.delay(tried, error.retry_after_seconds))
            else:
                return history.begun(cluster, created, self.now()) if found is None and created is not None else found
        return None

    async def go_on(
        self, subject: Subject, notes: history.Notes, *, only_existing: bool = False, left: str = ""
    ) -> str:
        """Write the record of `subject` with `notes`; what stands under its name and is no record of it is replaced.

        `only_existing`: where there is none, none is made. `left`: what this returned the last time, if there was one:
        the version that the record has then, empty where it keeps the counters of another operator.

        Raises:
            ApiError: it could not be written; a conflict: somebody else wrote it meanwhile.
        """
        cluster, now = subject.cluster, self.now()
        body = await self._get(cluster)
        if body is None and only_existing:
            return ""
        before = history.read(body, cluster) if body is not None else None
        version = str(body["metadata"]["resourceVersion"]) if body is not None else ""
        is_own = before is not None and bool(left) and version == left
        after = history.gone_on(before or history.begun(cluster, subject.created, now), notes, now, is_own=is_own)
        is_taken = history.has_taken(after, notes)
        if before is not None and after.model_copy(update={"updated": before.updated}) == before:
            return version if is_taken else ""
        try:
            written = await self._api.put_record(
                history.rendered(after, cluster, keep_seconds=subject.keep_seconds, version=version)
            )
        except ApiError as error:
            self._note_failure(cluster.namespace, error)
            raise
        self._refused.discard(cluster.namespace)
        if body is None or after.ended:
            self.on_write(cluster.namespace)
        return str(written["metadata"]["resourceVersion"]) if is_taken else ""

    @property
    def problem(self) -> str:
        """Why records cannot be written at present, for people; empty where they can."""
        said = sorted(self._off.items())
        return said[0][1] + (f" (and so in {len(said) - 1} more)" if said[1:] else "") if said else ""

    def is_off(self, namespace: str) -> bool:
        """Whether no record can be written in `namespace` at present."""
        return "" in self._off or namespace in self._off

    def set_on(self, namespace: str) -> None:
        """Note that records of `namespace` can be read, of all where it is empty: the definition is there."""
        on = [key for key in self._off if key in ("", namespace) or not namespace]
        for key in on:
            del self._off[key]
        if on:
            _LOG.info("records of clusters are written again in %s", namespace or "all namespaces")

    def set_off(self, namespace: str, error: ApiError) -> None:
        """Note that no record of `namespace` can be read or written until somebody mends it; said once.

        Where the definition is missing, or `namespace` is empty, that is so everywhere.
        """
        if not error.forbidden:
            namespace, what = "", f"are not known ({RECORD_PLURAL} of {API_VERSION})"
        else:
            what = f"may not be written in {f'namespace {namespace}' if namespace else 'any namespace'}"
        if namespace not in self._off:
            self._off[namespace] = f"records {what}: {_MEND}"
            _LOG.warning("clusters leave no record: %s (%s)", self._off[namespace], error)

    async def _get(self, cluster: Identity) -> Json | None:
        try:
            body = await self._api.get_record(cluster.namespace, record_name(cluster))
        except ApiError as error:
            if error.object_not_found:
                return None
            self._note_failure(cluster.namespace, error)
            raise
        return body

    def _note_failure(self, namespace: str, error: ApiError) -> None:
        """Know a definition or a right that is missing from what passes. A whole namespace may end, too."""
        if (error.not_found and not error.object_not_found) or (error.forbidden and not error.ending):
            self.set_off(namespace, error)
            if (
                error.not_found or namespace not in self._refused
            ):  # as an API server that starts does: a sweep finds out
                self.on_write(namespace)
            if error.forbidden:
                self._refused.add(namespace)


async def wait_for_turn(limiter: FairRateLimiter, namespace: str) -> None:
    """Wait until a record of `namespace` may be written."""
    now = asyncio.get_running_loop().time()
    start = limiter.reserve(namespace, now)
    if start > now:
        await asyncio.sleep(start - now)
