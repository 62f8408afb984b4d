"""The objects beside the pods, kept as wanted: applied when missing, edited by others, or wanted otherwise."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import Any

from gpudask.api.resource import Cluster
from gpudask.clients.errors import ApiError
from gpudask.desired import disruption, support
from gpudask.reconcile.context import Context, Owned
from gpudask.reconcile.retries import Work

Json = dict[str, Any]


class Support:
    """Applies the Services, ConfigMap, Secret and budget of one cluster; a request only where something differs.

    Server-side apply repairs our fields and leaves others' alone. A Secret is not watched (the operator may not read
    those of others), so it is applied once, and again when it should change.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._applied: dict[tuple[str, str], tuple[str, str]] = {}  # by kind and name: digest, and version
        self._guarded = True
        self._inputs: Any = None  # what the wanted objects were made of
        self._wanted: list[tuple[Json, str]] = []  # they, and their digests

    def forget_blind(self) -> None:
        """Apply what is not watched anew: a scheduler pod is to be made, and must find it."""
        self._applied = {what: seen for what, seen in self._applied.items() if what[0] in self._context.support}

    def work(self, cluster: Cluster, scheduler: str, *, guarded: bool | None) -> dict[str, Work]:
        """How to apply what differs, by kind and name. The Services name the pod `scheduler`; empty: its label says it.

        `guarded`: whether the scheduler pod is kept from eviction; None: as it was.
        """
        existing: dict[tuple[str, str], Owned] = {
            (item.kind, item.name): item
            for caches in self._context.support.values()
            for item in caches.owned(cluster.owner_key)
        }
        self._guarded = self._guarded if guarded is None else guarded
        work: dict[str, Work] = {}
        for body, digest in self._make(cluster, scheduler):
            what = body["kind"], body["metadata"]["name"]
            if not self._is_applied(what, digest, existing.get(what)):
                work[" ".join(what)] = partial(self._apply, body, digest, existing.get(what))
        return work

    def _make(self, cluster: Cluster, scheduler: str) -> list[tuple[Json, str]]:
        """The wanted objects with their digests, made anew only for a new spec, scheduler pod or guard."""
        inputs = cluster.generation, scheduler, self._guarded
        if inputs != self._inputs:
            wanted = [
                *support.services(cluster, scheduler),
                support.preload(cluster, self._context.preload),
                support.token_secret(cluster, self._context.token(cluster.uid)),
                disruption.budget(cluster, guarded=self._guarded),
            ]
            self._wanted = [
                (body, hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()) for body in wanted
            ]
            self._inputs = inputs
        return self._wanted

    def _is_applied(self, what: tuple[str, str], digest: str, existing: Owned | None) -> bool:
        version = existing.version if existing else ""
        if what[0] not in self._context.support:
            version = self._applied.get(what, ("", ""))[1]
        return bool(version) and self._applied.get(what) == (digest, version)

    async def _apply(self, body: Json, digest: str, existing: Owned | None) -> bool:
        kind = body["kind"]
        answer = await self._put(body, existing)
        self._applied[kind, body["metadata"]["name"]] = (digest, answer["metadata"]["resourceVersion"])
        if kind in self._context.support:
            self._context.support[kind].lay_over(body["metadata"]["namespace"], answer)
        return False

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
        ours = existing is not None or body["kind"] not in self._context.support
        return await self._context.api.apply(body, force=ours)
