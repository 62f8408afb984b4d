"""Settings of a cluster: written by `up`, read by every other command."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from local.bundle.activation import active_bundle
from local.errors import LocalClusterError
from local.layout import Layout
from local.nodes.devices import count_gpus
from local.nodes.node_spec import NodeSpec, node_specs

DEFAULT_NODES = ("cpu-0", "gpu-0")
NODES_WITH_DEVICES = ("gpu-0",)
DEFAULT_GPUS = 8


@dataclass(frozen=True)
class Settings:
    """The nodes, in the order of their subnets; the GPUs of each node named `gpu...`; the audit log.

    With `device_plugin` the GPUs are the machine's own, whatever `gpus` says. `bundle` is the unpacked bundle that
    the cluster runs from, or empty.
    """

    nodes: tuple[str, ...] = DEFAULT_NODES
    gpus: int = DEFAULT_GPUS
    audit: bool = False
    device_plugin: bool = False
    bundle: str = ""

    @classmethod
    def for_machine(
        cls, nodes: tuple[str, ...] = (), gpus: int | None = None, *, audit: bool = False, devices: int | None = None
    ) -> Settings:
        """Settle what was not asked for: the machine's GPUs where it has some, else pretended ones.

        Args:
            nodes: their names; default: one where there are real GPUs, else one with and one without.
            gpus: how many to pretend on each node named `gpu...`; default: the machine's own, or else 8.
            audit: log every request.
            devices: how many GPUs the machine has; default: they are counted.

        Raises:
            LocalClusterError: real GPUs are wanted on more than one node.
        """
        bundle = str(active_bundle() or "")
        real = gpus is None and bool(count_gpus() if devices is None else devices)
        nodes = nodes or (NODES_WITH_DEVICES if real else DEFAULT_NODES)
        if real and (len(nodes) > 1 or not node_specs(nodes, 0)[0].is_gpu):
            raise LocalClusterError(
                f"real GPUs go to one node named gpu..., not to {', '.join(nodes)}: all kubelets of a machine share "
                "the directory in which device plugins register. Write --nodes gpu-0, or --gpus 8 for pretended ones."
            )
        return cls(nodes, DEFAULT_GPUS if gpus is None else gpus, audit, device_plugin=real, bundle=bundle)

    @property
    def specs(self) -> tuple[NodeSpec, ...]:
        """Describe the nodes."""
        return node_specs(self.nodes, self.gpus, device_plugin=self.device_plugin)

    @property
    def pretends_gpus(self) -> bool:
        """Whether its GPUs are pretended ones."""
        return not self.device_plugin and any(spec.is_gpu for spec in self.specs)

    @property
    def enforces_policies(self) -> bool:
        """Whether NetworkPolicies are enforced: what that takes of programs and of the kernel no bundle brings."""
        return not self.bundle

    @classmethod
    def read(cls, layout: Layout) -> Settings | None:
        """Read what the last `up` was asked for; None where there was none since `down`.

        A field that this version does not know is left out: a cluster of another version's must still be ended.
        """
        if not layout.settings.exists():
            return None
        stored = json.loads(layout.settings.read_text())
        known = {field.name: stored[field.name] for field in fields(cls) if field.name in stored}
        return cls(**{**known, "nodes": tuple(stored["nodes"])})

    def write(self, layout: Layout) -> None:
        """Keep them for the other commands."""
        layout.settings.write_text(json.dumps(asdict(self), indent=1))
