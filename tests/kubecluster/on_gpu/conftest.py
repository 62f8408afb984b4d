"""A real scheduler with the preload and workers, each a process of its own: GPU workers have a device, we have none."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from gpudask import KubeCluster
from local.host.ports import free_ports
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.preload.separate import USER_MODULES
from tests.preload.test_entry import mount


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
        self._start("scheduler", *command, "--dashboard-address", f"127.0.0.1:{ports[1]}", DEVICES="none")

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


@pytest.fixture
def pods(server: fake.FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pods]:
    """The scheduler of `demo`, whose pool gpu has GPUs; no worker yet. This process has no device."""
    monkeypatch.setenv("DEVICES", "none")
    monkeypatch.syspath_prepend(USER_MODULES)
    server.clusters["demo"]["spec"]["pools"][1] |= {"gpu": {}, "autoscale": {"min": 0, "max": 1}}
    made = Pods(tmp_path)
    try:
        with Client(made.address, timeout=60):
            pass
        host, port = made.address.removeprefix("tcp://").split(":")
        server.targets["demo-scheduler-00000"] = (host, int(port))
        server.pods.append(fake.scheduler_pod("demo-scheduler-00000"))
        yield made
    finally:
        made.close()
        for name in [path.name for path in tmp_path.glob("log-*")]:
            print(f"--- {name}", (tmp_path / name).read_text()[-4000:])  # seen when the test fails


@pytest.fixture
def one_gpu(pods: Pods) -> Iterator[KubeCluster]:
    """The cluster with one GPU worker of one thread."""
    pods.add("demo-gpu-worker-0-00000")
    with KubeCluster.from_name("demo", quiet=True) as cluster:
        yield cluster
