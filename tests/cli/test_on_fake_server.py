"""Commands that need pods, on the fake server of the KubeCluster's tests: logs, forwarded ports, the live view."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from distributed import Client, SpecCluster

from gpudask.cli.output import Exit
from tests.cli.invoke import invoke, over_once_said
from tests.kubecluster import fake_server
from tests.kubecluster.conftest import add_scheduler, dask, server  # noqa: F401 - fixtures

COMMAND = [sys.executable, "-m", "gpudask.cli"]


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Programs that a test starts hear SIGINT: one that its own parent ignores, as in a shell's background, is not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def talkative(server: fake_server.FakeServer) -> fake_server.FakeServer:  # noqa: F811 - a fixture
    """A scheduler and two CPU workers, with logs."""
    server.pods.append(fake_server.scheduler_pod("demo-scheduler-00000"))
    for number in range(2):
        pod = fake_server.pod(f"demo-cpu-worker-{number}", "worker")
        pod["metadata"]["labels"]["gpudask.dev/pool"] = "cpu"
        server.pods.append(pod)
        server.logs[f"demo-cpu-worker-{number}"] = [f"worker {number} starts", "ready"]
    server.logs["demo-scheduler-00000"] = ["scheduler starts", "ready"]
    server.logs["demo-scheduler-00000 previous"] = ["out of memory"]
    return server


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ([], ["scheduler starts", "ready"]),
        (["scheduler", "--tail", "1"], ["ready"]),
        (["scheduler", "--previous"], ["out of memory"]),
        (["demo-cpu-worker-1"], ["worker 1 starts", "ready"]),
        (
            ["cpu"],
            [
                "[demo-cpu-worker-0] worker 0 starts",
                "[demo-cpu-worker-0] ready",
                "[demo-cpu-worker-1] worker 1 starts",
                "[demo-cpu-worker-1] ready",
            ],
        ),
    ],
)
def test_logs(talkative: fake_server.FakeServer, arguments: list[str], lines: list[str]):
    result = invoke("logs", "demo", *arguments)

    assert (result.exit_code, result.stdout.splitlines()) == (0, lines), result.stderr


def test_logs_are_followed_of_all_pods_at_once(talkative: fake_server.FakeServer):
    result = invoke("logs", "demo", "cpu", "--follow")

    assert sorted(result.stdout.splitlines()) == [
        "[demo-cpu-worker-0] ready",
        "[demo-cpu-worker-0] worker 0 starts",
        "[demo-cpu-worker-1] ready",
        "[demo-cpu-worker-1] worker 1 starts",
    ]


def test_a_log_acts_on_no_terminal_and_forges_no_line_of_another_pod(talkative: fake_server.FakeServer):
    written = ["\x1b]0;title\x07red", "10%\r100%", "a\u2028[demo-cpu-worker-1] b", "c\x0bd"]
    talkative.logs["demo-cpu-worker-0"] = written
    for options in ([], ["--follow"]):
        result = invoke("logs", "demo", "demo-cpu-worker-0", *options)
        assert result.stdout.split("\n") == ["red", "100%", "a [demo-cpu-worker-1] b", "c d", ""]


def test_a_log_that_is_missing_hides_no_other(talkative: fake_server.FakeServer):
    del talkative.logs["demo-cpu-worker-0"]
    result = invoke("logs", "demo", "cpu")

    assert result.stdout.splitlines() == ["[demo-cpu-worker-1] worker 1 starts", "[demo-cpu-worker-1] ready"]
    assert result.exit_code == Exit.FAILED
    assert "no log of 1 of 2 pods" in result.stderr


def failing(server: fake_server.FakeServer, *statuses: int) -> None:  # noqa: F811 - a fixture
    """Answer the requests after the next one with these, then as usual; a fixture's server ends with its test."""
    refuse, script = server._refuse, iter([None, *statuses])

    def refused(request: web.Request) -> web.Response | None:
        status = next(script, None)
        return fake_server._status(status, "it restarts") if status else refuse(request)

    server._refuse = refused  # type: ignore[method-assign]


READY = {"conditions": [{"type": "Ready", "status": "True", "reason": "AllReady"}]}


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ([], "gpudaskcluster.gpudask.dev/demo: ready\n"),
        (["-o", "name"], "gpudaskcluster.gpudask.dev/demo\n"),
    ],
)
def test_a_wait_outlasts_a_server_that_restarts(
    server: fake_server.FakeServer,  # noqa: F811
    form: list[str],
    printed: str,
):
    server.clusters["demo"] |= {"status": READY, "kind": "GpuDaskCluster", "apiVersion": "gpudask.dev/v1alpha1"}
    failing(server, *[503] * 5, 429)  # a single one is not even said
    result = invoke("wait", "demo", "--timeout", "200s", *form)

    assert (result.exit_code, result.stdout) == (Exit.OK, printed), result.stderr
    assert "trying again: it restarts" in result.stderr or "503" in result.stderr


