"""What `down` reads of the machine: mounts and packet rules, told apart from others'."""

from __future__ import annotations

from pathlib import Path

from local.nodes.mounts import mounts_below
from local.nodes.network import chain_removal, hardware_address

MOUNTS = """\
24 1 254:0 / / rw - ext4 /dev/vda rw
30 24 0:50 / /state/nodes/a/volume rw - tmpfs tmpfs rw
31 30 0:51 / /state/nodes/a/volume/in\\040side rw - tmpfs tmpfs rw
32 24 0:52 / /stateless/other rw - tmpfs tmpfs rw
"""

RULES = """\
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-X - [0:0]
:DOCKER - [0:0]
-A PREROUTING -m comment --comment "service portals" -j KUBE-SERVICES
-A PREROUTING -j DOCKER
-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-X
COMMIT
*filter
:INPUT ACCEPT [0:0]
-A INPUT -j ACCEPT
COMMIT
"""


def test_inner_mounts_come_first_and_names_are_unescaped():
    assert mounts_below(Path("/state"), MOUNTS) == [
        Path("/state/nodes/a/volume/in side"),
        Path("/state/nodes/a/volume"),
    ]


def test_chains_are_unlinked_emptied_and_only_then_deleted():
    assert chain_removal(RULES, "KUBE-").splitlines() == [
        "*nat",
        '-D PREROUTING -m comment --comment "service portals" -j KUBE-SERVICES',
        "-F KUBE-SERVICES",
        "-F KUBE-SVC-X",
        "-X KUBE-SERVICES",
        "-X KUBE-SVC-X",
        "COMMIT",
    ]


def test_a_rule_that_is_a_chains_by_its_comment_goes_too():
    accepts = '-A FORWARD -m comment --comment "KUBE-ROUTER rule to explicitly ACCEPT" -m mark --mark 0x20000 -j ACCEPT'
    saved = f"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -j ACCEPT\n{accepts}\nCOMMIT\n"
    assert chain_removal(saved, "KUBE-").splitlines() == ["*filter", accepts.replace("-A", "-D", 1), "COMMIT"]


def test_nothing_is_removed_where_nothing_is_ours():
    assert chain_removal(RULES, "OTHER-") == ""


def test_a_bridges_hardware_address_is_made_of_its_address():
    assert hardware_address("10.244.1.1") == "0a:58:0a:f4:01:01"
