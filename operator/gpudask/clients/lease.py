"""Client for a `coordination.k8s.io` Lease: read its holder, and write it only where nobody did so in between.

The times in it are for people: no wall clock decides anything (`reconcile.election`).
https://kubernetes.io/docs/concepts/architecture/leases/
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.clients.errors import ApiError
from gpudask.clients.transport import ApiServer

_API_VERSION = "coordination.k8s.io/v1"
_MERGE_PATCH = "application/merge-patch+json"
_WATCH_SECONDS = "300"


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a Lease. `seconds`: how long it is valid after its last renewal; 0: it has no such field.

    `version`: the Lease's, which is another one after every write.
    """

    holder: str
    seconds: int
    acquired: str
    transitions: int
    version: str


class Lease:
    """One Lease, by namespace and name."""

    def __init__(self, api: ApiServer, namespace: str, name: str) -> None:
        self._api = api
        self._collection = f"/apis/{_API_VERSION}/namespaces/{namespace}/leases"
        self.name = name
        self._namespace = namespace

    async def get(self) -> Record | None:
        """Get its content; None: there is no such Lease.

        Raises:
            ApiError: the API server refuses, or could not be reached.
        """
        try:
            return _record(await self._api.request("GET", f"{self._collection}/{self.name}"))
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def write(self, spec: Json, *, version: str) -> Record:
        """Write `spec`, if the Lease is still at `version`; empty: if there is none.

        Raises:
            ApiError: a conflict, if somebody wrote it in between; or as `get`.
        """
        if not version:
            body = {
                "apiVersion": _API_VERSION,
                "kind": "Lease",
                "metadata": {"name": self.name, "namespace": self._namespace},
                "spec": spec,
            }
            return _record(await self._api.request("POST", self._collection, body=body))
        patch = {"metadata": {"resourceVersion": version}, "spec": spec}
        path = f"{self._collection}/{self.name}"
        return _record(await self._api.request("PATCH", path, body=patch, content_type=_MERGE_PATCH))

    async def changes(self) -> AsyncGenerator[Record]:
        """Watch it: its content now and after each write, until the API server ends the watch.

        Raises:
            ApiError: the watch could not be started, or broke off.
        """
        query = {"watch": "true", "fieldSelector": f"metadata.name={self.name}", "timeoutSeconds": _WATCH_SECONDS}
        async with aclosing(self._api.stream(self._collection, query=query)) as events:
            async for event in events:
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield _record(event["object"])


def _record(body: Json) -> Record:
    spec = body.get("spec") or {}
    return Record(
        holder=str(spec.get("holderIdentity") or ""),
        seconds=int(spec.get("leaseDurationSeconds") or 0),
        acquired=str(spec.get("acquireTime") or ""),
        transitions=int(spec.get("leaseTransitions") or 0),
        version=str(body["metadata"]["resourceVersion"]),
    )
