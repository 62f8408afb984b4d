"""The records as the API server keeps them: one is read, gone on with and replaced; nothing of it stays in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.api.record import Record
from gpudask.api.resource import API_VERSION, RECORD_PLURAL, Identity, record_name
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import FairRateLimiter
from gpudask.clients.kubernetes import Kubernetes
from gpudask.history import record as history
from gpudask.settings import HistorySettings

_LOG = logging.getLogger(__name__)
# Writes of all clusters: each takes some 10 ms here, and is a version of up to 200 kB, which etcd keeps for minutes.
_WRITES_PER_SECOND, _WRITES_BURST = 5.0, 10.0
_MEND = "kubectl apply --server-side --force-conflicts -f crds/gpudaskrecords.yaml, and upgrade the chart's roles"


@dataclass(frozen=True)
class Subject:
    """Whose record it is. `created`: of the cluster, as its metadata have it. `keep_seconds`: after its end."""

    cluster: Identity
    created: str
    keep_seconds: float


class Records:
    """Reads and writes records. `off`: why none can be written at present, empty where they can.

    `now`: the API server's time, in seconds since the epoch. `on_write(namespace)` is called after a new record, and
    after the last write of a cluster that is gone.
    """

    def __init__(self, api: Kubernetes, settings: HistorySettings, now: Callable[[], float]) -> None:
        self._api = api
        self.settings = settings
        self.now = now
        self.limiter = FairRateLimiter(_WRITES_PER_SECOND, _WRITES_BURST)
        self.off = ""
        self.on_write: Callable[[str], None] = lambda _: None

    async def read(self, cluster: Identity) -> Record | None:
        """The record of `cluster` as it is now; None where there is none, or something else under its name.

        Raises:
            ApiError: the API server refuses, or could not be reached.
        """
        body = await self._get(cluster)
        return history.read(body, cluster) if body is not None else None

    async def go_on(self, subject: Subject, notes: history.Notes, *, only_existing: bool = False) -> None:
        """Write the record of `subject` with `notes`; what stands under its name and is no record of it is replaced.

        `only_existing`: where there is none, none is made.

        Raises:
            ApiError: it could not be written; a conflict: somebody else wrote it meanwhile.
        """
        cluster, now = subject.cluster, self.now()
        body = await self._get(cluster)
        if body is None and only_existing:
            return
        before = history.read(body, cluster) if body is not None else None
        after = history.gone_on(before or history.begun(cluster, subject.created, now), notes, now)
        if before is not None and after.model_copy(update={"updated": before.updated}) == before:
            return
        version = str(body["metadata"]["resourceVersion"]) if body is not None else ""
        try:
            await self._api.put_record(
                history.rendered(after, cluster, keep_seconds=subject.keep_seconds, version=version)
            )
        except ApiError as error:
            self._note_failure(error)
            raise
        if body is None or after.ended:
            self.on_write(cluster.namespace)

    def set_on(self) -> None:
        """Note that records can be read: the definition is there."""
        if self.off:
            _LOG.info("records of clusters are written again")
        self.off = ""

    def set_off(self, error: ApiError) -> None:
        """Note that no record can be read or written until somebody mends it; said once."""
        if not self.off:
            what = "may not be written" if error.forbidden else f"are not known ({RECORD_PLURAL} of {API_VERSION})"
            self.off = f"records {what}: {_MEND}"
            _LOG.warning("clusters leave no record: %s (%s)", self.off, error)

    async def _get(self, cluster: Identity) -> Json | None:
        try:
            body = await self._api.get_record(cluster.namespace, record_name(cluster))
        except ApiError as error:
            if error.object_not_found:
                return None
            self._note_failure(error)
            raise
        return body

    def _note_failure(self, error: ApiError) -> None:
        """Know a definition or a right that is missing from what passes. A whole namespace may end, too."""
        if (error.not_found and not error.object_not_found) or (error.forbidden and not error.ending):
            self.set_off(error)


async def wait_for_turn(limiter: FairRateLimiter, namespace: str) -> None:
    """Wait until a record of `namespace` may be written."""
    now = asyncio.get_running_loop().time()
    start = limiter.reserve(namespace, now)
    if start > now:
        await asyncio.sleep(start - now)