def test_a_wait_that_is_over_has_the_last_words_of_the_pods(
    server: fake_server.FakeServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
):
    over_once_said(monkeypatch, "ImagePullBackOff")
    pod = fake_server.pod("demo-gpu-worker-0", "worker", ready=False, **{"gpudask.dev/pool": "gpu"})
    waiting = {"reason": "ImagePullBackOff", "message": "no such image: x"}
    pod["status"] |= {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    server.pods.append(pod)
    result = invoke("wait", "demo", "--timeout", "1500ms")

    assert (result.exit_code, result.stdout) == (Exit.TIMED_OUT, "")
    waits, error = result.stderr.splitlines()
    assert waits.startswith("waiting: ")
    assert "pod demo-gpu-worker-0: ImagePullBackOff: no such image: x" in waits
    assert error.startswith("error: demo: not ready within 1500ms: ")
    assert "ImagePullBackOff" in error


@pytest.mark.dask
def test_the_printed_line_reaches_the_scheduler_until_it_is_interrupted(
    server: fake_server.FakeServer,  # noqa: F811
    dask: SpecCluster,  # noqa: F811
    ctrl_c: None,
):
    add_scheduler(server, dask, "demo-scheduler-00000")
    process = subprocess.Popen([*COMMAND, "connect", "demo"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r'Client\("(?P<address>tcp://127\.0\.0\.1:\d+)"\)', process.stdout.readline())
        assert found
        with Client(found["address"], timeout=120) as client:
            assert client.submit(sum, [1, 2], pure=False).result(timeout=60) == 3
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == Exit.OK, "ctrl-C is the end that it has, as kubectl port-forward's"
    finally:
        process.kill()
        process.wait()


@pytest.mark.program
def test_the_live_view_follows_the_cluster_until_it_is_interrupted(
    server: fake_server.FakeServer,  # noqa: F811
    ctrl_c: None,
):
    controller, terminal = pty.openpty()
    os.set_blocking(controller, False)
    process = subprocess.Popen(
        [*COMMAND, "top", "demo", "--interval", "0.2"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
    )
    try:
        read_until(controller, "gpus held 0")
        server.clusters["demo"]["status"] = {"pools": [{"name": "gpu", "gpusHeld": 3, "reason": "a burst"}]}
        read_until(controller, "gpus held 3")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == Exit.INTERRUPTED
    finally:
        process.kill()
        process.wait()
        os.close(controller)
        os.close(terminal)


_READ_SECONDS = 60


def read_until(terminal: int, words: str) -> None:
    """Read what a program draws until these words, in lower case, were among it."""
    deadline, seen = time.monotonic() + _READ_SECONDS, ""
    while words not in seen.lower():
        assert time.monotonic() < deadline, f"{words!r} did not come within {_READ_SECONDS} s: {seen[-2000:]!r}"
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65536).decode(errors="replace")


@pytest.fixture
def asked(server: fake_server.FakeServer) -> Iterator[tuple[subprocess.Popen[bytes], int]]:  # noqa: F811
    """`gpudask delete demo` in a terminal, which has asked and waits for an answer."""
    controller, terminal = pty.openpty()
    os.set_blocking(controller, False)
    process = subprocess.Popen([*COMMAND, "delete", "demo"], stdin=terminal, stdout=terminal, stderr=terminal)
    try:
        read_until(controller, "delete demo? [y/n]")
        yield process, controller
    finally:
        process.kill()
        process.wait()
        os.close(controller)
        os.close(terminal)


@pytest.mark.program
@pytest.mark.parametrize(("typed", "code", "deleted"), [(b"n\n", Exit.FAILED, False), (b"y\n", Exit.OK, True)])
def test_in_a_terminal_a_deletion_is_asked_for(
    asked: tuple[subprocess.Popen[bytes], int],
    server: fake_server.FakeServer,  # noqa: F811
    typed: bytes,
    code: Exit,
    deleted: bool,
):
    process, controller = asked
    assert "demo" in server.clusters
    os.write(controller, typed)
    assert process.wait(timeout=60) == code
    assert ("demo" not in server.clusters) is deleted


@pytest.mark.program
def test_what_is_deleted_is_what_was_asked_about_though_the_context_is_another_by_then(
    asked: tuple[subprocess.Popen[bytes], int],
    server: fake_server.FakeServer,  # noqa: F811
):
    process, controller = asked
    with fake_server.FakeServer() as other:
        other.clusters["demo"] = fake_server.cluster("demo", "cpu")
        Path(os.environ["KUBECONFIG"]).write_text(yaml.safe_dump(other.kubeconfig()))
        os.write(controller, b"y\n")
        assert process.wait(timeout=60) == Exit.OK
        assert "demo" in other.clusters
    assert "demo" not in server.clusters


@pytest.mark.program
def test_another_cluster_of_the_name_that_was_asked_about_is_left(
    asked: tuple[subprocess.Popen[bytes], int],
    server: fake_server.FakeServer,  # noqa: F811
):
    process, controller = asked
    server.clusters["demo"]["metadata"]["uid"] = "made-anew-by-somebody"
    os.write(controller, b"y\n")
    read_until(controller, "another of this name was made meanwhile")
    assert process.wait(timeout=60) == Exit.FAILED
    assert "demo" in server.clusters


@pytest.mark.program
def test_ctrl_c_at_the_question_deletes_nothing(
    ctrl_c: None,
    asked: tuple[subprocess.Popen[bytes], int],
    server: fake_server.FakeServer,  # noqa: F811
):
    process, _ = asked
    deadline = time.monotonic() + _READ_SECONDS
    while process.poll() is None:
        # As people do it, again where nothing follows: Python loses the signal that comes just before it reads a line.
        assert time.monotonic() < deadline, f"it goes on {_READ_SECONDS} s after Ctrl-C"
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
    # A second signal, where the first was slow and not lost, ends Python on its way out: shells tell that as 130, too.
    assert process.returncode in (Exit.INTERRUPTED, -signal.SIGINT)
    assert "demo" in server.clusters
