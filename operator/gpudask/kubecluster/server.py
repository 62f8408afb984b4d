"""The API server as this client sees it: five calls over kr8s, plain JSON, one error type.

kr8s' object layer is not used: it asks for the whole API's discovery first, and knows no server-side apply.
"""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import kr8s
from kr8s.asyncio import Api
from kr8s.asyncio import api as connect_api

from gpudask.api.resource import API_VERSION, GROUP, LABEL_CLUSTER, LABEL_DASK_COMPONENT, PLURAL
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.overrides import FIELD_MANAGER

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

# kr8s warns of each Kubernetes newer than itself; the calls below have been stable for years.
warnings.filterwarnings("ignore", message="Kubernetes version .* is not supported", module="kr8s")

Json = dict[str, Any]
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
_TIMEOUT_SECONDS = 30
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_ENVIRONMENT_STEP = "Check KUBECONFIG and that `kubectl version` answers"


@dataclass(frozen=True)
class Server:
    """One API server and one namespace."""

    api: Api
    namespace: str

    @classmethod
    async def connect(cls, namespace: str | None) -> Server:
        """The server of KUBECONFIG, or of the pod that this runs in. Without a namespace: its current one.

        Raises:
            KubeClusterError: there are no credentials, or nothing answers.
        """
        try:
            api = await connect_api(kubeconfig=os.environ.get("KUBECONFIG"))
        except (ValueError, OSError, httpx.HTTPError, kr8s.APITimeoutError, kr8s.ServerError) as error:
            raise KubeClusterError(
                "cannot reach a Kubernetes API server", reason=_words(error), next_step=_ENVIRONMENT_STEP
            ) from error
        return cls(api, namespace or _own_namespace() or api.namespace)

    async def cluster(self, name: str) -> Json:
        """The GpuDaskCluster `name`.

        Raises:
            KubeClusterError: there is none (the message names those that exist), or the server refuses.
        """
        try:
            return await self._call("get", PLURAL, name)
        except KubeClusterError as error:
            if error.status != NOT_FOUND:
                raise
            raise await self._no_such_cluster(name, error) from error

    async def scheduler_pod(self, name: str) -> str:
        """The name of the cluster's scheduler pod that is Running and Ready, `""` while there is none."""
        selector = f"{LABEL_CLUSTER}={name},{LABEL_DASK_COMPONENT}=scheduler"
        answer = await self._call("list", "pods", params={"labelSelector": selector})
        ready = [pod["metadata"] for pod in answer["items"] if _is_ready(pod)]
        # While a scheduler is being replaced there may be two: the younger one is there to stay.
        return str(max(ready, key=lambda pod: pod["creationTimestamp"])["name"]) if ready else ""

    async def apply(self, body: Json) -> Json:
        """Server-side apply of a GpuDaskCluster as the client's field manager; conflicts are ours to win."""
        return await self._call(
            "patch",
            PLURAL,
            body["metadata"]["name"],
            params={"fieldManager": FIELD_MANAGER, "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            content=json.dumps(body),
        )

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
            listed = await self._call("list", PLURAL)
        except KubeClusterError as listing:
            if listing.status == NOT_FOUND:
                return KubeClusterError(
                    f"no cluster {name!r}",
                    reason=f"this server knows no {PLURAL}.{GROUP}",
                    next_step="Install the operator: helm install gpudask charts/gpudask",
                    status=NOT_FOUND,
                )
            return error
        names = ", ".join(sorted(item["metadata"]["name"] for item in listed["items"]))
        return KubeClusterError(
            f"no cluster {name!r} in namespace {self.namespace!r}",
            reason=f"there are: {names}" if names else "there is none at all",
            next_step="Use one of these names, or another namespace="
            if names
            else "Apply a manifest, such as examples/minimal.yaml, or use another namespace=",
            status=NOT_FOUND,
        )

    async def _call(self, verb: str, resource: str, name: str = "", **options: Any) -> Json:
        url = f"{resource}/{name}" if name else resource
        version = "v1" if resource == "pods" else API_VERSION
        method = "PATCH" if verb == "patch" else "GET"
        call = self.api.call_api(
            method, version=version, namespace=self.namespace, url=url, timeout=_TIMEOUT_SECONDS, **options
        )
        try:
            async with call as response:
                answer: Json = response.json()
                return answer
        except kr8s.ServerError as error:
            raise self._refusal(verb, resource, url, error) from error
        except (OSError, httpx.HTTPError, kr8s.APITimeoutError) as error:
            raise KubeClusterError(f"cannot {verb} {url}", reason=_words(error), next_step=_ENVIRONMENT_STEP) from error

    def _refusal(self, verb: str, resource: str, url: str, error: kr8s.ServerError) -> KubeClusterError:
        status = error.response.status_code if error.response is not None else 0
        step = "See what the API server says above"
        if status == FORBIDDEN:
            step = rbac_step(resource, self.namespace, verb)
        return KubeClusterError(f"cannot {verb} {url}", reason=_words(error), next_step=step, status=status)


def rbac_step(resource: str, namespace: str, *verbs: str) -> str:
    """The rule that a Role needs, in the words of a 403's answer."""
    listed = ", ".join(f'"{verb}"' for verb in verbs)
    group = "" if resource.startswith("pods") else GROUP
    return (
        f"Ask for a Role in namespace {namespace!r} with the rule"
        f' {{apiGroups: ["{group}"], resources: ["{resource}"], verbs: [{listed}]}}'
    )


def _own_namespace() -> str:
    """The namespace of the pod that this runs in; empty outside, or where KUBECONFIG says otherwise.

    kr8s means to read it, but its fallback "default" comes first.
    """
    if "KUBECONFIG" in os.environ or not _NAMESPACE_FILE.exists():
        return ""
    return _NAMESPACE_FILE.read_text().strip()


def _is_ready(pod: Json) -> bool:
    status = pod.get("status", {})
    conditions = {item["type"]: item["status"] for item in status.get("conditions", [])}
    deleting = "deletionTimestamp" in pod["metadata"]
    return status.get("phase") == "Running" and conditions.get("Ready") == "True" and not deleting


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
