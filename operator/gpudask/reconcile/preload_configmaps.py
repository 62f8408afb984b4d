"""The ConfigMaps with the preload, which a namespace's clusters share: created, referred to, released and repaired.

Each cluster has an owner reference in those that its scheduler pods mount, and in the current one while it has no
scheduler: Kubernetes deletes one with the last cluster that refers to it. Where the cache has all as it should be, no
request is made.

In each namespace one request at a time is made for them, and it carries the changes of all clusters that wait. Many
patches of one object at once make each other start over in the API server: a hundred of them were not through after
30 s.

Whoever may write ConfigMaps in the namespace may have made one of our name. So only contents that match the name, which
has their digest, are valid; a scheduler pod is created only where they are, and an object with our label and other
contents is deleted and made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from weakref import WeakValueDictionary

from gpudask.api import Json, resource
from gpudask.api.resource import LABEL_PRELOAD, Cluster, owner_key
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import CLUSTER, RateLimiter
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.recheck import look_again
from gpudask.clients.reflector import Caches
from gpudask.desired import names, preload
from gpudask.planning.observed import fields
from gpudask.reconcile.retries import Work

_LOG = logging.getLogger(__name__)
# Of those that are not needed any more so many are released in one pass: anybody may have made thousands.
_RELEASES_PER_PASS = 8
# What somebody changes or deletes is made again so often in a namespace, after a burst of so many.
_REPAIRS_PER_SECOND, _REPAIRS_BURST = 1 / 30, 5.0


@dataclass(frozen=True, slots=True)
class Shared:
    """A ConfigMap with a preload. `owner`: the key of its namespace; `users`: the uids of clusters that it names.

    `owners`: how many owner references it has, of whatever kind. `valid`: whether its contents match its name, and
    cannot be changed.
    """

    uid: str
    name: str
    owner: str
    version: str
    users: frozenset[str]
    owners: int
    valid: bool

    def is_held_by(self, uid: str) -> bool:
        """Whether the cluster with this uid refers to it, and it is valid."""
        return self.valid and uid in self.users


SharedByName = Mapping[str, Shared]  # of one namespace


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
        valid=body.get("immutable") is True and preload.named(held) == name,
    )


class Preloads:
    """The shared ConfigMaps of all namespaces. `files`: the current preload, file name -> bytes."""

    def __init__(self, api: Kubernetes, caches: Caches, files: dict[str, bytes], clock: Callable[[], float]) -> None:
        self.api = api
        self.caches = caches
        self.files = files
        self.clock = clock
        # By namespace. The clusters that use one keep it: with the last of a namespace it goes.
        self._writers: WeakValueDictionary[str, _Writer] = WeakValueDictionary()

    @property
    def name(self) -> str:
        """The name of the current ConfigMap, in every namespace."""
        return preload.name(self.files)

    def known(self, namespace: str) -> SharedByName:
        """Those of a namespace in the cache."""
        found = sorted(self.caches.owned(owner_key(namespace, "")), key=lambda item: int(item.version))
        return {item.name: item for item in found}  # of two by one name the newer: the other was deleted

    def writer(self, namespace: str) -> _Writer:
        """The writer of those of a namespace."""
        return self._writers.setdefault(namespace, _Writer(self, namespace))


class SharedPreload:
    """One cluster's references in those of its namespace. `own`: the caches of ConfigMaps that one cluster owns."""

    def __init__(self, preloads: Preloads, pods: Caches, own: Caches) -> None:
        self._preloads = preloads
        self._pods = pods
        self._own = own
        self._held: dict[str, str] = {}  # name -> our uid in it, in the last pass
        self._ever_held: set[str] = set()  # a reference that is missing there was removed by somebody
        self._writer: _Writer | None = None

    def is_there(self, cluster: Cluster) -> bool:
        """Whether a scheduler pod that is created now finds what it mounts."""
        found = self._preloads.known(cluster.namespace).get(self._preloads.name)
        return found is not None and found.valid

    def has_lost(self, now: SharedByName) -> bool:
        """Whether a reference that this cluster had in the last pass is gone."""
        return any(not (name in now and now[name].is_held_by(uid)) for name, uid in self._held.items())

    def work(self, cluster: Cluster, *, creates_scheduler: bool) -> dict[str, Work]:
        """The work to do, by kind and name."""
        there, current = self._preloads.known(cluster.namespace), self._preloads.name
        pods = [pod for pod in self._pods.owned(cluster.owner_key) if not pod.pool]
        mounted = {pod.preload for pod in pods if pod.preload}
        starts = creates_scheduler or not any(pod.live for pod in pods)
        wanted = mounted | ({current} if starts else set())
        self._held = {name: cluster.uid for name in wanted if name in there and there[name].is_held_by(cluster.uid)}
        self._ever_held |= self._held.keys()
        available = {current, *(name for name, item in there.items() if item.valid)}
        work: dict[str, Work] = {
            f"ConfigMap {name}": partial(self._add_reference, cluster, name)
            for name in sorted((wanted - self._held.keys()) & available)
        }
        unused = [item for name, item in sorted(there.items()) if name not in wanted and item.valid]
        released = [item.name for item in unused if cluster.uid in item.users or not item.owners][:_RELEASES_PER_PASS]
        work |= {f"ConfigMap {name}": partial(self._release, cluster, name) for name in released}
        return work | {
            f"ConfigMap {item.name}": partial(self._remove_own, cluster, item.name, item.uid, item.version)
            for item in self._own.owned(cluster.owner_key)
            if item.name.startswith(names.own_preload(cluster.name)) and item.name not in mounted
        }

    async def _add_reference(self, cluster: Cluster, name: str) -> bool:
        self._writer = self._preloads.writer(cluster.namespace)
        if await self._writer.add_reference(cluster, name, again=name in self._ever_held):
            self._held[name] = cluster.uid
            self._ever_held.add(name)
        return False

    async def _release(self, cluster: Cluster, name: str) -> bool:
        self._ever_held.discard(name)
        self._writer = self._preloads.writer(cluster.namespace)
        await self._writer.release(cluster, name)
        return False

    async def _remove_own(self, cluster: Cluster, name: str, uid: str, version: str) -> bool:
        """Delete a ConfigMap that an earlier version made for this cluster alone, and that no pod mounts any more."""
        try:
            await self._preloads.api.delete(_config_map(cluster.namespace, name), uid=uid, version=version)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
            get, namespace = partial(self._preloads.api.get_config_map, cluster.namespace, name), cluster.namespace
            if await look_again(get, self._own, namespace, uid=uid, version=version, error=error) is not None:
                raise
        self._own.forget(cluster.namespace, uid)
        return False


