"""Ports that are chosen can be listened on, and are not among those that the kernel hands out."""

from __future__ import annotations

import socket
from pathlib import Path

from local.control_plane.endpoints import recorded_endpoints
from local.host.ports import free_ports, is_free
from local.layout import Layout


def test_free_ports_are_distinct_and_free():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) for port in ports)


def test_free_ports_lie_below_the_ephemeral_ones():
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(free_ports(20)) < lowest


def test_a_port_that_is_listened_on_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_an_instance_keeps_its_ports(tmp_path: Path):
    layout = Layout(tmp_path)
    assert recorded_endpoints(layout, "127.0.0.1") == recorded_endpoints(layout, "127.0.0.1")


def test_a_taken_usual_port_is_replaced(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        endpoints = recorded_endpoints(Layout(tmp_path), "127.0.0.1", (taken, 1, 2))
    assert endpoints.port != taken
