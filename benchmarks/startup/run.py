"""One run of a benchmark on the local cluster: its command line, the rounds, and the file that keeps its figures."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from distributed.versions import VersionMismatchWarning

from benchmarks.startup.participants import Participant
from benchmarks.startup.peer import Peer, PeerEnvironment, PeerProcess, version
from benchmarks.startup.report import Results
from benchmarks.testbed.report import describe, keep
from benchmarks.testbed.watch import PodWatch
from gpudask.api.resource import LABEL_DASK_CLUSTER
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from local.clusters.cluster import Cluster
from local.host.progress import Steps
from local.operator.release import NAMESPACE, install_checkout

_OPERATOR = "gpudask"
# Getting ready, and going, take no longer than this.
DEADLINE_SECONDS = 90.0
_POLL_SECONDS = 0.2
_SWEEP_SECONDS = 3.0
Figures = dict[str, float]
P = TypeVar("P", bound=Participant)
Q = TypeVar("Q", bound=Peer)


@dataclass(frozen=True)
class Access:
    """A participant's access: the API server, its kubeconfig, and a directory for files that go afterwards."""

    api: Kubernetes
    kubeconfig: Path
    scratch: Path

    def peer(self, kind: Callable[[Kubernetes, str, PeerEnvironment, PeerProcess], Q], namespace: str) -> Q:
        """A participant that is a `kind` of the peer, with its environment, which is made where it is missing."""
        environment = PeerEnvironment.ensure()
        process = PeerProcess(environment, self.kubeconfig, namespace, self.scratch)
        return kind(self.api, namespace, environment, process)


