"""The runner of measurements: kubectl, clusters that come and go, pods that run a program, and the watch on both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu import manifests
from benchmarks.testbed.pods import SeenPod, SeenPods
from local.layout import Layout

Json = dict[str, Any]

WATCH = ("get", "pods", "--watch", "--output-watch-events", "--output=json")
"""What kubectl is told, for a `PodWatch` to read."""
_LOCAL_CLUSTER = "default"
_RESULT = "RESULT "
_PROGRAM_SECONDS = 200.0
_START_SECONDS = 90.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.1
_LAST_LINES = 30  # of each container
_DRY = "--shrink=1000"


class BenchmarkError(Exception):
    """A measurement cannot go on; the text says why, and what to do."""


@dataclass(frozen=True)
class Kubectl:
    """One kubectl and one namespace; `environment` has KUBECONFIG."""

    path: str
    namespace: str
    environment: dict[str, str]

    @classmethod
    def find(cls, namespace: str) -> Kubectl:
        """KUBECONFIG's cluster, else the local one.

        Raises:
            BenchmarkError: there is no kubectl.
        """
        layout = Layout.of(_LOCAL_CLUSTER)
        environment = dict(os.environ)
        environment.setdefault("KUBECONFIG", str(layout.kubeconfig))
        own = layout.commands / "kubectl"
        path = shutil.which("kubectl") or (str(own) if own.exists() else None)
        if path is None:
            raise BenchmarkError("there is no kubectl: start a cluster (python3 -m local up --from-bundle DIRECTORY)")
        return cls(path, namespace, environment)

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run it.

        Raises:
            BenchmarkError: it failed; the text is what it wrote.
        """
        done = subprocess.run(
            self._command(arguments), input=stdin, capture_output=True, text=True, check=False, env=self.environment
        )
        if done.returncode:
            raise BenchmarkError(f"kubectl {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """What `get` and its like say, as JSON."""
        return json.loads(self(*arguments, "--output=json"))

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply objects."""
        self("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """One that goes on, such as a watch, whose lines are read; ended afterwards."""
        process = subprocess.Popen(
            self._command(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [self.path, f"--namespace={self.namespace}", *arguments]


class PodWatch(threading.Thread):
    """Reads what `kubectl` writes for `WATCH`, of a namespace's pods, until that is ended; by `time.time()`."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__(daemon=True)
        self._lines = lines
        self._pods = SeenPods()

    def run(self) -> None:
        """Read events: kubectl writes each as one line of JSON."""
        for line in self._lines:
            self._pods.see(json.loads(line), time.time())

    def pods(self, pool: str) -> list[SeenPod]:
        """All pods of a pool that were ever seen, the oldest first."""
        return sorted((pod for pod in self._pods.all() if pod.pool == pool), key=lambda pod: pod.created)

    def until(self, found: Callable[[list[SeenPod]], list[SeenPod]], what: str, pool: str, seconds: float) -> SeenPod:
        """Wait for pods of `pool` that `found` picks from all that were seen. Returns the last of them.

        Raises:
            BenchmarkError: none came, or nobody watches any more; the text has `what` and all that was seen.
        """
        deadline = time.monotonic() + seconds
        while not (picked := found(self.pods(pool))):
            if not self.is_alive():
                raise BenchmarkError(f"{what}: the watch on pods has ended, so nobody can tell")
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{what}: not within {seconds:.0f} s; seen of pool {pool}: {self.pods(pool)}")
            time.sleep(_POLL_SECONDS)
        return picked[-1]

    def until_all_gone(self, pool: str, seconds: float) -> SeenPod:
        """Wait until pods of `pool` were there and none is left. Returns the one that went last.

        Raises:
            BenchmarkError: some are left, or none was ever seen.
        """

        def gone(pods: list[SeenPod]) -> list[SeenPod]:
            return sorted(pods, key=lambda pod: pod.gone) if all(pod.gone for pod in pods) else []

        return self.until(gone, "all idle pods are gone", pool, seconds)


@dataclass(frozen=True)
class Runner:
    """A Kubernetes with the operator and `gpus` GPUs; what is measured is repeated `repeats` times.

    With `stand_in` nothing is measured: pods are small, ask no driver, and have NumPy under CuPy's name. `kernels` is a
    directory of the nodes in which compiled kernels are kept.
    """

    kubectl: Kubectl
    image: str
    template: Json
    python: str | None
    gpus: int
    repeats: int
    stand_in: bool = False
    kernels: str = ""

    def prepare(self) -> None:
        """Have the namespace and the programs in it, and nothing of an earlier run."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.kubectl.namespace}}
        self.kubectl.apply(namespace)
        self.kubectl("delete", "gpudaskclusters", "--all")
        self.clear()
        here = Path(__file__).parent
        files = {name: (here / "programs" / name).read_text() for name in manifests.FILES}
        if self.stand_in:
            module = (here / "stand_in.py").read_text()
            files |= {"stand_in.py": module, "stand_in_cupy.py": manifests.STAND_IN_CUPY}
        self.kubectl.apply(manifests.programs(files))

    def clear(self) -> None:
        """Wait until no pod is left: GPUs that one holds are nobody else's."""
        self.kubectl("delete", "pods", "--all", "--wait=true", "--timeout=60s")

    @contextmanager
    def cluster(self, name: str, *pools: Json, protocol: str = "tcp") -> Iterator[str]:
        """The scheduler's address of a cluster that was applied; gone afterwards, pods and all."""
        taken = [manifests.without_devices(pool) for pool in pools] if self.stand_in else list(pools)
        manifest = manifests.cluster(name, self.image, self.template, taken, protocol)
        if self.python:  # an image of its own, where `dask` is a program that imports from nowhere else
            manifest["spec"]["env"] = [{"name": "PYTHONPATH", "value": manifests.DIRECTORY}]
        self.kubectl.apply(manifest)
        try:
            self.kubectl("wait", f"gpudaskcluster/{name}", "--for=condition=Ready", f"--timeout={_START_SECONDS:.0f}s")
            yield self.kubectl("get", "gpudaskcluster", name, "--output=jsonpath={.status.scheduler.address}")
        except BenchmarkError as error:
            raise BenchmarkError(f"{self._seen(name)}\n{error}") from error
        finally:
            self.kubectl("delete", "gpudaskcluster", name)
            self.clear()

    def _seen(self, name: str) -> str:
        """What a cluster says of itself, and the last words of its pods."""
        cluster = f"gpudask.dev/cluster={name}"
        asked = (
            ("get", "gpudaskcluster", name, "--output=jsonpath={.status}"),
            ("logs", f"--selector={cluster}", "--all-containers", "--prefix", f"--tail={_LAST_LINES}"),
        )
        return "\n".join(self._attempted(*words) for words in asked)

    def _attempted(self, *words: str) -> str:
        try:
            return self.kubectl(*words)
        except BenchmarkError as error:
            return str(error)

    @contextmanager
    def watch(self) -> Iterator[PodWatch]:
        """The namespace's pods, from now on."""
        with self.kubectl.started(*WATCH) as process:
            assert process.stdout is not None, "it is a pipe"
            watch = PodWatch(process.stdout)
            watch.start()
            yield watch

    def run(self, program: str, *arguments: str, gpus: int = 0) -> Json:
        """The last figures of a program, run in a pod of its own that holds so many GPUs."""
        return list(self.figures(program, *arguments, gpus=gpus))[-1]

    def figures(self, program: str, *arguments: str, gpus: int = 0) -> Iterator[Json]:
        """What a program says, as it says it.

        Raises:
            BenchmarkError: it failed, or said nothing; the text has the last that it wrote.
        """
        name = program.replace("_", "-")
        words = [f"{manifests.PACKAGE}.{program}", *arguments, *([_DRY] if self.stand_in else [])]
        pod = manifests.program_pod(name, self.image, self.template, words, gpus=gpus, python=self.python)
        if self.stand_in and gpus:
            pod["spec"]["containers"][0]["env"] = manifests.no_devices(gpus)
        self.kubectl.apply(pod)
        try:
            self._started(name)
            yield from self._said(name)
        finally:
            self.kubectl("delete", "pod", name, "--ignore-not-found", "--wait=true", "--timeout=60s")

    def _said(self, name: str) -> Iterator[Json]:
        said: list[str] = []
        count = 0
        with self.kubectl.started("logs", "--follow", name) as process:
            timer = threading.Timer(_PROGRAM_SECONDS, process.kill)
            timer.start()
            assert process.stdout is not None, "it is a pipe"
            for line in process.stdout:
                said.append(line)
                if line.startswith(_RESULT):
                    count += 1
                    yield json.loads(line.removeprefix(_RESULT))
            timer.cancel()
        phase = self._end(name)
        if phase != "Succeeded" or not count:
            raise BenchmarkError(f"program {name} is {phase}; it wrote last:\n{''.join(said[-30:])}")

    def _started(self, name: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._phase(name) == "Pending":
            if time.monotonic() > deadline:
                said = self.kubectl("describe", "pod", name)[-1500:]
                raise BenchmarkError(f"program {name} does not start within {_START_SECONDS:.0f} s:\n{said}")
            time.sleep(_POLL_SECONDS)

    def _phase(self, name: str) -> str:
        return self.kubectl("get", "pod", name, "--output=jsonpath={.status.phase}")

    def _end(self, name: str) -> str:
        """How a pod ended whose container has: the kubelet needs a moment to say so."""
        deadline = time.monotonic() + _END_SECONDS
        while (phase := self._phase(name)) == "Running" and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return phase
