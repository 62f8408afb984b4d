"""A fake API server in front of a real Dask scheduler in this process."""

import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import yaml
from distributed import Scheduler, SpecCluster, Worker

from gpudask.kubecluster.display import Progress
from gpudask.kubecluster.timing import Clock, Timing
from tests.eventually import eventually_async
from tests.kubecluster import fake_server

_SECONDS = 120.0
# For waits that are over soon or at once: the one answer that they get may take its time on a busy machine.
PATIENT = Timing(least_request_seconds=120.0, scheduler_seconds=120.0)


@pytest.fixture
def dask() -> Iterator[SpecCluster]:
    names = {"demo-cpu-worker-0-aaaaa": {}, "demo-gpu-worker-0-bbbbb-0": {"GPU": 1}}
    with SpecCluster(
        scheduler={
            "cls": Scheduler,
            "options": {"dashboard": False, "dashboard_address": "127.0.0.1:0", "port": 0, "host": "127.0.0.1"},
        },
        workers={
            name: {"cls": Worker, "options": {"nthreads": 1, "resources": offers, "dashboard": False}}
            for name, offers in names.items()
        },
    ) as running:
        yield running


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_server.FakeServer]:
    """A server with the cluster `demo`, which has pools cpu and gpu, and no scheduler pod yet."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with fake_server.FakeServer() as fake:
        fake.clusters["demo"] = fake_server.cluster("demo", "cpu", "gpu")
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(fake.kubeconfig()))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield fake


@pytest.fixture
def demo(server: fake_server.FakeServer, dask: SpecCluster) -> fake_server.FakeServer:
    """The same, and its scheduler runs."""
    add_scheduler(server, dask, "demo-scheduler-00000")
    return server


def be_inside(server: fake_server.FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """This program is a pod of the Kubernetes whose API server `server` is."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))


def add_scheduler(server: fake_server.FakeServer, dask: SpecCluster, name: str, **options: object) -> None:
    host, port = dask.scheduler_address.removeprefix("tcp://").split(":")
    server.targets[name] = (host, int(port))
    server.pods.append(fake_server.scheduler_pod(name, **options))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each line that a wait had to show so far, also of one that is quiet."""
    lines: list[str] = []
    show = Progress.show

    def noted(self: Progress, given: list[str]) -> None:
        show(self, given)
        lines.extend(given)

    monkeypatch.setattr(Progress, "show", noted)
    return lines


def clock_until(happened: Callable[[], bool], what: str, *, at_most_seconds: float) -> Clock:
    """A clock that is slow until it `happened`: no wait of more than `at_most_seconds` is over before that.

    It goes on, also where much time had passed before the wait began: what is said is said after some of it.
    """
    began = time.monotonic()

    def monotonic() -> float:
        passed = time.monotonic() - began
        if happened():
            return passed
        assert passed < _SECONDS, f"not within {_SECONDS:g} s: {what}"
        return passed * at_most_seconds / _SECONDS

    return Clock(monotonic=monotonic)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait in the test's own loop, which what is waited for runs in."""
    await eventually_async(_answer_of(condition), bool, what)


def _answer_of(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def answer() -> bool:
        return condition()

    return answer
