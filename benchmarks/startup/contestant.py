"""What those who are measured must be able to do. Whoever measures knows nothing else of them."""

from __future__ import annotations

from typing import Protocol

from distributed import Client


class Participant(Protocol):
    """Takes turns with others, in a namespace of its own."""

    title: str
    namespace: str

    async def prepare(self) -> None:
        """Become ready for requests; the namespace exists."""

    async def served_by(self) -> str:
        """What carries requests out. A turn in which this changed was disturbed from outside."""

    async def remove(self, cluster: str) -> None:
        """Ask for a cluster's end, so that nothing makes its pods anew; they themselves are swept away after it."""

    async def close(self) -> None:
        """Leave nothing behind that it brought; the namespace goes after it."""


class Contestant(Participant, Protocol):
    """Runs Dask clusters. Its methods return when the request is made, not when it is met."""

    starts_gpu_workers: bool

    async def start(self, cluster: str, workers: int) -> None:
        """Ask for a cluster with so many CPU workers."""

    async def scale(self, cluster: str, workers: int, client: Client) -> None:
        """Ask for another number of CPU workers; `client` is connected to the cluster."""

    async def gpu_task_submitted(self, cluster: str) -> None:
        """A GPU task is on its way to a scheduler that has no GPU worker."""
