"""Who takes part: the floor, gpudask's client on its operator, the stock client on the stock operator."""

from __future__ import annotations

import compileall
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import gpudask
from benchmarks.clients.program_process import run_program
from benchmarks.startup.contestant import Participant
from benchmarks.startup.floor import Floor
from benchmarks.startup.gpudask_operator import GpudaskOperator
from benchmarks.startup.peer import Peer
from benchmarks.startup.peer_environment import PeerEnvironment
from benchmarks.startup.peer_process import PeerProcess
from benchmarks.startup.rounds import Figures
from benchmarks.startup.sight import registered, service_address, single_use_session
from benchmarks.startup.trial import dask_client
from benchmarks.startup.workload import FEW, manifest
from gpudask.clients.kubernetes import Kubernetes


class Connects(Participant, Protocol):
    """Gets a user from nothing to two workers and a result."""

    async def connect(self, cluster: str, figures: Figures) -> None:
        """A new cluster; `figures`: filled with seconds since it was asked for."""


class ByHand(Floor):
    """The floor of the start-up benchmark. Workers are counted by the scheduler, as there."""

    async def connect(self, cluster: str, figures: Figures) -> None:
        """POST everything at once; then a client that dials the Service."""
        async with single_use_session() as session:
            begun = time.monotonic()
            await self.start(cluster, FEW)
            address = await service_address(self._api, self.namespace, cluster)
            figures["ready_2"] = await registered(session, address, FEW) - begun
        async with dask_client(address) as client:
            await client.submit(sum, [40, 2])
            figures["first_result"] = time.monotonic() - begun


class OurClient(GpudaskOperator):
    """`gpudask.KubeCluster`, from outside the cluster."""

    def __init__(self, api: Kubernetes, namespace: str, kubeconfig: Path) -> None:
        super().__init__(api, namespace)
        self._kubeconfig = kubeconfig

    async def prepare(self) -> None:
        """Compile this checkout's package, as pip does with an installed one: what is imported late is in the time."""
        compileall.compile_dir(Path(gpudask.__file__).parent, quiet=1)

    async def connect(self, cluster: str, figures: Figures) -> None:
        """Run the program."""
        words = _words(manifest(cluster, self.namespace, FEW), self.namespace)
        figures |= await run_program(Path(sys.executable), "gpudask", words, self._kubeconfig)


class StockClient(Peer):
    """`dask_kubernetes.operator.KubeCluster`, from outside the cluster."""

    # Without it, the client first looks for the Service's name, 19 pauses of 0.5 s for each of its two ports.
    options: dict[str, Any] = {"port_forward_cluster_ip": True}  # noqa: RUF012 - nobody writes it

    def __init__(self, api: Kubernetes, namespace: str, environment: PeerEnvironment, process: PeerProcess) -> None:
        super().__init__(api, namespace, environment, process)
        self._kubeconfig = process.kubeconfig

    async def connect(self, cluster: str, figures: Figures) -> None:
        """Run the program."""
        words = _words(self.dask_cluster(cluster, FEW), self.namespace) | self.options
        figures |= await run_program(self._environment.python, "dask_kubernetes.operator", words, self._kubeconfig)


class BareStockClient(StockClient):
    """The stock client as somebody outside calls it who does not know of that word."""

    title = "dask-kubernetes, bare call"
    options: dict[str, Any] = {}  # noqa: RUF012 - see above


def _words(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The words that both clients know alike."""
    return {"custom_cluster_spec": body, "namespace": namespace, "quiet": True}
