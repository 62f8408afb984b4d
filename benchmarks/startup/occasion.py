"""One run of a benchmark on the local cluster, from its command line to the file that keeps its figures."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from distributed.versions import VersionMismatchWarning

from benchmarks.startup import machine, rounds
from benchmarks.startup.peer import Peer
from benchmarks.startup.peer_environment import PeerEnvironment
from benchmarks.startup.peer_process import PeerProcess
from benchmarks.startup.report import Results
from benchmarks.startup.rounds import P, Turn
from gpudask.clients.kubernetes import Kubernetes
from local.cluster import Cluster
from local.operator_release import NAMESPACE
from tests.e2e.platform import Platform

_OPERATOR = "gpudask"
Q = TypeVar("Q", bound=Peer)


@dataclass(frozen=True)
class Stage:
    """Where participants perform: the API server, its kubeconfig, and a directory for files that go afterwards."""

    api: Kubernetes
    kubeconfig: Path
    scratch: Path

    def peer(self, kind: Callable[[Kubernetes, str, PeerEnvironment, PeerProcess], Q], namespace: str) -> Q:
        """A participant that is a `kind` of the peer, with its environment, which is made where it is missing."""
        environment = PeerEnvironment.ensure()
        process = PeerProcess(environment, self.kubeconfig, namespace, self.scratch)
        return kind(self.api, namespace, environment, process)


@dataclass(frozen=True)
class Occasion(Generic[P]):
    """What makes one benchmark out of rounds.

    `name` stands in namespaces and in the file, `makers` has who can take part, `default` who does unless the command
    line says so, and `table` and `last_line` put the figures in words.
    """

    name: str
    about: str
    makers: Mapping[str, Callable[[Stage, str], P]]
    default: Sequence[str]
    trials: rounds.Trials[P]
    rounds_option: str
    table: Callable[[Results, Sequence[str]], str]
    last_line: Callable[[Results], str]

    def main(self) -> None:
        """Run it as the command line says."""
        # Interpreters of this machine and of the image may differ in their last number: nothing that is sent minds.
        warnings.simplefilter("ignore", VersionMismatchWarning)
        arguments = self._arguments()
        cluster = Cluster.find() if arguments.as_installed else Platform.up().cluster
        with tempfile.TemporaryDirectory(prefix="gpudask-bench-") as scratch:
            try:
                asyncio.run(self._run(arguments, cluster.kubeconfig, Path(scratch)))
            except (KeyboardInterrupt, asyncio.CancelledError):
                raise SystemExit("ended early; what was made for the benchmark is removed") from None

    def _arguments(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{self.name}", description=self.about)
        words = "rounds; every contestant has one turn in each"
        parser.add_argument(self.rounds_option, type=int, default=5, dest="rounds", help=words)
        parser.add_argument("--json", type=Path, help="keep all figures, versions and the machine in this file")
        who = f"who takes part, by commas: %(default)s; of {','.join(self.makers)}"
        parser.add_argument("--only", default=",".join(self.default), help=who)
        parser.add_argument(
            "--as-installed", action="store_true", help="take the operator that runs, instead of this checkout's"
        )
        arguments = parser.parse_args()
        arguments.only = arguments.only.split(",")
        if arguments.rounds < 1 or not set(arguments.only) <= self.makers.keys():
            parser.error(f"{self.rounds_option} is 1 or more, --only some of {','.join(self.makers)}")
        return arguments

    async def _run(self, arguments: argparse.Namespace, kubeconfig: Path, scratch: Path) -> None:
        task = asyncio.current_task()
        assert task is not None, "called within a loop"
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        api = await Kubernetes.connect(str(kubeconfig))
        turns: list[Turn] = []
        try:
            about = await machine.describe(api, (NAMESPACE, _OPERATOR), as_installed=arguments.as_installed)
            stage = Stage(api, kubeconfig, scratch)
            taking_part = [
                self.makers[name](stage, f"bench-{self.name}-{name}-{os.getpid()}") for name in arguments.only
            ]
            try:
                async with aclosing(rounds.run(api, taking_part, arguments.rounds, self.trials)) as running:
                    async for turn in running:
                        turns.append(turn)
                        _say(turn)
            finally:
                if arguments.json and turns:
                    arguments.json.parent.mkdir(parents=True, exist_ok=True)
                    arguments.json.write_text(json.dumps(self._kept(about, turns), indent=1) + "\n")
        finally:
            await api.close()
        results = _results(turns)
        print("", self.table(results, [each.title for each in taking_part]), "", self.last_line(results), sep="\n")

    def _kept(self, about: dict[str, Any], turns: Sequence[Turn]) -> dict[str, Any]:
        return {**about, self.name: self.last_line(_results(turns)), "turns": [turn.as_json() for turn in turns]}


def _say(turn: Turn) -> None:
    figures = " ".join(f"{name}={seconds:.2f}s" for name, seconds in turn.figures.items())
    failed = f" FAILED: {turn.error}" if turn.error else ""
    print(f"round {turn.round + 1} {turn.contestant} (load {turn.load[0]:.1f}): {figures}{failed}", flush=True)


def _results(turns: Sequence[Turn]) -> Results:
    return Results((turn.contestant, turn.figures) for turn in turns if not turn.error)
