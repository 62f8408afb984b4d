"""Where workers find the scheduler: by its Service, or by its pod's own address where the protocol needs that."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api import addresses
from gpudask.desired import scheduler
from tests.builders import a_cluster


def made(**spec: Any) -> dict[str, Any]:
    return {body["metadata"]["name"]: body for body in scheduler.services(a_cluster(**spec))}


@pytest.mark.parametrize("protocol", ["tcp", "tls", "ws", "wss"])
def test_one_service_is_enough_for_most_protocols(protocol: str):
    assert list(made(protocol=protocol)) == ["demo-scheduler"]
    assert addresses.scheduler_address("demo", "ns", protocol) == f"{protocol}://demo-scheduler.ns.svc:8786"


def test_ucx_dials_the_pod_itself():
    """A Service's own address is translated on the way, which UCX does not survive."""
    both = made(protocol="ucxx", scheduler={"service": {"type": "LoadBalancer", "annotations": {"a": "b"}}})
    assert list(both) == ["demo-scheduler", "demo-scheduler-headless"]
    outside, direct = both.values()
    assert direct["spec"]["clusterIP"] == "None"
    assert "type" not in direct["spec"], "no balancer before it"
    assert "annotations" not in direct["metadata"], "they are for the balancer"
    assert outside["spec"]["type"] == "LoadBalancer"
    assert direct["spec"]["publishNotReadyAddresses"], "workers dial as soon as it listens"
    for same in ("selector", "ports"):
        assert direct["spec"][same] == outside["spec"][same]
    assert addresses.scheduler_address("demo", "ns", "ucxx") == "ucxx://demo-scheduler-headless.ns.svc:8786"
    assert addresses.dashboard("demo", "ns") == "http://demo-scheduler.ns.svc:8787/status"


def test_its_name_is_a_host_name_of_any_clusters():
    assert len(addresses.headless_service("x" * 35)) <= 63