class _Writer:
    """Writes the shared ConfigMaps of one namespace, one request at a time."""

    def __init__(self, preloads: Preloads, namespace: str) -> None:
        self._preloads = preloads
        self._api = preloads.api
        self._namespace = namespace
        self._lock = asyncio.Lock()
        self._limiter = RateLimiter(_REPAIRS_PER_SECOND, _REPAIRS_BURST)
        self._added: dict[str, dict[str, Json]] = {}  # what clusters wait for: name -> uid -> owner reference
        self._dropped: dict[str, dict[str, Json]] = {}

    async def add_reference(self, cluster: Cluster, name: str, *, again: bool) -> bool:
        """Add the cluster's owner reference; whether it is there now. The current one is made if missing or invalid.

        `again`: it was there; so it is missing because somebody deleted it.

        Raises:
            ApiError: that is refused, or done too often.
        """
        async with _PendingChange(self._added, self._lock, name, cluster):
            for _ in range(2):  # the garbage collector may be deleting it now, with the last cluster before
                item = self._there(name)
                if item is None or not item.valid:
                    if name != self._preloads.name:
                        return False  # nobody has its contents any more
                    item = await self._make(name, item, again=again)
                if item.is_held_by(cluster.uid) or await self._patch(item) is not None:
                    return True
        raise self._conflict(name, "it is deleted again and again")

    async def release(self, cluster: Cluster, name: str) -> None:
        """Remove the cluster's owner reference, and the object with the last one.

        Raises:
            ApiError: that is refused, or somebody changed it meanwhile.
        """
        async with _PendingChange(self._dropped, self._lock, name, cluster):
            item, leave = self._there(name), self._dropped[name].keys()
            if item is None or (item.owners and cluster.uid not in item.users):
                return  # done meanwhile, for another cluster
            if item.owners > len(item.users & leave) or name in self._added:
                item = await self._patch(item)
            if item is not None and item.owners == len(item.users & leave):
                await self._delete(item)

    def _there(self, name: str) -> Shared | None:
        return self._preloads.known(self._namespace).get(name)

    async def _make(self, name: str, invalid: Shared | None, *, again: bool) -> Shared:
        """Create the current one, with the references of all clusters that wait for it."""
        if invalid is not None or again:
            self._limit_repairs(name)
        if invalid is not None:
            _LOG.warning("%s: the contents of ConfigMap %s do not match its name: made again", self._namespace, name)
            await self._delete(invalid)
        references = list(self._added[name].values())
        try:
            body = await self._api.create(preload.preload(self._namespace, self._preloads.files, references))
        except ApiError as error:
            if not error.conflict:
                raise
            body = await self._api.get_config_map(self._namespace, name)
            if LABEL_PRELOAD not in fields.mapping(fields.mapping(body, "metadata"), "labels"):
                message = "somebody made one of this name, without the operator's label: delete it"
                raise self._conflict(name, message) from error
        item = self._upsert(body)
        if not item.valid:
            raise self._conflict(name, "its contents do not match its name")
        return item

    async def _patch(self, item: Shared) -> Shared | None:
        """Add and remove the references of all clusters that wait; None: the object is gone."""
        dropped = [{"$patch": "delete", "uid": uid} for uid in self._dropped.get(item.name, ())]
        changes = [*self._added.get(item.name, {}).values(), *dropped]
        try:
            return self._upsert(await self._api.patch_references(self._namespace, item.name, changes, uid=item.uid))
        except ApiError as error:
            await self._confirm_gone(item, error)  # perhaps it was made again
        return None

    async def _delete(self, item: Shared) -> None:
        """Delete it in this version alone: a cluster that began to refer to it meanwhile keeps it."""
        try:
            await self._api.delete(_config_map(self._namespace, item.name), uid=item.uid, version=item.version)
        except ApiError as error:
            await self._confirm_gone(item, error)
        self._preloads.caches.forget(self._namespace, item.uid)

    async def _confirm_gone(self, item: Shared, error: ApiError) -> None:
        """Look again at what got `error` from a write, and forget it if it is gone.

        Raises:
            ApiError: `error`, where it is there, as it was or changed; or it could not be looked at.
        """
        if not (error.not_found or error.conflict):
            raise error
        caches, namespace = self._preloads.caches, self._namespace
        get = partial(self._api.get_config_map, namespace, item.name)
        if await look_again(get, caches, namespace, uid=item.uid, version=item.version, error=error) is not None:
            raise error

    def _upsert(self, body: Json) -> Shared:
        self._preloads.caches.upsert(self._namespace, body)
        return observe_shared(body)

    def _limit_repairs(self, name: str) -> None:
        """Count a repair.

        Raises:
            ApiError: there were too many: somebody undoes each.
        """
        now = self._preloads.clock()
        wait = self._limiter.available_at(now) - now
        if wait > 0:
            raise self._conflict(name, "somebody changes or deletes it again and again", retry_after_seconds=wait)
        self._limiter.reserve(now)

    def _conflict(self, name: str, message: str, **more: float) -> ApiError:
        return ApiError(HTTPStatus.CONFLICT, "Conflict", message, f"ConfigMap {name}", **more)


