"""The demonstration's requests to the API server: apply the manifest; watch the cluster, its pods, its events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.api.resource import KIND, LABEL_CLUSTER, PLURAL
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.server import Server
from local.demo.model import cluster_fact, event_fact, pod_fact
from local.demo.recording import Recording

logger = logging.getLogger(__name__)
OnChange = Callable[[str, Json], None]
FIELD_MANAGER = "gpudask-demo"
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Watcher:
    """One namespace of one API server."""

    server: Server

    @classmethod
    async def connect(cls, kubeconfig: str, namespace: str) -> Watcher:
        """The server that `kubeconfig` names."""
        return cls(await Server.connect(namespace, kubeconfig))

    async def apply(self, manifest: Json) -> None:
        """Server-side apply; a second run changes nothing."""
        await self.server.call(
            "patch",
            PLURAL,
            manifest["metadata"]["name"],
            body=manifest,
            params={"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"},
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    async def follow(self, name: str, recording: Recording) -> None:
        """Record cluster `name`, its worker pods and its events, until cancelled."""

        def on_pod(change: str, body: Json) -> None:
            if fact := pod_fact(recording.now(), change, body):
                recording.add(fact)

        def on_event(change: str, body: Json) -> None:
            if change in ("ADDED", "MODIFIED"):  # not those of an earlier run, which the first list has
                recording.add(event_fact(recording.now(), body))

        cluster = {"fieldSelector": f"metadata.name={name}"}
        pods = {"labelSelector": f"{LABEL_CLUSTER}={name}"}
        events = {"fieldSelector": f"involvedObject.kind={KIND},involvedObject.name={name}"}
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._watch(PLURAL, cluster, lambda _, body: recording.add(cluster_fact(recording.now(), body)))
            )
            group.create_task(self._watch("pods", pods, on_pod))
            group.create_task(self._watch("events", events, on_event))

    async def _watch(self, resource: str, params: dict[str, str], on_change: OnChange) -> None:
        """List, then watch; again from the list when the watch ends. What vanished meanwhile is told as DELETED."""
        known: dict[str, Json] = {}

        def tell(change: str, body: Json) -> None:
            uid = body["metadata"]["uid"]
            if change == "DELETED":
                known.pop(uid, None)
            else:
                known[uid] = body
            on_change(change, body)

        while True:
            try:
                listed = await self.server.call("list", resource, params=params)
                present = {item["metadata"]["uid"] for item in listed["items"]}
                for uid in set(known) - present:
                    tell("DELETED", known[uid])
                for item in listed["items"]:
                    tell("LISTED", item)
                async with aclosing(self.server.events(resource, _version(listed), params=params)) as events:
                    async for change, body in events:
                        tell(change, body)
            except KubeClusterError as error:
                logger.info("watching %s again: %r", resource, error)
                await asyncio.sleep(_PAUSE_SECONDS)


def _version(listed: Json) -> str:
    return str(listed["metadata"]["resourceVersion"])
