"""Executor of a plan's actions: pods in batches of growing size, dry runs, deletions; each pool and kind apart.

So one that fails holds back no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from gpudask.api import Json
from gpudask.api.pool import Pool
from gpudask.api.reasons import Reason
from gpudask.api.resource import ANNOTATION_RETIRE, LABEL_SERVES, Cluster
from gpudask.clients.errors import ApiError, ClusterGoneError
from gpudask.clients.kubernetes import Marks
from gpudask.clients.recheck import found
from gpudask.desired import spec_hash
from gpudask.desired.scheduler import scheduler_pod
from gpudask.desired.workers import worker_pod
from gpudask.planning.actions import (
    Action,
    CreateScheduler,
    CreateWorker,
    DeletePod,
    Deletion,
    MarkProtected,
    MarkRetiring,
    Plan,
    RemoveFromService,
)
from gpudask.planning.observed import fields
from gpudask.planning.observed.observation import PoolMemory
from gpudask.planning.observed.parser import owner_key
from gpudask.planning.observed.pods import Pod
from gpudask.reconcile.context import Context
from gpudask.reconcile.loop_memory import Memory, reason_of
from gpudask.reconcile.retries import Work

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
# Actions in a row on pods that had changed meanwhile, after which the next pass still comes at once.
_STALE_AT_ONCE = 2


@dataclass(frozen=True)
class _StalePod:
    """The API server's answer that a pod has changed, or is gone, since the plan was made."""

    error: ApiError


class _Outcome(Enum):
    """The outcome of a creation."""

    CREATED = auto()
    NAME_IN_USE = auto()
    REFUSED = auto()