class _PendingChange:
    """A cluster's change that waits for the writer's lock; whoever has the lock may write it along with its own.

    Requests under the lock count as the namespace's own: none waits behind the hanging requests of one cluster.
    """

    def __init__(self, changes: dict[str, dict[str, Json]], lock: asyncio.Lock, name: str, cluster: Cluster) -> None:
        self._changes, self._lock, self._name, self._cluster = changes, lock, name, cluster

    async def __aenter__(self) -> None:
        self._changes.setdefault(self._name, {})[self._cluster.uid] = self._cluster.shared_reference
        try:
            await self._lock.acquire()
        except BaseException:
            self._forget()
            raise
        self._token = CLUSTER.set(owner_key(self._cluster.namespace, ""))

    async def __aexit__(self, *_: object) -> None:
        CLUSTER.reset(self._token)
        self._lock.release()
        self._forget()

    def _forget(self) -> None:
        waiting = self._changes[self._name]
        del waiting[self._cluster.uid]
        if not waiting:
            del self._changes[self._name]


def _config_map(namespace: str, name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}


def _texts(body: Json, name: str) -> Json:
    """The strings in the field `name`, of any size."""
    found = fields.mapping(body, name)
    if not all(isinstance(text, str) for text in found.values()):
        raise fields.UnreadableError(name, "an object of texts", found)
    return found


def _is_of_cluster(reference: Json) -> bool:
    group = fields.text(reference, "apiVersion").partition("/")[0]
    return group == resource.GROUP and reference.get("kind") == resource.KIND
