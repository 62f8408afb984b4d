"""Checks of GPU nodes. Pure."""

from __future__ import annotations

from typing import Any

from gpudask.api.gpu import DEFAULT_GPU_RESOURCE
from gpudask.api.values import number
from gpudask.cli.doctor.facts import Facts
from gpudask.cli.doctor.findings import Finding, Level

Json = dict[str, Any]
_PRESENT = "nvidia.com/gpu.present"
_PLUGIN = "device-plugin"


def nodes(facts: Facts) -> list[Finding]:
    """GPU nodes: their labels, their taints, and what the device plugin offers."""
    if facts.nodes is None:
        reason = facts.refused.get("nodes", "they were not read")
        return [
            Finding("GPU nodes", Level.UNKNOWN, f"could not be looked at: {reason}", "ask for the right to list nodes")
        ]
    labelled = [node for node in facts.nodes if labels(node).get(_PRESENT) == "true"]
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
    taints = ", ".join(taint(item) for item in (node.get("spec") or {}).get("taints") or [])
    return f"node {_name(node)} offers {_offers(node)}{f', with the taints {taints}' if taints else ''}"


def taint(item: Json) -> str:
    """A taint as kubectl writes it."""
    return f"{item['key']}{'=' if item.get('value') else ''}{item.get('value', '')}:{item.get('effect', '')}"


def _offers(node: Json) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(_offered(node).items()))


def _offered(node: Json) -> Json:
    gpus = {
        name: count for name, count in allocatable(node).items() if name.startswith("nvidia.com/") or "/gpu" in name
    }
    return {name: count for name, count in gpus.items() if number(count)}


def allocatable(node: Json) -> Json:
    """What a node has for pods, as quantities."""
    return (node.get("status") or {}).get("allocatable") or {}


def labels(node: Json) -> Json:
    """A node's labels."""
    return node["metadata"].get("labels") or {}


def _name(node: Json) -> str:
    return str(node["metadata"]["name"])
