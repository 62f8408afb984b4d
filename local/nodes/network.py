"""Bridges and the packet rules that pods need beside kube-proxy's: made, repaired, removed with all of Kubernetes'."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

from local.control_plane.components import API_ADDRESS, POD_RANGE, SERVICE_RANGE
from local.errors import LocalClusterError
from local.host.commands import run, succeeds
from local.host.waiting import wait_for
from local.nodes.node_spec import NodeSpec

_TO_NO_SERVICE = ("-d", SERVICE_RANGE, "-m", "conntrack", "--ctstate", "NEW", "-j", "REJECT")
_REFUSALS = (("filter", "FORWARD", _TO_NO_SERVICE), ("filter", "OUTPUT", _TO_NO_SERVICE))
_RULES = (
    # Docker and others drop what is forwarded unless somebody accepts it.
    ("filter", "FORWARD", ("-s", POD_RANGE, "-j", "ACCEPT")),
    ("filter", "FORWARD", ("-d", POD_RANGE, "-j", "ACCEPT")),
    # Pods see each other's own addresses across nodes; only what leaves the cluster takes the machine's.
    ("nat", "POSTROUTING", ("-s", POD_RANGE, "!", "-d", POD_RANGE, "-j", "MASQUERADE")),
    # What kube-proxy has not redirected must not leave the machine. As a Service gets its first pod again, kube-proxy
    # removes the rule that refuses before it adds the one that redirects (two tables, so two steps): a connection
    # of that moment would reach whatever answers out there. Last here, so first in its chain.
    *_REFUSALS,
)
_COMMENT = ("-m", "comment", "--comment", "gpudask local cluster")
_SYSCTLS = ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables")
_KUBERNETES_CHAINS = "KUBE-"
"""What kube-proxy, the kubelet and kube-router name their chains and sets of addresses with."""
_FIREWALL_CHAIN, _POD_CHAINS = "KUBE-ROUTER-FORWARD", "KUBE-POD-FW-"
_SET_SECONDS = 5.0


def ensure_network(nodes: tuple[NodeSpec, ...]) -> None:
    """Have each node's bridge up with its address, a way to the Services, and the rules in place."""
    for sysctl in _SYSCTLS:
        Path("/proc/sys", sysctl).write_text("1")
    for node in nodes:
        _ensure_bridge(node)
    _ensure_way_to_services(nodes[0])
    if not all(_rule_succeeds("-C", *rule) for rule in _RULES):
        _remove_rules()  # all of them: their order counts
        for rule in _RULES:
            _insert(*rule)


def put_refusals_first() -> None:
    """Have them before kube-router's rule that accepts what policies allow: it goes behind the last of Kubernetes'.

    To be called when kube-proxy has its rules, and kube-router has not begun: that writes whole tables at once, and
    would undo what somebody else does meanwhile.
    """
    for rule in _REFUSALS:
        _rule_succeeds("-D", *rule)
        _insert(*rule)


def remove_network(nodes: tuple[NodeSpec, ...]) -> None:
    """Remove pods' network namespaces, the bridges, and every rule of ours and of Kubernetes."""
    for node in nodes:
        for namespace in _pod_namespaces(node.bridge):
            run(["ip", "netns", "delete", namespace])
        if succeeds(["ip", "link", "show", node.bridge]):
            run(["ip", "link", "delete", node.bridge])
    _remove_rules()
    for family in ("iptables", "ip6tables"):
        removal = chain_removal(run([f"{family}-save"]), _KUBERNETES_CHAINS)
        if removal:
            run([f"{family}-restore", "-w", "--noflush"], stdin=removal)
    if shutil.which("ipset") and succeeds(["ipset", "list", "-name"]):  # else there are none
        wait_for("the removal of kube-router's sets", _remove_sets, deadline_seconds=_SET_SECONDS)


def policies_blocker() -> str | None:
    """Tell why NetworkPolicies are not enforced yet; None once kube-router has rules for a pod."""
    try:
        rules = run(["iptables", "-w", "-S", _FIREWALL_CHAIN])
    except LocalClusterError as error:
        return str(error)
    return None if _POD_CHAINS in rules else f"{_FIREWALL_CHAIN} of iptables leads to no pod's chain"


