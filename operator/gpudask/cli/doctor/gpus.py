"""Checks of GPU nodes, and of pools against nodes: the very pods that the operator would make are held to them."""

from __future__ import annotations

from typing import Any

from gpudask.api.pool import DEFAULT_GPU_RESOURCE
from gpudask.api.resource import Cluster, InvalidSpecError, parse
from gpudask.api.values import number
from gpudask.cli.doctor.facts import Facts
from gpudask.cli.doctor.findings import Finding, Level
from gpudask.desired.workers import worker_pod

Json = dict[str, Any]
_PRESENT = "nvidia.com/gpu.present"
_PLUGIN = "device-plugin"
_BLOCKING = ("NoSchedule", "NoExecute")


def nodes(facts: Facts) -> list[Finding]:
    """GPU nodes: their labels, their taints, and what the device plugin offers."""
    if facts.nodes is None:
        reason = facts.refused.get("nodes", "they were not read")
        return [
            Finding("GPU nodes", Level.UNKNOWN, f"could not be looked at: {reason}", "ask for the right to list nodes")
        ]
    labelled = [node for node in facts.nodes if _labels(node).get(_PRESENT) == "true"]
    offering = [node for node in facts.nodes if _offered(node)]
    if not labelled and not offering:
        wanted = any(pool.get("gpu") is not None for body in facts.clusters or [] for pool in body["spec"]["pools"])
        mend = (
            "add GPU nodes with NVIDIA's device plugin; where an autoscaler adds them on demand this is as it should be"
        )
        return [
            Finding("GPU nodes", Level.WARNING if wanted else Level.OK, "no node has GPUs now", mend if wanted else "")
        ]
    findings = [_silent(node, facts) for node in labelled if not _offered(node)]
    findings += [_unlabelled(node) for node in offering if node not in labelled]
    findings += [Finding("GPU nodes", Level.OK, _told(node)) for node in labelled if _offered(node)]
    return findings


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
            findings.append(
                Finding(f"cluster {name}", Level.PROBLEM, str(error), f"correct it: kubectl edit gdc {name}")
            )
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
    matching = [node for node in there if selector.items() <= _labels(node).items()]
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
        most = max(number(_allocatable(node).get(pool.gpu.resource_name, 0)) for node in tolerated)
        if most < pool.gpu.count:
            text = f"a pod wants {pool.gpu.count} of {pool.gpu.resource_name}, no node of it offers more than {most:g}"
            return [
                Finding(check, Level.WARNING, text, "lower gpu.count, correct gpu.resourceName, or add larger nodes")
            ]
    return []


def _silent(node: Json, facts: Facts) -> Finding:
    plugins = [item for item in facts.daemon_sets or [] if _PLUGIN in item["metadata"]["name"]]
    where = ", ".join(f"{item['metadata']['name']} in {item['metadata']['namespace']}" for item in plugins)
    mend = (
        f"see the pods of {where} on that node, and the driver there"
        if plugins
        else "install NVIDIA's device plugin or GPU operator: https://github.com/NVIDIA/k8s-device-plugin"
    )
    text = f"node {_name(node)} has the label {_PRESENT}=true, but offers no {DEFAULT_GPU_RESOURCE}"
    return Finding("device plugin", Level.PROBLEM, text, mend)


def _unlabelled(node: Json) -> Finding:
    text = f"node {_name(node)} offers {_offers(node)}, but has no label {_PRESENT}=true, by which pools find it"
    mend = f"kubectl label node {_name(node)} {_PRESENT}=true (GPU feature discovery does), or set gpu.nodeSelector"
    return Finding("GPU nodes", Level.WARNING, text, mend)


def _told(node: Json) -> str:
    taints = ", ".join(_taint(item) for item in (node.get("spec") or {}).get("taints") or [])
    return f"node {_name(node)} offers {_offers(node)}{f', with the taints {taints}' if taints else ''}"


def _blockers(node: Json, tolerations: list[Json]) -> list[str]:
    """The taints of a node that keep a pod with these tolerations away."""
    taints = [item for item in (node.get("spec") or {}).get("taints") or [] if item.get("effect") in _BLOCKING]
    return [_taint(item) for item in taints if not any(_tolerates(toleration, item) for toleration in tolerations)]


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def _taint(item: Json) -> str:
    return f"{item['key']}{'=' if item.get('value') else ''}{item.get('value', '')}:{item.get('effect', '')}"


def _offers(node: Json) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(_offered(node).items()))


def _offered(node: Json) -> Json:
    gpus = {
        name: count for name, count in _allocatable(node).items() if name.startswith("nvidia.com/") or "/gpu" in name
    }
    return {name: count for name, count in gpus.items() if number(count)}


def _allocatable(node: Json) -> Json:
    return (node.get("status") or {}).get("allocatable") or {}


def _labels(node: Json) -> Json:
    return node["metadata"].get("labels") or {}


def _name(node: Json) -> str:
    return str(node["metadata"]["name"])
