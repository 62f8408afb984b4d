"""How fast frames of cuDF move between the GPUs of one pod, beside `LocalCUDACluster` in such a pod.

`python -m tests.gpu -k rates -s`. Both have the same devices, CPUs and memory, and the program runs in the pod itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.space import Space
from tests.gpu.manifests import cluster, gpu, holding_gpus
from tests.gpu.rates import RMM_POOL, compared
from tests.gpu.workers import needs

_PROGRAM = Path(__file__).with_name("rates.py")
_IN_POD = "/tmp/rates.py"  # noqa: S108 - in a pod; a file, since processes are spawned from it
_POD = {"cpu": "16", "memory": "64Gi"}
_RATES_SECONDS = 170


@pytest.mark.timeout(2 * _RATES_SECONDS + 180)  # its parts have limits of their own, which say more
# `spoken`: by the pool, and where that is its own, by the cluster.
# `rows`: millions a worker. Over a fast link fewer measure Dask's own messages.
@pytest.mark.parametrize(
    ("spoken", "method", "rows"),
    [("tcp", "tasks", 25), ("ucxx", "tasks", 1_000), ("ucxx beside tcp", "tasks", 1_000), ("tcp", "p2p", 25)],
)
def test_frames_are_merged_and_shuffled_as_fast_as_by_dask_cuda(
    room: Space, several_gpus: int, spoken: str, method: str, rows: int
) -> None:
    link, _, beside = spoken.partition(" beside ")
    needs("cudf", "dask_cudf", *(["distributed_ucxx"] if link == "ucxx" else []))
    count = several_gpus
    of_pool = {"protocol": link} if beside else {}
    pool = gpu(count=count, replicas=1, resources=_POD, devices={"rmmPoolSize": RMM_POOL}, **of_pool)
    room.apply(cluster("here", pool, protocol=beside or link))
    room.wait_workers("here", "gpu", count, seconds=90)
    (pod,) = room.names("here", "gpu")
    address = room.status("here")["scheduler"]["address"]
    frames = ["--gpus", str(count), "--method", method, "--rows", str(rows * 1_000_000)]
    here = _rates(room, pod, "--scheduler", address, *frames)
    room.kubectl("delete", "gdc", "here", "--wait")
    room.wait(lambda: not room.pods("here"), "the devices are free", seconds=60)
    room.apply(holding_gpus("local", count, **_POD))
    room.kubectl("wait", "pod/local", "--for=condition=Ready", "--timeout=60s")
    local = _rates(room, "local", "--protocol", link, *frames)
    print(f"rates by {method} over {spoken}: {compared(here, local)} here={here} local={local}", flush=True)
    assert here["merge"] > 0
    assert here["shuffle"] > 0


def _rates(room: Space, pod: str, *options: str) -> dict[str, float]:
    """What rates.py measures in a pod that has the devices."""
    room.kubectl("exec", "-i", pod, "--", "/bin/sh", "-c", f"cat > {_IN_POD}", stdin=_PROGRAM.read_text())
    words = ["timeout", str(_RATES_SECONDS), sys.executable, _IN_POD, *options]
    printed = room.kubectl("exec", pod, "--", *words).stdout
    return dict(json.loads(next(line for line in printed.splitlines() if line.startswith("{"))))
