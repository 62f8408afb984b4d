"""The platform of the attacks: an API server with the controllers that clean up, played nodes, and the operator.

`Platform` is what the trials need of it. `tests/e2e/platform.py` can stand behind the same methods: there an impostor
is a pod's own program, and the memory is that of the operator's pod.
"""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import base64
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import aiohttp
import yaml

from gpudask.api.resource import API_VERSION, PLURAL
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from local.clusters.api_server import ApiServer
from local.host.processes import Part
from tests.builders import a_manifest, a_pool
from tests.conftest import CRD, ROOT
from tests.hostile.attack import OWN, Attacker, Request
from tests.hostile.impostor import ELSEWHERE, Impostor
from tests.hostile.node import Node
from tests.hostile.operator_process import AttackedOperator, operating
from tests.kubectl import Kubectl
from tests.planning.builders import gpu_pool
from tests.reconcile.stage import Stage, eventually, staged

VICTIM = "victim"
_HOME = "gpudask-system"
_CONTROLLERS = "garbage-collector-controller,namespace-controller,clusterrole-aggregation-controller"
_USER = "mallory"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# What may be kept by a finalizer of the attackers.
_HELD = (f"apis/{API_VERSION}/{PLURAL}", "api/v1/pods", "api/v1/services", "api/v1/configmaps", "api/v1/secrets")


class Platform(Protocol):
    """A platform for trials. `elsewhere`: where redirects lead. `victim_known`: what attackers know of the victim."""

    operator: AttackedOperator
    victim: Stage
    elsewhere: Impostor
    victim_known: dict[str, str]

    def attackers_namespace(
        self, number: int, answers: Mapping[str, str]
    ) -> contextlib.AbstractAsyncContextManager[AttackersNamespace]:
        """A namespace of the attackers' own, until the block ends: then nothing of theirs is left."""


@dataclass
class AttackersNamespace:
    """The attackers' namespace. `impostors`: cluster -> its hostile scheduler, once its pod runs."""

    namespace: str
    session: aiohttp.ClientSession
    known: Mapping[str, str]
    impostors: Mapping[str, Impostor]

    def attacker(self) -> Attacker:
        """A user of his own account."""
        return Attacker(self.session, self.known)


@dataclass
class BarePlatform:
    """On an API server without nodes."""

    kubectl: Kubectl
    api: Kubernetes
    operator: AttackedOperator
    victim: Stage
    elsewhere: Impostor
    victim_known: dict[str, str] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def attackers_namespace(self, number: int, answers: Mapping[str, str]) -> AsyncIterator[AttackersNamespace]:
        """A namespace with one account that may edit in it, a node, and a running cluster."""
        namespace = f"camp-{number}"
        self.kubectl("create", "namespace", namespace)
        theirs = self.kubectl.inside(namespace)
        node = Node(self.api, namespace, answers)
        node.start()
        try:
            async with editing(self.kubectl.kubeconfig, theirs) as session:
                uid = await self._own_cluster(Attacker(session, {"@NAMESPACE@": namespace}), namespace)
                known = {"@NAMESPACE@": namespace, "@OWN_UID@": uid, "@HOME@": _HOME, **self.victim_known}
                yield AttackersNamespace(namespace, session, known, node.impostors)
        finally:
            await self._clear(namespace)
            await node.stop()

    async def _own_cluster(self, attacker: Attacker, namespace: str) -> str:
        """The uid of the attackers' own cluster, which runs."""
        stage = Stage(self.api, namespace, self.victim.kubeconfig)
        path = f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{OWN}"
        body = a_manifest(a_pool(replicas=1), gpu_pool(), name=OWN)
        await eventually(lambda: _applied(attacker, path, body), bool, "the attackers may edit")
        await stage.shows("Ready", "True", OWN)
        return str((await stage.cluster(OWN))["metadata"]["uid"])

    async def _clear(self, namespace: str) -> None:
        """Delete all that is in the namespace, whatever its finalizers say, and then the namespace."""
        contents = [_path(kind, namespace) for kind in _HELD[:2]]

        async def gone() -> bool:
            try:
                for path in contents:  # again and again: the operator may just have made another pod
                    await self.api.request("DELETE", path, body={"gracePeriodSeconds": 0})
                await self._let_go(namespace)
                pages = [
                    await self.api.request("GET", path, query={"limit": "1"}, accept=_METADATA) for path in contents
                ]
            except ApiError as error:
                if error.status:
                    raise
                return False  # a thousand clusters take longer than a request may
            return not any(page["items"] for page in pages)

        await eventually(gone, bool, f"nothing runs in {namespace} any more", seconds=300)
        await self.api.request("DELETE", f"/api/v1/namespaces/{namespace}")

    async def _let_go(self, namespace: str) -> None:
        for kind in _HELD:
            path = _path(kind, namespace)
            page = await self.api.request("GET", path, query={"limit": "5000"}, accept=_METADATA)
            held = [item["metadata"]["name"] for item in page["items"] or () if item["metadata"].get("finalizers")]
            for name in held:
                body = {"metadata": {"finalizers": None}}
                with contextlib.suppress(ApiError):
                    kind_of_patch = "application/merge-patch+json"
                    await self.api.request("PATCH", f"{path}/{name}", body=body, content_type=kind_of_patch)


