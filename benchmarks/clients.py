"""A program's wait for a cluster of two workers: gpudask's `KubeCluster` beside the stock client's.

`python -m benchmarks.clients`. Built on the rounds, the pods by hand and the peer's operator of the start-up benchmark,
`benchmarks.startup`. Its `program.py` is the user's program, the same for both clients, run in a process of its own, as
a notebook's kernel is one.
"""

from __future__ import annotations

import asyncio
import compileall
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import gpudask
from benchmarks.startup.participants import (
    FEW,
    Floor,
    GpudaskOperator,
    Participant,
    dask_client,
    manifest,
    registered,
    service_address,
    single_use_session,
)
from benchmarks.startup.peer import Peer
from benchmarks.startup.report import GPUDASK, PEER, Results, cell, times
from benchmarks.startup.run import DEADLINE_SECONDS, Access, Benchmark, Figures, StepTookTooLongError, clear, shown
from benchmarks.testbed.report import markdown, one_line
from benchmarks.testbed.watch import PodWatch
from gpudask.clients.kubernetes import Kubernetes
from local.layout import cache_dir

_PROGRAM = Path(__file__).parent / "startup" / "program.py"
_RESULT = 42
# So that no turn pays for what the one before it left to do.
_SETTLE_SECONDS = 2.0
_ROWS = (
    ("call", "the call, until it returns"),
    ("ready_2", "the call, until 2 workers are ready"),
    ("first_result", "the call, until the first result"),
    ("imports", "the imports, before the call: not counted"),
)


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
            address = await service_address(self.api, self.namespace, cluster)
            figures["ready_2"] = await registered(session, address, FEW) - begun
        async with dask_client(address) as client:
            await client.submit(sum, [40, 2])
            figures["first_result"] = time.monotonic() - begun


@dataclass
class OurClient(GpudaskOperator):
    """`gpudask.KubeCluster`, from outside the cluster."""

    kubeconfig: Path

    async def prepare(self) -> None:
        """Compile this checkout's package, as pip does with an installed one: what is imported late is in the time."""
        compileall.compile_dir(Path(gpudask.__file__).parent, quiet=1)

    async def connect(self, cluster: str, figures: Figures) -> None:
        """Run the program."""
        arguments = _arguments(manifest(cluster, self.namespace, FEW), self.namespace)
        figures |= await run_program(Path(sys.executable), "gpudask", arguments, self.kubeconfig)


class StockClient(Peer):
    """`dask_kubernetes.operator.KubeCluster`, from outside the cluster."""

    # Without it, the client first looks for the Service's name, 19 pauses of 0.5 s for each of its two ports.
    options: dict[str, Any] = {"port_forward_cluster_ip": True}  # noqa: RUF012 - nobody writes it

    async def connect(self, cluster: str, figures: Figures) -> None:
        """Run the program."""
        arguments = _arguments(self.dask_cluster(cluster, FEW), self.namespace) | self.options
        figures |= await run_program(
            self._environment.python, "dask_kubernetes.operator", arguments, self._process.kubeconfig
        )


class BareStockClient(StockClient):
    """The stock client as somebody outside calls it who does not know of that word."""

    title = "dask-kubernetes, bare call"
    options: dict[str, Any] = {}  # noqa: RUF012 - see above


def _arguments(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    """What both clients are called with alike."""
    return {"custom_cluster_spec": body, "namespace": namespace, "quiet": True}


async def run_program(python: Path, module: str, arguments: dict[str, Any], kubeconfig: Path) -> Figures:
    """Run the program, and give its figures in seconds.

    The clock of everything but `imports` starts when the imports are done.

    Args:
        python: the interpreter of the environment that has the client.
        module: where `KubeCluster` is imported from.
        arguments: what it is called with.
        kubeconfig: the cluster.

    Raises:
        OSError: it failed; the text has the path of what it said.
    """
    log = cache_dir() / "logs" / f"benchmark-clients-{module}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            str(python),
            str(_PROGRAM),
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
            env=os.environ | {"KUBECONFIG": str(kubeconfig)},
            start_new_session=True,  # Ctrl-C is for the benchmark, which ends it
        )
    try:
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        figures = await _figures(process.stdout, log)
        process.stdin.write(json.dumps(arguments).encode() + b"\n")
        await process.stdin.drain()
        figures |= await _figures(process.stdout, log)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if figures.pop("result") != _RESULT:
        raise OSError(f"the first result is wrong; what the program said: {log}")
    return figures


async def _figures(said: asyncio.StreamReader, log: Path) -> Figures:
    """The next line that is figures: libraries print lines of their own."""
    async for line in said:
        if line.startswith(b"{"):
            return dict(json.loads(line))
    raise OSError(f"the program ended early; what it said: {log}")


class ClientTrial:
    """A cluster that is asked for, waited for, used once, and swept away."""

    def __init__(self, participant: Connects, api: Kubernetes, watch: PodWatch, number: int) -> None:
        self._participant = participant
        self._api = api
        self._watch = watch
        self._cluster = f"pair{number}"
        self.figures: Figures = {}

    async def run(self) -> None:
        """All of it; `run.Trial` says what is raised."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await self._participant.connect(self._cluster, self.figures)
        except TimeoutError as error:
            seen = await shown(self._api, self._participant.namespace, self._cluster)
            raise StepTookTooLongError(f"not within {DEADLINE_SECONDS:.0f} s; {seen}") from error
        finally:
            await clear(self._api, self._participant, self._watch, self._cluster)
        await asyncio.sleep(_SETTLE_SECONDS)


def table(results: Results, titles: Sequence[str]) -> str:
    """Markdown: a row for each figure, a column for each participant; median (min-max), n, ratio to the floor."""
    rows = ([words, *(cell(results, title, figure) for title in titles)] for figure, words in _ROWS)
    return markdown(["", *titles], rows)


def last_line(results: Results) -> str:
    """One line for whoever reads figures by machine: until 2 workers are ready, as ratios to the floor."""
    ours, theirs = (times(results.ratio(title, "ready_2")) for title in (GPUDASK, PEER))
    return one_line("clients", {"kubecluster_2": ours, "peer_2": theirs})


def _floor(access: Access, namespace: str) -> Connects:
    return ByHand(access.api, namespace)


def _gpudask(access: Access, namespace: str) -> Connects:
    return OurClient(access.api, namespace, access.kubeconfig)


def _peer(access: Access, namespace: str) -> Connects:
    return access.peer(StockClient, namespace)


def _bare_peer(access: Access, namespace: str) -> Connects:
    return access.peer(BareStockClient, namespace)


CLIENTS: Benchmark[Connects] = Benchmark(
    name="clients",
    about="How long a program waits for a cluster of two workers",
    makers={"floor": _floor, "gpudask": _gpudask, "peer": _peer, "barepeer": _bare_peer},
    default=("floor", "gpudask", "peer"),
    trials=ClientTrial,
    rounds_option="--rounds",
    table=table,
    last_line=last_line,
)

if __name__ == "__main__":
    CLIENTS.main()