@dataclass(frozen=True)
class Benchmark(Generic[P]):
    """The parts of one benchmark that runs in rounds.

    `name` stands in namespaces and in the file, `makers` has who can take part, `default` who does unless the command
    line says so, and `table` and `last_line` put the figures in words.
    """

    name: str
    about: str
    makers: Mapping[str, Callable[[Access, str], P]]
    default: Sequence[str]
    trials: Trials[P]
    rounds_option: str
    table: Callable[[Results, Sequence[str]], str]
    last_line: Callable[[Results], str]

    def main(self) -> None:
        """Run it as the command line says."""
        # Interpreters of this machine and of the image may differ in their last number: nothing that is sent minds.
        warnings.simplefilter("ignore", VersionMismatchWarning)
        arguments = self._arguments()
        cluster = Cluster.find() if arguments.as_installed else _up()
        with tempfile.TemporaryDirectory(prefix="gpudask-bench-") as scratch:
            try:
                asyncio.run(self._run(arguments, cluster.kubeconfig, Path(scratch)))
            except (KeyboardInterrupt, asyncio.CancelledError):
                raise SystemExit("ended early; what was made for the benchmark is removed") from None

    def _arguments(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{self.name}", description=self.about)
        words = "rounds; every participant has one turn in each"
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
            about = await _about(api, as_installed=arguments.as_installed)
            access = Access(api, kubeconfig, scratch)
            taking_part = [
                self.makers[name](access, f"bench-{self.name}-{name}-{os.getpid()}") for name in arguments.only
            ]
            try:
                async with aclosing(_rounds(api, taking_part, arguments.rounds, self.trials)) as running:
                    async for turn in running:
                        turns.append(turn)
                        _say(turn)
            finally:
                if arguments.json and turns:
                    keep(arguments.json, self._kept(about, turns))
        finally:
            await api.close()
        results = _results(turns)
        print("", self.table(results, [each.title for each in taking_part]), "", self.last_line(results), sep="\n")

    def _kept(self, about: dict[str, Any], turns: Sequence[Turn]) -> dict[str, Any]:
        return {**about, self.name: self.last_line(_results(turns)), "turns": [turn.as_json() for turn in turns]}


def _up() -> Cluster:
    cluster = Cluster.up("default", steps=Steps())
    install_checkout(cluster, Steps())
    return cluster


async def _about(api: Kubernetes, *, as_installed: bool) -> dict[str, Any]:
    """Date, machine and versions. `as_installed`: the operator may be of another commit than the floor's pods."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{_OPERATOR}"
    image = (await api.request("GET", path))["spec"]["template"]["spec"]["containers"][0]["image"]
    of_operators = {"gpudask-operator": image, "gpudask-operator-as-installed": as_installed}
    kubernetes = (await api.request("GET", "/version"))["gitVersion"]
    return describe(kubernetes, ["distributed"], **{"dask-kubernetes": version()}, **of_operators)


def _say(turn: Turn) -> None:
    figures = " ".join(f"{name}={seconds:.2f}s" for name, seconds in turn.figures.items())
    failed = f" FAILED: {turn.error}" if turn.error else ""
    print(f"round {turn.round + 1} {turn.participant} (load {turn.load[0]:.1f}): {figures}{failed}", flush=True)


def _results(turns: Sequence[Turn]) -> Results:
    return Results((turn.participant, turn.figures) for turn in turns if not turn.error)


class StepTookTooLongError(Exception):
    """A step was given up."""


class Trial(Protocol):
    """The steps of one turn. `figures`: name -> seconds, filled as steps end: a failure keeps what went well."""

    figures: Figures

    async def run(self) -> None:
        """All steps.

        Raises:
            StepTookTooLongError: what was asked for did not come; the text shows the pods.
            ApiError: a request was refused.
        """


# Makes the trial of a participant's turn in a round of this number.
Trials = Callable[[P, Kubernetes, PodWatch, int], Trial]


@dataclass
class Turn:
    """The figures of one participant's turn; with an `error`, its figures do not count.

    `began` is in seconds since the epoch, `load` the machine's one-minute load at the beginning and at the end.
    """

    round: int
    participant: str
    began: float
    load: list[float]
    figures: Figures = field(default_factory=dict)
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """For the file."""
        content = asdict(self)
        return {"round": content.pop("round"), "contestant": content.pop("participant"), **content}


def order(titles: Sequence[str], number: int) -> list[str]:
    """The order of participants in round `number`: nobody is always the first."""
    start = number % max(1, len(titles))
    return [*titles[start:], *titles[:start]]


async def _rounds(api: Kubernetes, participants: Sequence[P], repeats: int, trials: Trials[P]) -> AsyncGenerator[Turn]:
    """So many rounds; one Turn each, when it ends. Who lost a turn gets another, in at most as many rounds more."""
    complete: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        by_title = {participant.title: participant for participant in participants}
        watches = {p.title: await stack.enter_async_context(_namespace(api, p)) for p in participants}
        for number in range(2 * repeats):
            for title in order([title for title in by_title if complete[title] < repeats], number):
                turn = await _turn(by_title[title], api, watches[title], number, trials)
                complete[title] += not turn.error
                yield turn


async def _turn(participant: P, api: Kubernetes, watch: PodWatch, number: int, trials: Trials[P]) -> Turn:
    turn = Turn(number, participant.title, time.time(), [os.getloadavg()[0]])
    trial = trials(participant, api, watch, number)
    try:
        before = (watch.breaks, await participant.served_by())
        await trial.run()
        if (watch.breaks, await participant.served_by()) != before:
            turn.error = "disturbed: the API server or the operator was restarted meanwhile"
    except (StepTookTooLongError, TimeoutError, ApiError, OSError) as error:  # the other turns still count
        turn.error = f"{type(error).__name__}: {error}"
    turn.figures = trial.figures
    turn.load.append(os.getloadavg()[0])
    return turn


@asynccontextmanager
async def _namespace(api: Kubernetes, participant: Participant) -> AsyncIterator[PodWatch]:
    """The participant's namespace, its pods watched; the namespace is gone afterwards."""
    name = participant.namespace
    watch = PodWatch(api, name)
    try:
        await api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
        watching = asyncio.create_task(watch.run())
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await watch.open.wait()
                await participant.prepare()
            yield watch
        finally:
            watching.cancel()
    finally:
        try:
            await participant.close()
        finally:
            await _remove_namespace(api, name)


async def shown(api: Kubernetes, namespace: str, cluster: str) -> str:
    """A cluster's pods, as far as they tell why it does not come."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    listed = await api.request("GET", path, query={"labelSelector": f"{LABEL_DASK_CLUSTER}={cluster}"})
    pods = {item["metadata"]["name"]: item["status"] for item in listed["items"]}
    states = {
        pod: [container["state"] for container in status.get("containerStatuses", ())] or status["phase"]
        for pod, status in pods.items()
    }
    return f"pods: {states or 'none'}"


async def clear(api: Kubernetes, participant: Participant, watch: PodWatch, cluster: str) -> None:
    """Remove a cluster, and end its pods without their grace, again and again: their maker may not have heard yet."""
    with suppress(ApiError):
        await participant.remove(cluster)
    path = f"/api/v1/namespaces/{participant.namespace}/pods"
    query = {"labelSelector": f"{LABEL_DASK_CLUSTER}={cluster}", "gracePeriodSeconds": "1"}
    async with asyncio.timeout(DEADLINE_SECONDS):
        while watch.left(cluster):
            await api.request("DELETE", path, query=query)
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_SECONDS):
                    await watch.until(lambda: not watch.left(cluster))


async def _remove_namespace(api: Kubernetes, name: str) -> None:
    path = f"/api/v1/namespaces/{name}"
    async with asyncio.timeout(DEADLINE_SECONDS):
        try:
            await api.request("DELETE", path)
            while True:
                await api.request("GET", path)
                await asyncio.sleep(_POLL_SECONDS)
        except ApiError as error:
            if not error.not_found:
                raise
