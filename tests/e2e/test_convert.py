"""Manifests of the stock operator, as its documentation shows them: converted, applied, and computed on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gpudask_e2e
import pytest
from distributed import Client

from tests.conftest import ROOT
from tests.e2e.programs import IMAGE
from tests.e2e.space import Space

_STOCK = ROOT / "tests" / "cli" / "stock" / "documented.yaml"
_POOLS = ("default", "additionalworke")


@pytest.mark.pod_security("baseline")  # a converted cluster may run as root, as it might before
def test_a_documented_cluster_with_a_group_and_an_autoscaler_computes_once_converted(space: Space) -> None:
    stock = _STOCK.read_text().replace("ghcr.io/dask/dask:latest", IMAGE)
    gpudask = str(Path(sys.executable).with_name("gpudask"))
    converted = subprocess.run([gpudask, "convert", "-"], input=stock, capture_output=True, text=True, check=True)
    assert "assumed: DaskWorkerGroup simple-additional-workers: metadata.name" in converted.stderr

    space.kubectl("apply", "-f", "-", stdin=converted.stdout)
    space.wait_ready("simple")
    for pool in _POOLS:
        space.wait_workers("simple", pool, 1)
    service = space.find("services", "simple-scheduler")
    assert service["spec"]["type"] == "NodePort"
    with space.client("simple") as client:
        assert client.submit(sum, [1, 2]).result(timeout=120) == 3
        for pool in _POOLS:
            names = [name for name in map(str, _workers(client)) if f"-{pool}-worker-" in name]
            assert client.submit(sum, [1, 2], workers=names, pure=False).result(timeout=120) == 3
        futures = client.map(gpudask_e2e.work, range(90), seconds=1.0, pure=False)
        space.wait(lambda: len(space.names("simple", "default")) > 1, "the autoscaled pool grows with the queue")
        client.cancel(futures)


def _workers(client: Client) -> list[object]:
    return [worker["name"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
