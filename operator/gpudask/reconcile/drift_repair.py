"""Drift repair of the objects beside the pods: applied when missing, edited by others, or different in a new spec.

Each has the digest of what was applied as an annotation. So a new leader need not apply thousands of objects before
anything else: one with the right digest counts as applied, and is applied again when a rate limiter allows it, some
seconds or minutes later, in case somebody edited it while nobody led.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpudask.api import Json
from gpudask.api.resource import ANNOTATION_SPEC_HASH, Cluster
from gpudask.clients.errors import ApiError
from gpudask.clients.recheck import look_again
from gpudask.desired import disruption, names, network
from gpudask.desired.scheduler import preload_settings, services
from gpudask.planning.observed import fields
from gpudask.planning.observed.observation import Failure
from gpudask.planning.observed.parser import owner_key
from gpudask.reconcile.context import Context
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


@dataclass(frozen=True, slots=True)
class Owned:
    """A cluster's object beside its pods, as far as drift repair needs it. `digest`: of what was applied last."""

    uid: str
    name: str
    kind: str
    owner: str
    version: str
    digest: str = ""


def observe_owned(kind: str) -> Callable[[Json], Owned]:
    """The reducer of objects of `kind`; it raises UnreadableError where one has another shape."""

    def reduce(body: Json) -> Owned:
        meta = fields.mapping(body, "metadata")
        uid, name = fields.identifier(meta, "uid"), fields.identifier(meta, "name")
        digest = fields.text(fields.mapping(meta, "annotations"), ANNOTATION_SPEC_HASH)
        return Owned(uid, name, kind, owner_key(meta), fields.version(meta), digest)

    return reduce