class Executor:
    """Executes actions for one cluster. `on_deleted` is called with what deleted a pod, once it has."""

    def __init__(
        self, context: Context, memory: Memory, on_deleted: Callable[[DeletePod], None] = lambda _: None
    ) -> None:
        self._context = context
        self._memory = memory
        self._on_deleted = on_deleted
        self._rendering = asyncio.Lock()
        self._stale_in_a_row: Counter[str] = Counter()  # in a row, by what was done

    def memory_of(self, pool: str) -> PoolMemory:
        """The memory of `pool`."""
        return self._memory.of(pool)

    def work(self, cluster: Cluster, actions: tuple[Action, ...]) -> dict[str, Work]:
        """The work of `actions`, by pool and kind. Another pass follows creations, and pods that had changed."""
        creations: dict[str, list[Action]] = {}
        others: dict[str, list[Action]] = {}
        for action in actions:
            if isinstance(action, CreateWorker):
                creations.setdefault(f"creation of pods of pool {action.pool}", []).append(action)
            elif isinstance(action, CreateScheduler):
                creations.setdefault("creation of the scheduler pod", []).append(action)
            else:
                pods = f"pods of pool {action.pod.pool}" if action.pod.pool else "scheduler pods"
                verb = "deletion" if isinstance(action, DeletePod) else "annotation"
                others.setdefault(f"{verb} of {pods}", []).append(action)
        work: dict[str, Work] = {what: partial(self._create_all, cluster, group) for what, group in creations.items()}
        return work | {what: partial(self._do_all, cluster, what, group) for what, group in others.items()}

    async def _create_all(self, cluster: Cluster, creations: list[Action]) -> bool:
        """Create one pod, then two, four, ..., while none is refused: what refuses one would refuse the others too.

        As the ReplicaSet controller does, whose slow start this is:
        https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/replicaset/replica_set.go
        """
        batch, made, pool = 1, 0, _pool_of(creations[0])
        while made < len(creations):
            wanted = len(creations[made : made + batch])
            now = self._context.clock()
            with self._context.namespace_limits.admit(cluster.namespace, wanted, now) as admission:
                group = creations[made : made + admission.pods]
                outcomes = await _gather(*(self._create(cluster, action, bulk=made > 0) for action in group))
            if _Outcome.REFUSED in outcomes:
                return False
            if _Outcome.NAME_IN_USE in outcomes:
                return True
            if group:
                self._memory.record_creation(pool)
            if admission.refusal is not None:
                self._memory.record_refusal(pool, admission.refusal, now)
                return True
            if admission.not_before:
                self._memory.wait(pool, admission.not_before)
                return True
            made, batch = made + len(group), 2 * batch
        return True

    async def _do_all(self, cluster: Cluster, what: str, actions: list[Action]) -> bool:
        """Execute actions on existing pods; another pass follows if some had changed. Many in a row are a failure."""
        stale = [
            found for found in await _gather(*(self._do(cluster, action) for action in actions)) if found is not None
        ]
        in_a_row = self._stale_in_a_row[what] = self._stale_in_a_row[what] + 1 if stale else 0
        if in_a_row > _STALE_AT_ONCE:
            raise stale[0].error
        return bool(stale)

    def _create(self, cluster: Cluster, action: Action, *, bulk: bool) -> Awaitable[_Outcome]:
        """Create a pod. `bulk`: it waits behind the first pods of its cluster's pools."""
        if isinstance(action, CreateScheduler):
            return self._post(cluster, "", self._scheduler_pod(cluster, action.name), bulk=bulk)
        assert isinstance(action, CreateWorker)
        pool = next(pool for pool in cluster.spec.pools if pool.name == action.pool)
        nonce = self._context.nonce()
        return self._post(cluster, pool.name, lambda: worker_pod(cluster, pool, action.number, nonce), bulk=bulk)

    def _do(self, cluster: Cluster, action: Action) -> Awaitable[_StalePod | None]:
        """Change or delete a pod; the API server's answer where it is another pod by now, or changed."""
        match action:
            case DeletePod(pod, why, successor=name) if name:
                return self._replace_scheduler(cluster, pod, why, name)
            case DeletePod():
                return self._delete_worker(action)
            case MarkRetiring(pod, retirement, failed):
                if failed:
                    self._memory.record_failure(pod.pool, self._context.clock())
                ahead = self._context.server_ahead()
                asked = retirement.dump(server_ahead=ahead) if retirement else None
                return self._mark(pod, annotations={ANNOTATION_RETIRE: asked})
            case MarkProtected(pod, annotations):
                return self._mark(pod, annotations=dict(annotations))
            case RemoveFromService(pod):
                return self._mark(pod, labels={LABEL_SERVES: None})
            case _:
                raise AssertionError(f"{action} is a creation")

    def _scheduler_pod(self, cluster: Cluster, name: str) -> Callable[[], Json]:
        return partial(scheduler_pod, cluster, name, self._context.preloads.name)

    async def _replace_scheduler(self, cluster: Cluster, pod: Pod, why: str, name: str) -> _StalePod | None:
        """Delete the scheduler pod, unless the API server would not take the one that is to come."""
        await self.dry_run("", self._scheduler_pod(cluster, name))
        if self._memory.of("").refusal_reason == Reason.TEMPLATE_REFUSED:
            return None
        return await self._delete(pod, why, only_if_unchanged=False)

    async def dry_run(self, pool: str, render: Callable[[], Json]) -> None:
        """Create such a pod as a dry run, so that a typo shows before the pod is needed."""
        try:
            await self._context.api.create(_rendered(render), dry_run=True)
        except ApiError as error:
            if error.invalid:
                self._memory.record_refusal(pool, error, self._context.clock())
            elif not (error.already_exists or error.denied or error.status == HTTPStatus.FORBIDDEN):
                raise
        else:
            self._memory.record_creation(pool)

    async def _post(self, cluster: Cluster, pool: str, render: Callable[[], Json], *, bulk: bool) -> _Outcome:
        name = ""
        try:
            async with self._rendering:
                body = _rendered(render)
                await asyncio.sleep(0)  # one pod in a step of the event loop: other clusters come in between
            name = body["metadata"]["name"]
            answer = await self._context.api.create(body, bulk=bulk)
        except ApiError as error:
            if error.conflict:
                await self._inspect_name_in_use(cluster, pool, name)
                return _Outcome.NAME_IN_USE
            if error.ending or error.status == 0:
                raise
            _LOG.warning("%s: %s", cluster.key, error)
            self._context.metrics.count_error(reason_of(error))
            self._memory.record_refusal(pool, error, self._context.clock())
            return _Outcome.REFUSED
        _LOG.info("%s: created pod %s", cluster.key, name)
        if not self._context.pods.upsert(cluster.namespace, answer):
            self._memory.record_failure(pool, self._context.clock())  # it would be made again, and again
            return _Outcome.REFUSED
        return _Outcome.CREATED

    async def _inspect_name_in_use(self, cluster: Cluster, pool: str, name: str) -> None:
        """Look whose pod has the name: ours, not in the cache yet or just ending, or somebody else's.

        Whatever it is, the next pass does not try the same again at once: it finds the pod in the cache and uses
        another name, or this name is avoided for now. And passes that all end here come ever slower.
        """
        now = self._context.clock()
        self._memory.record_name_in_use(pool, now)
        try:
            body = await self._context.api.get_pod(cluster.namespace, name)
        except ApiError as error:
            if error.not_found:
                return
            raise
        if _owner(body) != cluster.owner_key:
            self._memory.record_foreign_name(pool, name)
        else:
            self._context.pods.upsert(cluster.namespace, body)
            if name not in {pod.name for pod in self._context.pods_of(cluster)}:
                self._memory.record_unseen_name(pool, name, now)

    async def _delete_worker(self, action: DeletePod) -> _StalePod | None:
        stale = await self._delete(action.pod, action.why, only_if_unchanged=action.only_if_unchanged)
        if stale is None:
            self._on_deleted(action)
        return stale

    async def _delete(self, pod: Pod, why: str, *, only_if_unchanged: bool) -> _StalePod | None:
        # One that may run is deleted only in the version of the plan: the present leader may have cancelled its drain.
        version = None if pod.finished else pod.version
        try:
            body = await self._context.api.delete_pod(
                pod.namespace, pod.name, uid=pod.uid, version=version, never_ran=only_if_unchanged
            )
        except ApiError as error:
            if error.object_not_found or error.conflict:
                await self._refresh(pod, error)
                return _StalePod(error)
            raise
        self._memory.record_deletion(pod.pool, self._context.clock())
        if pod.finished and not pod.preempted:
            self._memory.record_failure(pod.pool, self._context.clock())
        if body.get("kind") == "Pod" and _stays_for_now(body):
            self._context.pods.upsert(pod.namespace, body)
        else:
            self._context.pods.forget(pod.namespace, pod.uid)
        _LOG.info("%s/%s: deleted: %s", pod.namespace, pod.name, why)
        return None

    async def _refresh(self, pod: Pod, error: ApiError) -> None:
        """Get a pod that changed, is another by now, or gone: the next pass decides on it as it is, without the watch.

        One that is forgotten comes back only once it changes, so no single answer is believed that it is gone: its
        write got `error`, and of one that changed two looks have to say so.
        """
        get = partial(self._context.api.get_pod, pod.namespace, pod.name)
        body = None
        try:
            body = await get()
        except ApiError as again:
            if not again.object_not_found:
                raise
            if not error.object_not_found:
                body = await found(get, self._context.recheck_seconds)
        if body is None or body["metadata"]["uid"] != pod.uid:
            self._context.pods.forget(pod.namespace, pod.uid)
        else:
            self._context.pods.upsert(pod.namespace, body)

    async def _mark(self, pod: Pod, **marks: Marks) -> _StalePod | None:
        try:
            body = await self._context.api.mark_pod(pod.namespace, pod.name, uid=pod.uid, **marks)
        except ApiError as error:
            if error.object_not_found or error.conflict or (error.invalid and "metadata.uid" in error.message):
                return _StalePod(error)  # it is another pod by now
            raise
        self._context.pods.upsert(pod.namespace, body)
        _LOG.info("%s/%s: %s", pod.namespace, pod.name, marks)
        return None


