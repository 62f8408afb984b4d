"""The objects beside the pods, kept as wanted: applied when missing, edited by others, or wanted otherwise."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

from gpudask.api.resource import Cluster
from gpudask.desired import support
from gpudask.reconcile.context import Context, Owned

Json = dict[str, Any]


class Support:
    """Applies the Service, ConfigMap and Secret of one cluster; a request only where something differs.

    Server-side apply repairs our fields and leaves others' alone. A Secret is not watched (the operator may not read
    those of others), so it is applied once, and again when it should change.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._applied: dict[str, tuple[str, str]] = {}

    async def ensure(self, cluster: Cluster) -> None:
        """Apply what differs.

        Raises:
            ApiError: as the API server says.
        """
        existing: dict[tuple[str, str], Owned] = {
            (item.kind, item.name): item
            for caches in self._context.support.values()
            for item in caches.owned(cluster.uid)
        }
        wanted = [
            support.service(cluster),
            support.preload(cluster, self._context.preload),
            support.token_secret(cluster, self._context.token(cluster.uid)),
        ]
        await asyncio.gather(
            *(self._apply(body, existing.get((body["kind"], body["metadata"]["name"]))) for body in wanted)
        )

    async def _apply(self, body: Json, existing: Owned | None) -> None:
        kind = body["kind"]
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        version = existing.version if existing else ""
        if kind not in self._context.support:
            version = self._applied.get(kind, ("", ""))[1]
        if version and self._applied.get(kind) == (digest, version):
            return
        answer = await self._context.api.apply(body)
        self._applied[kind] = (digest, answer["metadata"]["resourceVersion"])
        if kind in self._context.support:
            self._context.support[kind].lay_over(body["metadata"]["namespace"], answer)
