"""A Kubernetes as the doctor reads it: what it holds, well or with a fault."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from gpudask.api import Json, crd
from gpudask.cli.doctor.checks import judge
from gpudask.cli.doctor.facts import Facts, Finding, Level
from tests.builders import a_manifest, a_pool

VERSION = "0.1.0"
MIRROR_ON = {"name": "GPUDASK_MIRROR", "value": "true"}
OURS = {kind: ["gpudask"] for kind in ("DaskCluster", "DaskWorkerGroup", "DaskAutoscaler", "DaskJob")}
STOCK: dict[str, list[str]] = {kind: [] for kind in (*OURS, "DaskJob")}


def a_node(
    name: str, *, labelled: bool = True, gpus: int = 1, taint: str = "", room: Json | None = None, **labels: str
) -> Json:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    present = {"nvidia.com/gpu.present": "true"} if labelled else {}
    there = {"cpu": "8", "memory": "32Gi", "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    status = {"capacity": there | (room or {}), "allocatable": there | (room or {})}
    return {"metadata": {"name": name, "labels": present | labels}, "spec": {"taints": taints}, "status": status}


def left(node: Json, **allocatable: str) -> Json:
    """`node`, of whose GPUs only so many can be used."""
    usable = node["status"]["allocatable"] | {"nvidia.com/gpu": allocatable["gpus"]}
    return node | {"status": node["status"] | {"allocatable": usable}}


def away(node: Json) -> Json:
    """`node`, whose kubelet no longer answers."""
    return node | {"status": {"capacity": {}, "conditions": [{"type": "Ready", "status": "Unknown"}]}}


def a_deployment(
    name: str = "gpudask",
    version: str = VERSION,
    *,
    ready: int = 1,
    replicas: int = 1,
    namespaces: str = "",
    mirror: bool = False,
    history: bool = False,
    conditions: list[Json] | None = None,
) -> Json:
    labels = {"app.kubernetes.io/name": "gpudask", "app.kubernetes.io/component": "operator"}
    labels |= {"app.kubernetes.io/instance": name} | ({"app.kubernetes.io/version": version} if version else {})
    env = [{"name": "GPUDASK_WATCH_NAMESPACES", "value": namespaces}, *([MIRROR_ON] if mirror else [])]
    env += [{"name": "GPUDASK_HISTORY", "value": '{"enabled": true}'}] if history else []
    template = {"metadata": {"labels": labels}, "spec": {"serviceAccountName": name, "containers": [{"env": env}]}}
    metadata = {"name": name, "namespace": "system", "labels": labels}
    status = {"readyReplicas": ready, "conditions": conditions or []}
    return {"metadata": metadata, "spec": {"replicas": replicas, "template": template}, "status": status}


def a_stock_deployment(*, labelled: bool = True) -> Json:
    labels = {"app.kubernetes.io/name": "dask-kubernetes-operator"} if labelled else {}
    template = {"spec": {"containers": [{"image": "ghcr.io/dask/dask-kubernetes-operator:2026.3.0"}]}}
    return {
        "metadata": {"name": "their-operator", "namespace": "dask", "labels": labels},
        "spec": {"replicas": 1, "template": template},
    }


def an_operator_pod(waiting: Json, last: str = "") -> Json:
    state = {"state": {"waiting": waiting}, "lastState": {"terminated": {"message": last}} if last else {}}
    metadata = {"name": "gpudask-1", "namespace": "system", "labels": a_deployment()["metadata"]["labels"]}
    return {"metadata": metadata, "status": {"phase": "Pending", "containerStatuses": [state]}}


@cache
def _definition() -> Json:
    """Made once: it takes long."""
    return crd.render()


def a_definition() -> Json:
    return copy.deepcopy(_definition()) | {"status": {"conditions": [{"type": "Established", "status": "True"}]}}


def a_body(*pools: Json, status: Json | None = None, **spec: Any) -> Json:
    body = a_manifest(*pools, **spec)
    body["metadata"] |= {"namespace": "lab", "uid": "uid", "generation": 2}
    return body | {"status": {"observedGeneration": 2} if status is None else status}


def well(**changes: Any) -> Facts:
    """A Kubernetes as it should be."""
    facts: Json = {
        "version": {"gitVersion": "v1.36.3", "minor": "36"},
        "namespace": "lab",
        "user": "alice",
        "crd": a_definition(),
        "served": True,
        "records_served": True,
        "dask_kinds": {},
        "deployments": [a_deployment()],
        "operator_pods": [],
        "daemon_sets": [],
        "nodes": [a_node("n1"), a_node("n2", labelled=False, gpus=0)],
        "clusters": [a_body(a_pool("cpu"), a_pool("gpu", gpu={"count": 1}))],
        "may_not": [],
        "operator_may_not": [],
    }
    return Facts(**(facts | changes))


def found(facts: Facts) -> list[tuple[str, Level, str]]:
    return [(item.check, item.level, item.text) for item in judge(facts, VERSION) if item.level != Level.OK]


def only_fault(facts: Facts) -> Finding:
    """The one finding that is not good."""
    (fault,) = [item for item in judge(facts, VERSION) if item.level != Level.OK]
    return fault
