"""The worker in one process is the one that `dask cuda worker` starts: both are started and compared.

There is no GPU: what dask-cuda asks about one is answered by `stand_ins`, or not asked (its own switch for tests).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from distributed import Client, LocalCluster, Security

from gpudask.launcher.script import one_process
from tests.eventually import eventually
from tests.launcher import described
from tests.releases.environment import Environment

pytestmark = [pytest.mark.dask, pytest.mark.registry]
STAND_INS = Path(__file__).with_name("stand_ins")
STAND_IN = {"CUDA_VISIBLE_DEVICES": "0", "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False"}
NO_DEVICE = STAND_IN | {"DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC": "1"}
cloudpickle.register_pickle_by_value(described)


@dataclass(frozen=True)
class Image:
    """The environment of the images, a scheduler, and a folder for logs."""

    python: Path
    client: Any
    folder: Path

    @contextlib.contextmanager
    def worker(
        self, name: str, *options: str, environment: dict[str, str], preload: str = "", address: str = ""
    ) -> Iterator[Worker]:
        """`dask cuda worker` with these options; `preload`: the launcher's text, empty for none."""
        scheduler = address or self.client.scheduler.address
        command = [self.python, "-m", "dask", "cuda", "worker", scheduler, "--name", name, *options]
        command += ["--preload", preload] if preload else []
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(STAND_INS), "HOME": str(self.folder)} | environment
        path = self.folder / f"{name}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(command, env=env, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield Worker(name, process, path, self.client)
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Worker:
    """One that was started; `log`: what it writes."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    client: Any

    @property
    def said(self) -> str:
        """What it wrote so far."""
        return self.log.read_text(errors="replace")

    def addresses(self) -> list[str]:
        """Of the workers that it registered; the client's own copy may be an older one for a moment."""
        found: list[str] = self.client.run_on_scheduler(described.addresses, self.name)
        return found

    def registered(self) -> Worker:
        """Wait until it is."""
        eventually(lambda: self.addresses() or self.process.poll() is not None, f"{self.name} is registered")
        assert self.addresses(), self.said
        return self

    def run(self, function: Any, *arguments: Any) -> Any:
        """Run this in it."""
        [address] = self.addresses()
        return self.client.run(function, *arguments, workers=[address])[address]

    def ended(self) -> int:
        """Wait for its exit code."""
        return self.process.wait(200)


@pytest.fixture(scope="module")
def python() -> Path:
    return Environment.of_images().python


@pytest.fixture
def image(python: Path, tmp_path: Path) -> Iterator[Image]:
    with scheduler() as client:
        yield Image(python, client, tmp_path)


@contextlib.contextmanager
def scheduler(**options: Any) -> Iterator[Any]:
    with LocalCluster(n_workers=0, dashboard_address=":0", **options) as cluster, Client(cluster) as client:
        yield client


OPTIONS: dict[str, list[str]] = {
    "none": [],
    "memory": [
        *("--memory-limit", "1GiB", "--device-memory-limit", "0.5", "--rmm-pool-size", "1GiB"),
        *("--rmm-maximum-pool-size", "2GiB", "--rmm-track-allocations"),
    ],
    "no spilling": ["--memory-limit", "0", "--device-memory-limit", "0"],
    "cuDF": ["--enable-cudf-spill", "--cudf-spill-stats", "2"],
    "imports": ["--pre-import", "wave,cudf", "--enable-cudf-spill", "--resources", "GPU=1 A=2", "--nthreads", "3"],
    "places": [
        *("--local-directory", "scratch", "--dashboard-prefix", "/here", "--death-timeout", "1 minute"),
        *("--no-dashboard", "--host", "127.0.0.1", "--worker-port", "0", "--protocol", "tcp"),
    ],
}


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        *(pytest.param(options, STAND_IN, id=name) for name, options in OPTIONS.items()),
        pytest.param(OPTIONS["imports"], NO_DEVICE, id="no device"),
    ],
)
def test_it_is_as_dask_cuda_makes_it(image: Image, options: list[str], environment: dict[str, str]):
    with image.worker("theirs", *options, environment=environment) as theirs:
        expected = theirs.registered().run(described.described)
    with image.worker("ours", *options, environment=environment, preload=one_process()) as ours:
        found = ours.registered().run(described.described)
        assert ours.run(described.processes) == {"children": 0, "nanny": None, "parent": os.getpid()}, ours.said

    expected |= {
        "name": "ours",
        # What imports cuDF to tell it two options leaves them where cuDF looks for them.
        "imported": [name for name in expected["imported"] if name != "cudf" or "wave,cudf" in options],
    }
    assert differences(expected, found) == {}