def _owner(body: Json) -> str:
    """The `owner_key` of a pod's cluster, empty where it has none, or cannot be read."""
    try:
        return owner_key(fields.mapping(body, "metadata"))
    except fields.UnreadableError:
        return ""


def _stays_for_now(body: Json) -> bool:
    """Whether a pod, by the answer to its deletion, still exists: for its grace period, or because of a finalizer."""
    metadata = fields.mapping(body, "metadata")
    return metadata.get("deletionGracePeriodSeconds") != 0 or bool(metadata.get("finalizers"))


def _pool_of(creation: Action) -> str:
    return creation.pool if isinstance(creation, CreateWorker) else ""


def _rendered(render: Callable[[], Json]) -> Json:
    """Render the object; a template that cannot be merged counts as one that the API server refuses.

    Raises:
        ApiError: the template has the wrong shape.
    """
    try:
        return render()
    except ValueError as error:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        raise ApiError(status, "Invalid", f"template.{error}", "merge of the template") from error


async def _gather(*work: Awaitable[T]) -> list[T]:
    """Await all of `work` concurrently and to its end. Raises the first failure."""
    results = await asyncio.gather(*work, return_exceptions=True)
    found: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found


class DryRuns:
    """Dry runs of the templates that no pod was created from yet.

    Each is tried until it was answered, and again while it is refused, or after the cluster's next edit.
    """

    def __init__(self, context: Context, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._tried: set[str] = set()

    def forget(self) -> None:
        """Try all templates again: the cluster was edited."""
        self._tried.clear()

    def work(self, cluster: Cluster, planned: Plan) -> dict[str, Work]:
        """The dry runs for pools that have no pod and get none; a refused one is repeated after its back-off."""
        made = {(pod.pool, pod.spec_hash) for pod in self._context.pods_of(cluster)}
        work: dict[str, Work] = {}
        for pool in cluster.spec.pools:
            template = spec_hash.of_worker(cluster.spec, pool)
            if (pool.name, template) in made or planned.pools[pool.name].size.pods:
                continue
            memory = self._executor.memory_of(pool.name)
            refused = memory.refusal_reason == Reason.TEMPLATE_REFUSED
            digest = f"{pool.name}/{template}"
            if digest not in self._tried or (refused and memory.not_before <= self._context.clock()):
                work[f"dry run of a pod of pool {pool.name}"] = partial(self._make, cluster, pool, digest)
        return work

    async def _make(self, cluster: Cluster, pool: Pool, digest: str) -> bool:
        await self._executor.dry_run(pool.name, partial(worker_pod, cluster, pool, 0, "trial"))
        self._tried.add(digest)
        return False


async def delete_unused(context: Context, cluster: Cluster, deletion: Deletion) -> Json | None:
    """Delete `cluster` if it is as it was when that was decided; its newer body where it is not.

    Raises:
        ClusterGoneError: it is deleted now, or was already.
        ApiError: the API server refuses, or could not be reached.
    """
    try:
        body = await context.api.get_cluster(cluster.namespace, cluster.name)
        metadata = body["metadata"]
        if metadata["uid"] != cluster.uid:
            raise ClusterGoneError
        if metadata.get("generation") != cluster.generation:
            return body
        await _record_deletion(context, cluster, deletion)  # before it, since the deletion ends this cluster's loop
        version = metadata["resourceVersion"]
        await context.api.delete_cluster(cluster.namespace, cluster.name, uid=cluster.uid, version=version)
    except ApiError as error:
        if error.not_found:
            await context.api.confirm_gone(cluster, error, after_seconds=context.recheck_seconds)
        if error.conflict:
            return None  # it changed meanwhile: the watch wakes the loop, and the next pass decides again
        raise
    raise ClusterGoneError


async def _record_deletion(context: Context, cluster: Cluster, deletion: Deletion) -> None:
    _LOG.info("%s: to be deleted: %s", cluster.key, deletion.why)
    message, reason, now = f"it is to be deleted: {deletion.why}", deletion.reason, context.clock()
    await context.events.record(cluster, reason, message, series=reason, warning=False, now=now)
