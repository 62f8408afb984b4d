"""`KubeCluster` from outside, through a port-forward. From a pod: test_inside.py."""

from __future__ import annotations

import os

import pytest

from distributed import Client

from gpudask import KubeCluster
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space


def test_a_program_outside_connects_and_scales_by_name(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.apply(cluster("outside", cpu(), gpu()))
    space.wait_ready("outside")
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(space.kubectl.kubeconfig))
    with KubeCluster.from_name("outside", namespace=space.kubectl.namespace) as found, Client(found) as client:
        found.scale(2, pool="gpu")
        found.wait_for_workers(2, pool="gpu", timeout=90)
        assert client.submit(sum, [1, 2], resources={"GPU": 1}).result(timeout=120) == 3
        found.unscale(pool="gpu")
        space.wait_pods("outside", "gpu", 0)
