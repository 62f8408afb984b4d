"""Events, in series: a repetition counts up instead of adding an object.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime
from typing import Any

from gpudask.api.resource import API_VERSION, KIND, Identity
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
_CONTROLLER = "gpudask.dev/operator"
_NOTE_LIMIT = 1024  # the API server's


class EventRecorder:
    """Records events on clusters. A failure is logged and costs nothing else."""

    def __init__(self, api: Kubernetes, instance: str) -> None:
        self._api = api
        self._instance = instance
        self._counts: dict[str, int] = {}

    async def record(
        self, cluster: Identity, reason: str, message: str, *, series: str, warning: bool, now: float
    ) -> None:
        """Say what happened to `cluster`; of one reason and `series`, once, then counted. `now`: epoch seconds."""
        moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        digest = hashlib.sha256(f"{cluster.uid}/{reason}/{series}".encode()).hexdigest()[:16]
        name = f"{cluster.name}.{digest}"
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        try:
            if count > 1:
                await self._repeat(cluster.namespace, name, count, moment)
            else:
                await self._api.create(self._event(cluster, name, reason, message, warning=warning, moment=moment))
        except ApiError as error:
            if error.conflict:
                await self._go_on(cluster.namespace, name, moment)
                return
            self._counts.pop(name, None)  # it expired, or was never made: begin anew next time
            if not error.not_found:
                _LOG.warning("an event was not recorded: %s", error)

    async def _go_on(self, namespace: str, name: str, moment: str) -> None:
        """Go on with what an operator before this one began; it may not read events, so the count starts over."""
        self._counts[name] = 2
        try:
            await self._repeat(namespace, name, 2, moment)
        except ApiError as error:
            _LOG.warning("an event was not recorded: %s", error)

    async def _repeat(self, namespace: str, name: str, count: int, moment: str) -> None:
        body = {"series": {"count": count, "lastObservedTime": moment}}
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{name}"
        await self._api.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    def _event(self, cluster: Identity, name: str, reason: str, message: str, *, warning: bool, moment: str) -> Json:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": cluster.namespace},
            "eventTime": moment,
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
