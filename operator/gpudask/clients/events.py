"""Recorder of Kubernetes events, in series: a repetition counts up instead of adding an object.

Whoever makes a cluster's state flap makes events of it, each of which is written to etcd and kept for an hour. So they
are limited as client-go limits those of its controllers, with its burst of 25 for each object. After that client-go
lets one pass in five minutes, of what repeats itself; ours say different things, so it is one a minute here, and
warnings have a budget of their own: no scaling up and down may hide one.
https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/client-go/tools/record/events_cache.go
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from gpudask.api import Json
from gpudask.api.record import MAX_MESSAGE, RecordedEvent
from gpudask.api.resource import API_VERSION, KIND, Identity
from gpudask.api.status import iso
from gpudask.api.untrusted_text import quote
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

_LOG = logging.getLogger(__name__)
_CONTROLLER = "gpudask.dev/operator"
_NOTE_LIMIT = 1024  # the API server's
_BURST, _REFILL_SECONDS = 25, 60.0
_KEPT = 4096  # series, and budgets of clusters, that are remembered; as many as client-go


@dataclass(slots=True)
class _Budget:
    """How many events may be written now. Not a `RateLimiter`: its clock may go back, where the wall clock was set."""

    left: float
    at: float

    def spend(self, now: float) -> bool:
        """Count one event; whether it may be written."""
        self.left = min(float(_BURST), self.left + max(0.0, now - self.at) / _REFILL_SECONDS)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


def _recorded(reason: str, message: str, *, warning: bool, now: float) -> RecordedEvent:
    """The event as a cluster's record has it."""
    return RecordedEvent(
        at=iso(now, to="seconds"),
        type="Warning" if warning else "Normal",
        reason=reason,
        message=quote(message, MAX_MESSAGE),
    )


class EventRecorder:
    """Records events on clusters. A failure is logged and costs nothing else.

    Where the budget is spent the count of a series goes on, and its next event has it. `on_record` is told of each
    event, written or not.
    """

    def __init__(self, api: Kubernetes, instance: str) -> None:
        self._api = api
        self._instance = instance
        # By name, the uid of the series' cluster and its count; the last used last, as the next.
        self._counts: dict[str, tuple[str, int]] = {}
        self._budgets: dict[tuple[str, bool], _Budget] = {}  # by the cluster's uid, and whether for warnings
        self.on_record: Callable[[Identity, RecordedEvent], None] = lambda _cluster, _event: None

    async def record(
        self,
        cluster: Identity,
        reason: str,
        message: str,
        *,
        series: str,
        warning: bool,
        now: float,
        regarding: tuple[str, str] = (API_VERSION, KIND),
    ) -> None:
        """Record what happened to `cluster`; of one reason and `series`, once, then counted. `now`: epoch seconds.

        `regarding`: version and kind of the object that `cluster` names, where that is another one.
        """
        self.on_record(cluster, _recorded(reason, message, warning=warning, now=now))
        time = datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        digest = hashlib.sha256(f"{cluster.uid}/{reason}/{series}".encode()).hexdigest()[:16]
        name = f"{cluster.name}.{digest}"
        count = self._counts.get(name, ("", 0))[1] + 1
        if not self._may_write(cluster, now, warning=warning):
            if count > 1:
                self._count(name, cluster.uid, count)  # one that was never written starts when it is
            _LOG.info("%s/%s: no event, there were many: %s: %s", cluster.namespace, cluster.name, reason, message)
            return
        self._count(name, cluster.uid, count)
        try:
            if count > 1:
                await self._repeat(cluster.namespace, name, count, time)
            else:
                event = self._event(cluster, name, reason, message, warning=warning, time=time)
                event["regarding"] |= dict(zip(("apiVersion", "kind"), regarding, strict=True))
                await self._api.create(event)
        except ApiError as error:
            if error.conflict:
                await self._continue_series(cluster, name, time)
                return
            self._counts.pop(name, None)  # it expired, or was never written: start over next time
            if not error.not_found:
                _LOG.warning("an event was not recorded: %s", error)

    def forget(self, uid: str) -> None:
        """Forget the series and the budgets of the cluster with this uid: it is gone."""
        for is_warning in (False, True):
            self._budgets.pop((uid, is_warning), None)
        for name in [name for name, (of, _) in self._counts.items() if of == uid]:
            del self._counts[name]

    def _may_write(self, cluster: Identity, now: float, *, warning: bool) -> bool:
        key = (cluster.uid, warning)
        budget = self._budgets[key] = self._budgets.pop(key, _Budget(_BURST, now))
        if len(self._budgets) > _KEPT:
            del self._budgets[next(iter(self._budgets))]
        return budget.spend(now)

    def _count(self, name: str, uid: str, count: int) -> None:
        self._counts.pop(name, None)
        self._counts[name] = uid, count
        if len(self._counts) > _KEPT:
            del self._counts[next(iter(self._counts))]  # it starts over: as if an earlier operator had written it

    async def _continue_series(self, cluster: Identity, name: str, time: str) -> None:
        """Continue a series that an earlier operator began; it may not read events, so the count starts over."""
        self._count(name, cluster.uid, 2)
        try:
            await self._repeat(cluster.namespace, name, 2, time)
        except ApiError as error:
            _LOG.warning("an event was not recorded: %s", error)

    async def _repeat(self, namespace: str, name: str, count: int, time: str) -> None:
        body = {"series": {"count": count, "lastObservedTime": time}}
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{name}"
        await self._api.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    def _event(self, cluster: Identity, name: str, reason: str, message: str, *, warning: bool, time: str) -> Json:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": cluster.namespace},
            "eventTime": time,
            "reportingController": _CONTROLLER,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "reason": reason,
            "type": "Warning" if warning else "Normal",
            "note": message[:_NOTE_LIMIT],
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": cluster.name,
                "namespace": cluster.namespace,
                "uid": cluster.uid,
            },
        }
