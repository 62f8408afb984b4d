"""The API server as this client sees it: where it is, and what is done there to GpuDaskClusters.

What is read of their pods is in pods.py, how one request is made in request.py.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import kr8s
from kr8s.asyncio import api as connect_api

from gpudask.api.resource import GROUP, PLURAL
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.overrides import CREATOR, FIELD_MANAGER
from gpudask.kubecluster.request import (
    CONFLICT,
    ENVIRONMENT_STEP,
    FORBIDDEN,
    GONE,
    NOT_FOUND,
    Connection,
    words,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

Json = dict[str, Any]
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_POLL_SECONDS = 1.0
_WATCH_SECONDS = 240


class Server(Connection):
    """One API server and one namespace."""

    @classmethod
    async def connect(cls, namespace: str | None, kubeconfig: str | None = None, context: str | None = None) -> Server:
        """The server of a kubeconfig, or of the pod that this runs in.

        Args:
            namespace: without one, the context's or the pod's own.
            kubeconfig: a path, or several with `:` between; without one KUBECONFIG's.
            context: a name in the kubeconfig; without one, the current.

        Raises:
            KubeClusterError: there are no credentials, no such context, or nothing answers.
        """
        path = kubeconfig or os.environ.get("KUBECONFIG")
        try:
            api = await connect_api(kubeconfig=path, context=context)
        except (ValueError, KeyError, OSError, httpx.HTTPError, kr8s.APITimeoutError, kr8s.ServerError) as error:
            step = f"{ENVIRONMENT_STEP}, and that it knows context {context!r}" if context else ENVIRONMENT_STEP
            raise KubeClusterError(
                "cannot reach a Kubernetes API server", reason=words(error), next_step=step
            ) from error
        own = "" if path or context else _own_namespace()
        return cls(api, namespace or own or api.namespace)

    # ------------------------------------------------------------------ clusters

    async def cluster(self, name: str) -> Json:
        """The GpuDaskCluster `name`.

        Raises:
            KubeClusterError: there is none (the message names those that exist), or the server refuses.
        """
        try:
            return await self.call("get", PLURAL, name)
        except KubeClusterError as error:
            if error.status != NOT_FOUND:
                raise
            raise await self._no_such_cluster(name, error) from error

    async def find(self, name: str) -> Json | None:
        """The GpuDaskCluster `name`, None where there is none."""
        try:
            return await self.call("get", PLURAL, name)
        except KubeClusterError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    async def clusters(self, *, all_namespaces: bool = False) -> list[Json]:
        """The GpuDaskClusters of this namespace or of all, by namespace and name."""
        try:
            answer = await self.call("list", PLURAL, namespace="" if all_namespaces else None)
        except KubeClusterError as error:
            raise (_no_operator("cannot list clusters") if error.status == NOT_FOUND else error) from error
        return sorted(answer["items"], key=lambda body: (body["metadata"]["namespace"], body["metadata"]["name"]))

    async def create(self, body: Json) -> Json:
        """Create a GpuDaskCluster from a whole manifest, in this connection's namespace.

        Raises:
            KubeClusterError: it exists already (`status` 409), it is not valid (422, in the server's words), or
                the server refuses.
        """
        name = body["metadata"]["name"]
        try:
            return await self.call(
                "create", PLURAL, body=body, params={"fieldManager": CREATOR, "fieldValidation": "Strict"}
            )
        except KubeClusterError as error:
            if error.status == CONFLICT:
                raise KubeClusterError(
                    f"cluster {name!r} exists already in namespace {self.namespace!r}",
                    reason=error.reason,
                    next_step=f"Connect to it: KubeCluster.from_name({name!r}), or choose another name",
                    status=CONFLICT,
                ) from error
            if error.status == NOT_FOUND:
                raise _no_operator(f"cannot create cluster {name!r}") from error
            raise

    async def delete(self, name: str, uid: str = "") -> bool:
        """Delete the GpuDaskCluster `name`, and with it all that it owns. False where there was none.

        With `uid` only that very one: another of the same name is answered with `status` 409.
        """
        options: Json = {"propagationPolicy": "Background"} | ({"preconditions": {"uid": uid}} if uid else {})
        try:
            await self.call("delete", PLURAL, name, body=options)
        except KubeClusterError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return True

    async def apply(self, body: Json, manager: str = FIELD_MANAGER) -> Json:
        """Server-side apply of a GpuDaskCluster as `manager`; conflicts are ours to win."""
        return await self.call(
            "patch",
            PLURAL,
            body["metadata"]["name"],
            body=body,
            params={"fieldManager": manager, "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    async def merge(self, name: str, patch: Json, manager: str = CREATOR) -> Json:
        """JSON merge patch of the GpuDaskCluster `name` as `manager`, such as `{"spec": {"suspend": True}}`.

        A list is replaced whole: put the `resourceVersion` that was read into `metadata`, and a write that came
        between is refused with 409.
        """
        return await self.call(
            "patch",
            PLURAL,
            name,
            body=patch,
            params={"fieldManager": manager, "fieldValidation": "Strict"},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    async def watch(self, name: str) -> AsyncIterator[Json]:
        """The cluster `name` as it is now, and after each change. Ends when it is deleted, else never.

        Without permission to watch it asks every second. A broken connection is made again.

        Raises:
            KubeClusterError: there is no such cluster at the start, or the server refuses.
        """
        body = await self.cluster(name)
        uid = body["metadata"]["uid"]
        while True:
            yield body
            try:
                async with aclosing(self.changes(body["metadata"]["resourceVersion"], name=name)) as changes:
                    async for kind, changed in changes:
                        if kind == "DELETED":
                            return
                        body = changed
                        yield body
            except KubeClusterError as error:
                if error.status not in (0, FORBIDDEN, GONE):
                    raise
                await asyncio.sleep(_POLL_SECONDS)
            try:
                body = await self.call("get", PLURAL, name)
            except KubeClusterError as error:
                if error.status == NOT_FOUND:
                    return
                raise
            if body["metadata"]["uid"] != uid:
                return

    async def changes(
        self, since: str, *, name: str = "", namespace: str | None = None
    ) -> AsyncGenerator[tuple[str, Json], None]:
        """ADDED, MODIFIED or DELETED, and the cluster, after the version `since`; ends where the server ends it.

        Args:
            since: a resourceVersion.
            name: of one cluster; of all where it is empty.
            namespace: instead of the connection's own; `""` for all.

        Raises:
            KubeClusterError: the server refuses, or the connection breaks.
        """
        params = {"watch": "true", "timeoutSeconds": str(_WATCH_SECONDS), "resourceVersion": since}
        if name:
            params["fieldSelector"] = f"metadata.name={name}"
        async with aclosing(self.lines("watch", PLURAL, namespace=namespace, params=params)) as lines:
            async for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":  # 410: the version is too old
                    return
                yield event["type"], event["object"]

    # ------------------------------------------------------------------ what leads to the scheduler

    def open_port(self, pod: str, port: int) -> AbstractAsyncContextManager[Any]:
        """A websocket to `port` of `pod`, in Kubernetes' port-forward protocol."""
        return self.api.open_websocket(
            version="v1",
            url=f"pods/{pod}/portforward",
            namespace=self.namespace,
            params={"name": pod, "namespace": self.namespace, "ports": str(port)},
        )

    async def _no_such_cluster(self, name: str, error: KubeClusterError) -> KubeClusterError:
        try:
            listed = await self.call("list", PLURAL)
        except KubeClusterError as listing:
            return _no_operator(f"no cluster {name!r}") if listing.status == NOT_FOUND else error
        names = ", ".join(sorted(item["metadata"]["name"] for item in listed["items"]))
        return KubeClusterError(
            f"no cluster {name!r} in namespace {self.namespace!r}",
            reason=f"there are: {names}" if names else "there is none at all",
            next_step="Use one of these names, or another namespace="
            if names
            else "Apply a manifest, such as examples/minimal.yaml, or use another namespace=",
            status=NOT_FOUND,
        )


def _no_operator(what: str) -> KubeClusterError:
    return KubeClusterError(
        what,
        reason=f"this server knows no {PLURAL}.{GROUP}",
        next_step="Install the operator: helm install gpudask charts/gpudask",
        status=NOT_FOUND,
    )


def _own_namespace() -> str:
    """The namespace of the pod that this runs in; empty outside.

    kr8s means to read it, but its fallback "default" comes first.
    """
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else ""
