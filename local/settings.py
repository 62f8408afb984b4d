"""What a cluster was asked to be: written by `up`, read by every other command."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from local.layout import Layout
from local.node_spec import NodeSpec, node_specs

DEFAULT_NODES = ("cpu-0", "gpu-0")
DEFAULT_GPUS = 4


@dataclass(frozen=True)
class Settings:
    """The nodes, in the order of their subnets; the GPUs of each node named `gpu...`; the audit log."""

    nodes: tuple[str, ...] = DEFAULT_NODES
    gpus: int = DEFAULT_GPUS
    audit: bool = False

    @property
    def specs(self) -> tuple[NodeSpec, ...]:
        """Describe the nodes."""
        return node_specs(self.nodes, self.gpus)

    @classmethod
    def read(cls, layout: Layout) -> Settings | None:
        """Read what the last `up` was asked for; None where there was none since `down`."""
        if not layout.settings.exists():
            return None
        stored = json.loads(layout.settings.read_text())
        return cls(**{**stored, "nodes": tuple(stored["nodes"])})

    def write(self, layout: Layout) -> None:
        """Keep them for the other commands."""
        layout.settings.write_text(json.dumps(asdict(self), indent=1))
