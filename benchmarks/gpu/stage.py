"""Where measurements happen: clusters that come and go, pods that run a program, and the watch on both."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu import manifests
from benchmarks.gpu.kubectl import BenchmarkError, Kubectl
from benchmarks.gpu.sight import WATCH, PodWatch

Json = dict[str, Any]

_RESULT = "RESULT "
_PROGRAM_SECONDS = 200.0
_START_SECONDS = 90.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.1
_LAST_LINES = 30  # of each container
_DRY = "--shrink=1000"


@dataclass(frozen=True)
class Stage:
    """A Kubernetes with the operator and `gpus` GPUs; what is measured is repeated `repeats` times.

    With `stand_in` nothing is measured: pods are small, ask no driver, and have NumPy under CuPy's name.
    """

    kubectl: Kubectl
    image: str
    template: Json
    python: str | None
    gpus: int
    repeats: int
    stand_in: bool = False

    def prepare(self) -> None:
        """Have the namespace and the programs in it, and nothing of an earlier run."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.kubectl.namespace}}
        self.kubectl.apply(namespace)
        self.kubectl("delete", "gpudaskclusters", "--all")
        self.clear()
        here = Path(__file__).parent
        files = {name: (here / "programs" / name).read_text() for name in manifests.FILES}
        if self.stand_in:
            places = manifests.STAND_INS.items()
            files |= {key: (here / "stand_in" / Path(path).name).read_text() for key, path in places}
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
