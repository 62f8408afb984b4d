"""The objects beside the pods, kept as wanted: applied when missing, edited by others, or wanted otherwise.

Each says in an annotation what it was made of. So who begins to lead need not apply thousands of objects before
anything else: what says the right thing is taken for right, and applied again in its cluster's turn, some seconds or
minutes later, in case somebody edited it while nobody led.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import Any

from gpudask.api.json_object import Json
from gpudask.api.resource import ANNOTATION_SPEC_HASH, Cluster
from gpudask.clients.errors import ApiError
from gpudask.desired import disruption, names, network
from gpudask.desired.scheduler import preload_settings, services
from gpudask.planning.observed.observation import Failure
from gpudask.reconcile.context import Context, Owned
from gpudask.reconcile.retries import Work

_What = tuple[str, str]  # kind and name
_DIGEST_CHARACTERS = 16

# The kinds of objects beside the pods: the API's path, and the plural.
KINDS = {
    "Service": ("api/v1", "services"),
    "ConfigMap": ("api/v1", "configmaps"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    network.KIND: ("apis/networking.k8s.io/v1", "networkpolicies"),
}


class Support:
    """Applies what one cluster has beside its pods; a request only where something differs.

    Server-side apply repairs our fields and leaves others' alone.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._applied: dict[_What, tuple[str, str]] = {}  # digest, and version
        self._unchecked: set[_What] = set()  # of these, what somebody else applied
        self._check_at: float | None = None  # when they are applied again; None: nobody has looked yet
        self._guarded = True
        self._inputs: Any = None  # what the wanted objects were made of
        self._wanted: list[tuple[Json, str]] = []  # they, and their digests

    def check_now(self) -> None:
        """Apply anew what we did not apply: a scheduler pod is to be made, and must find it."""
        if self._check_at is None:
            self._check_at = self._context.clock()
        self._forget_unchecked()

    def check_in(self) -> float | None:
        """In how many seconds there is work again without any change; None: there is not."""
        return max(0.0, self._check_at - self._context.clock()) if self._unchecked and self._check_at else None

    def work(self, cluster: Cluster, scheduler: str, *, guarded: bool | None) -> dict[str, Work]:
        """How to apply what differs, by kind and name. The Services name the pod `scheduler`; empty: its label says it.

        `guarded`: whether the scheduler pod is kept from eviction; None: as it was.
        """
        existing: dict[_What, Owned] = {
            (item.kind, item.name): item
            for caches in self._context.support.values()
            for item in caches.owned(cluster.owner_key)
        }
        self._guarded = self._was_guarded(cluster, existing) if guarded is None else guarded
        self._believe(cluster, scheduler, existing)
        work: dict[str, Work] = {}
        for body, digest in self._make(cluster, scheduler):
            what = body["kind"], body["metadata"]["name"]
            if not self._is_applied(what, digest, existing.get(what)):
                work[" ".join(what)] = partial(self._apply, body, digest, existing.get(what))
        policy = existing.get(_policy(cluster))
        if policy is not None and not self._context.network_policies:  # made before they were switched off
            work[" ".join(_policy(cluster))] = partial(self._remove_policy, cluster, policy)
        return work

    def network_refusal(self, cluster: Cluster, failures: tuple[Failure, ...]) -> str | None:
        """As `Observation.network`. `failures`: of the work on objects."""
        if not self._context.network_policies:
            return None
        what = _policy(cluster)
        for failure in failures:
            if failure.what == " ".join(what):
                return failure.message
        owned = self._context.support[network.KIND].owned(cluster.owner_key)
        is_there = what in self._applied or any(item.name == what[1] for item in owned)
        return "" if is_there else "not made yet"

    async def _remove_policy(self, cluster: Cluster, existing: Owned) -> bool:
        body = network.policy(cluster, self._context.operator_namespace)
        try:
            await self._context.api.delete(body, uid=existing.uid, version=existing.version)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
        self._context.support[network.KIND].forget(cluster.namespace, existing.uid)
        return False

    def _make(self, cluster: Cluster, scheduler: str) -> list[tuple[Json, str]]:
        """The wanted objects with their digests, made anew only for a new spec, scheduler pod or guard."""
        inputs = cluster.generation, scheduler, self._guarded
        if inputs != self._inputs:
            wanted = [
                *services(cluster, scheduler),
                preload_settings(cluster, self._context.token(cluster.uid)),
                disruption.budget(cluster, is_protected=self._guarded),
            ]
            if self._context.network_policies:
                wanted.append(network.policy(cluster, self._context.operator_namespace))
            self._wanted = [_signed(body) for body in wanted]
            self._inputs = inputs
        return self._wanted

    def _was_guarded(self, cluster: Cluster, existing: dict[_What, Owned]) -> bool:
        """Whether the scheduler pod is guarded, as we know or, at first, as the budget says."""
        if self._check_at is not None:
            return self._guarded
        body, digest = _signed(disruption.budget(cluster, is_protected=False))
        found = existing.get((body["kind"], body["metadata"]["name"]))
        return found is None or found.digest != digest

    def _believe(self, cluster: Cluster, scheduler: str, existing: dict[_What, Owned]) -> None:
        """Take for applied what says so, until it is this cluster's turn."""
        now = self._context.clock()
        if self._check_at is None:
            self._check_at = self._context.check_turns.take(cluster.namespace, now) if existing else now
            for body, digest in self._make(cluster, scheduler) if existing else ():
                what = body["kind"], body["metadata"]["name"]
                found = existing.get(what)
                if found is not None and found.digest == digest:
                    self._applied[what] = (digest, found.version)
            self._unchecked = set(self._applied)
        if now >= self._check_at:
            self._forget_unchecked()

    def _forget_unchecked(self) -> None:
        for what in self._unchecked:
            self._applied.pop(what, None)
        self._unchecked.clear()

    def _is_applied(self, what: _What, digest: str, existing: Owned | None) -> bool:
        return existing is not None and self._applied.get(what) == (digest, existing.version)

    async def _apply(self, body: Json, digest: str, existing: Owned | None) -> bool:
        kind = body["kind"]
        answer = await self._put(body, existing)
        what = kind, body["metadata"]["name"]
        self._applied[what] = (digest, answer["metadata"]["resourceVersion"])
        self._unchecked.discard(what)
        self._context.support[kind].lay_over(body["metadata"]["namespace"], answer)
        return False

    async def _put(self, body: Json, existing: Owned | None) -> Json:
        """Make the ConfigMap, or apply what it is; the object as the API server has it now.

        An apply is parsed as YAML, twice.
        """
        if body["kind"] == "ConfigMap" and existing is None:
            try:
                return await self._context.api.create(body)
            except ApiError as error:
                if not error.conflict:
                    raise  # else it is there: ours, of an answer that was lost, or somebody else's
        # What is not in the cache as ours may be somebody else's: its fields are not taken by force.
        return await self._context.api.apply(body, force=existing is not None)


def _policy(cluster: Cluster) -> _What:
    return network.KIND, names.network_policy(cluster.name)


def _signed(body: Json) -> tuple[Json, str]:
    """`body` with its digest as an annotation, and the digest."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    metadata = body["metadata"]
    annotations = metadata.get("annotations", {}) | {ANNOTATION_SPEC_HASH: digest}
    return body | {"metadata": metadata | {"annotations": annotations}}, digest
