"""The takeover of clusters that the stock operator ran: they go on as they are, and are replaced once they are idle.

`leftovers` has what is decided. Each pass begins with what is there, so an operator that ends in between goes on:

1. Its finalizer is taken off, or nothing could be deleted any more. Where it comes back the stock operator still runs:
   then everything is left to it, and tried again a minute later.
2. Its Deployments and Service stay, and its scheduler is asked, until that has been idle for a while.
3. They are deleted, the scheduler first; then, once their pods are gone, the stock operator's marks, the DaskCluster's
   last. From there on it is served as any other (`serving`).

The cluster of a DaskJob ends with the job's program: the DaskCluster is deleted, and nothing replaces it. Where
somebody had it taken over before, `serving` looks at the program's pod (`runner_phase`) until that has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpudask.api import Json
from gpudask.api.addresses import DASHBOARD_PORT
from gpudask.api.reasons import Reason
from gpudask.api.resource import LABEL_DASK_CLUSTER, LABEL_DASK_COMPONENT
from gpudask.api.untrusted_text import quote
from gpudask.clients.errors import ApiError, SchedulerError
from gpudask.clients.flow_control import namespace_of
from gpudask.mirror import leftovers, objects, told
from gpudask.mirror.context import Context
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.leftovers import Decision, Heard, Leftovers
from gpudask.mirror.state import MESSAGE_LENGTH, MirrorObject
from gpudask.mirror.told import Condition

_LOG = logging.getLogger(__name__)
SETTLE_SECONDS = 5.0  # in which the stock operator, where it runs, puts its finalizer back: it does so at once
_RUNS_RETRY_SECONDS = 60.0
_ASK_SECONDS = 6.0
# For an answer, while other clusters wait. A slower one is looked for in the next pass: until it is too old, since work
# may have begun after it.
_PATIENCE_SECONDS, _OLD_SECONDS = 0.3, 3.0
_ENDING_SECONDS = 1.0
_ENDED_SECONDS = 60.0
_DELETIONS = 50  # of one pass
_MOST, _MOST_SERVICES = 10_000, 500  # of Deployments, and of pods; of Services
_NO_PROGRAM = "no program of its DaskJob, of the stock operator, runs, and nothing is made for it: delete that"


@dataclass(frozen=True)
class Waiting:
    """The cluster is not served yet. `conditions`: to tell, None: nothing new; `requeue_after`: seconds.

    `runner`: the phase of the pod of the DaskJob that controls it, empty: it is gone; None: it does not matter yet.
    `is_cleared`: nothing is left of it, and nothing takes its place.
    """

    conditions: tuple[Condition, ...] | None
    requeue_after: float
    runner: str | None = None
    is_cleared: bool = False


class Takeover:
    """Takes over clusters, each when its own time has come."""

    def __init__(self, context: Context, definitions: Definitions) -> None:
        self._context = context
        self._definitions = definitions
        self._uids: dict[str, str] = {}  # by `namespace/name`: of which something is known
        self._released: dict[str, float] = {}  # by uid: since when it was seen without the finalizer
        self._refused: dict[str, float] = {}  # by uid: when the finalizer came back
        self._ending: dict[str, float] = {}  # by uid: since when what is left of it was seen to end
        self._idle: dict[str, float] = {}  # by uid: since when its scheduler was heard to be idle
        # By uid: the question to a scheduler that is slow; its answer, and when that came.
        self._asked: dict[str, asyncio.Task[tuple[Heard, float]]] = {}

    async def release_ending(self, items: Iterable[MirrorObject]) -> None:
        """Take the stock operator's finalizer off what is being deleted: else it stays for ever.

        Raises:
            ApiError: a request failed.
        """
        for item in items:
            if item.deleting and item.kopf_finalizers:
                await self._release(item)

    async def look(self, cluster: MirrorObject, items: tuple[MirrorObject, ...]) -> Waiting:
        """Go on with the takeover of `cluster`, which the stock operator ran; `items`: all that there is of its name.

        Raises:
            ApiError: a request failed, or what is there changed meanwhile.
        """
        # A DaskJob keeps its marks: they say that its program ran, and is not to be run again.
        own = tuple(item for item in items if not item.deleting and item.kind != objects.JOB)
        if self._uids.get(cluster.owner) != cluster.uid:
            self.forget(cluster.owner)
            self._uids[cluster.owner] = cluster.uid
        if (waiting := await self._await_release(cluster, own)) is not None:
            return waiting
        groups = [item for item in own if item.kind == objects.WORKER_GROUP]
        left = await self._read(cluster, groups)
        if not left.all and left.pods:
            return self._ends(cluster, left)
        if not left.all and leftovers.is_replaced(cluster, left):
            await self._finish(cluster, own)
            return Waiting(None, 0.0)
        heard = await self._hear(cluster, left) if leftovers.needs_answer(cluster, left) else Heard()
        decision = None if heard is None else leftovers.decide(cluster, left, heard)
        if decision is None or not decision.replace:
            return _stays(decision)
        if not left.all:
            cleared = _waits(Reason.NO_CLIENT, _NO_PROGRAM, _ENDED_SECONDS)
            return replace(cleared, runner=left.runner, is_cleared=True)
        return await self._end(cluster, left, decision)

    async def runner_phase(self, cluster: MirrorObject) -> str:
        """The phase of the pod that the stock operator made for the DaskJob of `cluster`; empty: it is gone.

        Raises:
            ApiError: the request failed.
        """
        selector = f"{LABEL_DASK_CLUSTER}={cluster.name},{LABEL_DASK_COMPONENT}={leftovers.RUNNER}"
        path = f"/api/v1/namespaces/{namespace_of(cluster.owner)}/pods"
        pods = await self._context.api.list_labelled(path, selector, most=_MOST, reduce=leftovers.reduced_pod)
        return leftovers.runner_phase(cluster, pods)

    def forget(self, key: str) -> None:
        """Forget the cluster `key`, as `namespace/name`, which is served, or gone."""
        uid = self._uids.pop(key, "")
        for known in (self._released, self._refused, self._ending):
            known.pop(uid, None)
        self._forget_answers(uid)

    def close(self) -> None:
        """Ask no scheduler any more."""
        for asked in self._asked.values():
            asked.cancel()
        self._asked.clear()

    async def _end(self, cluster: MirrorObject, left: Leftovers, decision: Decision) -> Waiting:
        """Delete what is left, and is not being deleted yet."""
        if all(item.ending for item in left.all):
            return replace(self._ends(cluster, left), runner=left.runner)
        self._ending.pop(cluster.uid, None)
        await self._delete(cluster, left)
        return replace(_waits(decision.reason, decision.message, _ENDING_SECONDS), runner=left.runner)

    def _ends(self, cluster: MirrorObject, left: Leftovers) -> Waiting:
        """All that is left is on its way out; what keeps it is told once that lasts."""
        now = self._context.clock()
        waited_seconds = now - self._ending.setdefault(cluster.uid, now)
        message = leftovers.ending_message(left, now + self._context.server_ahead(), waited_seconds)
        return _waits(Reason.TERMINATING, message, _ENDING_SECONDS)

    def _forget_answers(self, uid: str) -> None:
        self._idle.pop(uid, None)
        if (asked := self._asked.pop(uid, None)) is not None:
            asked.cancel()

    async def _await_release(self, cluster: MirrorObject, own: tuple[MirrorObject, ...]) -> Waiting | None:
        """Take off the finalizers; None: they are off, and nobody has put one back."""
        uid, now = cluster.uid, self._context.clock()
        held = [item for item in own if item.kopf_finalizers]
        if held:
            refused_at = self._refused.get(uid)
            if refused_at is None and uid in self._released:
                refused_at = self._refused[uid] = now
                self._forget_answers(uid)
            if refused_at is not None and now < refused_at + _RUNS_RETRY_SECONDS:
                delay = refused_at + _RUNS_RETRY_SECONDS - now
                return _waits(Reason.MIRROR_REFUSED, told.HANDLED_BY_ANOTHER, delay)
            self._refused.pop(uid, None)
            for item in held:
                await self._release(item)
            self._released[uid] = now
            return Waiting(None, SETTLE_SECONDS)
        settled_at = self._released.setdefault(uid, now) + SETTLE_SECONDS
        return Waiting(None, settled_at - now) if now < settled_at else None

    async def _read(self, cluster: MirrorObject, groups: Iterable[MirrorObject]) -> Leftovers:
        namespace, api = namespace_of(cluster.owner), self._context.api
        selector = f"{LABEL_DASK_CLUSTER}={cluster.name}"
        where = f"namespaces/{namespace}"
        found = await asyncio.gather(
            api.list_labelled(f"/apis/apps/v1/{where}/deployments", selector, most=_MOST),
            api.list_labelled(f"/api/v1/{where}/services", selector, most=_MOST_SERVICES),
            api.list_labelled(f"/api/v1/{where}/pods", selector, most=_MOST, reduce=leftovers.reduced_pod),
        )
        return leftovers.read(cluster, groups, *found)

    async def _hear(self, cluster: MirrorObject, left: Leftovers) -> Heard | None:
        """What the old scheduler answers; None: not yet. It runs a tenant's code, and others are not to wait for it."""
        asked = self._asked.get(cluster.uid) or asyncio.create_task(self._ask(cluster, left))
        self._asked[cluster.uid] = asked
        await asyncio.wait({asked}, timeout=_PATIENCE_SECONDS)
        if not asked.done():
            return None
        del self._asked[cluster.uid]
        heard, at = asked.result()
        return heard if self._context.clock() < at + _OLD_SECONDS else None

    async def _ask(self, cluster: MirrorObject, left: Leftovers) -> tuple[Heard, float]:
        """Ask the old scheduler, on its dashboard's port, for what every Dask tells there."""
        uid = cluster.uid
        host = f"[{left.address}]" if ":" in left.address else left.address
        try:
            if not host:
                raise SchedulerError.without_address()
            tasks, clients = await self._context.schedulers.counts(
                f"http://{host}:{DASHBOARD_PORT}", namespace=namespace_of(cluster.owner)
            )
        except SchedulerError as error:
            _LOG.info("%s: its old scheduler: %s", cluster.owner, error)
            self._idle.pop(uid, None)
            return Heard(), self._context.clock()
        now = self._context.clock()
        if tasks:
            self._idle.pop(uid, None)
            return Heard(tasks, clients), now
        return Heard(0, clients, now - self._idle.setdefault(uid, now)), now

    async def _delete(self, cluster: MirrorObject, left: Leftovers) -> None:
        for item in [item for item in left.all if not item.ending][:_DELETIONS]:
            try:
                await self._context.api.delete_tree(item.reference, uid=item.uid)
            except ApiError as error:
                if not error.not_found:
                    raise
            _LOG.info("%s: deleted %s %s of the stock operator", cluster.owner, item.kind, item.name)

    async def _release(self, item: MirrorObject) -> None:
        """Take the stock operator's finalizers off, and no other."""
        kept = [name for name in item.finalizers if name not in item.kopf_finalizers]
        await self._patch(item, {"finalizers": kept or None})
        _LOG.info("%s: took off the stock operator's finalizer on %s %s", item.owner, item.kind, item.name)

    async def _finish(self, cluster: MirrorObject, own: tuple[MirrorObject, ...]) -> None:
        """Remove the stock operator's marks, the DaskCluster's last: they say that this is not done yet."""
        for item in (*(item for item in own if item.kind != objects.CLUSTER and item.kopf_marks), cluster):
            await self._patch(item, {"annotations": dict.fromkeys(item.kopf_marks)})
        self.forget(cluster.owner)
        _LOG.info("%s: taken over from the stock operator", cluster.owner)

    async def _patch(self, item: MirrorObject, metadata: Json) -> None:
        namespace = namespace_of(item.owner)
        body: Json = {
            "apiVersion": objects.API_VERSION,
            "kind": item.kind,
            "metadata": {**metadata, "name": item.name, "namespace": namespace},
        }
        try:
            answer = await self._context.api.merge(body, version=item.version)
        except ApiError as error:
            if not error.not_found:
                raise
            await self._definitions.look_again(self._context.api, item, error)
            return  # the last finalizer went, and the object with it
        self._definitions.caches[item.kind].upsert(namespace, answer)


def _stays(decision: Decision | None) -> Waiting:
    """What is left stays; None: its scheduler has not answered yet."""
    if decision is None:
        return Waiting(None, _ENDING_SECONDS)
    return _waits(decision.reason, decision.message, _ASK_SECONDS)


def _waits(reason: Reason, message: str, seconds: float) -> Waiting:
    return Waiting((Condition(told.TAKEN_OVER, reason, quote(message, MESSAGE_LENGTH)),), seconds)
