"""One cluster's mirror: act on what people changed there, then write what it should be.

Each object is written in the version that was read, and only where something differs. What people's changes mean
`overrides` says, what is written `objects`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from gpudask.api.json_object import Json
from gpudask.api.resource import MIRROR_MANAGER, Cluster
from gpudask.api.status import Reason, Status
from gpudask.clients.errors import ApiError
from gpudask.clients.events import EventRecorder
from gpudask.clients.gone import ClusterGoneError, look_again
from gpudask.clients.kubernetes import Kubernetes
from gpudask.mirror import objects, state
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.overrides import requested_overrides, with_overrides
from gpudask.mirror.state import MirrorObject
from gpudask.planning.actions import Plan
from gpudask.planning.observed.observation import Observation

_LOG = logging.getLogger(__name__)


class Context(Protocol):
    """What of the operator's context the mirror uses: clients and the time, as `reconcile.context.Context` has them."""

    @property
    def api(self) -> Kubernetes: ...  # noqa: D102
    @property
    def events(self) -> EventRecorder: ...  # noqa: D102
    @property
    def clock(self) -> Callable[[], float]: ...  # noqa: D102
    @property
    def look_again_seconds(self) -> float: ...  # noqa: D102
    def wall_time(self) -> float: ...  # noqa: D102


class Mirror:
    """The mirror of one cluster, if anybody asked for mirrors."""

    def __init__(self, context: Context, definitions: Definitions | None) -> None:
        self._context = context
        self._wanted = definitions is not None
        self._definitions = definitions or Definitions()
        self._came = self._definitions.came
        self._deletions = Deletions()
        self._writer = Writer(context, self._definitions, self._deletions)
        self._refusal = ""

    @property
    def off(self) -> bool:
        """Whether there is no mirror of any cluster, and nothing to do."""
        return not self._wanted or bool(self._definitions.refusal)

    @property
    def refusal(self) -> str | None:
        """Why there is no mirror, None where nobody asked for one, empty where there is."""
        return self._definitions.refusal or self._refusal if self._wanted else None

    def deleted(self, item: MirrorObject) -> None:
        """Take note of an object that was deleted while we watched."""
        self._forget_older()
        self._deletions.add(item)

    def _forget_older(self) -> None:
        """Forget what was deleted before the definitions came that are there now: it went with the older ones."""
        if self._came != self._definitions.came:
            self._came = self._definitions.came
            self._deletions.forget()

    async def apply_changes(self, cluster: Cluster, body: Json, status: Status) -> Json | None:
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
        self._writer.begin_pass(items)
        self._refusal = state.refusal(cluster, items)
        deleted = self._deletions.pending()
        if self._refusal:
            self._deletions.done(deleted)  # whoever handles these objects now may delete them
            return None
        try:
            newer = await self._apply_changes(cluster, body, items, deleted, status)
        except ApiError as error:
            if error.conflict:
                return await self._newer(cluster)
            self._refused(error)
            return None
        self._deletions.done(deleted)
        return newer

    async def _apply_changes(
        self, cluster: Cluster, body: Json, items: tuple[MirrorObject, ...], deleted: dict[str, str], status: Status
    ) -> Json | None:
        kinds = set(deleted.values())
        if objects.CLUSTER in kinds:
            await self._delete_cluster(cluster)
        sizes = {pool.name: pool.desired for pool in status.pools}
        kept_size = sizes.get(objects.default_pool(cluster).name) if objects.AUTOSCALER in kinds else None
        requested = requested_overrides(cluster, items, self._context.wall_time(), kept_size=kept_size)
        if not requested:
            return None
        overrides = with_overrides(body["spec"].get("overrides") or [], requested)
        try:
            newer = await self._context.api.set_overrides(body, overrides, manager=MIRROR_MANAGER)
        except ApiError as error:
            if error.not_found:
                await look_again(self._context.api, cluster, error, after_seconds=self._context.look_again_seconds)
            raise
        _LOG.info("%s: sizes set through the mirror: %s", cluster.key, requested)
        return newer

    async def _newer(self, cluster: Cluster) -> Json:
        """The cluster as it is: our copy was old."""
        try:
            return await self._context.api.get_cluster(cluster.namespace, cluster.name)
        except ApiError as error:
            if error.not_found:
                await look_again(self._context.api, cluster, error, after_seconds=self._context.look_again_seconds)
            raise

    async def _delete_cluster(self, cluster: Cluster) -> None:
        """Delete the cluster, as its DaskCluster was: the mirrored name is the cluster.

        Not where the kind's definition or the namespace goes, which takes the object along: then none can be made.
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

    async def write(self, seen: Observation, planned: Plan) -> None:
        """Make the objects as they should be. What the API server refuses is told by `refusal`.

        Raises:
            ApiError: the API server could not be reached, or failed.
        """
        if self.off or self.refusal:
            return
        cluster = seen.cluster
        desired = {name: pool.size.pods for name, pool in planned.pools.items()}
        ready = {p.name: sum(1 for pod in seen.workers(p.name) if pod.live and pod.ready) for p in cluster.spec.pools}
        try:
            await self._writer.write(cluster, objects.render(cluster, desired, ready, seen.wall_time))
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


class Writer:
    """Writes of one cluster's mirror, remembered: nothing is written twice, nor a person's change written over."""

    def __init__(self, context: Context, definitions: Definitions, deletions: Deletions) -> None:
        self._context = context
        self._definitions = definitions
        self._deletions = deletions
        self._written: dict[tuple[str, str], tuple[Json, str]] = {}  # what was sent, and the version it became
        self._known: dict[tuple[str, str], str] = {}  # versions that this pass began with

    def begin_pass(self, items: tuple[MirrorObject, ...]) -> None:
        """Begin a pass, which knows the objects as they are in `items`: what changes from now on is the next one's."""
        self._known = {(item.kind, item.name): item.version for item in items}

    async def write(self, cluster: Cluster, wanted: list[Json]) -> None:
        """Make the mirror be `wanted`.

        Raises:
            ApiError: the API server refused it, failed, or could not be reached.
        """
        items = {(item.kind, item.name): item for item in self._definitions.of(cluster)}
        # What a person changed last is confirmed last: until then it is what counts.
        wanted.sort(key=lambda body: int(item.version) if (item := items.get(_key(body))) else 0)
        for body in wanted:
            await self._write(body, items.get(_key(body)))
        for item in state.superfluous(cluster, tuple(items.values()), wanted):
            if not self._has_changed(item):
                await self._delete(cluster, item)

    async def _write(self, body: Json, there: MirrorObject | None) -> None:
        if there is not None and (self._written.get(_key(body)) == (body, there.version) or self._has_changed(there)):
            return
        if there is None and self._deletions.concerns(body["kind"]):
            return  # somebody deleted it in the middle of this pass: the next one says what that means
        if there is None:
            answer = await self._context.api.create(_without_nulls(body))
        else:
            answer = await self._context.api.merge(body, version=there.version)
        self._written[_key(body)] = (body, answer["metadata"]["resourceVersion"])
        self._definitions.caches[body["kind"]].lay_over(body["metadata"]["namespace"], answer)

    def _has_changed(self, item: MirrorObject) -> bool:
        """Whether it changed in the middle of this pass: the next one, which the change wakes, says what that means."""
        key = item.kind, item.name
        ours = self._written[key][1] if key in self._written else ""
        return item.version not in (self._known.get(key), ours)

    async def _delete(self, cluster: Cluster, item: MirrorObject) -> None:
        body = {
            "apiVersion": objects.API_VERSION,
            "kind": item.kind,
            "metadata": {"name": item.name, "namespace": cluster.namespace},
        }
        self._deletions.expect(item.uid)
        try:
            await self._context.api.delete(body, uid=item.uid, version=item.version)
        except ApiError as error:
            self._deletions.expect_no_more(item.uid)
            if not error.not_found:
                raise
        self._definitions.caches[item.kind].forget(cluster.namespace, item.uid)


