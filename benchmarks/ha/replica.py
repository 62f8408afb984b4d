"""One of the operators, as a pod of the chart: its rights, its token, its environment, and its process."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from benchmarks.testbed.cluster import SimulatedCluster
from gpudask.clients.kubernetes import Kubernetes
from local.layout import REPOSITORY
from local.operator.process import OperatorProcess

Json = dict[str, Any]
_RENDERED = REPOSITORY / "charts" / "rendered" / "gpudask.yaml"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PLURALS = {
    "Namespace": ("/api/v1", "namespaces"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "ClusterRole": (_RBAC, "clusterroles"),
    "ClusterRoleBinding": (_RBAC, "clusterrolebindings"),
    "Role": (_RBAC, "roles"),
    "RoleBinding": (_RBAC, "rolebindings"),
}


def rendered() -> list[Json]:
    """The chart's objects, as `make manifests` wrote them."""
    return [body for body in yaml.safe_load_all(_RENDERED.read_text()) if body]


async def install(api: Kubernetes, bodies: Iterable[Json]) -> None:
    """Create the operator's namespace, service account and rights; nothing that runs."""
    for body in bodies:
        if body["kind"] in _PLURALS:
            group, plural = _PLURALS[body["kind"]]
            namespace = body["metadata"].get("namespace")
            where = f"{group}/namespaces/{namespace}" if namespace else group
            await api.request("POST", f"{where}/{plural}", body=body)


async def log_in(api: Kubernetes, bodies: Iterable[Json], administrator: Path, kubeconfig: Path) -> str:
    """Write a `kubeconfig` with a fresh token of the operator's service account, beside the `administrator`'s.

    Returns the credential, as the audit log calls it: all operators have one account, and each has a token of its own.
    """
    deployment = _deployment(bodies)
    namespace, account = (
        deployment["metadata"]["namespace"],
        deployment["spec"]["template"]["spec"]["serviceAccountName"],
    )
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 36_000}}
    token = (await api.request("POST", path, body=asked))["status"]["token"]
    _write(administrator, kubeconfig, token)
    return credential(token)


def credential(token: str) -> str:
    """What the audit log calls a service account's `token`."""
    claims = token.split(".")[1]
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}"


def environment(bodies: Iterable[Json], pod: Mapping[str, str]) -> dict[str, str]:
    """The environment of the operator's container; `pod`: its `name` and `uid`."""
    deployment = _deployment(bodies)
    fields = {"metadata.namespace": deployment["metadata"]["namespace"]}
    fields |= {f"metadata.{key}": value for key, value in pod.items()}
    found: dict[str, str] = {}
    for item in deployment["spec"]["template"]["spec"]["containers"][0]["env"]:
        if "valueFrom" in item:
            found[item["name"]] = fields[item["valueFrom"]["fieldRef"]["fieldPath"]]
        else:  # as the kubelet does it: only what stands above is known
            found[item["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], str(item["value"]))
    return found


def _write(administrator: Path, kubeconfig: Path, token: str) -> None:
    body = yaml.safe_load(administrator.read_text())
    body["users"][0]["user"] = {"token": token}
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(body))


def _deployment(bodies: Iterable[Json]) -> Json:
    return next(body for body in bodies if body["kind"] == "Deployment")


@dataclass(frozen=True)
class Memory:
    """Memory of a process, in MB of 10^6 bytes. `proportional`: pages that it shares are divided (PSS)."""

    resident: float
    proportional: float


@dataclass(frozen=True)
class Replica:
    """A running operator. `identity`: as it signs the Lease; `credential`: as the audit log knows it."""

    process: OperatorProcess
    identity: str
    credential: str

    @classmethod
    async def start(cls, testbed: SimulatedCluster, bodies: Sequence[Json]) -> Self:
        """Start one as a new pod of the chart would, and wait until its caches are full."""
        pod = {"uid": str(uuid.uuid4())}
        pod["name"] = f"gpudask-{pod['uid'][:5]}"
        kubeconfig = testbed.scratch / f"{pod['name']}.kubeconfig"
        credential = await log_in(testbed.api, bodies, testbed.server.kubeconfig, kubeconfig)
        given = environment(bodies, pod)
        process = await OperatorProcess.start(kubeconfig, testbed.scratch / f"{pod['name']}.log", given)
        try:
            await process.until_healthy("200")
        except BaseException:
            await process.kill()
            raise
        return cls(process, given["GPUDASK_IDENTITY"], credential)

    async def ready(self) -> bool:
        """Whether it leads, or could."""
        assert self.process.returncode is None, f"{self.identity} ended; its log says why"
        return (await self.process.health()).startswith("200")

    @property
    def memory(self) -> Memory:
        """What it holds now."""
        return Memory(self.process.resident_mb, self.process.proportional_mb)
