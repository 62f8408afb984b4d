"""Carry out a plan's actions: each on its own, so that one that fails holds back no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
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
from gpudask.planning.observed import Pod
from gpudask.planning.reduce import owner_uid
from gpudask.reconcile.context import Context
from gpudask.reconcile.memory import Memory

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)


class Executor:
    """Carries out actions for one cluster."""

    def __init__(self, context: Context, memory: Memory) -> None:
        self._context = context
        self._memory = memory

    async def execute(self, cluster: Cluster, actions: tuple[Action, ...]) -> bool:
        """Carry out `actions` at once; whether any surprise asks for another pass.

        Raises:
            ApiError: the API server could not be reached or failed; the others were carried out all the same.
        """
        creations: dict[str, list[Action]] = {}
        others: list[Action] = []
        for action in actions:
            if isinstance(action, CreateWorker):
                creations.setdefault(action.pool, []).append(action)
            else:
                others.append(action)
        return await _together(
            *(self._one(cluster, action) for action in others),
            *(self._create_for(cluster, pool, group) for pool, group in creations.items()),
        )

    async def _create_for(self, cluster: Cluster, pool: str, creations: list[Action]) -> bool:
        """The first alone: what refuses it, such as a quota, would refuse the others too."""
        surprise = await self._one(cluster, creations[0])
        if self._memory.of(pool).not_before > self._context.clock():
            return surprise
        return await _together(*(self._one(cluster, creation) for creation in creations[1:])) or surprise

    def _one(self, cluster: Cluster, action: Action) -> Awaitable[bool]:
        match action:
            case CreateScheduler(name):
                preload = self._context.preload
                return self._create(cluster, "", lambda: scheduler_pod(cluster, name, preload))
            case CreateWorker(pool_name, number):
                pool = next(pool for pool in cluster.spec.pools if pool.name == pool_name)
                nonce = self._context.nonce()
                return self._create(cluster, pool_name, lambda: worker_pod(cluster, pool, number, nonce))
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

    async def try_out(self, pool: str, render: Callable[[], Json]) -> None:
        """Ask the API server whether it would create such a pod, so that a typo shows before the pod is needed."""
        try:
            await self._context.api.create(_rendered(render), dry_run=True)
        except ApiError as error:
            if error.invalid:
                self._memory.refused(pool, error, self._context.clock())
            elif not (error.conflict or error.status == HTTPStatus.FORBIDDEN):
                raise
        else:
            self._memory.created(pool)

    async def _create(self, cluster: Cluster, pool: str, render: Callable[[], Json]) -> bool:
        name = ""
        try:
            body = _rendered(render)
            name = body["metadata"]["name"]
            self._context.pods.lay_over(cluster.namespace, await self._context.api.create(body))
        except ApiError as error:
            if error.conflict:
                return await self._look_at(cluster, pool, name)
            if error.ending or error.status == 0:
                raise
            _LOG.warning("%s: %s", cluster.key, error)
            self._memory.refused(pool, error, self._context.clock())
            return False
        self._memory.created(pool)
        _LOG.info("%s: created pod %s", cluster.key, name)
        return False

    async def _look_at(self, cluster: Cluster, pool: str, name: str) -> bool:
        """The name exists: it is ours and was not seen yet, or ours and ending, or somebody else's."""
        try:
            body = await self._context.api.get_pod(cluster.namespace, name)
        except ApiError as error:
            if error.not_found:
                return True
            raise
        owner = owner_uid(body["metadata"])
        if owner == cluster.uid:
            self._context.pods.lay_over(cluster.namespace, body)
        else:
            self._memory.name_taken(pool, name, f"its owner is {owner or 'nobody'}")
        return True

    async def _delete(self, pod: Pod, why: str, *, only_if_unchanged: bool) -> bool:
        # One that may run goes only as it was when that was decided: whoever leads now may have called it back.
        version = None if pod.finished else pod.version
        try:
            body = await self._context.api.delete_pod(
                pod.namespace, pod.name, uid=pod.uid, version=version, never_ran=only_if_unchanged
            )
        except ApiError as error:
            if error.not_found:
                self._context.pods.forget(pod.namespace, pod.uid)
                return True
            if error.conflict:
                return await self._look_again(pod)
            raise
        self._memory.made_room(pod.pool, self._context.clock())
        if pod.finished:
            self._memory.failed(pod.pool, self._context.clock())
        if body.get("kind") == "Pod" and body["metadata"].get("deletionGracePeriodSeconds", 1) > 0:
            self._context.pods.lay_over(pod.namespace, body)
        else:
            self._context.pods.forget(pod.namespace, pod.uid)
        _LOG.info("%s/%s: deleted: %s", pod.namespace, pod.name, why)
        return False

    async def _look_again(self, pod: Pod) -> bool:
        """It changed, or is another pod by now: the next pass decides on what it is, whether the watch told or not."""
        try:
            body = await self._context.api.get_pod(pod.namespace, pod.name)
        except ApiError as error:
            if not error.not_found:
                raise
            body = None
        if body is None or body["metadata"]["uid"] != pod.uid:
            self._context.pods.forget(pod.namespace, pod.uid)
        else:
            self._context.pods.lay_over(pod.namespace, body)
        return True

    async def _mark(self, pod: Pod, **marks: Marks) -> bool:
        try:
            body = await self._context.api.mark_pod(pod.namespace, pod.name, uid=pod.uid, **marks)
        except ApiError as error:
            if error.not_found or error.conflict or error.invalid:
                return True
            raise
        self._context.pods.lay_over(pod.namespace, body)
        _LOG.info("%s/%s: %s", pod.namespace, pod.name, marks)
        return False


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


async def _together(*work: Awaitable[bool]) -> bool:
    """All of `work` at once and to its end; whether any was true. Raises the first failure."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return any(results)
