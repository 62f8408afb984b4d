"""The command: who takes part, the run, and what is printed and kept."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from distributed.versions import VersionMismatchWarning

from benchmarks.startup import machine, report, rounds
from benchmarks.startup.contestant import Contestant
from benchmarks.startup.floor import Floor
from benchmarks.startup.gpudask_operator import GpudaskOperator
from benchmarks.startup.peer import Peer
from benchmarks.startup.peer_environment import PeerEnvironment
from benchmarks.startup.peer_process import PeerProcess
from benchmarks.startup.rounds import Turn
from gpudask.clients.kubernetes import Kubernetes
from local.cluster import Cluster
from local.operator_release import NAMESPACE
from tests.e2e.platform import Platform

_SHORT = {"floor": report.FLOOR, "gpudask": report.GPUDASK, "peer": report.PEER}
_OPERATOR = "gpudask"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="rounds; every contestant has one turn in each")
    parser.add_argument("--json", type=Path, help="keep all figures, versions and the machine in this file")
    parser.add_argument("--only", default=",".join(_SHORT), help="who takes part, by commas: %(default)s")
    parser.add_argument(
        "--as-installed", action="store_true", help="take the operator that runs, instead of building this checkout's"
    )
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if arguments.repeats < 1 or not set(arguments.only) <= _SHORT.keys():
        parser.error(f"--repeats is 1 or more, --only some of {','.join(_SHORT)}")
    return arguments


async def _run(arguments: argparse.Namespace, kubeconfig: Path, scratch: Path) -> None:
    task = asyncio.current_task()
    assert task is not None, "called within a loop"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    api = await Kubernetes.connect(str(kubeconfig))
    turns: list[Turn] = []
    try:
        about = await machine.describe(api, (NAMESPACE, _OPERATOR), as_installed=arguments.as_installed)
        contestants = [_contestant(name, api, kubeconfig, scratch) for name in arguments.only]
        try:
            async with aclosing(rounds.run(api, contestants, arguments.repeats)) as running:
                async for turn in running:
                    turns.append(turn)
                    _say(turn)
        finally:
            if arguments.json and turns:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                arguments.json.write_text(json.dumps(_kept(about, turns), indent=1) + "\n")
    finally:
        await api.close()
    _print(turns, [contestant.title for contestant in contestants])


def _contestant(name: str, api: Kubernetes, kubeconfig: Path, scratch: Path) -> Contestant:
    namespace = f"bench-startup-{name}-{os.getpid()}"
    if name == "floor":
        return Floor(api, namespace)
    if name == "gpudask":
        return GpudaskOperator(api, namespace)
    environment = PeerEnvironment.ensure()
    return Peer(api, namespace, environment, PeerProcess(environment, kubeconfig, namespace, scratch))


def _say(turn: Turn) -> None:
    figures = " ".join(f"{name}={seconds:.2f}s" for name, seconds in turn.figures.items())
    failed = f" FAILED: {turn.error}" if turn.error else ""
    print(f"round {turn.round + 1} {turn.contestant} (load {turn.load[0]:.1f}): {figures}{failed}", flush=True)


def _kept(about: dict[str, Any], turns: Sequence[Turn]) -> dict[str, Any]:
    return {**about, "startup": report.last_line(_results(turns)), "turns": [turn.as_json() for turn in turns]}


def _print(turns: Sequence[Turn], titles: Sequence[str]) -> None:
    results = _results(turns)
    print()
    print(report.table(results, titles))
    print()
    print(report.last_line(results))


def _results(turns: Sequence[Turn]) -> report.Results:
    return report.Results((turn.contestant, turn.figures) for turn in turns if not turn.error)


def main() -> None:
    """Run the benchmark on the local cluster."""
    # Interpreters of this machine and of the image may differ in their last number: nothing that is sent minds.
    warnings.simplefilter("ignore", VersionMismatchWarning)
    arguments = _arguments()
    cluster = Cluster.find() if arguments.as_installed else Platform.up().cluster
    with tempfile.TemporaryDirectory(prefix="gpudask-bench-") as scratch:
        try:
            asyncio.run(_run(arguments, cluster.kubeconfig, Path(scratch)))
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise SystemExit("ended early; what was made for the benchmark is removed") from None


if __name__ == "__main__":
    main()
