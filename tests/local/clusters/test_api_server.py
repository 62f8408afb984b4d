"""An API server alone: up in seconds, audited, restarted, repaired, gone without a trace."""

from __future__ import annotations

import json
import os
import subprocess
import uuid

import pytest

from local.clusters.api_server import ApiServer

pytestmark = pytest.mark.api


@pytest.fixture(scope="module")
def instance():
    instance = ApiServer.start(f"test-{uuid.uuid4().hex[:8]}", audit=True)
    yield instance
    instance.stop()


def _kubectl(instance: ApiServer, *arguments: str) -> str:
    command = [instance.kubectl, "--kubeconfig", instance.kubeconfig, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_objects_survive_a_restart_of_the_api_server(instance: ApiServer):
    _kubectl(instance, "create", "configmap", "survivor")
    instance.restart()
    assert "survivor" in _kubectl(instance, "get", "configmaps", "--output=name")


def test_a_pod_can_be_created_without_controllers(instance: ApiServer):
    _kubectl(instance, "run", "lonely", "--image=none")
    assert "pod/lonely" in _kubectl(instance, "get", "pods", "--output=name")


def test_requests_are_in_the_audit_log(instance: ApiServer):
    _kubectl(instance, "get", "namespaces")
    events = [json.loads(line) for line in instance.audit_log.read_text().splitlines()]
    assert any(
        event["userAgent"].startswith("kubectl") and event["objectRef"]["resource"] == "namespaces"
        for event in events
        if "objectRef" in event
    )


def test_starting_again_repairs_what_was_killed_and_keeps_the_address(instance: ApiServer):
    record = instance.processes.find("kube-apiserver")
    assert record
    before = instance.kubeconfig.read_text()
    os.kill(record.pid, 9)
    while record.alive:
        pass
    ApiServer.start(instance.control_plane.layout.name, audit=True)
    assert "default" in _kubectl(instance, "get", "namespaces", "--output=name")
    assert instance.kubeconfig.read_text() == before


def test_two_instances_know_nothing_of_each_other(instance: ApiServer):
    other = ApiServer.start(f"test-{uuid.uuid4().hex[:8]}")
    try:
        _kubectl(instance, "create", "configmap", "here")
        assert "here" not in _kubectl(other, "get", "configmaps", "--output=name")
    finally:
        other.stop()


def test_stopping_leaves_no_process_and_no_file():
    instance = ApiServer.start(f"test-{uuid.uuid4().hex[:8]}")
    records = instance.processes.all()
    assert all(record.alive for record in records)
    instance.stop()
    assert not any(record.alive for record in records)
    root = instance.control_plane.layout.root
    assert not list(root.parent.glob(f"{root.name}*"))
