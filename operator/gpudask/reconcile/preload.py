"""The ConfigMaps with the preload, which a namespace's clusters share: made, referred to, let go and put right.

Each cluster has an owner reference in those that its scheduler pods mount, and in the current one while it has no
scheduler: Kubernetes deletes one with the last cluster that refers to it. Where the cache says that all is right,
nothing is asked for.

In each namespace one request at a time is made for them, and it carries what all clusters wait for. Many patches of one
object at once make each other begin anew in the API server: a hundred of them were not through after 30 s.

Whoever may write ConfigMaps in the namespace may have made one by our name. So contents are believed that fit the name
alone; a scheduler pod is made only where they do, and what has our label and other contents is deleted and made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from gpudask.api import resource
from gpudask.api.json_object import Json
from gpudask.api.resource import LABEL_PRELOAD, Cluster, owner_key
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import CLUSTER, RateLimiter
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.reflector import Caches
from gpudask.desired import names, preload
from gpudask.planning.observed import fields
from gpudask.reconcile.retries import Work

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

    def is_held_by(self, uid: str) -> bool:
        """Whether the cluster with this uid refers to it, and it is what it should be."""
        return self.right and uid in self.users


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


class Preloads:
    """All of them. `files`: what runs in the schedulers that are made now, name -> bytes."""

    def __init__(self, api: Kubernetes, caches: Caches, files: dict[str, bytes], clock: Callable[[], float]) -> None:
        self.api = api
        self.caches = caches
        self.files = files
        self.clock = clock
        self._writers: dict[str, _Writer] = {}

    @property
    def name(self) -> str:
        """The name of the current one, in every namespace."""
        return preload.name(self.files)

    def there(self, namespace: str) -> There:
        """Those of a namespace, as far as they are known."""
        found = sorted(self.caches.owned(owner_key(namespace, "")), key=lambda item: int(item.version))
        return {item.name: item for item in found}  # of two by one name the newer: the other was deleted

    def writer(self, namespace: str) -> _Writer:
        """Who writes those of a namespace."""
        return self._writers.setdefault(namespace, _Writer(self, namespace))


class SharedPreload:
    """What one cluster has to do with those of its namespace. `own`: the ConfigMaps that clusters alone have."""

    def __init__(self, preloads: Preloads, pods: Caches, own: Caches) -> None:
        self._preloads = preloads
        self._pods = pods
        self._own = own
        self._held: dict[str, str] = {}  # name -> our uid in it, when we looked last
        self._ever_held: set[str] = set()  # which are there, unless somebody took them away

    def is_there(self, cluster: Cluster) -> bool:
        """Whether a scheduler pod that is made now finds what it mounts."""
        found = self._preloads.there(cluster.namespace).get(self._preloads.name)
        return found is not None and found.right

    def lost(self, now: There) -> bool:
        """Whether something is no longer as we saw it last."""
        return any(not (name in now and now[name].is_held_by(uid)) for name, uid in self._held.items())

    def work(self, cluster: Cluster, *, creates_scheduler: bool) -> dict[str, Work]:
        """What to do, by kind and name."""
        there, current = self._preloads.there(cluster.namespace), self._preloads.name
        pods = [pod for pod in self._pods.owned(cluster.owner_key) if not pod.pool]
        mounted = {pod.preload for pod in pods if pod.preload}
        starts = creates_scheduler or not any(pod.live for pod in pods)
        wanted = mounted | ({current} if starts else set())
        self._held = {name: cluster.uid for name in wanted if name in there and there[name].is_held_by(cluster.uid)}
        self._ever_held |= self._held.keys()
        can_be_had = {current, *(name for name, item in there.items() if item.right)}
        work: dict[str, Work] = {
            f"ConfigMap {name}": partial(self._refer, cluster, name)
            for name in sorted((wanted - self._held.keys()) & can_be_had)
        }
        unused = [item for name, item in sorted(there.items()) if name not in wanted and item.right]
        left = [item.name for item in unused if cluster.uid in item.users or not item.owners][:_LET_GO_AT_ONCE]
        work |= {f"ConfigMap {name}": partial(self._let_go, cluster, name) for name in left}
        return work | {
            f"ConfigMap {item.name}": partial(self._remove_own, cluster, item.name, item.uid, item.version)
            for item in self._own.owned(cluster.owner_key)
            if item.name.startswith(names.own_preload(cluster.name)) and item.name not in mounted
        }

    async def _refer(self, cluster: Cluster, name: str) -> bool:
        if await self._preloads.writer(cluster.namespace).refer(cluster, name, again=name in self._ever_held):
            self._held[name] = cluster.uid
            self._ever_held.add(name)
        return False

    async def _let_go(self, cluster: Cluster, name: str) -> bool:
        self._ever_held.discard(name)
        await self._preloads.writer(cluster.namespace).let_go(cluster, name)
        return False

    async def _remove_own(self, cluster: Cluster, name: str, uid: str, version: str) -> bool:
        """Delete the ConfigMap that a version before made for this cluster alone, and that no pod mounts any more."""
        try:
            await self._preloads.api.delete(_config_map(cluster.namespace, name), uid=uid, version=version)
        except ApiError as error:
            if not error.object_not_found:
                raise
        self._own.forget(cluster.namespace, uid)
        return False


class _Writer:
    """Writes those of one namespace."""

    def __init__(self, preloads: Preloads, namespace: str) -> None:
        self._preloads = preloads
        self._api = preloads.api
        self._namespace = namespace
        self._lock = asyncio.Lock()
        self._turns = RateLimiter(_REPAIRS_A_SECOND, _REPAIRS_AT_ONCE)
        self._added: dict[str, dict[str, Json]] = {}  # what clusters wait for: name -> uid -> owner reference
        self._dropped: dict[str, dict[str, Json]] = {}

    async def refer(self, cluster: Cluster, name: str, *, again: bool) -> bool:
        """Add the cluster's owner reference; whether it is there now. The current one is made if missing or wrong.

        `again`: it was there; so it is missing because somebody deleted it.

        Raises:
            ApiError: that is refused, or done too often.
        """
        async with _Waiting(self._added, self._lock, name, cluster):
            for _ in range(2):  # the garbage collector may take it in this moment, with the last cluster before
                item = self._there(name)
                if item is None or not item.right:
                    if name != self._preloads.name:
                        return False  # nobody has its contents any more
                    item = await self._make(name, item, again=again)
                if item.is_held_by(cluster.uid) or await self._patch(item) is not None:
                    return True
        raise self._conflict(name, "it is deleted again and again")

    async def let_go(self, cluster: Cluster, name: str) -> None:
        """Take off the cluster's owner reference; with the last one goes the object.

        Raises:
            ApiError: that is refused, or somebody changed it meanwhile.
        """
        async with _Waiting(self._dropped, self._lock, name, cluster):
            item, leave = self._there(name), self._dropped[name].keys()
            if item is None or (item.owners and cluster.uid not in item.users):
                return  # done meanwhile, for another cluster
            if item.owners > len(item.users & leave) or name in self._added:
                item = await self._patch(item)
            if item is not None and item.owners == len(item.users & leave):
                await self._delete(item)

    def _there(self, name: str) -> Shared | None:
        return self._preloads.there(self._namespace).get(name)

    async def _make(self, name: str, wrong: Shared | None, *, again: bool) -> Shared:
        """Make the current one, for all that wait for it."""
        if wrong is not None or again:
            self._take_turn(name)
        if wrong is not None:
            _LOG.warning("%s: ConfigMap %s holds not what its name stands for: made again", self._namespace, name)
            await self._delete(wrong)
        references = list(self._added[name].values())
        try:
            body = await self._api.create(preload.preload(self._namespace, self._preloads.files, references))
        except ApiError as error:
            if not error.conflict:
                raise
            body = await self._api.get_config_map(self._namespace, name)
            if LABEL_PRELOAD not in fields.mapping(fields.mapping(body, "metadata"), "labels"):
                told = "somebody made one by this name, without the operator's label: delete it"
                raise self._conflict(name, told) from error
        item = self._take_in(body)
        if not item.right:
            raise self._conflict(name, "it holds not what its name stands for")
        return item

    async def _patch(self, item: Shared) -> Shared | None:
        """Add and take off the references of all that wait for that; None: it is gone."""
        dropped = [{"$patch": "delete", "uid": uid} for uid in self._dropped.get(item.name, ())]
        changes = [*self._added.get(item.name, {}).values(), *dropped]
        try:
            return self._take_in(await self._api.refer(self._namespace, item.name, changes, uid=item.uid))
        except ApiError as error:
            if error.object_not_found or error.conflict:  # perhaps it was made again
                self._preloads.caches.forget(self._namespace, item.uid)
            if not error.object_not_found:
                raise
        return None

    async def _delete(self, item: Shared) -> None:
        """Delete it as it is: whoever has begun to refer to it keeps it."""
        try:
            await self._api.delete(_config_map(self._namespace, item.name), uid=item.uid, version=item.version)
        except ApiError as error:
            if not error.object_not_found:
                raise
        self._preloads.caches.forget(self._namespace, item.uid)

    def _take_in(self, body: Json) -> Shared:
        self._preloads.caches.lay_over(self._namespace, body)
        return observe_shared(body)

    def _take_turn(self, name: str) -> None:
        """Note that it is put right.

        Raises:
            ApiError: that was done too often: somebody undoes it every time.
        """
        now = self._preloads.clock()
        wait = self._turns.next(now) - now
        if wait > 0:
            raise self._conflict(name, "somebody changes or deletes it again and again", retry_after_seconds=wait)
        self._turns.take(now)

    def _conflict(self, name: str, message: str, **more: float) -> ApiError:
        return ApiError(HTTPStatus.CONFLICT, "Conflict", message, f"ConfigMap {name}", **more)


class _Waiting:
    """A cluster that waits for its turn to write, and whose change anybody may write meanwhile.

    The requests are the namespace's, not the cluster's: nobody waits behind another's that hang.
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
    """The texts in the field `name`, whatever their size."""
    found = fields.mapping(body, name)
    if not all(isinstance(text, str) for text in found.values()):
        raise fields.UnreadableError(name, "an object of texts", found)
    return found


def _is_of_cluster(reference: Json) -> bool:
    group = fields.text(reference, "apiVersion").partition("/")[0]
    return group == resource.GROUP and reference.get("kind") == resource.KIND
