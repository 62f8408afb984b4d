"""Checks of GPU nodes: their labels, and what a device plugin offers there. Alike nodes are one finding. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpudask.api import Json
from gpudask.api.base import number
from gpudask.api.gpu import DEFAULT_GPU_RESOURCE
from gpudask.cli.doctor.facts import Facts, Finding, Level, labels

_NODES, _PLUGIN = "GPU nodes", "device plugin"
_PRESENT = "nvidia.com/gpu.present"
_FAMILIES = ("nvidia.com/gpu", "nvidia.com/mig-", "gpu.intel.com/")  # of nvidia.com/ there are network devices as well
# What clouds and node feature discovery write onto nodes with GPUs, whatever runs there.
_HINTS = (
    "cloud.google.com/gke-accelerator",
    "kubernetes.azure.com/accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
)
_NAMED = 3
Group = tuple[list[Json], str]


def nodes(facts: Facts) -> list[Finding]:
    """Check that pools find the GPU nodes, and that these have GPUs to offer."""
    if facts.nodes is None:
        return [facts.unread(_NODES, "nodes")]
    wanted = _resources(facts)
    offering = [node for node in facts.nodes if _amounts(node, "allocatable", wanted)]
    silent = [node for node in facts.nodes if node not in offering and _mark(node)]
    if not offering and not silent:
        return [_none(bool(_gpu_pools(facts)))]
    away = [node for node in silent if not is_ready(node)]
    unhealthy = [node for node in silent if node not in away and _amounts(node, "capacity", wanted)]
    unserved = [node for node in silent if node not in away and node not in unhealthy]
    found = [_away(group) for group in _grouped(away, lambda _: "")]
    found += [
        _unhealthy(group, facts)
        for group in _grouped(unhealthy, lambda node: _amounts_text(_amounts(node, "capacity", wanted)))
    ]
    found += [_unserved(group, facts) for group in _grouped(unserved, _mark)]
    found += _partly_unhealthy(offering, wanted, facts)
    plain = [node for node in offering if labels(node).get(_PRESENT) != "true"]
    marked = [node for node in offering if node not in plain]
    found += [_unlabelled(group, facts) for group in _grouped(plain, lambda node: _offer(node, wanted))]
    found += [Finding(_NODES, Level.OK, _text(group)) for group in _grouped(marked, lambda node: _offer(node, wanted))]
    return found


def is_ready(node: Json) -> bool:
    """True if the kubelet of a node answers; one that says nothing of it counts as ready."""
    conditions = {item["type"]: item["status"] for item in (node.get("status") or {}).get("conditions") or []}
    return bool(conditions.get("Ready", "True") == "True")


def taint(item: Json) -> str:
    """A taint as kubectl writes it."""
    return f"{item['key']}{'=' if item.get('value') else ''}{item.get('value', '')}:{item.get('effect', '')}"


def names(found: Iterable[Json]) -> str:
    """Some of the nodes by their names, and how many there are besides."""
    listed = [str(node["metadata"]["name"]) for node in found]
    return ", ".join(listed[:_NAMED]) + (f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else "")


def _none(wanted: bool) -> Finding:
    text = "no node has GPUs now"
    if not wanted:
        return Finding(_NODES, Level.OK, text)
    mend = "add GPU nodes with NVIDIA's device plugin; where an autoscaler adds them on demand this is as it should be"
    return Finding(_NODES, Level.WARNING, text, mend)


def _away(group: Group) -> Finding:
    text = f"{_subject(group[0])} not ready, so no GPU of it can be used"
    return Finding(_NODES, Level.WARNING, text, f"kubectl describe node {group[0][0]['metadata']['name']}")


def _unhealthy(group: Group, facts: Facts) -> Finding:
    text = f"{_subject(group[0])} registered with {group[1]}, of which none can be used now"
    return Finding(
        _PLUGIN,
        Level.PROBLEM,
        f"{text}: its device plugin has ended, or calls them unhealthy",
        _see(facts, registered=True),
    )


def _unserved(group: Group, facts: Facts) -> Finding:
    text = f"{_subject(group[0])} labelled {group[1]}, but offers no {DEFAULT_GPU_RESOURCE}"
    return Finding(_PLUGIN, Level.PROBLEM, text, _see(facts))


def _see(facts: Facts, *, registered: bool = False) -> str:
    """The command that shows why a node offers nothing, or less than a plugin `registered`."""
    if facts.daemon_sets is None:
        return "see whether a device plugin runs there: kubectl get pods -A -o wide | grep device-plugin"
    plugins = [item for item in facts.daemon_sets if "device-plugin" in item["metadata"]["name"]]
    if not plugins and registered:
        return "see the driver on the node (nvidia-smi), and its plugin: kubectl get pods -A -o wide | grep plugin"
    if not plugins:
        return "install NVIDIA's device plugin or GPU operator: https://github.com/NVIDIA/k8s-device-plugin"
    commands = []
    for item in plugins:
        status, home = item.get("status") or {}, item["metadata"]["namespace"]
        ready, wanted = status.get("numberReady", 0), status.get("desiredNumberScheduled", 0)
        name = item["metadata"]["name"]
        commands.append(f"kubectl logs -n {home} daemonset/{name} ({ready} of {wanted} pods of it are ready)")
    return f"see the driver on the node (nvidia-smi), and {'; '.join(commands)}"


def _partly_unhealthy(offering: list[Json], wanted: set[str], facts: Facts) -> list[Finding]:
    def lost(node: Json) -> str:
        there, usable = _amounts(node, "capacity", wanted), _amounts(node, "allocatable", wanted)
        short = {name: count - usable.get(name, 0) for name, count in there.items() if count > usable.get(name, 0)}
        return ", ".join(f"{short[name]:g} of {there[name]:g} {name}" for name in sorted(short))

    groups = _grouped((node for node in offering if lost(node)), lost)
    said = "the device plugin calls them unhealthy"
    return [
        Finding(
            _PLUGIN, Level.WARNING, f"{_subject(group[0])} short of {group[1]}: {said}", _see(facts, registered=True)
        )
        for group in groups
    ]


def _unlabelled(group: Group, facts: Facts) -> Finding:
    """Nodes that the default selector does not find: a fault only where some pool relies on it."""
    pools = _gpu_pools(facts)
    foreign = not any(name.startswith("nvidia.com/") for name in group[1].replace(",", " ").split())
    if foreign or (pools and all("nodeSelector" in (pool["gpu"] or {}) for pool in pools)):
        return Finding(_NODES, Level.OK, _text(group))
    text = f"{_text(group)}, but without the label {_PRESENT}=true, by which pools find them"
    listed = " ".join(str(node["metadata"]["name"]) for node in group[0][:_NAMED])
    mend = f"kubectl label node {listed} {_PRESENT}=true (GPU feature discovery does), or set gpu.nodeSelector"
    return Finding(_NODES, Level.WARNING, text, mend)


def _text(group: Group) -> str:
    found, offer = group
    return f"{'nodes' if len(found) > 1 else 'node'} {names(found)}: {offer}{' each' if len(found) > 1 else ''}"


def _subject(found: list[Json]) -> str:
    return f"nodes {names(found)} are" if len(found) > 1 else f"node {names(found)} is"


def _offer(node: Json, wanted: set[str]) -> str:
    taints = ", ".join(taint(item) for item in (node.get("spec") or {}).get("taints") or [])
    return f"{_amounts_text(_amounts(node, 'allocatable', wanted))}{f', taints {taints}' if taints else ''}"


def _amounts_text(amounts: dict[str, float]) -> str:
    return ", ".join(f"{count:g} {name}" for name, count in sorted(amounts.items()))


def _grouped(found: Iterable[Json], text: Callable[[Json], str]) -> list[Group]:
    """Nodes of which the same is to be said, with it."""
    groups: dict[str, list[Json]] = {}
    for node in found:
        groups.setdefault(text(node), []).append(node)
    return [(group, said) for said, group in groups.items()]


def _amounts(node: Json, key: str, wanted: set[str]) -> dict[str, float]:
    """The GPUs among a node's `capacity` or `allocatable`, by resource; those of which there are none left out."""
    listed = (node.get("status") or {}).get(key) or {}
    found = {name: number(count) for name, count in listed.items() if name in wanted or is_gpu(name)}
    return {name: count for name, count in found.items() if count}


def is_gpu(resource: str) -> bool:
    """True if a resource of this name is a GPU."""
    return resource.startswith(_FAMILIES) or resource.endswith("/gpu")


def _mark(node: Json) -> str:
    """The label by which a node has GPUs; empty without one."""
    if labels(node).get(_PRESENT) == "true":
        return f"{_PRESENT}=true"
    return next(
        (f"{hint}={labels(node)[hint]}" for hint in _HINTS if labels(node).get(hint) not in (None, "false")), ""
    )


def _gpu_pools(facts: Facts) -> list[Json]:
    return [pool for body in facts.clusters or [] for pool in body["spec"]["pools"] if pool.get("gpu") is not None]


def _resources(facts: Facts) -> set[str]:
    return {pool["gpu"].get("resourceName", DEFAULT_GPU_RESOURCE) for pool in _gpu_pools(facts)}
