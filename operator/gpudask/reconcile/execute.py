"""Carry out a plan's actions: those of each pool and kind apart, so that none that fails holds back another's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from gpudask.api.resource import ANNOTATION_RETIRE, LABEL_SERVES, Cluster
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Marks
from gpudask.desired.scheduler import scheduler_pod
from gpudask.desired.workers import worker_pod
from gpudask.planning.actions import (
    Action,
    CreateScheduler,
    CreateWorker,
    DeletePod,
    MarkGuarded,
    MarkRetiring,
    TakeOffService,
)
from gpudask.planning.observed import Pod, PoolMemory
from gpudask.planning.reduce import owner_uid
from gpudask.reconcile.context import Context
from gpudask.reconcile.memory import Memory
from gpudask.reconcile.retries import Work

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)


class Executor:
    """Carries out actions for one cluster."""

    def __init__(self, context: Context, memory: Memory) -> None:
        self._context = context
        self._memory = memory

    def memory_of(self, pool: str) -> PoolMemory:
        """What is remembered of `pool`."""
        return self._memory.of(pool)

    def work(self, cluster: Cluster, actions: tuple[Action, ...]) -> dict[str, Work]:
        """How to carry out `actions`, by pool and kind. Another pass is asked for after creations, and a surprise."""
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
        return work | {what: partial(self._do_all, group) for what, group in others.items()}

    async def _create_all(self, cluster: Cluster, creations: list[Action]) -> bool:
        """Create one pod, then two, four, ..., while none is refused: what refuses one would refuse the others too.

        As the ReplicaSet controller does, whose slow start this is:
        https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/replicaset/replica_set.go
        """
        batch, made = 1, 0
        while made < len(creations):
            group = creations[made : made + batch]
            outcomes = await _together(*(self._create(cluster, action, bulk=made > 0) for action in group))
            if not all(outcomes):
                return False
            self._memory.created(_pool_of(group[0]))
            made, batch = made + len(group), 2 * batch
        return True

    async def _do_all(self, actions: list[Action]) -> bool:
        return any(await _together(*(self._do(action) for action in actions)))

    def _create(self, cluster: Cluster, action: Action, *, bulk: bool) -> Awaitable[bool]:
        """Create a pod; whether others may follow. `bulk`: it waits behind the first pods of its cluster's pools."""
        if isinstance(action, CreateScheduler):
            preload = self._context.preload
            return self._post(cluster, "", lambda: scheduler_pod(cluster, action.name, preload), bulk=bulk)
        assert isinstance(action, CreateWorker)
        pool = next(pool for pool in cluster.spec.pools if pool.name == action.pool)
        nonce = self._context.nonce()
        return self._post(cluster, pool.name, lambda: worker_pod(cluster, pool, action.number, nonce), bulk=bulk)

    def _do(self, action: Action) -> Awaitable[bool]:
        match action:
            case DeletePod(pod, why, only_if_unchanged):
                return self._delete(pod, why, only_if_unchanged=only_if_unchanged)
            case MarkRetiring(pod, retirement, failed):
                if failed:
                    self._memory.failed(pod.pool, self._context.clock())
                return self._mark(pod, annotations={ANNOTATION_RETIRE: retirement.dump() if retirement else None})
            case MarkGuarded(pod, annotations):
                return self._mark(pod, annotations=dict(annotations))
            case TakeOffService(pod):
                return self._mark(pod, labels={LABEL_SERVES: None})
            case _:
                raise AssertionError(f"{action} is a creation")

    async def try_out(self, pool: str, render: Callable[[], Json]) -> None:
        """Ask the API server whether it would create such a pod, so that a typo shows before the pod is needed."""
        try:
            await self._context.api.create(_rendered(render), dry_run=True)
        except ApiError as error:
            if error.invalid:
                self._memory.refused(pool, error, self._context.clock())
            elif not (error.conflict or error.denied or error.status == HTTPStatus.FORBIDDEN):
                raise
        else:
            self._memory.created(pool)

    async def _post(self, cluster: Cluster, pool: str, render: Callable[[], Json], *, bulk: bool) -> bool:
        name = ""
        try:
            body = _rendered(render)
            name = body["metadata"]["name"]
            self._context.pods.lay_over(cluster.namespace, await self._context.api.create(body, bulk=bulk))
        except ApiError as error:
            if error.conflict:
                await self._look_at(cluster, pool, name)
                return True
            if error.ending or error.status == 0:
                raise
            _LOG.warning("%s: %s", cluster.key, error)
            self._memory.refused(pool, error, self._context.clock())
            return False
        _LOG.info("%s: created pod %s", cluster.key, name)
        return True

    async def _look_at(self, cluster: Cluster, pool: str, name: str) -> None:
        """The name exists: it is ours and was not seen yet, or ours and ending, or somebody else's."""
        try:
            body = await self._context.api.get_pod(cluster.namespace, name)
        except ApiError as error:
            if error.not_found:
                return
            raise
        owner = owner_uid(body["metadata"])
        if owner == cluster.uid:
            self._context.pods.lay_over(cluster.namespace, body)
        else:
            self._memory.name_taken(pool, name, f"its owner is {owner or 'nobody'}")

    async def _delete(self, pod: Pod, why: str, *, only_if_unchanged: bool) -> bool:
        never_ran = pod.version if only_if_unchanged else None
        try:
            body = await self._context.api.delete_pod(pod.namespace, pod.name, uid=pod.uid, never_ran=never_ran)
        except ApiError as error:
            if error.object_not_found:
                self._context.pods.forget(pod.namespace, pod.uid)
                return True
            if error.conflict:
                return True  # it changed, or is another pod by now: look again
            raise
        self._memory.made_room(pod.pool, self._context.clock())
        if pod.finished and not pod.preempted:
            self._memory.failed(pod.pool, self._context.clock())
        if body.get("kind") == "Pod" and body["metadata"].get("deletionGracePeriodSeconds", 1) > 0:
            self._context.pods.lay_over(pod.namespace, body)
        else:
            self._context.pods.forget(pod.namespace, pod.uid)
        _LOG.info("%s/%s: deleted: %s", pod.namespace, pod.name, why)
        return False

    async def _mark(self, pod: Pod, **marks: Marks) -> bool:
        try:
            body = await self._context.api.mark_pod(pod.namespace, pod.name, uid=pod.uid, **marks)
        except ApiError as error:
            if error.object_not_found or error.conflict or (error.invalid and "metadata.uid" in error.message):
                return True  # it is another pod by now: look again
            raise
        self._context.pods.lay_over(pod.namespace, body)
        _LOG.info("%s/%s: %s", pod.namespace, pod.name, marks)
        return False


def _pool_of(creation: Action) -> str:
    return creation.pool if isinstance(creation, CreateWorker) else ""


def _rendered(render: Callable[[], Json]) -> Json:
    """The object; a template that cannot be merged is as good as one that the API server refuses.

    Raises:
        ApiError: the template has the wrong shape.
    """
    try:
        return render()
    except ValueError as error:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        raise ApiError(status, "Invalid", f"template.{error}", "merge of the template") from error


async def _together(*work: Awaitable[bool]) -> list[bool]:
    """All of `work` at once and to its end. Raises the first failure."""
    results = await asyncio.gather(*work, return_exceptions=True)
    found: list[bool] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found
