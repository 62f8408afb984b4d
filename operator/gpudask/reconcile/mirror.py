"""One cluster's mirror for the stock Dask client: take in what people changed there, then show what is.

What a change means and what is shown is `planning.mirror`'s. Written only where something differs.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from gpudask.api.resource import Cluster
from gpudask.api.status import Reason, Status
from gpudask.clients.errors import ApiError
from gpudask.desired import mirror as objects
from gpudask.planning.actions import Plan
from gpudask.planning.mirror import Mirrored, in_the_way, overrides_wanted, shown, superfluous, with_overrides
from gpudask.planning.observed import Observation
from gpudask.reconcile.caches import Caches
from gpudask.reconcile.context import Context
from gpudask.reconcile.gone import ClusterGoneError

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
FIELD_MANAGER = "gpudask-mirror"


@dataclass
class Definitions:
    """The three kinds on this API server: their caches, or why they are left alone (`refusal`)."""

    caches: dict[str, Caches] = field(default_factory=dict)
    refusal: str = ""

    def of(self, cluster: Cluster) -> tuple[Mirrored, ...]:
        """The objects that are of `cluster` by name, whoever owns them."""
        return tuple(item for caches in self.caches.values() for item in caches.owned(cluster.key))


class Mirror:
    """`refusal`: why there is no mirror, None where nobody asked for one, empty where there is."""

    def __init__(self, context: Context, definitions: Definitions | None) -> None:
        self._context = context
        self._definitions = definitions
        self._written: dict[tuple[str, str], tuple[Json, str]] = {}  # what was sent, and the version it became
        self._considered: dict[tuple[str, str], str] = {}  # versions that this pass took in
        self._deleted: set[str] = set()  # kinds of ours that somebody deleted, not yet acted on
        self._deleted_by_us: set[str] = set()
        self.refusal = definitions.refusal if definitions is not None else None

    def deleted(self, item: Mirrored) -> None:
        """Somebody deleted an object while we watched."""
        if item.uid not in self._deleted_by_us:
            self._deleted.add(item.kind)
        self._deleted_by_us.discard(item.uid)

    async def take_in(self, cluster: Cluster, body: Json, status: Status) -> Json | None:
        """Act on what people changed; the cluster's newer body, if it has become another. `status`: as last computed.

        Raises:
            ApiError: the API server could not be reached, or failed.
            ClusterGoneError: the DaskCluster was deleted, and the cluster with it.
        """
        if self._definitions is None or self._definitions.refusal:
            return None
        items = self._definitions.of(cluster)
        self._considered = {(item.kind, item.name): item.version for item in items}
        self.refusal = in_the_way(cluster, items)
        deleted, self._deleted = self._deleted, set()
        if self.refusal:
            return None
        if objects.CLUSTER in deleted:
            await self._delete_too(cluster)
        sizes = {pool.name: pool.desired for pool in status.pools}
        given_up = sizes.get(objects.default_pool(cluster).name) if objects.AUTOSCALER in deleted else None
        wanted = overrides_wanted(cluster, items, self._context.clock(), given_up=given_up)
        if not wanted:
            return None
        overrides = with_overrides(body["spec"].get("overrides") or [], wanted)
        try:
            newer = await self._context.api.set_overrides(body, overrides, manager=FIELD_MANAGER)
        except ApiError as error:
            return await self._look_again(cluster, error, deleted)
        _LOG.info("%s: sizes set through the mirror: %s", cluster.key, wanted)
        return newer

    async def _look_again(self, cluster: Cluster, error: ApiError, deleted: set[str]) -> Json | None:
        """The cluster as it is, where our copy was old; otherwise say what refused the override."""
        if error.conflict:
            self._deleted |= deleted
            try:
                return await self._context.api.get_cluster(cluster.namespace, cluster.name)
            except ApiError as missing:
                if missing.not_found:
                    raise ClusterGoneError from missing
                raise
        if error.not_found:
            raise ClusterGoneError from error
        self._refused(error)
        return None

    async def _delete_too(self, cluster: Cluster) -> None:
        """The mirrored name is the cluster: whoever deletes it means the cluster.

        Not where its definition or the namespace goes, which takes the object along: then none can be made.
        """
        try:
            await self._context.api.create(objects.dask_cluster(cluster, size=0, ready=0), dry_run=True)
        except ApiError as error:
            _LOG.info("%s: its DaskCluster is gone, and none can be made: %s", cluster.key, error)
            return
        why = f"{objects.CLUSTER} {cluster.name} was deleted, which is this cluster's name in the stock client"
        _LOG.info("%s: deleted: %s", cluster.key, why)
        now = self._context.clock()
        await self._context.events.record(
            cluster, Reason.MIRROR_DELETED, why, series=Reason.MIRROR_DELETED, warning=False, now=now
        )
        try:
            await self._context.api.delete_cluster(cluster.namespace, cluster.name, uid=cluster.uid)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
        raise ClusterGoneError

    async def show(self, seen: Observation, planned: Plan) -> None:
        """Make the mirror say what is. What the API server refuses is told by `refusal`.

        Raises:
            ApiError: the API server could not be reached, or failed.
        """
        if self._definitions is None or self.refusal:
            return
        cluster = seen.cluster
        desired = {name: pool.size.pods for name, pool in planned.pools.items()}
        ready = {p.name: sum(1 for pod in seen.workers(p.name) if pod.live and pod.ready) for p in cluster.spec.pools}
        wanted = shown(cluster, desired, ready, seen.now)
        items = {(item.kind, item.name): item for item in self._definitions.of(cluster)}
        # What a person changed last is confirmed last: until then it is what counts.
        wanted.sort(key=lambda body: int(item.version) if (item := items.get(_key(body))) else 0)
        try:
            for body in wanted:
                await self._write(body, items.get(_key(body)))
            for item in superfluous(cluster, tuple(items.values()), wanted):
                if not self._is_news(item):
                    await self._delete(cluster, item)
        except ApiError as error:
            if error.conflict:
                return  # it changed meanwhile: the watch tells, and wakes us
            self._refused(error)

    async def _write(self, body: Json, there: Mirrored | None) -> None:
        assert self._definitions is not None
        if there is not None and (self._written.get(_key(body)) == (body, there.version) or self._is_news(there)):
            return
        if there is None and body["kind"] in self._deleted:
            return  # somebody deleted it in the middle of this pass: the next one says what that means
        if there is None:
            answer = await self._context.api.create(_without_nulls(body))
        else:
            answer = await self._context.api.merge(body, version=there.version)
        self._written[_key(body)] = (body, answer["metadata"]["resourceVersion"])
        self._definitions.caches[body["kind"]].lay_over(body["metadata"]["namespace"], answer)

    def _is_news(self, item: Mirrored) -> bool:
        """Whether it changed in the middle of this pass: the next one, which the change wakes, says what that means."""
        key = item.kind, item.name
        ours = self._written[key][1] if key in self._written else ""
        return item.version not in (self._considered.get(key), ours)

    async def _delete(self, cluster: Cluster, item: Mirrored) -> None:
        assert self._definitions is not None
        body = {
            "apiVersion": objects.API_VERSION,
            "kind": item.kind,
            "metadata": {"name": item.name, "namespace": cluster.namespace},
        }
        self._deleted_by_us.add(item.uid)
        try:
            await self._context.api.delete(body, uid=item.uid, version=item.version)
        except ApiError as error:
            self._deleted_by_us.discard(item.uid)
            if not error.not_found:
                raise
        self._definitions.caches[item.kind].forget(cluster.namespace, item.uid)

    def _refused(self, error: ApiError) -> None:
        """Keep the reason, where trying again at once is in vain.

        Raises:
            ApiError: otherwise.
        """
        if error.ending or not (
            error.forbidden or error.quota or error.invalid or error.not_found or _not_allowed(error)
        ):
            raise error
        self.refusal = str(error)
        _LOG.warning("the mirror: %s", error)


def _not_allowed(error: ApiError) -> bool:
    """Whether the kind's definition is being deleted."""
    return error.status == HTTPStatus.METHOD_NOT_ALLOWED


def _key(body: Json) -> tuple[str, str]:
    return body["kind"], body["metadata"]["name"]


def _without_nulls(body: Json) -> Json:
    """A null removes a field in a merge, and is refused in an object that is made."""
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in body.items()
        if value is not None
    }
