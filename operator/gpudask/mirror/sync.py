"""Two-way sync of one cluster's mirror: apply what people changed there, then write the objects as they should be.

Each object is written in the version that was read, and only where something differs. `overrides` has the meaning of
people's changes, `objects` renders what is written.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

from gpudask.api import Json
from gpudask.api.reasons import Reason
from gpudask.api.resource import MIRROR_MANAGER, Cluster
from gpudask.api.status import Status
from gpudask.clients.errors import ApiError, ClusterGoneError
from gpudask.mirror import objects, state
from gpudask.mirror.context import Context
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.overrides import requested_overrides, with_overrides
from gpudask.mirror.state import MirrorObject
from gpudask.planning.actions import Plan
from gpudask.planning.observed.observation import Observation

_LOG = logging.getLogger(__name__)


class Mirror:
    """The mirror of one cluster, where the operator has mirrors switched on."""

    def __init__(self, context: Context, definitions: Definitions | None) -> None:
        self._context = context
        self._wanted = definitions is not None
        self._definitions = definitions or Definitions()
        self._installations = self._definitions.installations
        self._deletions = Deletions()
        self._writer = Writer(context, self._definitions, self._deletions)
        self._refusal = ""

    @property
    def off(self) -> bool:
        """Whether no cluster has a mirror, so that there is nothing to do."""
        return not self._wanted or bool(self._definitions.refusal)

    @property
    def refusal(self) -> str | None:
        """Why there is no mirror; None where it is switched off, empty where there is one."""
        return self._definitions.refusal or self._refusal if self._wanted else None

    def deleted(self, item: MirrorObject) -> None:
        """Remember an object that was deleted while we watched."""
        self._forget_older()
        self._deletions.add(item)

    def _forget_older(self) -> None:
        """Forget deletions from before the present definitions were installed: they went with the older ones."""
        if self._installations != self._definitions.installations:
            self._installations = self._definitions.installations
            self._deletions.forget()

    async def apply_changes(self, cluster: Cluster, body: Json, status: Status) -> Json | None:
        """Apply what people changed; the cluster's newer body, if that changed it. `status`: as last computed.

        What fails is kept: the next pass tries it again.

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
            self._deletions.done(deleted)  # the operator that handles these objects may delete them
            return None
        try:
            newer = await self._apply_changes(cluster, body, items, deleted, status)
        except ApiError as error:
            if error.conflict:
                newer = await self._newer(cluster)
                if newer["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]:
                    raise
                return newer
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
        now = self._context.wall_time()
        requested = requested_overrides(cluster, items, now, sizes=sizes, kept_size=kept_size)
        if not requested:
            return None
        overrides = with_overrides(body["spec"].get("overrides") or [], requested)
        try:
            newer = await self._context.api.set_overrides(body, overrides, manager=MIRROR_MANAGER)
        except ApiError as error:
            if error.not_found:
                await self._context.api.confirm_gone(cluster, error, after_seconds=self._context.recheck_seconds)
            raise
        _LOG.info("%s: sizes set through the mirror: %s", cluster.key, requested)
        return newer

    async def _newer(self, cluster: Cluster) -> Json:
        """Get the cluster as it is: our copy was old."""
        try:
            return await self._context.api.get_cluster(cluster.namespace, cluster.name)
        except ApiError as error:
            if error.not_found:
                await self._context.api.confirm_gone(cluster, error, after_seconds=self._context.recheck_seconds)
            raise

    async def _delete_cluster(self, cluster: Cluster) -> None:
        """Delete the cluster, because its DaskCluster was deleted, which stands for it in the stock client.

        Not where the kind's definition or the namespace is being deleted, and the object with it: a dry run of its
        creation shows that. A cluster that serves a DaskCluster is that one's, and goes with it in any case.
        """
        try:
            if not cluster.stock_uid:
                await self._context.api.create(objects.dask_cluster(cluster, size=0, ready=0), dry_run=True)
        except ApiError as error:
            # Also after a 404 that is not true: to delete one too many would be worse than to keep one.
            if not (error.ending or error.not_found or error.already_exists or _not_allowed(error)):
                raise
            _LOG.info("%s: its DaskCluster is gone, and none can be created: %s", cluster.key, error)
            return
        try:
            await self._context.api.delete_cluster(cluster.namespace, cluster.name, uid=cluster.uid)
        except ApiError as error:
            if error.not_found or error.conflict:  # a conflict: it may be another one of its name by now
                await self._context.api.confirm_gone(cluster, error, after_seconds=self._context.recheck_seconds)
            raise
        why = f"{objects.CLUSTER} {cluster.name} was deleted, which is this cluster's name in the stock client"
        _LOG.info("%s: deleted: %s", cluster.key, why)
        now = self._context.clock()
        await self._context.events.record(
            cluster, Reason.MIRROR_DELETED, why, series=Reason.MIRROR_DELETED, warning=False, now=now
        )
        raise ClusterGoneError

    async def write(self, observation: Observation, planned: Plan) -> None:
        """Write the objects as they should be. What the API server refuses is in `refusal`.

        Raises:
            ApiError: the API server could not be reached, or failed; a conflict: with nothing that has changed.
        """
        if self.off or self.refusal:
            return
        cluster = observation.cluster
        desired = {name: pool.size.pods for name, pool in planned.pools.items()}
        ready = {
            p.name: sum(1 for pod in observation.workers(p.name) if pod.live and pod.ready) for p in cluster.spec.pools
        }
        try:
            theirs = state.made_by_people(cluster, self._definitions.of(cluster))
            await self._writer.write(cluster, objects.render(cluster, desired, ready, observation.wall_time, theirs))
        except ApiError as error:
            self._refused(error)

    def _refused(self, error: ApiError) -> None:
        """Keep the reason, where a retry at once would be refused again.

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
    """Writer of one cluster's mirror. It remembers its writes: none is repeated, nor a person's change overwritten."""

    def __init__(self, context: Context, definitions: Definitions, deletions: Deletions) -> None:
        self._context = context
        self._definitions = definitions
        self._deletions = deletions
        self._written: dict[tuple[str, str], tuple[Json, str]] = {}  # what was sent, and the answer's version
        self._known: dict[tuple[str, str], str] = {}  # versions at the start of this pass

    def begin_pass(self, items: tuple[MirrorObject, ...]) -> None:
        """Begin a pass over the objects as they are in `items`: what changes from now on is for the next pass."""
        self._known = {(item.kind, item.name): item.version for item in items}

    async def write(self, cluster: Cluster, wanted: list[Json]) -> None:
        """Write the objects `wanted`, and delete superfluous ones.

        Raises:
            ApiError: the API server refused it, failed, or could not be reached.
        """
        items = {(item.kind, item.name): item for item in self._definitions.of(cluster)}
        # The object that a person changed last is written last: until then its value counts.
        wanted.sort(key=lambda body: int(item.version) if (item := items.get(_key(body))) else 0)
        for body in wanted:
            if not await self._write(cluster, body, items.get(_key(body))):
                return
        for item in state.superfluous(cluster, tuple(items.values()), wanted):
            if not self._has_changed(item):
                await self._delete(cluster, item)

    async def _write(self, cluster: Cluster, body: Json, there: MirrorObject | None) -> bool:
        """Write one object, where it differs; False: it is another one by now, which causes another pass."""
        if there is not None and self._has_changed(there):
            return True
        if objects.is_theirs(body) and (there is None or not there.serves(cluster)):
            return True  # it was deleted, or the cluster is not its owner yet
        if there is not None and there.is_refused:  # `serving` says so, and would take turns with this for ever
            body = body | {"status": {key: value for key, value in body["status"].items() if key != "phase"}}
        if there is not None and self._written.get(_key(body)) == (body, there.version):
            return True
        if there is None and self._deletions.has_kind(body["kind"]):
            return True  # somebody deleted it during this pass: the next one acts on that
        try:
            if there is None:
                answer = await self._context.api.create(_without_nulls(body))
            else:
                answer = await self._context.api.merge(body, version=there.version)
        except ApiError as error:
            await self._look_again(body, there, error)
            return False
        self._written[_key(body)] = (body, answer["metadata"]["resourceVersion"])
        self._definitions.caches[body["kind"]].upsert(body["metadata"]["namespace"], answer)
        return True

    async def _look_again(self, body: Json, there: MirrorObject | None, error: ApiError) -> None:
        """Look at an object whose write got `error`: it may have changed, be gone, or there by now.

        Raises:
            ApiError: `error`, where that is not so, or it is of another kind; or the look failed.
        """
        if there is not None and (error.conflict or error.not_found):
            await self._definitions.look_again(self._context.api, there, error)
        elif error.already_exists:
            found = await self._context.api.get(body)
            self._definitions.caches[body["kind"]].upsert(body["metadata"]["namespace"], found)
        else:
            raise error

    def _has_changed(self, item: MirrorObject) -> bool:
        """Whether it changed during this pass: the next one, which the change causes, acts on that."""
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
            self._deletions.cancel_expected(item.uid)
            if not (error.not_found or error.conflict):
                raise
            if await self._definitions.look_again(self._context.api, item, error) is not None:
                return  # which causes another pass
        self._definitions.caches[item.kind].forget(cluster.namespace, item.uid)


class Deletions:
    """People's deletions in one cluster's mirror, remembered until they were acted on, whatever fails meanwhile.

    The operator's own deletions are not among them.
    """

    def __init__(self) -> None:
        self._pending: dict[str, str] = {}  # uid -> kind
        self._ours: set[str] = set()

    def add(self, item: MirrorObject) -> None:
        """Remember the deletion of an object, if it was not the operator's own."""
        if item.uid not in self._ours:
            self._pending[item.uid] = item.kind
        self._ours.discard(item.uid)

    def pending(self) -> dict[str, str]:
        """The deletions that were not acted on yet, uid -> kind."""
        return dict(self._pending)

    def forget(self) -> None:
        """Forget all: the objects were deleted with their definition, not by a person."""
        self._pending.clear()
        self._ours.clear()

    def done(self, deleted: dict[str, str]) -> None:
        """Forget these, which were acted on; not what was deleted since `pending` returned them."""
        for uid in deleted:
            self._pending.pop(uid, None)

    def has_kind(self, kind: str) -> bool:
        """Whether the deletion of an object of `kind` was not acted on yet."""
        return kind in self._pending.values()

    def expect(self, uid: str) -> None:
        """Expect a deletion of this object that is the operator's own."""
        self._ours.add(uid)

    def cancel_expected(self, uid: str) -> None:
        """Expect it no more: the operator's own deletion failed."""
        self._ours.discard(uid)


def _not_allowed(error: ApiError) -> bool:
    """Whether the kind's definition is being deleted."""
    return error.status == HTTPStatus.METHOD_NOT_ALLOWED


def _key(body: Json) -> tuple[str, str]:
    return body["kind"], body["metadata"]["name"]


def _without_nulls(body: Json) -> Json:
    """The object without nulls, which remove a field in a merge, and are refused in a creation."""
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in body.items()
        if value is not None
    }
