"""A node's name tells its kind, and its place its addresses."""

from __future__ import annotations

from local.node_spec import node_specs


def test_only_nodes_named_gpu_have_gpus():
    assert [(spec.name, spec.gpus) for spec in node_specs(("cpu-0", "gpu-0", "gpu-1"), 4)] == [
        ("cpu-0", 0),
        ("gpu-0", 4),
        ("gpu-1", 4),
    ]


def test_nodes_share_no_address():
    specs = node_specs(("cpu-0", "gpu-0"), 4)
    assert [(spec.bridge, spec.subnet, spec.address) for spec in specs] == [
        ("cni0", "10.244.0.0/24", "10.244.0.1"),
        ("cni1", "10.244.1.0/24", "10.244.1.1"),
    ]
