"""A node's name tells its kind, and its place its addresses."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import combinations

from local.control_plane.components import SERVICE_RANGE
from local.nodes.node_spec import node_specs


def test_only_nodes_named_gpu_have_gpus():
    assert [(spec.name, spec.gpus) for spec in node_specs(("cpu-0", "gpu-0", "gpu-1"), 4)] == [
        ("cpu-0", 0),
        ("gpu-0", 4),
        ("gpu-1", 4),
    ]


def test_nodes_share_no_address_and_none_of_a_bridge_or_a_part():
    specs = node_specs(tuple(f"cpu-{number}" for number in range(12)), 4)
    ranges = [ip_network(spec.subnet) for spec in specs]
    assert not any(one.overlaps(other) for one, other in combinations([*ranges, ip_network(SERVICE_RANGE)], 2))
    for spec, of_pods in zip(specs, ranges, strict=True):
        assert ip_address(spec.address) in set(of_pods.hosts()), "its pods have no way to it"
    for of in ("bridge", "address", "network", "identity", "containerd", "kubelet"):
        assert len({getattr(spec, of) for spec in specs}) == len(specs), of
    assert all(len(spec.bridge) <= 15 for spec in specs), "Linux takes no longer name of an interface"
