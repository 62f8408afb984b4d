"""The spec of a node: its name decides its kind, its place in the list its addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GPU_LABEL = "nvidia.com/gpu.present"
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@dataclass(frozen=True)
class NodeSpec:
    """The node `name` at place `index` of its cluster, offering `gpus` pretended GPUs, or the machine's own.

    `tainted` keeps pods that ask for no GPU away from it.
    """

    name: str
    index: int
    gpus: int
    is_gpu: bool
    device_plugin: bool = False
    tainted: bool = False

    @property
    def bridge(self) -> str:
        """The bridge that its pods hang on."""
        return f"cni{self.index}"

    @property
    def subnet(self) -> str:
        """Its pods' addresses."""
        return f"10.244.{self.index}.0/24"

    @property
    def address(self) -> str:
        """The node's own address, on its bridge: the machine's, as seen from its pods."""
        return f"10.244.{self.index}.1"

    @property
    def network(self) -> str:
        """The CNI network's name."""
        return f"gpudask-{self.name}"

    @property
    def identity(self) -> str:
        """The name of its certificate and kubeconfig."""
        return f"kubelet-{self.name}"

    @property
    def containerd(self) -> str:
        """Its containerd's name among the parts."""
        return f"containerd-{self.name}"

    @property
    def kubelet(self) -> str:
        """Its kubelet's name among the parts."""
        return f"kubelet-{self.name}"


def node_specs(names: Sequence[str], gpus: int, *, device_plugin: bool = False) -> tuple[NodeSpec, ...]:
    """Describe the nodes `names`, of which those named `gpu...` have `gpus` GPUs each, or the machine's own.

    They are tainted where other nodes are there for the pods without GPUs.
    """
    return tuple(_spec(name, index, names, gpus, device_plugin=device_plugin) for index, name in enumerate(names))


def _spec(name: str, index: int, names: Sequence[str], gpus: int, *, device_plugin: bool) -> NodeSpec:
    if not _has_gpus(name):
        return NodeSpec(name, index, gpus=0, is_gpu=False)
    tainted = not all(map(_has_gpus, names))
    return NodeSpec(name, index, gpus, is_gpu=True, device_plugin=device_plugin, tainted=tainted)


def _has_gpus(name: str) -> bool:
    return name.startswith("gpu")
