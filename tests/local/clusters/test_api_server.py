"""An API server alone: up in seconds, audited, restarted, repaired, gone without a trace."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable

import pytest

from local.clusters.api_server import ApiServer
from local.errors import LocalClusterError
from local.host.processes import Record

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


def _not_ready(records: list[Record]) -> Callable[[ApiServer], None]:
    """A wait whose deadline passes; `records` gets what runs then."""

    def wait(instance: ApiServer) -> None:
        records.extend(record for record in instance.processes.all() if record.alive)
        raise LocalClusterError("kube-apiserver ready: not within 0 s.")

    return wait


def test_a_start_that_fails_leaves_no_process(monkeypatch: pytest.MonkeyPatch):
    name, records = f"test-{uuid.uuid4().hex[:8]}", list[Record]()
    monkeypatch.setattr(ApiServer, "wait_ready", _not_ready(records))
    with pytest.raises(LocalClusterError, match="not within"):
        ApiServer.start(name)
    assert {record.name for record in records} == {"etcd", "kube-apiserver"}
    assert not [record for record in records if record.alive]
    found = ApiServer.find(name)
    assert found, "its logs are there"
    found.stop()


def test_a_repair_that_fails_ends_nothing_that_ran_before(instance: ApiServer, monkeypatch: pytest.MonkeyPatch):
    records: list[Record] = []
    with monkeypatch.context() as patched:
        patched.setattr(ApiServer, "wait_ready", _not_ready(records))
        with pytest.raises(LocalClusterError, match="not within"):
            ApiServer.start(instance.control_plane.layout.name, audit=True)
    assert {record.name for record in records if record.alive} == {"etcd", "kube-apiserver"}