class DriftRepair:
    """Applies the objects beside one cluster's pods; a request only where something differs.

    Server-side apply repairs our fields and leaves others' alone.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._applied: dict[_What, tuple[str, str]] = {}  # digest, and version
        self._unverified: set[_What] = set()  # of these, what another operator applied
        self._reapply_at: float | None = None  # when they are applied again; None before the first pass
        self._protected = True
        self._inputs: Any = None  # what the desired objects were rendered from
        self._rendered: list[tuple[Json, str]] = []  # they, and their digests

    def reapply_now(self) -> None:
        """Apply again what this operator did not apply itself: a new scheduler pod must find it."""
        if self._reapply_at is None:
            self._reapply_at = self._context.clock()
        self._forget_unverified()

    def requeue_after(self) -> float | None:
        """In how many seconds objects are to be applied again without any change; None: never."""
        return max(0.0, self._reapply_at - self._context.clock()) if self._unverified and self._reapply_at else None

    def has_lost_any(self, cluster: Cluster) -> bool:
        """Whether an object that was applied is gone, or somebody else's: perhaps because the cluster was deleted."""
        return not self._applied.keys() <= self._existing(cluster).keys()

    def _existing(self, cluster: Cluster) -> dict[_What, Owned]:
        caches = self._context.dependents.values()
        return {(item.kind, item.name): item for each in caches for item in each.owned(cluster.owner_key)}

    def work(self, cluster: Cluster, scheduler: str, *, protected: bool | None) -> dict[str, Work]:
        """The work to do, by kind and name. The Services select the pod `scheduler`; empty: the one with the label.

        `protected`: whether the scheduler pod is protected from eviction; None: as it was.
        """
        existing = self._existing(cluster)
        self._protected = self._was_protected(cluster, existing) if protected is None else protected
        self._adopt(cluster, scheduler, existing)
        for lost in self._applied.keys() - existing.keys():
            del self._applied[lost]
        work: dict[str, Work] = {}
        for body, digest in self._render(cluster, scheduler):
            what = body["kind"], body["metadata"]["name"]
            if not self._is_applied(what, digest, existing.get(what)):
                work[" ".join(what)] = partial(self._apply, body, digest, existing.get(what))
        policy = existing.get(_policy(cluster))
        if policy is not None and not self._context.network_policies:  # of before they were switched off
            work[" ".join(_policy(cluster))] = partial(self._remove_policy, cluster, policy)
        return work

    def network_refusal(self, cluster: Cluster, failures: tuple[Failure, ...]) -> str | None:
        """Why there is no NetworkPolicy, as `Observation.network`. `failures`: of the work on objects."""
        if not self._context.network_policies:
            return None
        what = _policy(cluster)
        for failure in failures:
            if failure.what == " ".join(what):
                return failure.message
        owned = self._context.dependents[network.KIND].owned(cluster.owner_key)
        is_there = what in self._applied or any(item.name == what[1] for item in owned)
        return "" if is_there else "not made yet"

    async def _remove_policy(self, cluster: Cluster, existing: Owned) -> bool:
        body = network.policy(cluster, self._context.operator_namespace)
        caches = self._context.dependents[network.KIND]
        try:
            await self._context.api.delete(body, uid=existing.uid, version=existing.version)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
            get, uid, version = partial(self._context.api.get, body), existing.uid, existing.version
            changed = await look_again(
                get,
                caches,
                cluster.namespace,
                uid=uid,
                version=version,
                error=error,
                after_seconds=self._context.recheck_seconds,
            )
            return changed is not None
        caches.forget(cluster.namespace, existing.uid)
        return False

    def _render(self, cluster: Cluster, scheduler: str) -> list[tuple[Json, str]]:
        """The desired objects with their digests, rendered again only for a new spec, scheduler pod or protection."""
        inputs = cluster.generation, scheduler, self._protected
        if inputs != self._inputs:
            objects = [
                *services(cluster, scheduler),
                preload_settings(cluster, self._context.token(cluster.uid)),
                disruption.budget(cluster, is_protected=self._protected),
            ]
            if self._context.network_policies:
                objects.append(network.policy(cluster, self._context.operator_namespace))
            self._rendered = [_signed(body) for body in objects]
            self._inputs = inputs
        return self._rendered

    def _was_protected(self, cluster: Cluster, existing: dict[_What, Owned]) -> bool:
        """Whether the scheduler pod was protected in the last pass; before the first, as the budget in the cache is."""
        if self._reapply_at is not None:
            return self._protected
        body, digest = _signed(disruption.budget(cluster, is_protected=False))
        found = existing.get((body["kind"], body["metadata"]["name"]))
        return found is None or found.digest != digest

    def _adopt(self, cluster: Cluster, scheduler: str, existing: dict[_What, Owned]) -> None:
        """Count objects with the right digest as applied, until the limiter lets this cluster apply them again."""
        now = self._context.clock()
        if self._reapply_at is None:
            self._reapply_at = self._context.reapply_limiter.reserve(cluster.namespace, now) if existing else now
            for body, digest in self._render(cluster, scheduler) if existing else ():
                what = body["kind"], body["metadata"]["name"]
                found = existing.get(what)
                if found is not None and found.digest == digest:
                    self._applied[what] = (digest, found.version)
            self._unverified = set(self._applied)
        if now >= self._reapply_at:
            self._forget_unverified()

    def _forget_unverified(self) -> None:
        for what in self._unverified:
            self._applied.pop(what, None)
        self._unverified.clear()

    def _is_applied(self, what: _What, digest: str, existing: Owned | None) -> bool:
        return existing is not None and self._applied.get(what) == (digest, existing.version)

    async def _apply(self, body: Json, digest: str, existing: Owned | None) -> bool:
        kind = body["kind"]
        answer = await self._put(body, existing)
        what = kind, body["metadata"]["name"]
        self._applied[what] = (digest, answer["metadata"]["resourceVersion"])
        self._unverified.discard(what)
        self._context.dependents[kind].upsert(body["metadata"]["namespace"], answer)
        return False

    async def _put(self, body: Json, existing: Owned | None) -> Json:
        """Create or apply the object; as the API server has it then.

        A ConfigMap is created, not applied, where it can be: an apply is parsed as YAML, twice.
        """
        if body["kind"] == "ConfigMap" and existing is None:
            try:
                return await self._context.api.create(body)
            except ApiError as error:
                if not error.conflict:
                    raise  # else it is there: ours, of an answer that was lost, or somebody else's
        # What is not in the cache as ours may be somebody else's: its fields are not overwritten by force.
        return await self._context.api.apply(body, force=existing is not None)


def _policy(cluster: Cluster) -> _What:
    return network.KIND, names.network_policy(cluster.name)


def _signed(body: Json) -> tuple[Json, str]:
    """`body` with its digest as an annotation, and the digest."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    metadata = body["metadata"]
    annotations = metadata.get("annotations", {}) | {ANNOTATION_SPEC_HASH: digest}
    return body | {"metadata": metadata | {"annotations": annotations}}, digest
