"""One cluster's mirror for the stock Dask client: take in what people changed there, then show what is.

What a change means is `planning.mirror_wishes`', what is shown `planning.mirror`'s; written by `mirror_writer`.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from gpudask.api.resource import Cluster
from gpudask.api.status import Reason, Status
from gpudask.api.stock import MIRROR_MANAGER
from gpudask.clients.errors import ApiError
from gpudask.clients.gone import ClusterGoneError, look_again
from gpudask.mirror import objects
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.deletions import Deletions
from gpudask.mirror.overrides import in_the_way, overrides_wanted, with_overrides
from gpudask.mirror.shown import shown
from gpudask.mirror.state import Mirrored
from gpudask.mirror.writer import MirrorWriter
from gpudask.planning.actions import Plan
from gpudask.planning.observed import Observation
from gpudask.reconcile.context import Context

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)


class Mirror:
    """The mirror of one cluster, if anybody asked for mirrors."""

    def __init__(self, context: Context, definitions: Definitions | None) -> None:
        self._context = context
        self._wanted = definitions is not None
        self._definitions = definitions or Definitions()
        self._came = self._definitions.came
        self._deletions = Deletions()
        self._writer = MirrorWriter(context, self._definitions, self._deletions)
        self._refusal = ""

    @property
    def off(self) -> bool:
        """Whether there is no mirror of any cluster, and nothing to do."""
        return not self._wanted or bool(self._definitions.refusal)

    @property
    def refusal(self) -> str | None:
        """Why there is no mirror, None where nobody asked for one, empty where there is."""
        return self._definitions.refusal or self._refusal if self._wanted else None

    def deleted(self, item: Mirrored) -> None:
        """An object was deleted while we watched."""
        self._forget_older()
        self._deletions.seen(item)

    def _forget_older(self) -> None:
        """Forget what was deleted before the definitions came that are there now: it went with the older ones."""
        if self._came != self._definitions.came:
            self._came = self._definitions.came
            self._deletions.forget()

    async def take_in(self, cluster: Cluster, body: Json, status: Status) -> Json | None:
        """Act on what people changed; the cluster's newer body, if it has become another. `status`: as last computed.

        What fails is not forgotten: the next pass tries it again.

        Raises:
            ApiError: the API server could not be reached, or failed.
            ClusterGoneError: the DaskCluster was deleted, and the cluster with it.
        """
        self._forget_older()
        if self.off:
            return None
        items = self._definitions.of(cluster)
        self._writer.consider(items)
        self._refusal = in_the_way(cluster, items)
        deleted = self._deletions.pending()
        if self._refusal:
            self._deletions.done(deleted)  # whoever handles these objects now may delete them
            return None
        try:
            newer = await self._take_in(cluster, body, items, deleted, status)
        except ApiError as error:
            if error.conflict:
                return await self._newer(cluster)
            self._refused(error)
            return None
        self._deletions.done(deleted)
        return newer

    async def _take_in(
        self, cluster: Cluster, body: Json, items: tuple[Mirrored, ...], deleted: dict[str, str], status: Status
    ) -> Json | None:
        kinds = set(deleted.values())
        if objects.CLUSTER in kinds:
            await self._delete_too(cluster)
        sizes = {pool.name: pool.desired for pool in status.pools}
        given_up = sizes.get(objects.default_pool(cluster).name) if objects.AUTOSCALER in kinds else None
        wanted = overrides_wanted(cluster, items, self._context.wall_time(), given_up=given_up)
        if not wanted:
            return None
        overrides = with_overrides(body["spec"].get("overrides") or [], wanted)
        try:
            newer = await self._context.api.set_overrides(body, overrides, manager=MIRROR_MANAGER)
        except ApiError as error:
            if error.not_found:
                await look_again(self._context.api, cluster, error, after_seconds=self._context.look_again_seconds)
            raise
        _LOG.info("%s: sizes set through the mirror: %s", cluster.key, wanted)
        return newer

    async def _newer(self, cluster: Cluster) -> Json:
        """The cluster as it is: our copy was old."""
        try:
            return await self._context.api.get_cluster(cluster.namespace, cluster.name)
        except ApiError as error:
            if error.not_found:
                await look_again(self._context.api, cluster, error, after_seconds=self._context.look_again_seconds)
            raise

    async def _delete_too(self, cluster: Cluster) -> None:
        """The mirrored name is the cluster: whoever deletes it means the cluster.

        Not where its definition or the namespace goes, which takes the object along: then none can be made.
        """
        try:
            await self._context.api.create(objects.dask_cluster(cluster, size=0, ready=0), dry_run=True)
        except ApiError as error:
            if not (error.ending or error.not_found or error.conflict or _not_allowed(error)):
                raise
            _LOG.info("%s: its DaskCluster is gone, and none can be made: %s", cluster.key, error)
            return
        try:
            await self._context.api.delete_cluster(cluster.namespace, cluster.name, uid=cluster.uid)
        except ApiError as error:
            if error.not_found:
                await look_again(self._context.api, cluster, error, after_seconds=self._context.look_again_seconds)
            if not error.conflict:
                raise
            raise ClusterGoneError from error
        why = f"{objects.CLUSTER} {cluster.name} was deleted, which is this cluster's name in the stock client"
        _LOG.info("%s: deleted: %s", cluster.key, why)
        now = self._context.clock()
        await self._context.events.record(
            cluster, Reason.MIRROR_DELETED, why, series=Reason.MIRROR_DELETED, warning=False, now=now
        )
        raise ClusterGoneError

    async def show(self, seen: Observation, planned: Plan) -> None:
        """Make the mirror say what is. What the API server refuses is told by `refusal`.

        Raises:
            ApiError: the API server could not be reached, or failed.
        """
        if self.off or self.refusal:
            return
        cluster = seen.cluster
        desired = {name: pool.size.pods for name, pool in planned.pools.items()}
        ready = {p.name: sum(1 for pod in seen.workers(p.name) if pod.live and pod.ready) for p in cluster.spec.pools}
        try:
            await self._writer.write(cluster, shown(cluster, desired, ready, seen.wall_time))
        except ApiError as error:
            if error.conflict:
                return  # it changed meanwhile: the watch tells, and wakes us
            self._refused(error)

    def _refused(self, error: ApiError) -> None:
        """Keep the reason, where trying again at once is in vain.

        Raises:
            ApiError: otherwise.
        """
        if error.ending or not (
            error.forbidden or error.quota or error.invalid or error.not_found or _not_allowed(error)
        ):
            raise error
        self._refusal = str(error)
        _LOG.warning("the mirror: %s", error)


def _not_allowed(error: ApiError) -> bool:
    """Whether the kind's definition is being deleted."""
    return error.status == HTTPStatus.METHOD_NOT_ALLOWED
