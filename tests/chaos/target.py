"""The target of a run: the platform, a namespace, the way of its pods to the API server, and who was hit."""

from __future__ import annotations

from gpudask.api import Json

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeVar
from urllib.parse import quote

from gpudask.api.resource import API_VERSION, PLURAL, RECORD_PLURAL
from local.clusters.cluster import Cluster
from local.errors import LocalClusterError
from local.control_plane.kube_api import KubeApi
from local.operator.release import NAMESPACE as OPERATORS
from tests.chaos import processes
from tests.chaos.audit import Hit
from tests.chaos.proxy import Proxy
from tests.e2e.platform import Platform
from tests.kubectl import Kubectl

T = TypeVar("T")

CHAIN = "KUBE-CHAOS"  # `python -m local down` removes all chains that begin so
OBJECTS = "gpudask-chaos"  # the name of each object without a namespace that a fault makes
ADMISSION = (
    "validatingwebhookconfiguration",
    "validatingadmissionpolicybinding",
    "validatingadmissionpolicy",
)
_POD_RANGE, _SERVICE = "10.244.0.0/16", "10.96.0.1"
_OPERATOR = "app.kubernetes.io/name=gpudask"
_UNDO_SECONDS = 120.0


class NoVictimError(Exception):
    """There is nothing now that the fault could hit."""


