"""A real cluster, and the operator on it as the chart installs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from local.clusters.cluster import Cluster
from local.operator.release import NAMESPACE
from tests.e2e.provider import Provider, chosen
from tests.eventually import eventually
from tests.kubectl import Kubectl

_OPERATOR = "app.kubernetes.io/name=gpudask"


@dataclass(frozen=True)
class Platform:
    """kubectl as administrator, and how to handle the operator."""

    provider: Provider
    operator_image: str

    @classmethod
    def up(cls) -> Platform:
        """The cluster with the operator: the local one's is of this checkout."""
        provider = chosen()
        return cls(provider, provider.start())

    @property
    def kubectl(self) -> Kubectl:
        """kubectl as administrator."""
        return self.provider.kubectl

    @property
    def cluster(self) -> Cluster:
        """The local cluster, for tests with the mark `local_cluster`."""
        return self.provider.cluster

    def install(self, *settings: str, image: str = "") -> None:
        """`helm upgrade --install`, with more values if given, and perhaps another version's image.

        Helm waits until the new operators are ready. The old ones end then: until they are gone, they may still act.
        """
        self.provider.install(image or self.operator_image, *settings)
        templates = lambda: {pod["metadata"]["labels"]["pod-template-hash"] for pod in self.operator_pods()}  # noqa: E731
        eventually(lambda: len(templates()) <= 1, "no operator of the earlier release is left")

    def create_namespace(self, name: str, *, pod_security: str = "restricted") -> None:
        """Make a namespace where Pod Security enforces a level: pods that violate it are refused."""
        labels = {"pod-security.kubernetes.io/enforce": pod_security}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.kubectl("create", "-f", "-", stdin=json.dumps(body))

    def scale_operator(self, replicas: int) -> int:
        """Take the operators away (0) or bring so many back. How many there should be until now: for others, later."""
        deployment = self.provider.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/gpudask")
        assert deployment is not None, "the operator is not installed"
        operator = self.kubectl.inside(NAMESPACE)
        operator("scale", "deployment/gpudask", f"--replicas={replicas}")
        if replicas:
            operator("rollout", "status", "deployment/gpudask", "--timeout=60s")
        else:
            eventually(lambda: not self.operator_pods(), "the operator's pod is gone")
        return int(deployment["spec"]["replicas"])

    def kill_operator(self) -> None:
        """End the operator's process as a crash would: without a word, in the middle of whatever it does."""
        for pod in self.operator_pods():
            self.kill(pod)

    def replace_operator(self) -> None:
        """End the operators' processes so, and let other pods take their place: a kubelet waits before it restarts."""
        pods = eventually(self._ready_operator, "the operator runs")
        operator = self.kubectl.inside(NAMESPACE)
        for pod in pods:
            self.kill(pod)
            operator("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
        eventually(lambda: _uids(self.operator_pods()) - _uids(pods), "another operator pod takes its place")

    def delete_operator(self) -> set[str]:
        """Delete the operator's pod, wait until it is gone, and return its uid: what is done then, another does."""
        deleted = _uids(eventually(self._ready_operator, "the operator runs"))
        self.kubectl.inside(NAMESPACE)("delete", "pod", "-l", _OPERATOR, "--wait=true", "--timeout=60s")
        return deleted

    def await_operator(self, *, after: set[str]) -> None:
        """Wait until an operator pod is ready, and assert that it is none of those with these uids."""
        ready = _uids(eventually(self._ready_operator, "an operator runs"))
        assert not ready & after, f"the operator pod that was deleted is still there: {ready}"

    def kill(self, pod: dict[str, Any], container: str = "") -> None:
        """End a container's process, the pod's first unless named, as a crash would; the kubelet starts another."""
        os.kill(self._process(pod, container), signal.SIGKILL)

    def operator_pods(self) -> list[dict[str, Any]]:
        """The operator's pods."""
        listed = self.provider.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={quote(_OPERATOR)}")
        assert listed is not None, "the API server knows no pods"
        return list(listed["items"])

    def operator_log(self) -> str:
        """The end of the operators' logs."""
        return self.kubectl.inside(NAMESPACE).attempt("logs", "-l", _OPERATOR, "--prefix", "--tail=150").stdout

    def _ready_operator(self) -> list[dict[str, Any]]:
        """The operator's pods that run and are ready."""
        pods = [(pod, pod["status"].get("containerStatuses", ())) for pod in self.operator_pods()]
        return [pod for pod, containers in pods if containers and all(each["ready"] for each in containers)]

    def _process(self, pod: dict[str, Any], container: str) -> int:
        """The process id, on this machine, of a running container of `pod`."""
        statuses = pod["status"]["containerStatuses"]
        status = next(status for status in statuses if container in ("", status["name"]))
        identity = status["containerID"].removeprefix("containerd://")
        node = self.cluster.layout.node(pod["spec"]["nodeName"])
        listed = subprocess.run(
            ["ctr", "--address", str(node.socket), "--namespace", "k8s.io", "tasks", "list"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return next(int(line.split()[1]) for line in listed.splitlines() if line.startswith(identity))


def _uids(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}
