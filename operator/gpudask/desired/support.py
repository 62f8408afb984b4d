"""The objects of one cluster beside its pods: the Services, and the ConfigMap with what its preload is told."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gpudask.api import addresses
from gpudask.api.reserved import without_reserved
from gpudask.api.resource import LABEL_DASK_COMPONENT, LABEL_SCHEDULER, LABEL_SERVES, Cluster
from gpudask.api.stock import COMM_PORT, DASHBOARD_PORT
from gpudask.desired import names, pod
from gpudask.desired.scheduler import POOLS_KEY, TOKEN_DIGEST_KEY

Json = dict[str, Any]


def services(cluster: Cluster, scheduler: str = "") -> list[Json]:
    """The Services by which workers and clients find the scheduler pod: one, and a headless one where it takes that.

    They publish addresses that are not ready: workers connect as soon as the scheduler listens, without
    waiting for a probe. Because Kubernetes then publishes ending pods too, the operator takes its label off a pod that
    ends: a predecessor on a lost node would get half of the connections. The selectors stay the same for all of a
    cluster's life: the stock client's port-forward reads one once, and finds the successor by it.

    Args:
        cluster: whose they are. A cluster deleted and applied again under its name has another uid, and other Services.
        scheduler: the one pod that they name instead, made by a version that did not put the label on; empty: none.
    """
    chosen = {LABEL_SCHEDULER: scheduler} if scheduler else {LABEL_SERVES: cluster.uid}
    exposed = cluster.spec.scheduler.service
    annotations = without_reserved(exposed.annotations)
    annotated = {"annotations": annotations} if annotations else {}
    made = [_service(cluster, addresses.service(cluster.name), chosen, {"type": exposed.type}, annotated)]
    if addresses.needs_headless(cluster.spec.protocol):
        made.append(_service(cluster, addresses.headless_service(cluster.name), chosen, {"clusterIP": "None"}))
    return made


def _service(cluster: Cluster, name: str, chosen: Json, kind: Json, more_metadata: Json | None = None) -> Json:
    ports = [("tcp-comm", COMM_PORT), ("http-dashboard", DASHBOARD_PORT)]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": pod.metadata(cluster, name, "scheduler") | (more_metadata or {}),
        "spec": {
            **kind,
            "publishNotReadyAddresses": True,
            "selector": {LABEL_DASK_COMPONENT: "scheduler", **chosen},
            "ports": [{"name": n, "port": p, "targetPort": n, "protocol": "TCP"} for n, p in ports],
        },
    }


def fence(cluster: Cluster) -> dict[str, Json]:
    """Which pools take plain tasks and which have GPUs, in the preload's words (docs/preload-protocol.md)."""
    return {
        pool.name: {"accepts": cluster.spec.accepts(pool), "gpu": pool.gpu is not None} for pool in cluster.spec.pools
    }


def told(cluster: Cluster, token: str) -> Json:
    """The ConfigMap with what the preload of this cluster is told: its pools, and its token's SHA-256, no secret."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": pod.metadata(cluster, names.token(cluster.name), "scheduler"),
        "data": {
            TOKEN_DIGEST_KEY: hashlib.sha256(token.encode()).hexdigest(),
            POOLS_KEY: json.dumps(fence(cluster), sort_keys=True),
        },
    }