class Deletions:
    """What somebody deleted of one cluster's mirror, remembered until what it means is done, whatever fails meanwhile.

    The operator's own deletions are not among them.
    """

    def __init__(self) -> None:
        self._pending: dict[str, str] = {}  # uid -> kind
        self._ours: set[str] = set()

    def add(self, item: MirrorObject) -> None:
        """Remember an object that is gone, if the operator did not delete it itself."""
        if item.uid not in self._ours:
            self._pending[item.uid] = item.kind
        self._ours.discard(item.uid)

    def pending(self) -> dict[str, str]:
        """Uid -> kind of what was deleted and not yet acted on, as of now."""
        return dict(self._pending)

    def forget(self) -> None:
        """Forget all: what was deleted went with its definition, and meant nothing."""
        self._pending.clear()
        self._ours.clear()

    def done(self, deleted: dict[str, str]) -> None:
        """Forget these, whose meaning is done; not what was deleted since `pending` gave them."""
        for uid in deleted:
            self._pending.pop(uid, None)

    def concerns(self, kind: str) -> bool:
        """Whether an object of `kind` was deleted, and nobody acted on it yet."""
        return kind in self._pending.values()

    def expect(self, uid: str) -> None:
        """Take the next deletion of this one for the operator's own."""
        self._ours.add(uid)

    def expect_no_more(self, uid: str) -> None:
        """Take it for a person's again: the operator's own failed."""
        self._ours.discard(uid)


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
