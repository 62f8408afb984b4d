"""Programs as RAPIDS users write them, unchanged, on one cluster whose scheduler and CPU pods have no GPU.

`python -m tests.gpu -k programs`. The program's own process has a GPU, as docs/gpu.md says for frames of cuDF: it runs
on the machine, and its worker's pods have the same devices.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.space import Space
from tests.gpu.manifests import cluster, cpu, gpu
from tests.gpu.workers import needs

NAME = "rapids"
_PROGRAMS_SECONDS = 330
_REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(_PROGRAMS_SECONDS + 200)  # its parts have limits of their own, which say more
def test_rapids_programs_run_unchanged(room: Space, gpus: int, tmp_path: Path) -> None:
    needs("cupy")
    folder = shared_folder(tmp_path)
    manifest = cluster(NAME, cpu(), gpu(count=gpus, replicas=1, resources={"cpu": "8", "memory": "48Gi"}))
    pod = manifest["spec"]["template"]["spec"]
    pod["volumes"].append({"name": "shared", "hostPath": {"path": str(folder)}})
    pod["containers"][0]["volumeMounts"].append({"name": "shared", "mountPath": str(folder)})
    room.apply(manifest)
    room.wait_workers(NAME, "gpu", gpus, seconds=90)
    (scheduler,) = (pod for pod in room.pods(NAME) if "-scheduler-" in pod["metadata"]["name"])
    for container in scheduler["spec"]["containers"]:
        assert "nvidia.com/gpu" not in container["resources"].get("limits", {})
    provider = room.platform.provider
    with provider.scheduler_address(room.kubectl, NAME) as address:
        ran = run("tests.gpu.rapids", "--scheduler", address, "--folder", str(folder), seconds=_PROGRAMS_SECONDS)
        closing = ran.stdout.splitlines()[-1] if ran.stdout else "rapids: programs=none"
        print(ran.stdout, ran.stderr[-30_000:], closing, sep="\n", flush=True)
    assert ran.returncode == 0, closing


def shared_folder(parent: Path) -> Path:
    """A directory that the pods' user may write to: it is mounted at its own path."""
    folder = parent / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def run(*module: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests in a process that sees the GPUs; -1, and what it printed, where it takes too long."""
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, "-m", *module]
    try:
        return subprocess.run(
            command, cwd=_REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        printed, said = (
            text.decode() if isinstance(text, bytes) else text or "" for text in (error.stdout, error.stderr)
        )
        return subprocess.CompletedProcess(command, -1, printed, f"{said}\nended after {seconds:.0f} s")
