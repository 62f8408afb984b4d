"""`config.distributed.worker.preload` reaches the workers of CPU pools, as docs/gpu.md says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import LocalCluster

from gpudask.desired.pod import dask_environment
from gpudask.desired.workers import worker_pod
from tests.builders import a_cluster, a_pool
from tests.eventually import eventually

pytestmark = pytest.mark.dask


def test_a_workers_preload_in_the_configuration_is_run(tmp_path: Path):
    (tmp_path / "early.py").write_text(f"def dask_setup(worker):\n    open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    config = {"distributed": {"worker": {"preload": ["early"]}}}
    cluster = a_cluster(a_pool(), config=config)
    arguments = worker_pod(cluster, cluster.spec.pools[0], 0, "abcde")["spec"]["containers"][0]["args"]
    env = {item["name"]: item["value"] for item in dask_environment(config)} | {"PYTHONPATH": str(tmp_path)}
    with LocalCluster(n_workers=0, dashboard_address=":0") as there:
        command = [there.scheduler_address if "://" in part else part for part in arguments[1:]]
        running = subprocess.Popen([sys.executable, "-m", "dask", *command], env=os.environ | env)
        try:
            eventually((tmp_path / "ran").exists, "the worker ran its preload")
        finally:
            running.terminate()
            running.wait()
