"""Which API server a program means: a kubeconfig's, or that of the pod it runs in. As kubectl decides it.

A kubeconfig goes before the pod: a notebook in one Kubernetes may well work with another.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpudask.kubecluster import kubeconfig
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kubeconfig import Choice

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_OWN_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


@dataclass(frozen=True)
class Access:
    """What a program said of where to go.

    Attributes:
        kubeconfig: a path, or several with `:` between; without one KUBECONFIG's, then ~/.kube/config.
        context: a name in the kubeconfig; without one, the current.
    """

    kubeconfig: str | None = None
    context: str | None = None

    def choice(self) -> Choice | None:
        """What of the kubeconfig is in force, its files read now; None: the pod's own service account is.

        Raises:
            KubeClusterError: a file is missing or is none, there is no such context, or there is nothing at all.
        """
        config = kubeconfig.load(self.kubeconfig, os.environ)
        if config is not None:
            return kubeconfig.choose(config, self.context)
        if self.context:
            raise KubeClusterError(
                f"there is no kubeconfig, so there is no context {self.context!r}",
                reason="KUBECONFIG is not set, and there is no ~/.kube/config",
                next_step="Name the file: KUBECONFIG, --kubeconfig or kubeconfig=",
            )
        if _HOST not in os.environ:
            raise KubeClusterError(
                "there is no Kubernetes to connect to",
                reason="KUBECONFIG is not set, there is no ~/.kube/config, and this is no pod",
                next_step="Ask for a kubeconfig, or have your cloud's tool write it (such as `aws eks"
                " update-kubeconfig`), and name it: KUBECONFIG, --kubeconfig or kubeconfig=",
            )
        return None

    def is_inside(self) -> bool:
        """Whether this program is a pod of that very Kubernetes: then Services' names lead to their pods.

        Raises:
            KubeClusterError: as `choice`.
        """
        if _HOST not in os.environ:
            return False
        choice = self.choice()
        return choice is None or _is_own(str(choice.cluster.get("server", "")))


def pod_namespace() -> str:
    """The namespace of the pod that this runs in, empty where nothing says it."""
    # kr8s means to read it, but its fallback "default" comes first.
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else ""


def _is_own(server: str) -> bool:
    url = urlsplit(server)
    port = str(url.port or (80 if url.scheme == "http" else 443))
    return url.hostname in _OWN_NAMES or (url.hostname, port) == (os.environ[_HOST], os.environ.get(_PORT, "443"))