def differences(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """What differs, key for key, also one level below."""
    keys = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
    pairs = {key: (expected.get(key), found.get(key)) for key in keys}
    return {
        key: differences(*pair) if all(isinstance(item, dict) for item in pair) else pair for key, pair in pairs.items()
    }


def test_certificates_are_used_as_dask_cuda_uses_them(python: Path, tmp_path: Path):
    security = Security.temporary()
    files = {"--tls-ca-file": security.tls_ca_file, "--tls-cert": security.tls_worker_cert}
    options = []
    for flag, text in (files | {"--tls-key": security.tls_worker_key}).items():
        path = tmp_path / f"{flag.removeprefix('--')}.pem"
        path.write_text(text)
        options += [flag, str(path)]
    with scheduler(protocol="tls", security=security) as client:
        image = Image(python, client, tmp_path)
        with image.worker("ours", *options, environment=STAND_IN, preload=one_process()) as worker:
            assert worker.registered().addresses()[0].startswith("tls://")


def test_a_preload_of_the_users_runs_in_it(image: Image):
    (image.folder / "early.py").write_text("def dask_setup(worker):\n    worker.early = 'word'\n")
    options = ["--preload", str(image.folder / "early.py")]
    with image.worker("ours", *options, environment=STAND_IN, preload=one_process()) as worker:
        assert worker.registered().run(described.early) == "word"


@pytest.mark.parametrize(
    ("known", "unknown", "said"),
    [
        ("'nanny', 'dashboard'", "'nanny', 'else'", "Worker takes no else"),
        ("distributed.core import Status", "distributed.core import Nothing as Status", "cannot import name"),
        ("given['plugins']", "given['nothing']", "KeyError: 'nothing'"),
        ("nanny.instantiate()", "nanny.nothing()", "no attribute 'nothing'"),
    ],
    ids=["signature", "module", "argument", "call"],
)
def test_where_a_release_is_not_as_it_expects_the_worker_has_a_nanny(image: Image, known: str, unknown: str, said: str):
    text = one_process()
    assert known in text
    with image.worker("ours", environment=STAND_IN, preload=text.replace(known, unknown)) as worker:
        found = worker.registered().run(described.processes)
        assert found["nanny"]
        assert found["parent"] == worker.process.pid
        assert "The worker gets a process of its own, and a nanny" in worker.said
        assert said in worker.said


def test_several_devices_have_a_worker_and_a_nanny_each(image: Image):
    two = NO_DEVICE | {"CUDA_VISIBLE_DEVICES": "0,1"}
    with image.worker("ours", environment=two, preload=one_process()) as worker:
        eventually(lambda: len(worker.addresses()) == 2, "two workers", show=lambda: worker.said)
        assert "More than one device is visible" in worker.said


def test_sigterm_takes_it_from_the_scheduler_and_ends_it_with_success(image: Image):
    with image.worker("ours", environment=STAND_IN, preload=one_process()) as worker:
        worker.registered().process.send_signal(signal.SIGTERM)
        assert worker.ended() == 0, worker.said
        assert "Stopping worker" in worker.said
        eventually(lambda: not worker.addresses(), "it is gone")


def test_it_waits_for_a_scheduler_and_ends_when_it_is_told_to(image: Image):
    free = socket.create_server(("127.0.0.1", 0))
    nobody = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    free.close()
    with image.worker("ours", environment=STAND_IN, preload=one_process(), address=nobody) as worker:
        eventually(lambda: "Waiting to connect to" in worker.said, "it waits", show=lambda: worker.said)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ended() == 0, worker.said


def test_a_restart_of_the_cluster_ends_it_with_success_for_the_kubelet_to_start_it_again(image: Image):
    with image.worker("ours", environment=STAND_IN, preload=one_process()) as worker:
        worker.registered()
        image.client.restart(wait_for_workers=False)
        assert worker.ended() == 0, worker.said


def test_a_module_that_is_missing_ends_it_and_is_named_at_the_end_of_its_log(image: Image):
    options = ["--pre-import", "no_such_module"]
    with image.worker("ours", *options, environment=STAND_IN, preload=one_process()) as worker:
        assert worker.ended() == 1
        assert "ModuleNotFoundError: No module named 'no_such_module'" in worker.said[-2048:]


def test_bokeh_is_imported_after_the_workers_start_and_its_pages_are_there_then(image: Image):
    text, go = one_process(), image.folder / "go"
    moment = "await asyncio.sleep(DASHBOARD_SECONDS)"
    assert moment in text
    text = text.replace(moment, f"while not os.path.exists({str(go)!r}): await asyncio.sleep(0.1)")
    with image.worker("ours", environment=STAND_IN, preload=text) as worker:
        assert worker.registered().run(described.modules, "bokeh") == []
        go.touch()
        port = image.client.run_on_scheduler(described.dashboard_port)
        page = f"http://127.0.0.1:{port}/status"
        eventually(lambda: answers(page), "its page is there", show=lambda: worker.said)


def answers(page: str) -> bool:
    try:
        with urllib.request.urlopen(page) as answer:  # noqa: S310 - its own page
            return answer.status == 200
    except urllib.error.HTTPError:
        return False


DRIVER = """
import threading
threading.calls = getattr(threading, "calls", [])  # a preload is run twice
class Driver:
    def __getattr__(self, name):
        def call(*arguments):
            where = "main" if threading.current_thread() is threading.main_thread() else "thread"
            threading.calls.append((name, where))
            if name == "cuDevicePrimaryCtxRetain":
                arguments[0]._obj.value = 4711
            return 0
        return call
"""


def test_the_context_is_made_in_a_thread_and_becomes_the_main_threads(image: Image):
    text = DRIVER + one_process().replace("ctypes.CDLL('libcuda.so.1')", "Driver()")
    with image.worker("ours", environment=STAND_IN, preload=text) as worker:
        worker.registered()
        made = [(name, "thread") for name in ("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain")]
        eventually(
            lambda: worker.run(described.driver_calls) == [*made, ("cuCtxSetCurrent", "main")], "the driver is called"
        )
        assert "Unable to start CUDA Context" not in worker.said  # dask-cuda's own attempt, which needs a device


def test_ucx_makes_the_context_itself(image: Image):
    text = DRIVER + one_process().replace("ctypes.CDLL('libcuda.so.1')", "Driver()")
    with image.worker("ours", "--protocol", "ucxx", environment=STAND_IN, preload=text) as worker:
        worker.ended()  # there is no UCX here
        assert "The worker runs in this process" in worker.said
        assert "ucxx" in worker.said
