"""The operator as a process of its own that counts what it does: started, waited for until it rests, weighed, ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import monotonic

from benchmarks.scale.counters import Counters, Counts
from benchmarks.testbed.cluster import SimulatedCluster
from benchmarks.testbed.manifests import CLUSTERS_PATH, cluster
from benchmarks.testbed.watch import until
from gpudask.clients.kubernetes import Kubernetes
from local.host.ports import free_ports
from local.operator.process import OperatorProcess, leading

_LOOK_SECONDS = 1.0
_LOOKS = 3  # in a row; live figures of a status are written up to five seconds late, which is little work
_IDLE = 0.05  # of a core
_REST_SECONDS = 120


@dataclass(frozen=True)
class Work:
    """The operator's work: CPU seconds of its process, and counts."""

    cpu_seconds: float
    counts: Counts

    def __sub__(self, before: Work) -> Work:
        """What was done since `before`."""
        return Work(self.cpu_seconds - before.cpu_seconds, self.counts - before.counts)


@dataclass(frozen=True)
class CountingOperator:
    """A running operator with its counters."""

    process: OperatorProcess
    counters: Counters
    metrics: str
    """The URL of its metrics."""

    @property
    def work(self) -> Work:
        """What it has done by now."""
        return Work(self.process.cpu_seconds, self.counters.read())

    async def at_rest(self) -> None:
        """Wait until it uses next to no CPU for some seconds: the end of what an event set going.

        Raises:
            TimeoutError: it did not come to rest.
        """
        deadline, quiet, before = monotonic() + _REST_SECONDS, 0, self.work
        while quiet < _LOOKS:
            if monotonic() > deadline:
                raise TimeoutError(f"the operator did not come to rest within {_REST_SECONDS} s")
            await asyncio.sleep(_LOOK_SECONDS)
            now = self.work
            quiet = quiet + 1 if now.cpu_seconds - before.cpu_seconds < _IDLE * _LOOK_SECONDS else 0
            before = now


@contextlib.asynccontextmanager
async def operating(testbed: SimulatedCluster) -> AsyncIterator[CountingOperator]:
    """The operator of this checkout, until the block ends. It is up: it acts on clusters that are new."""
    counts = testbed.scratch / "counts"
    counters = Counters.open(counts, create=True)
    module = ("benchmarks.scale.counters", str(counts))
    port = free_ports(1, host="")[0]
    settings = {"GPUDASK_METRICS_PORT": str(port)}
    async with leading(testbed.server.kubeconfig, testbed.scratch / "operator.log", settings, module) as process:
        await _warmed_up(testbed.api)
        yield CountingOperator(process, counters, f"http://127.0.0.1:{port}/metrics")


async def _warmed_up(api: Kubernetes) -> None:
    """Wait until the operator has seen a first cluster: kopf's watch begins some time after our caches are full."""
    body = cluster(0, "", cpu_pods=0, gpu_pods_max=1)
    body["metadata"]["name"], body["spec"]["suspend"] = "warm-up", True
    await api.request("POST", CLUSTERS_PATH, body=body)

    async def seen() -> bool:
        found = await api.request("GET", f"{CLUSTERS_PATH}/warm-up")
        return bool(found.get("status", {}).get("phase") == "Suspended")

    await until(seen, "the operator reports a first cluster", seconds=60)
    await api.request("DELETE", f"{CLUSTERS_PATH}/warm-up")
