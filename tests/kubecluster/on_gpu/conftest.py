"""A real scheduler with the preload and workers, each a process of its own: GPU workers have a device, we have none."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed import Client, Scheduler, Worker

from gpudask import KubeCluster
from local.host.ports import free_ports
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.preload.separate import USER_MODULES
from tests.preload.test_entry import mount

WORKER = "demo-gpu-worker-0-00000"


class Pods:
    """The processes of the cluster `demo`; `address` is the scheduler's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = free_ports(2)
        self.address = f"tcp://127.0.0.1:{ports[0]}"
        (folder / "token").write_text("")
        (folder / "pools").write_text(
            '{"cpu": {"accepts": "any", "gpu": false},'
            ' "gpu": {"accepts": "annotated", "gpu": true, "offers": {"GPU": 1}}}'
        )
        preload = mount(folder / "mounted")
        command = ["scheduler", "--host", "127.0.0.1", "--port", str(ports[0]), "--preload", str(preload)]
        command += ["--no-dashboard", "--dashboard-address", f"127.0.0.1:{ports[1]}"]  # nobody looks at it
        self._start("scheduler", *command, DEVICES="none")

    def add(self, name: str, *, offers: str = "GPU=1", nthreads: int = 1) -> None:
        """Start a worker and wait until it is registered."""
        command = ["worker", self.address, "--no-nanny", "--no-dashboard", "--nthreads", str(nthreads)]
        command += ["--name", name, "--host", "127.0.0.1"]
        devices = "some" if offers else "none"
        self._start(name, *command, *(["--resources", offers] if offers else []), DEVICES=devices)
        with Client(self.address) as client:
            eventually(
                lambda: name in {row["name"] for row in client.scheduler_info(n_workers=-1)["workers"].values()}, name
            )

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes.pop(name).wait(60)

    def log(self, name: str) -> str:
        return (self.folder / f"log-{name}").read_text()

    def _start(self, name: str, *command: str, **env: str) -> None:
        settings = {
            "GPUDASK_POOLS_FILE": str(self.folder / "pools"),
            "GPUDASK_TOKEN_SHA256_FILE": str(self.folder / "token"),
            "DASK_GPUDASK__GRAPHS__MODULES": "['device_frames']",
            "PYTHONPATH": USER_MODULES,
        }
        with (self.folder / f"log-{name}").open("w") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", "dask", *command],
                env=os.environ | settings | env,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)


@contextmanager
def running(folder: Path) -> Iterator[Pods]:
    """The scheduler of `demo`; no worker yet."""
    made = Pods(folder)
    try:
        with Client(made.address, timeout=60):
            pass
        yield made
    finally:
        made.close()
        for name in [path.name for path in folder.glob("log-*")]:
            print(f"--- {name}", made.log(name.removeprefix("log-"))[-4000:])  # seen when the test fails


def serve(server: fake.FakeServer, pods: Pods) -> None:
    """Have the API server know the scheduler."""
    host, port = pods.address.removeprefix("tcp://").split(":")
    server.targets["demo-scheduler-00000"] = (host, int(port))
    server.pods.append(fake.scheduler_pod("demo-scheduler-00000"))


@pytest.fixture
def with_gpus(server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch) -> fake.FakeServer:
    """The API server, where the pool gpu of `demo` has GPUs. This process has no device."""
    monkeypatch.setenv("DEVICES", "none")
    monkeypatch.syspath_prepend(USER_MODULES)
    server.clusters["demo"]["spec"]["pools"][1] |= {"gpu": {}, "autoscale": {"min": 0, "max": 1}}
    return server


@pytest.fixture
def pods(with_gpus: fake.FakeServer, tmp_path: Path) -> Iterator[Pods]:
    """The scheduler of `demo`, of the test's own; no worker yet."""
    with running(tmp_path) as made:
        serve(with_gpus, made)
        yield made


@pytest.fixture
def own_gpu(pods: Pods) -> Iterator[KubeCluster]:
    """The cluster with one GPU worker of one thread, of the test's own: the test may do to them what it likes."""
    pods.add(WORKER)
    with KubeCluster.from_name("demo", quiet=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    """A scheduler and a GPU worker for all tests of a file: processes take longer to start than most tests to run."""
    with running(tmp_path_factory.mktemp("kept")) as made:
        made.add(WORKER)
        yield made


@pytest.fixture
def one_gpu(kept: Pods, with_gpus: fake.FakeServer) -> Iterator[KubeCluster]:
    """The cluster with one GPU worker of one thread. They are the next test's as well: it finds them as this one did.

    Raises:
        AssertionError: something of the test stays there.
    """
    serve(with_gpus, kept)
    with KubeCluster.from_name("demo", quiet=True) as cluster:
        yield cluster
    with Client(kept.address) as client:
        eventually(lambda: not left(client), "nothing of the test stays", show=lambda: left(client))


def left(client: Client) -> list[str]:
    """What a test left with the scheduler and at its worker, which have no tests: these functions travel by value."""

    def there(dask_scheduler: Scheduler) -> list[str]:
        others = set(dask_scheduler.clients) - {"fire-and-forget", client_id}
        clients = [name for name in others if not name.startswith("Client-worker-")]  # the worker's own, which it keeps
        workers = [str(state.name) for state in dask_scheduler.workers.values() if state.name != WORKER]
        return [*dask_scheduler.tasks, *dask_scheduler.extensions["variables"].variables, *clients, *workers]

    def at(dask_worker: Worker) -> list[str]:
        kept = [name for name in ("gpudask_namespaces", "gpudask_lent") if dask_worker.__dict__.get(name)]
        return [*dask_worker.state.tasks, *dask_worker.data, *kept]

    client_id = client.id
    found: list[str] = client.run_on_scheduler(there)
    return found + [name for names in client.run(at).values() for name in names]
