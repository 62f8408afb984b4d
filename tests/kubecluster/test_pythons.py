"""A program under a newer Python than the images': it makes a cluster, computes, and its end deletes the cluster.

From Python 3.12 on no thread is started while it ends, not even for a credential plugin, whose token has ended by then.
Scheduler and workers have the program's Python: functions of one minor version do not run in another.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kubecluster import fake_server as fake
from tests.kubecluster.kube.test_plugins import Login
from tests.kubecluster.test_creating import an_operator
from tests.releases.environment import NEWEST, RAN_ELSEWHERE, Environment, full_version, interpreter

SECONDS = 120
DASK = """
import sys
from distributed import Scheduler, SpecCluster, Worker
options = {"dashboard": False, "dashboard_address": "127.0.0.1:0", "port": 0, "host": "127.0.0.1"}
with SpecCluster(
    scheduler={"cls": Scheduler, "options": options},
    workers={"mine-cpu-worker-0-aaaaa": {"cls": Worker, "options": {"nthreads": 1}}},
) as dask:
    print(dask.scheduler_address, flush=True)
    sys.stdin.read()
"""
PROGRAM = """
import sys
from distributed import Client
from gpudask import KubeCluster
cluster = KubeCluster("mine", n_workers=1, quiet=True)
cluster.wait_for_workers(1, pool="cpu", timeout=60)
with Client(cluster) as client:
    print(client.submit(lambda: sum([1, 2])).result(timeout=60), flush=True)
sys.stdin.read()
"""


@contextmanager
def started(environment: Environment, source: str) -> Iterator[subprocess.Popen[str]]:
    """A program of an environment, killed at the end where it still runs."""
    program = environment.start("-c", source, kubeconfig=os.environ["KUBECONFIG"])
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def first_line(program: subprocess.Popen[str]) -> str:
    """The first line that it prints; where it ends without one, what it says of that."""
    assert program.stdout is not None, "it is a pipe"
    return program.stdout.readline().strip() or program.communicate(timeout=SECONDS)[1]


@pytest.mark.registry
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_a_program_makes_a_cluster_computes_and_its_end_deletes_it(
    server: fake.FakeServer, tmp_path: Path, version: str, record_property: Callable[[str, object], None]
):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on PATH or of pyenv")
    environment = Environment.ensure(NEWEST, python=python)
    login = Login(server, tmp_path)
    with started(environment, DASK) as dask:
        scheduler: Any = SimpleNamespace(scheduler_address=first_line(dask))
        with an_operator(server, scheduler), started(environment, PROGRAM) as program:
            assert first_line(program) == "3"
            assert "mine" in server.clusters
            asked = login.count
            login.renew("second")
            said, errors = program.communicate(timeout=SECONDS)
    assert (program.returncode, said) == (0, ""), errors
    assert "mine" not in server.clusters, errors
    assert login.count > asked, "its token had ended"
    record_property(RAN_ELSEWHERE, f"Python {full_version(python).split()[0]}")