def hardware_address(address: str) -> str:
    """A locally administered MAC address for an IPv4 address, which is in it."""
    return ":".join(["0a", "58", *(f"{int(part):02x}" for part in address.split("."))])


def chain_removal(saved: str, prefix: str) -> str:
    """Turn `iptables-save` output into `iptables-restore` input that removes chains by their prefix.

    Rules elsewhere that jump to them, or whose comment says that they belong to them, go first; then the chains are
    emptied, since they refer to each other, and only then deleted. Returns an empty text where there is nothing to
    remove.
    """
    lines: list[str] = []
    for table, content in _tables(saved).items():
        chains = [line[1:].split()[0] for line in content if line.startswith(f":{prefix}")]
        jumps = ["-D" + line[2:] for line in content if re.match(f'-A (?!{prefix}).* "?{prefix}', line)]
        if chains or jumps:
            empty = [f"-F {chain}" for chain in chains]
            gone = [f"-X {chain}" for chain in chains]
            lines += [f"*{table}", *jumps, *empty, *gone, "COMMIT"]
    return "\n".join([*lines, ""]) if lines else ""


def _tables(saved: str) -> dict[str, list[str]]:
    tables: dict[str, list[str]] = {}
    current: list[str] = []
    for line in saved.splitlines():
        if line.startswith("*"):
            current = tables.setdefault(line[1:], [])
        else:
            current.append(line)
    return tables


def _remove_sets() -> str | None:
    """Remove kube-router's sets; tell which are left, since the kernel lets go of removed rules a little later."""
    for name in _sets():
        succeeds(["ipset", "destroy", name])
    return ", ".join(_sets()) or None


def _sets() -> list[str]:
    return [name for name in run(["ipset", "list", "-name"]).split() if name.startswith(_KUBERNETES_CHAINS)]


def _remove_rules() -> None:
    for rule in _RULES:
        while _rule_succeeds("-D", *rule):
            pass


def _insert(table: str, chain: str, rule: tuple[str, ...]) -> None:
    run(["iptables", "-w", "-t", table, "-I", chain, *_COMMENT, *rule])


def _rule_succeeds(action: str, table: str, chain: str, rule: tuple[str, ...]) -> bool:
    return succeeds(["iptables", "-w", "-t", table, action, chain, *_COMMENT, *rule])


def _ensure_bridge(node: NodeSpec) -> None:
    """A bridge with a hardware address of its own.

    Without one it takes the lowest of its ports', so another one as pods come and go. A pod goes on sending to the one
    it knows: what another pod's Service sends through it still arrives, redirected within the bridge, and keeps it in
    use; what goes to the other node's pods is lost.
    """
    if not succeeds(["ip", "link", "show", node.bridge]):
        run(["ip", "link", "add", node.bridge, "type", "bridge"])
    run(["ip", "link", "set", node.bridge, "address", hardware_address(node.address)])
    run(["ip", "address", "replace", f"{node.address}/24", "dev", node.bridge])
    run(["ip", "link", "set", node.bridge, "up"])


def _ensure_way_to_services(node: NodeSpec) -> None:
    """Let this machine's own programs reach Services, too, where it has no default route: it has no network.

    kube-proxy redirects what goes to a Service only after the kernel has found some route for it.
    """
    if not succeeds(["ip", "route", "get", API_ADDRESS]):
        run(["ip", "route", "replace", SERVICE_RANGE, "dev", node.bridge])


def _pod_namespaces(bridge: str) -> list[str]:
    """Find the network namespaces whose interface hangs on `bridge`, whoever made them."""
    links, namespaces = [], []
    with suppress(json.JSONDecodeError):
        if succeeds(["ip", "link", "show", bridge]):
            links = json.loads(run(["ip", "-json", "link", "show", "master", bridge]))
            namespaces = json.loads(run(["ip", "-json", "netns", "list"]) or "[]")
    ids = {link["link_netnsid"] for link in links if "link_netnsid" in link}
    return [namespace["name"] for namespace in namespaces if namespace.get("id") in ids]
