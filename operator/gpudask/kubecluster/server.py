"""The API server as this client sees it: where it is, and what changes there.

What is done to GpuDaskClusters is in clusters.py, what is read of their pods in pods.py, a way to a pod in
pod_port.py, and how one request is made in request.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx

from gpudask.api.resource import PLURAL
from gpudask.kubecluster import credentials
from gpudask.kubecluster.access import Access, pod_namespace
from gpudask.kubecluster.clusters import Clusters
from gpudask.kubecluster.credentials import Credentials
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.request import FORBIDDEN
from gpudask.kubecluster.session import Session
from gpudask.kubecluster.timing import Timing

Json = dict[str, Any]


class Server(Clusters):
    """One API server and one namespace."""

    @classmethod
    async def connect(
        cls,
        namespace: str | None,
        kubeconfig: str | None = None,
        context: str | None = None,
        *,
        timing: Timing | None = None,
    ) -> Server:
        """The server of a kubeconfig, or of the pod that this runs in.

        Args:
            namespace: without one, the context's or the pod's own.
            kubeconfig: a path, or several with `:` between; without one KUBECONFIG's, then ~/.kube/config.
            context: a name in the kubeconfig; without one, the current.
            timing: intervals and deadlines of all that is asked through it.

        Raises:
            KubeClusterError: there is no kubeconfig and no pod, no such context, there are no credentials, or nothing
                answers within 10 s (30 s where something takes the connection).
        """
        timing = timing or Timing()
        access = Access(kubeconfig, context)
        choice = access.choice()

        async def read() -> Credentials:
            return await credentials.read(access.choice(), timing)  # the files may have changed

        at = f" of context {choice.context!r}" if choice else ""
        try:
            session = await Session.open(read, timing)
        except (httpx.InvalidURL, ValueError) as error:
            raise KubeClusterError(
                f"the server or proxy-url{at} is no URL", reason=str(error), next_step="Correct the kubeconfig"
            ) from error
        except ImportError as error:  # httpx says it of a SOCKS proxy, in the kubeconfig or the environment
            raise KubeClusterError(
                f"the proxy to the API server{at} cannot be used", reason=str(error), next_step="Or name an http proxy"
            ) from error
        server = cls(session, namespace or (choice.namespace if choice else pod_namespace() or "default"))
        try:
            await server.version()
        except KubeClusterError as error:
            if error.status == FORBIDDEN:  # it answers; what else is allowed will be seen
                return server
            raise KubeClusterError(
                f"cannot reach the API server{at}",
                reason=error.reason,
                next_step=error.next_step,
                status=error.status,
                unanswered=error.unanswered,
            ) from error
        return server

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
        watch_seconds = self.timing.watch_seconds
        params = {"watch": "true", "timeoutSeconds": f"{watch_seconds:.0f}", "resourceVersion": since}
        if name:
            params["fieldSelector"] = f"metadata.name={name}"
        # The server ends a watch by itself; when it does not, the network between went away without a word.
        silence = watch_seconds + self.timing.answer_seconds
        read = self.lines("watch", PLURAL, namespace=namespace, params=params, silence_seconds=silence)
        async with aclosing(read) as lines:
            async for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":  # 410: the version is too old
                    return
                yield event["type"], event["object"]
