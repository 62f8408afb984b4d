"""Real schedulers, with the preload or without, and workers, each a process of this machine; and a client of theirs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from distributed import Client

from gpudask.preload import files

TOKEN = "benchmark"  # noqa: S105 (of a scheduler on this machine's loopback, for as long as a turn lasts)
# A scheduler has a core for itself, where there are two: whoever shares its core makes its tasks dearer by chance.
_CORES = sorted(os.sched_getaffinity(0))
_SCHEDULER_CORES = {_CORES[-1]}
_OTHER_CORES = set(_CORES[:-1]) or _SCHEDULER_CORES
POOLS = {"cpu": {"accepts": "any"}, "gpu": {"accepts": "annotated"}}


@contextlib.contextmanager
def scheduler(folder: Path, where: Path, *, preload: bool) -> Iterator[subprocess.Popen[bytes]]:
    """Run a scheduler that writes its address to `where`; `folder` takes the files that the operator would mount."""
    command = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
    command += ["--scheduler-file", str(where)]
    environment = {}
    if preload:
        for name, content in files().items():
            (folder / name).write_bytes(content)
        (folder / "token").write_text(hashlib.sha256(TOKEN.encode()).hexdigest())
        (folder / "pools").write_text(json.dumps(POOLS))
        environment = {"GPUDASK_TOKEN_SHA256_FILE": str(folder / "token"), "GPUDASK_POOLS_FILE": str(folder / "pools")}
        command += ["--preload", str(folder / "gpudask_entry.py")]
    with _dask(command, environment, _SCHEDULER_CORES) as process:
        yield process


@contextlib.contextmanager
def worker(where: Path, name: str, *, threads: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker of pod `bench-<name>-00000`; one whose name begins with `gpu` offers as many GPUs as threads."""
    command = ["worker", "--scheduler-file", str(where), "--name", f"bench-{name}-00000", "--no-nanny"]
    command += ["--nthreads", str(threads), "--memory-limit", "0", "--no-dashboard", "--host", "127.0.0.1"]
    if name.startswith("gpu"):
        command += ["--resources", f"GPU={threads}"]
    with _dask(command, {}, _OTHER_CORES) as process:
        yield process


def connected(where: Path) -> Any:
    """A client, to be closed as a context, of the scheduler that wrote `where`. It is nobody's default."""
    make_client: Any = Client  # it has no types
    return make_client(scheduler_file=str(where), timeout=60, set_as_default=False)


def until(condition: Callable[[], bool], what: str, *, seconds: float) -> None:
    """Wait until `condition()` holds, which is asked every 0.05 s.

    Raises:
        TimeoutError: not within `seconds`; the message says what was waited for.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def _dask(command: list[str], environment: dict[str, str], cores: set[int]) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *command],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        os.sched_setaffinity(process.pid, cores)  # before it has threads, which inherit it
        try:
            yield process
        except Exception as error:
            log.seek(0)
            error.add_note(f"The end of the log of dask {' '.join(command)}:\n{log.read().decode()[-1000:]}")
            raise
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
