"""The stock operator, dask-kubernetes 2026.3.0, as a process of its own: the clusters that it makes are real."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.startup.peer import PeerEnvironment

_STOP_SECONDS = 30.0


@contextlib.contextmanager
def stock_operator(kubeconfig: Path, namespace: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run it for `namespace` until the block ends, as one that is uninstalled: by SIGTERM."""
    command = [str(PeerEnvironment.ensure().kopf), "run", "--standalone", "--namespace", namespace]
    command += ["-m", "dask_kubernetes.operator.controller"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=os.environ | {"KUBECONFIG": str(kubeconfig)}, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
        assert process.poll() is None, f"the stock operator ended: {log.read_text()[-5000:]}"
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
