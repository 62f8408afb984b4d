"""The hooks with which pods end: a worker's once it is drained, a scheduler's; and the words for node autoscalers."""

from __future__ import annotations

from gpudask.api import Json

import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from gpudask.desired import disruption
from gpudask.desired.disruption import DO_NOT_DISRUPT, SAFE_TO_EVICT, eviction_protection
from gpudask.desired.scheduler import scheduler_pod
from gpudask.desired.workers import worker_pod
from tests.builders import a_cluster, a_pool


def worker(pool: Json | None = None, **spec: Any) -> Json:
    cluster = a_cluster(pool or a_pool(), **spec)
    return worker_pod(cluster, cluster.spec.pools[0], 0, "abcde")


def template(container: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    inner = {"containers": [{"name": "dask", **container}]} if container else {}
    return {"metadata": {"annotations": annotations or {}}, "spec": {**spec, **inner}}


def command(pod: Json) -> list[str]:
    return list(pod["spec"]["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ()))


def test_a_worker_pod_waits_at_its_schedulers_door_for_less_than_its_grace():
    pod = worker()
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert command(pod)[4:] == [
        "demo-scheduler.default.svc",
        "8787",
        "/gpudask/v1/leaving?pod=demo-cpu-worker-0-abcde",
        "20",
    ]


@pytest.mark.parametrize(("grace", "waits"), [(3600, ["3590"]), (12, ["6"]), (4, []), (0, []), ("60", [])], ids=str)
def test_the_hook_keeps_within_the_grace_that_a_template_sets(grace: Any, waits: list[str]):
    assert command(worker(template=template(terminationGracePeriodSeconds=grace)))[-1:] == waits


def test_a_hook_of_the_users_own_stays_and_other_parts_of_a_lifecycle_too():
    own = {"preStop": {"exec": {"command": ["save"]}}}
    assert command(worker(a_pool(template=template({"lifecycle": own})))) == ["save"]
    started = {"postStart": {"exec": {"command": ["hello"]}}}
    pod = worker(a_pool(template=template({"lifecycle": started})))
    assert pod["spec"]["containers"][0]["lifecycle"]["postStart"] == started["postStart"]
    assert command(pod)


def a_scheduler(**spec: Any) -> Json:
    return scheduler_pod(a_cluster(**spec), "demo-scheduler-abcde", "preload")


def test_a_scheduler_goes_on_until_the_nodes_know_that_it_goes():
    pod = a_scheduler()
    assert "terminationGracePeriodSeconds" not in pod["spec"], "the usual grace"
    began = time.monotonic()
    done = subprocess.run([sys.executable, *command(pod)[1:]], capture_output=True, text=True, check=True)
    assert time.monotonic() - began >= disruption._LINGER_SECONDS
    assert (done.stdout, done.stderr) == ("", "")


def test_a_scheduler_ends_at_once_where_a_template_leaves_no_time_and_a_users_own_hook_stays():
    assert command(a_scheduler(template=template(terminationGracePeriodSeconds=4))) == []
    own = {"lifecycle": {"preStop": {"exec": {"command": ["save"]}}}}
    assert command(a_scheduler(template=template(own))) == ["save"]


def test_a_pod_starts_guarded_against_node_autoscalers():
    for pod in (worker(), scheduler_pod(a_cluster(), "demo-scheduler-abcde", "preload")):
        annotations = pod["metadata"]["annotations"]
        assert (annotations[DO_NOT_DISRUPT], annotations[SAFE_TO_EVICT]) == ("true", "false")


def test_a_marker_that_a_template_sets_is_the_users():
    pool = a_pool(template=template(annotations={SAFE_TO_EVICT: "true"}))
    assert worker(pool)["metadata"]["annotations"][SAFE_TO_EVICT] == "true"
    cluster = a_cluster(pool)
    assert eviction_protection(cluster.spec, cluster.spec.pools[0], is_protected=False) == {DO_NOT_DISRUPT: "false"}
    assert eviction_protection(cluster.spec, None, is_protected=False) == {
        DO_NOT_DISRUPT: "false",
        SAFE_TO_EVICT: "true",
    }


def hook(port: int, seconds: float) -> subprocess.Popen[bytes]:
    arguments = ["127.0.0.1", str(port), "/gpudask/v1/leaving?pod=x", str(seconds)]
    return subprocess.Popen(
        [sys.executable, "-IS", "-c", disruption.SCRIPT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_without_a_scheduler_the_hook_ends_at_once_and_in_silence():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ended = hook(port, 60)
    output, _ = ended.communicate(timeout=5)
    assert (ended.returncode, output) == (0, b"")


@pytest.mark.parametrize("end", ["answers", "dies"])
def test_the_hook_waits_for_the_answer_or_the_schedulers_end(end: str):
    with socket.create_server(("127.0.0.1", 0)) as server:
        waiting = hook(server.getsockname()[1], 60)
        connection, _ = server.accept()
        asked = connection.recv(4096)
        assert asked.startswith(b"POST /gpudask/v1/leaving?pod=x HTTP/1.0\r\n")
        assert waiting.poll() is None
        if end == "answers":
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n{}")
        connection.close()
        output, _ = waiting.communicate(timeout=5)
    assert (waiting.returncode, output) == (0, b"")


def test_the_hook_ends_when_its_time_is_over():
    with socket.create_server(("127.0.0.1", 0)) as server:
        keep: list[socket.socket] = []
        accepting = threading.Thread(target=lambda: keep.append(server.accept()[0]))
        accepting.start()
        began = time.monotonic()
        waiting = hook(server.getsockname()[1], 0.5)
        output, _ = waiting.communicate(timeout=5)
        accepting.join(5)
        keep[0].close()
    assert time.monotonic() - began >= 0.5
    assert (waiting.returncode, output) == (0, b"")
