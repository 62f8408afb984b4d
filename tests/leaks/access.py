"""A program's access to the API server: a kubeconfig of its own, by the rights that docs/kubecluster.md lists.

What becomes of it is the program's `Fault`: `spoil` inflicts those that come once the cluster is there.
"""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from local.clusters.cluster import Cluster
from tests.kubectl import Kubectl
from tests.leaks.proxy import LOOPBACK, Proxy, Tls
from tests.leaks.ways import Fault, Planned

_ACCOUNT = "programs"
_LOGIN = "client.authentication.k8s.io/v1"
_TOKEN_DURATION = "3h"
_GONE_SERVER = f"https://{LOOPBACK}:1"  # where nobody listens
_REFUSED_SECONDS = 40.0  # the API server believes a token for ten seconds after it looked at it last
_RULES: list[Json] = [
    {
        "apiGroups": ["gpudask.dev"],
        "resources": ["gpudaskclusters"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods", "pods/log", "services", "events"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
]


class Accesses:
    """The accesses of a run.

    Args:
        cluster: the local cluster.
        kubectl: as its administrator, in the namespace of the programs.
        folder: for kubeconfigs and credentials.
    """

    def __init__(self, cluster: Cluster, kubectl: Kubectl, folder: Path) -> None:
        self._kubectl, self._folder, self._pki = kubectl, folder, cluster.control_plane.pki
        self._administrators: Json = yaml.safe_load(cluster.kubeconfig.read_text())
        self._open = AsyncExitStack()
        self._token = ""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Accesses]:
        """The account and its rights are there; the proxies listen until the block ends."""
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": _ACCOUNT},
            "rules": _RULES,
        }
        await asyncio.to_thread(self._kubectl, "apply", "-f", "-", stdin=json.dumps(role))
        self._token = await asyncio.to_thread(self._account, _ACCOUNT)
        async with self._open:
            yield self

    async def give(self, planned: Planned) -> Access:
        """The access of one program.

        Raises:
            AssertionError: kubectl fails.
        """
        server = str(self._administrators["clusters"][0]["cluster"]["server"])
        fault, proxy = planned.way.fault, None
        user: Json = {"token": self._token}
        credential = self._folder / f"{planned.cluster}.json"
        if fault in (Fault.ANSWER_LOST, Fault.ANSWER_HELD, Fault.NETWORK_CUT):
            url = urlsplit(server)
            reads = fault is not Fault.NETWORK_CUT
            made = Proxy(
                (url.hostname or "", url.port or 443),
                loses=fault if reads else Fault.NONE,
                tls=Tls.of(self._pki) if reads else None,
            )
            proxy = await self._open.enter_async_context(made.listening())
            server = f"https://{LOOPBACK}:{proxy.port}"
        if fault is Fault.TOKEN_ENDED:
            token = await asyncio.to_thread(self._account, planned.cluster)
            credential.write_text(json.dumps(_credential(token)))
            user = {"exec": _plugin(credential)}
        path = self._folder / f"{planned.cluster}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(self._config(server, user)))
        return Access(planned, self._kubectl, path, credential, proxy)

    def _account(self, name: str) -> str:
        """A ServiceAccount with the rights; its token."""
        self._kubectl("create", "serviceaccount", name)
        subject = f"--serviceaccount={self._kubectl.namespace}:{name}"
        self._kubectl("create", "rolebinding", name, f"--role={_ACCOUNT}", subject)
        return self._kubectl("create", "token", name, f"--duration={_TOKEN_DURATION}").stdout.strip()

    def _config(self, server: str, user: Json) -> Json:
        cluster = {**self._administrators["clusters"][0]["cluster"], "server": server}
        namespace = self._kubectl.namespace
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [
                {"name": "here", "cluster": cluster},
                {"name": "dead", "cluster": {**cluster, "server": _GONE_SERVER}},
            ],
            "users": [{"name": "program", "user": user}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": "program", "namespace": namespace}}
                for name in ("here", "dead")
            ],
        }


@dataclass(frozen=True)
class Access:
    """The access of one program: `kubeconfig`, and the `proxy` that it leads to, if any."""

    planned: Planned
    kubectl: Kubectl
    kubeconfig: Path
    credential: Path
    proxy: Proxy | None

    async def spoil(self) -> None:
        """Inflict the fault, where it is one that comes once the cluster is there.

        Raises:
            AssertionError: kubectl fails, or the token is accepted all the same.
        """
        fault = self.planned.way.fault
        if fault is Fault.NETWORK_CUT:
            assert self.proxy is not None
            self.proxy.cut()
        elif fault is Fault.CONTEXT_SWITCHED:
            config = yaml.safe_load(self.kubeconfig.read_text())
            self.kubeconfig.write_text(yaml.safe_dump({**config, "current-context": "dead"}))
        elif fault is Fault.TOKEN_ENDED:
            await self._end_token()

    async def _end_token(self) -> None:
        await asyncio.to_thread(self.kubectl, "delete", "serviceaccount", self.planned.cluster)
        theirs = Kubectl(self.kubectl.path, self.kubeconfig, self.kubectl.namespace)
        deadline = time.monotonic() + _REFUSED_SECONDS
        while "must be logged in" not in (await asyncio.to_thread(theirs.attempt, "get", "--raw", "/api")).stderr:
            assert time.monotonic() < deadline, "the token is accepted although its account is gone"
            await asyncio.sleep(1)
        self.credential.unlink()  # nobody logs in any more


def _plugin(credential: Path) -> Json:
    return {
        "apiVersion": _LOGIN,
        "command": "cat",
        "args": [str(credential)],
        "interactiveMode": "Never",
    }


def _credential(token: str) -> Json:
    return {"apiVersion": _LOGIN, "kind": "ExecCredential", "status": {"token": token}}
