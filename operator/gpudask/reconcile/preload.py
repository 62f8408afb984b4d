"""The ConfigMaps with the preload, which a namespace's clusters share: made, referred to, let go and put right.

Each cluster has an owner reference in those that its scheduler pods mount, and in the current one while it has no
scheduler: Kubernetes deletes one with the last cluster that refers to it. Where the cache says that all is right,
nothing is asked for.

Whoever may write ConfigMaps in the namespace may have made one by our name. So contents are believed that fit the name
alone; a scheduler pod is made only where they do, and what has our label and other contents is deleted and made again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from gpudask.api import resource
from gpudask.api.resource import LABEL_PRELOAD, Cluster, owner_key
from gpudask.clients.errors import ApiError
from gpudask.desired import names, preload
from gpudask.planning import fields
from gpudask.reconcile.context import Context, Owned
from gpudask.reconcile.retries import Work
from gpudask.reconcile.turns import Turns

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
# Of what nobody needs any more so many are let go in one pass: anybody may have made thousands.
_LET_GO_AT_ONCE = 8
# What somebody changes or deletes is made again so often in a namespace, and so often at once.
_REPAIRS_A_SECOND, _REPAIRS_AT_ONCE = 1 / 30, 5.0


@dataclass(frozen=True, slots=True)
class Shared:
    """A ConfigMap with a preload. `owner`: the key of its namespace; `users`: the uids of clusters that it names.

    `owners`: how many owner references it has, of whatever kind. `right`: whether it holds what its name stands for,
    and does so for ever.
    """

    uid: str
    name: str
    owner: str
    version: str
    users: frozenset[str]
    owners: int
    right: bool


There = Mapping[str, Shared]  # by name, of one namespace


def observe_shared(body: Json) -> Shared:
    """A ConfigMap of the API server, reduced.

    Raises:
        UnreadableError: it has not the shape of one.
    """
    meta = fields.mapping(body, "metadata")
    name = fields.identifier(meta, "name")
    references = fields.items(meta, "ownerReferences")
    held = {part: _texts(body, part) for part in ("data", "binaryData")}
    return Shared(
        uid=fields.identifier(meta, "uid"),
        name=name,
        owner=owner_key(fields.identifier(meta, "namespace"), ""),
        version=fields.version(meta),
        users=frozenset(fields.identifier(item, "uid") for item in references if _is_of_cluster(item)),
        owners=len(references),
        right=body.get("immutable") is True and preload.named(held) == name,
    )


def there(context: Context, namespace_key: str) -> There:
    """The ConfigMaps of a namespace, as far as they are known."""
    found = sorted(context.preloads.owned(namespace_key), key=lambda item: int(item.version))
    return {item.name: item for item in found}  # of two by one name the newer: the other was deleted


class SharedPreload:
    """What one cluster has to do with the ConfigMaps that it shares."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._name = preload.name(context.preload)
        self._held: dict[str, str] = {}  # name -> our uid in it, when we looked last
        self._ever_held: set[str] = set()  # which are there, unless somebody took them away

    def is_there(self, cluster: Cluster) -> bool:
        """Whether a scheduler pod that is made now finds what it mounts."""
        found = self._there(cluster).get(self._name)
        return found is not None and found.right

    def lost(self, now: There) -> bool:
        """Whether something is no longer as we saw it last."""
        return any(not _is_held(now.get(name), uid) for name, uid in self._held.items())

    def work(self, cluster: Cluster, *, creates_scheduler: bool) -> dict[str, Work]:
        """What to do, by kind and name."""
        pods, found = self._context.pods_of(cluster), self._there(cluster)
        mounted = {pod.preload for pod in pods if pod.preload}
        starts = creates_scheduler or not any(pod.live and not pod.pool for pod in pods)
        wanted = mounted | ({self._name} if starts else set())
        self._held = {name: cluster.uid for name in wanted if _is_held(found.get(name), cluster.uid)}
        self._ever_held |= self._held.keys()
        work: dict[str, Work] = {}
        for name in wanted - self._held.keys():
            item = found.get(name)
            if name == self._name:
                work[f"ConfigMap {name}"] = partial(self._provide, cluster)
            elif item is not None and item.right:
                work[f"ConfigMap {name}"] = partial(self._refer, cluster, item)
        unused = [item for name, item in found.items() if name not in wanted and item.right]
        left = [item for item in unused if cluster.uid in item.users or not item.owners]
        work |= {f"ConfigMap {item.name}": partial(self._let_go, cluster, item) for item in left[:_LET_GO_AT_ONCE]}
        return work | {
            f"ConfigMap {item.name}": partial(self._remove_own, cluster, item)
            for item in self._context.support["ConfigMap"].owned(cluster.owner_key)
            if item.name.startswith(names.own_preload(cluster.name)) and item.name not in mounted
        }

    def _there(self, cluster: Cluster) -> There:
        return there(self._context, owner_key(cluster.namespace, ""))

    async def _provide(self, cluster: Cluster) -> bool:
        """Make the current one where it is missing or wrong, and refer to it."""
        item = self._there(cluster).get(self._name)
        if item is not None and item.right:
            return await self._refer(cluster, item)
        if item is not None or self._name in self._ever_held:
            self._take_turn(cluster)
        if item is not None:
            _LOG.warning(
                "%s: ConfigMap %s holds not what its name stands for: it is made again", cluster.key, item.name
            )
            await self._delete(cluster, item)
        item = await self._create(cluster)
        if cluster.uid not in item.users:
            return await self._refer(cluster, item)
        self._holds(cluster, item)
        return False

    async def _create(self, cluster: Cluster) -> Shared:
        """The current one, which was not there a moment ago.

        Raises:
            ApiError: it cannot be made, or something else has its name.
        """
        try:
            body = await self._context.api.create_large(preload.preload(cluster, self._context.preload))
        except ApiError as error:
            if not error.conflict:
                raise
            made = self._there(cluster).get(self._name)  # meanwhile, for another cluster
            if made is not None and made.right:
                return made
            body = await self._context.api.get_config_map(cluster.namespace, self._name)
            if LABEL_PRELOAD not in fields.mapping(fields.mapping(body, "metadata"), "labels"):
                raise self._conflict(
                    "somebody made one by this name, without the operator's label: delete it"
                ) from error
        item = self._take_in(cluster, body)
        if not item.right:
            raise self._conflict("it holds not what its name stands for")
        return item

    async def _refer(self, cluster: Cluster, item: Shared) -> bool:
        """Add this cluster's owner reference."""
        try:
            body = await self._context.api.refer(cluster.namespace, item.name, cluster.shared_reference, uid=item.uid)
        except ApiError as error:
            if not (error.object_not_found or error.conflict):
                raise
            # It was deleted, and perhaps made again: as with its last cluster, whose reference was the last.
            self._context.preloads.forget(cluster.namespace, item.uid)
            if item.name != self._name or error.conflict:
                raise
            return await self._provide(cluster)
        self._holds(cluster, self._take_in(cluster, body))
        return False

    async def _let_go(self, cluster: Cluster, item: Shared) -> bool:
        """Take off this cluster's owner reference; with the last one goes the object.

        Of two clusters that take off theirs at once, the second gets an answer without any.
        """
        self._ever_held.discard(item.name)
        try:
            if item.owners > 1:
                body = await self._context.api.refer(
                    cluster.namespace, item.name, cluster.shared_reference, uid=item.uid, drop=True
                )
                item = self._take_in(cluster, body)
            if item.owners == 0 or item.users == {cluster.uid}:
                await self._delete(cluster, item)
        except ApiError as error:
            if not error.object_not_found:
                raise
            self._context.preloads.forget(cluster.namespace, item.uid)
        return False

    async def _delete(self, cluster: Cluster, item: Shared) -> None:
        """Delete it as it is: whoever has begun to refer to it keeps it."""
        try:
            await self._context.api.delete(_config_map(cluster, item.name), uid=item.uid, version=item.version)
        except ApiError as error:
            if not error.object_not_found:
                raise
        self._context.preloads.forget(cluster.namespace, item.uid)

    async def _remove_own(self, cluster: Cluster, item: Owned) -> bool:
        """Delete the ConfigMap that a version before made for this cluster alone, and that no pod mounts any more."""
        try:
            await self._context.api.delete(_config_map(cluster, item.name), uid=item.uid, version=item.version)
        except ApiError as error:
            if not error.object_not_found:
                raise
        self._context.support["ConfigMap"].forget(cluster.namespace, item.uid)
        return False

    def _holds(self, cluster: Cluster, item: Shared) -> None:
        self._held[item.name] = cluster.uid
        self._ever_held.add(item.name)

    def _take_in(self, cluster: Cluster, body: Json) -> Shared:
        self._context.preloads.lay_over(cluster.namespace, body)
        return observe_shared(body)

    def _take_turn(self, cluster: Cluster) -> None:
        """Note that it is put right.

        Raises:
            ApiError: that was done too often: somebody undoes it every time.
        """
        now = self._context.clock()
        turns = self._context.repair_turns.setdefault(cluster.namespace, Turns(_REPAIRS_A_SECOND, _REPAIRS_AT_ONCE))
        wait = turns.next(now) - now
        if wait > 0:
            raise self._conflict("somebody changes or deletes it again and again", retry_after_seconds=wait)
        turns.take(now)

    def _conflict(self, message: str, **more: float) -> ApiError:
        return ApiError(HTTPStatus.CONFLICT, "Conflict", message, f"ConfigMap {self._name}", **more)


def _config_map(cluster: Cluster, name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": cluster.namespace}}


def _is_held(item: Shared | None, uid: str) -> bool:
    return item is not None and item.right and uid in item.users


def _texts(body: Json, name: str) -> Json:
    """The texts in the field `name`, whatever their size."""
    found = fields.mapping(body, name)
    if not all(isinstance(text, str) for text in found.values()):
        raise fields.UnreadableError(name, "an object of texts", found)
    return found


def _is_of_cluster(reference: Json) -> bool:
    group = fields.text(reference, "apiVersion").partition("/")[0]
    return group == resource.GROUP and reference.get("kind") == resource.KIND
