"""The objects beside the pods, kept as wanted: applied when missing, edited by others, or wanted otherwise."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

from gpudask.api.resource import Cluster
from gpudask.clients.errors import ApiError
from gpudask.desired import disruption, names, network, support
from gpudask.reconcile.context import Context, Owned

Json = dict[str, Any]


class Support:
    """Applies what one cluster has beside its pods; a request only where something differs.

    Server-side apply repairs our fields and leaves others' alone.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._applied: dict[tuple[str, str], tuple[str, str]] = {}  # by kind and name: digest, and version
        self._guarded = True
        self.network_refusal: str | None = "not made yet" if context.network_policies else None
        self._inputs: Any = None  # what the wanted objects were made of
        self._wanted: list[tuple[Json, str]] = []  # they, and their digests

    async def ensure(self, cluster: Cluster, scheduler: str, *, guarded: bool | None) -> list[ApiError]:
        """Apply what differs. The Services name the pod `scheduler`; empty: none, its label says it.

        `guarded`: whether the scheduler pod is kept from eviction; None: as it was.

        Returns:
            What the API server refused, such as an object of that name that is somebody else's.

        Raises:
            ApiError: the API server could not be reached, or the namespace is being deleted.
        """
        existing: dict[tuple[str, str], Owned] = {
            (item.kind, item.name): item
            for caches in self._context.support.values()
            for item in caches.owned(cluster.uid)
        }
        self._guarded = self._guarded if guarded is None else guarded
        results = await asyncio.gather(
            *(
                self._apply(body, digest, existing.get((body["kind"], body["metadata"]["name"])))
                for body, digest in self._make(cluster, scheduler)
            ),
            return_exceptions=True,
        )
        await self._remove_policies(cluster, existing)
        refused = []
        for (body, _), result in zip(self._make(cluster, scheduler), results, strict=True):
            if isinstance(result, ApiError) and _refusal(result):
                refused.append(result)
            elif isinstance(result, BaseException):
                raise result
            if body["kind"] == network.KIND:
                self.network_refusal = str(result) if isinstance(result, ApiError) else ""
        return refused

    async def _remove_policies(self, cluster: Cluster, existing: dict[tuple[str, str], Owned]) -> None:
        """Delete the NetworkPolicy that was made before they were switched off."""
        name = names.network_policy(cluster.name)
        if self._context.network_policies or (old := existing.get((network.KIND, name))) is None:
            return
        body = network.policy(cluster, self._context.operator_namespace)
        try:
            await self._context.api.delete(body, uid=old.uid, version=old.version)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
        self._context.support[network.KIND].forget(cluster.namespace, old.uid)

    def _make(self, cluster: Cluster, scheduler: str) -> list[tuple[Json, str]]:
        """The wanted objects with their digests, made anew only for a new spec, scheduler pod or guard."""
        inputs = cluster.generation, scheduler, self._guarded
        if inputs != self._inputs:
            wanted = [
                *support.services(cluster, scheduler),
                support.preload(cluster, self._context.preload),
                support.token_digest(cluster, self._context.token(cluster.uid)),
                disruption.budget(cluster, guarded=self._guarded),
            ]
            if self._context.network_policies:
                wanted.append(network.policy(cluster, self._context.operator_namespace))
            self._wanted = [
                (body, hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()) for body in wanted
            ]
            self._inputs = inputs
        return self._wanted

    async def _apply(self, body: Json, digest: str, existing: Owned | None) -> None:
        kind = body["kind"]
        what = kind, body["metadata"]["name"]
        if existing is not None and self._applied.get(what) == (digest, existing.version):
            return
        answer = await self._put(body, existing)
        self._applied[what] = (digest, answer["metadata"]["resourceVersion"])
        self._context.support[kind].lay_over(body["metadata"]["namespace"], answer)

    async def _put(self, body: Json, existing: Owned | None) -> Json:
        """Make the ConfigMap, or apply what it is; the object as the API server has it now.

        An apply is parsed as YAML, twice: of the preload's size that is most of what a new cluster costs the server.
        """
        if body["kind"] == "ConfigMap" and existing is None:
            try:
                return await self._context.api.create_large(body)
            except ApiError as error:
                if not error.conflict:
                    raise  # else it is there: ours, of an answer that was lost, or somebody else's
        # What is not in the cache as ours may be somebody else's: its fields are not taken by force.
        return await self._context.api.apply(body, force=existing is not None)


def _refusal(error: ApiError) -> bool:
    return not error.ending and (error.conflict or error.invalid or error.quota or error.forbidden)