@dataclass
class Target:
    """`hits`: the schedulers that faults ended. `troubles`: what could not be undone. Times are `time.monotonic`'s."""

    platform: Platform
    namespace: str
    proxy: Proxy
    hits: list[Hit] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)
    _calms: int = 0
    _waiting: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    @contextmanager
    def set_up(cls, seed: int, platform: Platform | None = None) -> Iterator[Target]:
        """The platform, or one with this checkout's operator, and a namespace that goes afterwards."""
        mend(Cluster.find() if _is_there() else None)
        platform = platform or Platform.up()
        namespace = f"chaos-{os.getpid()}"
        try:
            with Proxy.listening(platform.cluster, seed) as proxy:
                target = cls(platform, namespace, proxy)
                # Workers mount the steps by hostPath, which is of no stricter level.
                platform.create_namespace(namespace, pod_security="privileged")
                try:
                    _redirect(proxy.port, platform.cluster.control_plane.endpoints.address)
                    renew_operators(platform)
                    yield target
                finally:
                    mend(platform.cluster)
                    platform.kubectl.attempt("delete", "namespace", namespace, "--wait=false")
        finally:
            renew_operators(platform)  # who comes next shall not meet what became of them, nor wait for a kubelet

    @property
    def cluster(self) -> Cluster:
        """The local cluster."""
        return self.platform.cluster

    @property
    def api(self) -> KubeApi:
        """The API server, past the proxy."""
        return self.cluster.api

    @property
    def kubectl(self) -> Kubectl:
        """kubectl in the run's namespace."""
        return self.platform.kubectl.inside(self.namespace)

    def do(self, *arguments: str, stdin: str | None = None, seconds: int = 15) -> str:
        """kubectl in the run's namespace; an API server that does not answer is given up.

        Raises:
            AssertionError: it failed.
        """
        return self.kubectl(*arguments, f"--request-timeout={seconds}s", stdin=stdin).stdout

    def apply(self, *manifests: Json) -> None:
        """Create or change objects."""
        self.do("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}))

    def pods(self, selector: str = "", namespace: str = "") -> list[Json]:
        """Pods of the run, or of another namespace, in the order of their names."""
        query = f"?labelSelector={quote(selector)}" if selector else ""
        listed = self.api.get(f"/api/v1/namespaces/{namespace or self.namespace}/pods{query}")
        return sorted((listed or {}).get("items", ()), key=lambda pod: str(pod["metadata"]["name"]))

    def clusters(self) -> list[Json]:
        """The GpuDaskClusters of the run."""
        listed = self.api.get(f"/apis/{API_VERSION}/namespaces/{self.namespace}/{PLURAL}")
        return list((listed or {}).get("items", ()))

    def records(self) -> list[Json]:
        """What the GpuDaskRecords of the run say."""
        listed = self.api.get(f"/apis/{API_VERSION}/namespaces/{self.namespace}/{RECORD_PLURAL}")
        return [each.get("record", {}) for each in (listed or {}).get("items", ())]

    def describe(self, cluster: str) -> str:
        """What the API server says of a cluster and its pods, in a few lines."""
        try:
            body = json.loads(self.do("get", "gdc", cluster, "-o", "json"))
            pods = self.pods(f"gpudask.dev/cluster={cluster}")
        except (OSError, ValueError, subprocess.SubprocessError, LocalClusterError) as error:
            return f"  {cluster} cannot be read: {error}"
        status = body.get("status", {})
        lines = [f"{each['type']}={each['status']} {each.get('message', '')}" for each in status.get("conditions", ())]
        lines += [json.dumps(pool) for pool in status.get("pools", ())]
        lines += [
            f"{pod['metadata']['name']} {pod['status'].get('phase')} on {pod['spec'].get('nodeName')}"
            f" since {pod['metadata']['creationTimestamp']} {pod['metadata'].get('deletionTimestamp', '')}"
            for pod in pods
        ]
        return "\n".join(f"  {line}" for line in lines)

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Let no new fault begin until the block ends."""
        with self._waiting:
            self._calms += 1
        try:
            yield
        finally:
            with self._waiting:
                self._calms -= 1

    @property
    def is_calm(self) -> bool:
        """Whether no new fault may begin."""
        return self._calms > 0

    def running(self, selector: str, namespace: str = "") -> list[Json]:
        """Pods that run, and that nobody asked to end."""
        return [
            pod
            for pod in self.pods(selector, namespace)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def workers(self, selector: str = "gpudask.dev/pool") -> list[Json]:
        """Worker pods that run."""
        return self.running(selector)

    def schedulers(self) -> list[Json]:
        """Scheduler pods that run."""
        return self.running("dask.org/component=scheduler")

    def operators(self) -> list[Json]:
        """The operator's pods that run."""
        return self.running(_OPERATOR, OPERATORS)

    def leader(self) -> Json:
        """The operator's pod that holds the Lease.

        Raises:
            NoVictimError: nobody does.
        """
        lease = self.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{OPERATORS}/leases/gpudask") or {}
        holder = str(lease.get("spec", {}).get("holderIdentity", ""))
        for pod in self.operators():
            if holder == f"{pod['metadata']['name']}_{pod['metadata']['uid']}":
                return pod
        raise NoVictimError(f"no operator leads: the Lease names {holder!r}")

    def remove(self, pods: list[Json], namespace: str, *, grace_seconds: int | None = None) -> None:
        """Delete pods, and do not wait."""
        grace = (
            [] if grace_seconds is None else [f"--grace-period={grace_seconds}", *(["--force"] * (not grace_seconds))]
        )
        names = [pod["metadata"]["name"] for pod in pods]
        self.platform.kubectl.inside(namespace)(
            "delete", "pod", *names, "--wait=false", "--ignore-not-found", "--request-timeout=15s", *grace
        )

    def hit(self, pod: Json, seconds: float = 0.0) -> None:
        """Note that a fault ends this scheduler, within so many seconds: what it knew is lost with it."""
        self.hits.append(Hit(pod["metadata"]["labels"]["gpudask.dev/cluster"], time.monotonic(), seconds))

    def undo(self, what: str, action: Callable[[], object]) -> None:
        """Try to undo a fault until that succeeds: the API server may be away just now."""
        deadline = time.monotonic() + _UNDO_SECONDS
        while True:
            try:
                action()
            except (AssertionError, LocalClusterError, OSError, subprocess.SubprocessError) as error:
                if time.monotonic() > deadline:
                    self.troubles.append(f"{what} could not be undone: {error}")
                    return
                time.sleep(1)
            else:
                return


def chosen(victims: list[T], pick: float) -> T:
    """One of them; `pick` is from 0 to 1.

    Raises:
        NoVictimError: there is none.
    """
    if not victims:
        raise NoVictimError("nothing is there that it could hit")
    return victims[min(int(pick * len(victims)), len(victims) - 1)]


def renew_operators(platform: Platform) -> None:
    """Have other pods of both operators, ready."""
    operators = platform.kubectl.inside(OPERATORS)
    operators("delete", "pod", "-l", _OPERATOR, "--grace-period=1", "--timeout=60s")
    operators("rollout", "status", "deployment/gpudask", "--timeout=120s")


def mend(cluster: Cluster | None) -> None:
    """Undo what faults do to the machine and to what has no namespace, whoever left it: a run may have been killed."""
    _remove_chains()
    for link in json.loads(_run("ip", "-json", "link")):
        if link["ifname"].startswith("veth") and "UP" not in link["flags"]:
            _run("ip", "link", "set", link["ifname"], "up")
    if cluster is None:
        return
    processes.thaw(cluster)
    if cluster.api.blocker() is None:
        # It was seen to count the GPU of a pod for ever that was deleted while the API server was slow to bind it.
        cluster.processes.restart("kube-scheduler")
        kubectl = Kubectl(str(cluster.kubectl), cluster.kubeconfig)
        for kind in ADMISSION:
            kubectl.attempt("delete", kind, OBJECTS, "--ignore-not-found", "--request-timeout=15s")
        for spec in cluster.settings.specs:
            kubectl.attempt("uncordon", spec.name, "--request-timeout=15s")


def iptables(table: Literal["nat", "mangle"], *arguments: str, check: bool = True) -> bool:
    """Run it; whether it succeeded.

    Not in `filter`: kube-router reads that table and writes it back as a whole, without what was added in between, and
    with what was removed.
    """
    command = ["iptables", "-w", "-t", table, *arguments]
    return subprocess.run(command, capture_output=True, check=check).returncode == 0


def _redirect(port: int, address: str) -> None:
    """Lead what pods ask of the API server's Service to the proxy, before kube-proxy's rules see it."""
    iptables("nat", "-N", CHAIN)
    iptables("nat", "-I", "PREROUTING", "-j", CHAIN)
    to = ["-j", "DNAT", "--to-destination", f"{address}:{port}"]
    iptables("nat", "-A", CHAIN, "-p", "tcp", "-s", _POD_RANGE, "-d", _SERVICE, "--dport", "443", *to)
    iptables("mangle", "-N", CHAIN)
    iptables("mangle", "-I", "FORWARD", "-j", CHAIN)


def _remove_chains() -> None:
    hooks: tuple[tuple[Literal["nat", "mangle"], str], ...] = (("nat", "PREROUTING"), ("mangle", "FORWARD"))
    for table, hook in hooks:
        while iptables(table, "-D", hook, "-j", CHAIN, check=False):
            pass
        if iptables(table, "-F", CHAIN, check=False):
            iptables(table, "-X", CHAIN)


def _is_there() -> bool:
    try:
        Cluster.find()
    except LocalClusterError:
        return False
    return True


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
