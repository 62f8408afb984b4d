"""The one Dask cluster that these tests share, and the size of its GPU pool."""

from __future__ import annotations

from dataclasses import dataclass

from distributed import Client

from tests.e2e.space import Space
from tests.gpu.workers import addresses

NAME = "gpus"


@dataclass(frozen=True)
class Shared:
    """The cluster, a client of it, and how many GPUs there are."""

    space: Space
    client: Client
    gpus: int

    def all_gpu_workers(self) -> list[str]:
        """The addresses of the GPU workers once there is one for each GPU; none before."""
        found = addresses(self.client, "gpu")
        return found if len(found) == self.gpus else []

    def size(self, pods: int | None) -> None:
        """Fix the GPU pool's size; None lets it follow demand."""
        overrides = [] if pods is None else [{"pool": "gpu", "replicas": pods, "by": "test"}]
        self.space.edit(NAME, {"op": "add", "path": "/spec/overrides", "value": overrides})
