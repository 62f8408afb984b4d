"""How commands end: whose reader has gone, ctrl-C, and a deletion that is over when the pods are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from gpudask.api import Json
from gpudask.cli.output import Exit
from tests.cli.invoke import invoke, over_once_said
from tests.eventually import eventually
from tests.kubecluster import fake_server
from tests.kubecluster.conftest import server  # noqa: F401 - a fixture

COMMAND = [sys.executable, "-m", "gpudask.cli"]


@pytest.fixture
def silent(server: fake_server.FakeServer) -> fake_server.FakeServer:  # noqa: F811 - a fixture
    """A scheduler that wrote two lines, and no more."""
    server.pods.append(fake_server.scheduler_pod("demo-scheduler-00000"))
    server.logs["demo-scheduler-00000"] = ["first", "second"]
    server.silent_logs.add("demo-scheduler-00000")
    return server


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that a test starts end with it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(started: list[subprocess.Popen[str]], *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started.append(process)
    return process


@pytest.mark.program
@pytest.mark.parametrize("words", [["logs", "demo", "--follow"], ["get", "demo", "--watch"]])
def test_whose_reader_has_gone_ends_though_nothing_comes(
    silent: fake_server.FakeServer, started: list[subprocess.Popen[str]], words: list[str]
):
    process = start(started, *words)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()

    assert process.wait(timeout=60) == Exit.UNREAD
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.mark.program
def test_more_than_a_reader_wants_is_no_error_message(
    silent: fake_server.FakeServer, started: list[subprocess.Popen[str]]
):
    silent.logs["demo-scheduler-00000"] = [f"line {number}" for number in range(20_000)]
    process = start(started, "logs", "demo")
    assert process.stdout is not None
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()

    assert process.wait(timeout=60) == Exit.UNREAD
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.mark.program
def test_ctrl_c_is_how_a_forwarded_port_ends(silent: fake_server.FakeServer, started: list[subprocess.Popen[str]]):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # one that is ignored here is not heard there
    try:
        process = start(started, "dashboard", "demo")
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=60) == Exit.OK


@pytest.mark.program
def test_force_color_colours_no_pipe(server: fake_server.FakeServer):  # noqa: F811
    server.clusters["demo"]["status"] = {"phase": "Running"}
    done = subprocess.run(
        [*COMMAND, "get"], capture_output=True, text=True, check=True, env=os.environ | {"FORCE_COLOR": "1"}, timeout=60
    )

    assert "Running" in done.stdout
    assert "\x1b" not in done.stdout


def a_worker(owner_uid: str, name: str = "demo-gpu-worker-0", kind: str = "GpuDaskCluster") -> Json:
    pod = fake_server.pod(name, "worker")
    pod["metadata"]["ownerReferences"] = [fake_server.owner("demo", uid=owner_uid) | {"kind": kind}]
    return pod


def test_deleted_is_a_cluster_whose_pods_have_ended(
    server: fake_server.FakeServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
):
    server.pods += [a_worker("uid-of-demo"), a_worker("another", "demo-gpu-worker-1", "Job")]
    del server.clusters["demo"]
    with monkeypatch.context() as patched:
        over_once_said(patched, "its pods end")
        late = invoke("wait", "demo", "--for", "deleted", "--timeout", "500ms")

    assert (late.exit_code, late.stdout) == (Exit.TIMED_OUT, "")
    assert late.stderr.splitlines()[0] == "waiting: it is deleted, its pods end: demo-gpu-worker-0"

    del server.pods[0]
    done = invoke("wait", "demo", "--for", "deleted", "--timeout", "200s")
    assert (done.exit_code, done.stdout) == (Exit.OK, "gpudaskcluster.gpudask.dev/demo: deleted\n")


@pytest.mark.program
def test_delete_waits_for_the_pods_where_it_is_asked_to(
    server: fake_server.FakeServer,  # noqa: F811
    started: list[subprocess.Popen[str]],
):
    server.pods.append(a_worker("uid-of-demo"))
    process = start(started, "delete", "demo", "--yes", "--wait")
    eventually(lambda: "demo" not in server.clusters, "it is deleted")
    assert process.stderr is not None
    said = iter(process.stderr.readline, "")
    assert any("its pods end: demo-gpu-worker-0" in line for line in said)
    assert process.poll() is None
    server.pods.clear()

    assert process.wait(timeout=60) == Exit.OK


def test_a_deletion_that_takes_too_long_says_what_is_left(
    server: fake_server.FakeServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
):
    over_once_said(monkeypatch, "its pods end")
    server.pods.append(a_worker("uid-of-demo"))
    result = invoke("delete", "demo", "--yes", "--wait", "--timeout", "500ms")

    assert (result.exit_code, result.stdout) == (Exit.TIMED_OUT, "gpudaskcluster.gpudask.dev/demo deleted\n")
    assert "not gone within 0.5 s: it is deleted, its pods end: demo-gpu-worker-0" in result.stderr


def test_who_may_not_list_pods_is_told_that_they_may_run(server: fake_server.FakeServer):  # noqa: F811
    server.pods.append(a_worker("uid-of-demo"))
    server.forbidden.add("GET pods")
    result = invoke("delete", "demo", "--yes", "--wait")

    assert result.exit_code == Exit.OK
    assert "demo: its pods may still run: " in result.stderr


def test_what_is_not_there_yet_is_waited_for(server: fake_server.FakeServer):  # noqa: F811
    def make() -> None:
        looked_at = f"{fake_server.CLUSTERS}/other"
        eventually(lambda: server.requests.count(f"GET {looked_at}") > 1, "it has looked, said so, and looked again")
        server.clusters["other"] = fake_server.cluster("other", "cpu")

    making = threading.Thread(target=make)
    making.start()
    result = invoke("wait", "other", "--for", "created", "--timeout", "200s")
    making.join()

    assert (result.exit_code, result.stdout) == (Exit.OK, "gpudaskcluster.gpudask.dev/other: created\n")
    assert result.stderr == "waiting: there is no cluster 'other' yet\n"


def test_a_wait_for_what_is_never_made_ends_in_time(
    server: fake_server.FakeServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
):
    over_once_said(monkeypatch, "there is no cluster")
    result = invoke("wait", "other", "--for", "created", "--timeout", "500ms")

    assert result.exit_code == Exit.TIMED_OUT
    assert "other: not created within 500ms: there is no cluster 'other' yet." in result.stderr
