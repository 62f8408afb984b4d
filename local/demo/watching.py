"""The demonstration's requests to the API server: apply the manifest; watch the cluster, its pods, its events."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import kr8s
from kr8s.asyncio import Api
from kr8s.asyncio import api as connect_api

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, KIND, LABEL_CLUSTER, PLURAL
from local.demo.model import cluster_fact, event_fact, pod_fact
from local.demo.recording import Recording

logger = logging.getLogger(__name__)
# kr8s warns of each Kubernetes newer than itself.
warnings.filterwarnings("ignore", message="Kubernetes version .* is not supported", module="kr8s")
OnChange = Callable[[str, Json], None]
FIELD_MANAGER = "gpudask-demo"
_FAILURES = (httpx.HTTPError, OSError, kr8s.ServerError, kr8s.APITimeoutError)
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Watcher:
    """One namespace of one API server."""

    api: Api
    namespace: str

    @classmethod
    async def connect(cls, kubeconfig: str, namespace: str) -> Watcher:
        """The server that `kubeconfig` names."""
        return cls(await connect_api(kubeconfig=kubeconfig), namespace)

    async def apply(self, manifest: Json) -> None:
        """Server-side apply; a second run changes nothing."""
        async with self.api.call_api(
            "PATCH",
            version=API_VERSION,
            namespace=self.namespace,
            url=f"{PLURAL}/{manifest['metadata']['name']}",
            params={"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            content=json.dumps(manifest),
        ):
            pass

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
                self._watch(
                    API_VERSION, PLURAL, cluster, lambda _, body: recording.add(cluster_fact(recording.now(), body))
                )
            )
            group.create_task(self._watch("v1", "pods", pods, on_pod))
            group.create_task(self._watch("v1", "events", events, on_event))

    async def _watch(self, version: str, resource: str, params: dict[str, str], on_change: OnChange) -> None:
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
                listed = await self._list(version, resource, params)
                present = {item["metadata"]["uid"] for item in listed["items"]}
                for uid in set(known) - present:
                    tell("DELETED", known[uid])
                for item in listed["items"]:
                    tell("LISTED", item)
                await self._stream(version, resource, params | {"resourceVersion": _version(listed)}, tell)
            except _FAILURES as error:
                logger.info("watching %s again: %r", resource, error)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _list(self, version: str, resource: str, params: dict[str, str]) -> Json:
        async with self.api.call_api(
            "GET", version=version, namespace=self.namespace, url=resource, params=params
        ) as response:
            answer: Json = response.json()
            return answer

    async def _stream(self, version: str, resource: str, params: dict[str, str], tell: OnChange) -> None:
        async with self.api.call_api(
            "GET",
            version=version,
            namespace=self.namespace,
            url=resource,
            params=params | {"watch": "true"},
            stream=True,
            timeout=None,
        ) as response:
            async for line in response.aiter_lines():
                change = json.loads(line)
                if change["type"] == "ERROR":
                    return
                tell(change["type"], change["object"])


def _version(listed: Json) -> str:
    return str(listed["metadata"]["resourceVersion"])
