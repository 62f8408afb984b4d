"""Checks of pools against nodes: the very pods that the operator would make are held to them. Pure."""

from __future__ import annotations

from typing import Any

from gpudask.api.resource import Cluster, InvalidSpecError, parse
from gpudask.api.values import number
from gpudask.cli.doctor import gpus
from gpudask.cli.doctor.facts import Facts
from gpudask.cli.doctor.findings import Finding, Level
from gpudask.desired.workers import worker_pod

Json = dict[str, Any]
_BLOCKING = ("NoSchedule", "NoExecute")


def pools(facts: Facts) -> list[Finding]:
    """Each pool of each cluster: whether any node could take its pods."""
    if not facts.nodes or not facts.clusters:
        return []
    findings = []
    for body in facts.clusters:
        name = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
        try:
            cluster = parse(body)
        except InvalidSpecError as error:
            mend = f"correct it: kubectl edit gdc {body['metadata']['name']} -n {body['metadata']['namespace']}"
            findings.append(Finding(f"cluster {name}", Level.PROBLEM, str(error), mend))
            continue
        for pool in cluster.spec.pools:
            findings += _pool(cluster, pool.name, facts.nodes)
    if not findings:
        findings.append(Finding("pools", Level.OK, "for each pool there is a node that could take its pods"))
    return findings


def _pool(cluster: Cluster, name: str, there: list[Json]) -> list[Finding]:
    pool = next(item for item in cluster.spec.pools if item.name == name)
    check = f"pool {cluster.key} {name}"
    try:
        spec = worker_pod(cluster, pool, 0, "xxxxx")["spec"]
    except ValueError as error:
        return [Finding(check, Level.PROBLEM, f"its template cannot be merged: {error}", "correct the template")]
    selector = spec.get("nodeSelector") or {}
    matching = [node for node in there if selector.items() <= gpus.labels(node).items()]
    if not matching:
        wanted = ", ".join(f"{key}={value}" for key, value in selector.items())
        mend = "label the nodes (kubectl label node NAME KEY=VALUE), or set gpu.nodeSelector or the template's"
        return [
            Finding(
                check, Level.WARNING, f"no node has the labels {wanted}", f"{mend}; an autoscaler may add such nodes"
            )
        ]
    tolerated = [node for node in matching if not _blockers(node, spec.get("tolerations") or [])]
    if not tolerated:
        taints = ", ".join(
            sorted({taint for node in matching for taint in _blockers(node, spec.get("tolerations") or [])})
        )
        mend = "add tolerations: template: {spec: {tolerations: [...]}}"
        return [Finding(check, Level.WARNING, f"all its nodes have taints that it does not tolerate: {taints}", mend)]
    if pool.gpu is not None:
        most = max(number(gpus.allocatable(node).get(pool.gpu.resource_name, 0)) for node in tolerated)
        if most < pool.gpu.count:
            text = f"a pod wants {pool.gpu.count} of {pool.gpu.resource_name}, no node of it offers more than {most:g}"
            return [
                Finding(check, Level.WARNING, text, "lower gpu.count, correct gpu.resourceName, or add larger nodes")
            ]
    return []


def _blockers(node: Json, tolerations: list[Json]) -> list[str]:
    """The taints of a node that keep a pod with these tolerations away."""
    taints = [item for item in (node.get("spec") or {}).get("taints") or [] if item.get("effect") in _BLOCKING]
    return [gpus.taint(item) for item in taints if not any(_tolerates(toleration, item) for toleration in tolerations)]


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