def _path(kind: str, namespace: str) -> str:
    root, _, plural = kind.rpartition("/")
    return f"/{root}/namespaces/{namespace}/{plural}"


@contextlib.asynccontextmanager
async def bare_platform(scratch: Path) -> AsyncIterator[BarePlatform]:
    """An API server of its own, until the block ends. `scratch`: where the operator's log is left."""
    server = await asyncio.to_thread(ApiServer.start, f"hostile-{os.getpid()}")
    try:
        kubectl = Kubectl(str(server.kubectl), server.kubeconfig, namespace="")
        kubectl.define(CRD)
        server.processes.ensure(controllers(server))
        kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(_rights()))
        kubectl("create", "namespace", VICTIM)
        token = kubectl("create", "token", "gpudask", f"--namespace={_HOME}", "--duration=24h").stdout.strip()
        kubeconfig = kubeconfig_with(server.kubeconfig, token, scratch / "kubeconfig")
        elsewhere = Impostor("error-418", ELSEWHERE)
        await elsewhere.start()
        async with (
            staged(server.kubeconfig, VICTIM) as victim,
            operating(kubeconfig, _HOME, scratch / "operator.log") as operator,
        ):
            yield BarePlatform(kubectl, victim.api, operator, victim, elsewhere)
        await elsewhere.stop()
    finally:
        server.processes.stop(["kube-controller-manager"], patience_seconds=0.5)
        server.stop()


def controllers(server: ApiServer, *more: str) -> Part:
    """Those that clean up after a deletion, and the one that fills the role `edit`; and those whose names are given."""
    command = (
        str(server.control_plane.layout.commands / "kube-controller-manager"),
        f"--kubeconfig={server.kubeconfig}",
        f"--controllers={','.join((_CONTROLLERS, *more))}",
        "--secure-port=0",
        "--leader-elect=false",
        "--kube-api-qps=400",
        "--kube-api-burst=800",
    )
    return Part("kube-controller-manager", command)


def _rights() -> list[Json]:
    """The chart's namespace, account, and roles: the operator's own, and what users get by `edit`."""
    rendered = yaml.safe_load_all((ROOT / "charts" / "rendered" / "gpudask.yaml").read_text())
    kinds = {"Namespace", "ServiceAccount"}
    return [body for body in rendered if body["kind"] in kinds or body["apiVersion"].startswith("rbac.")]


def _configured(kubeconfig: Path | None) -> Json:
    assert kubeconfig is not None, "kubectl is told which cluster"
    return dict(yaml.safe_load(kubeconfig.read_text()))


def kubeconfig_with(administrator: Path | None, token: str, path: Path) -> Path:
    """Write at `path` the kubeconfig of whoever has this token."""
    config = _configured(administrator)
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path.write_text(yaml.safe_dump(config))
    return path


@contextlib.asynccontextmanager
async def editing(administrator: Path | None, theirs: Kubectl) -> AsyncIterator[aiohttp.ClientSession]:
    """HTTP to the API server as a new account that may edit in the namespace of `theirs`, and nothing else."""
    theirs("create", "serviceaccount", _USER)
    theirs("create", "rolebinding", _USER, "--clusterrole=edit", f"--serviceaccount={theirs.namespace}:{_USER}")
    token = theirs("create", "token", _USER, "--duration=24h").stdout.strip()
    cluster = _configured(administrator)["clusters"][0]["cluster"]
    trust = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(
        cluster["server"],
        headers=headers,
        connector=aiohttp.TCPConnector(ssl=trust, limit=32),
        timeout=aiohttp.ClientTimeout(total=60),
    ) as session:
        yield session


async def _applied(attacker: Attacker, path: str, body: Json) -> bool:
    query = {"fieldManager": _USER, "force": "true"}
    return await attacker.send(Request("PATCH", path, body, "application/apply-patch+yaml", query)) is not None
