"""Disruptions: eviction protection, and the termination of pods (docs/adr/0017-termination.md).

A PodDisruptionBudget protects the scheduler pod, which holds what cannot be moved, and nothing else. Workers need none:
what evicts one waits for its drain. Annotations ask node autoscalers to leave a pod alone, or say that it may go:
Karpenter: https://karpenter.sh/docs/concepts/disruption/#pod-level-controls
Cluster Autoscaler: https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
Which of them a pod has is decided in `planning.eviction`.

Whoever ends a worker pod, a node drain, a spot notice, `kubectl delete`: before SIGTERM a hook in the container tells
the scheduler's preload that the pod goes, and waits until its workers are drained, at most until the grace period is
nearly over.

A scheduler goes on for three seconds, in which its Service comes to lead nowhere (planning/scheduler.py). Clients and
workers whose connection ends dial the Service again at once. Were the pod gone before the nodes know it, they would
dial an address that nobody has, where nothing answers and nothing refuses: Dask's client then waits out its 30 seconds,
and gives up for good.
"""

from __future__ import annotations

from gpudask.api import Json, addresses
from gpudask.api.addresses import DASHBOARD_PORT
from gpudask.api.pool import Pool
from gpudask.api.resource import LABEL_CLUSTER, LABEL_DASK_COMPONENT, Cluster
from gpudask.api.spec import Spec
from gpudask.desired.pod import MAIN_CONTAINER, metadata

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
EVICTION_ANNOTATIONS = (DO_NOT_DISRUPT, SAFE_TO_EVICT)
# As Kubernetes has it by default: a worker that hangs at its end holds its GPU that long. A template can raise it.
GRACE_SECONDS = 30
# Of the grace, for the worker itself: it takes leave of the scheduler after SIGTERM.
_CLOSE_SECONDS = 10
_SHORTEST_SECONDS = 5
# Longer than it takes until no node sends anything there any more: the operator's pass, the Service's endpoints, and
# kube-proxy, which acts once a second at most.
_LINGER_SECONDS = 3

# Standard library only, and little of it: it must start in a blink, in any image that has Dask. Whatever goes wrong, a
# scheduler that is gone above all, lets the pod end. The keepalive notices a scheduler whose node is lost.
SCRIPT = """\
import socket as s, sys
host, port, path, seconds = sys.argv[1:]
try:
    c = s.create_connection((host, int(port)), 2)
    c.setsockopt(s.SOL_SOCKET, s.SO_KEEPALIVE, 1)
    for option in (s.TCP_KEEPIDLE, s.TCP_KEEPINTVL):
        c.setsockopt(s.IPPROTO_TCP, option, 10)
    c.setsockopt(s.IPPROTO_TCP, s.TCP_KEEPCNT, 3)
    c.settimeout(float(seconds))
    c.sendall(f"POST {path} HTTP/1.0\\r\\nHost: {host}\\r\\nContent-Length: 0\\r\\n\\r\\n".encode())
    while c.recv(4096):
        pass
except OSError:
    pass
"""


def budget(cluster: Cluster, *, is_protected: bool) -> Json:
    """The PodDisruptionBudget of a cluster; not `is_protected`, it lets the scheduler be evicted.

    The number is a whole one because the pods' owner has no scale subresource, and a scheduler that is not ready may
    always be evicted: https://kubernetes.io/docs/tasks/run-application/configure-pdb/
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(cluster, addresses.service(cluster.name), "scheduler"),
        "spec": {
            "minAvailable": 1 if is_protected else 0,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {LABEL_CLUSTER: cluster.name, LABEL_DASK_COMPONENT: "scheduler"}},
        },
    }


def eviction_protection(spec: Spec, pool: Pool | None, *, is_protected: bool) -> dict[str, str]:
    """The annotations by which a pod of `pool`, None: the scheduler, asks node autoscalers to leave it alone.

    Not `is_protected`, they say that it may go. Those that a template sets stay as they are there.
    """
    ours = {DO_NOT_DISRUPT: str(is_protected).lower(), SAFE_TO_EVICT: str(not is_protected).lower()}
    theirs = spec.template.metadata.annotations | (pool or spec.scheduler).template.metadata.annotations
    return {name: value for name, value in ours.items() if name not in theirs}


def with_drain_hook(pod: Json, host: str, dask_name: str) -> Json:
    """`pod`, complete but for this, with a preStop hook that waits for the drain of the workers called `dask_name`.

    A hook of the user's own stays. With a grace period of a few seconds there is no time to wait.
    """
    grace_seconds = _grace_seconds(pod)
    wait_seconds = max(grace_seconds - _CLOSE_SECONDS, grace_seconds / 2)
    path = f"/gpudask/v1/leaving?pod={dask_name}"
    return _with_hook(pod, [SCRIPT, host, str(DASHBOARD_PORT), path, f"{wait_seconds:g}"])


def with_shutdown_delay(pod: Json) -> Json:
    """A scheduler pod, complete but for this, with a preStop hook that delays its end for a moment. Else as above."""
    return _with_hook(pod, [f"import time; time.sleep({_LINGER_SECONDS})"])


def _with_hook(pod: Json, script: list[str]) -> Json:
    container: Json = next((c for c in pod["spec"].get("containers", ()) if c["name"] == MAIN_CONTAINER), {})
    own = container.get("lifecycle") or {}
    if not container or not isinstance(own, dict) or own.get("preStop") or _grace_seconds(pod) < _SHORTEST_SECONDS:
        return pod
    container["lifecycle"] = own | {"preStop": {"exec": {"command": ["python3", "-IS", "-c", *script]}}}
    return pod


def _grace_seconds(pod: Json) -> int:
    """The grace period, Kubernetes' default where the pod has none; 0 for what is no number, which is refused."""
    seconds = pod["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
    return seconds if isinstance(seconds, int) else 0
