"""`gpudask run` and `gpudask attach` beside an operator: the log, the attempts, and the exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gpudask.cli import watch
from gpudask.cli.completion import TIMEOUT_VARIABLE
from gpudask.cli.jobs import attachment
from gpudask.cli.jobs.attachment import Attachment
from gpudask.cli.output import Exit
from gpudask.cli.untrusted import log_line
from gpudask.kubecluster.kube.server import Server
from tests.cli.invoke import invoke
from tests.cli.jobs.job_server import JOBS, JobServer
from tests.eventually import eventually

COMMAND = [sys.executable, "-m", "gpudask.cli"]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(attachment, "_MOST_PAUSE_SECONDS", 0.4)
    monkeypatch.setattr(watch, "_LEAST_PAUSE_SECONDS", 0.1)


@contextmanager
def beside(operator: Callable[[], None]) -> Iterator[None]:
    """Let a test's operator work while a command runs; what it raises is raised here."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            operator()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()
    if failed:
        raise failed[0]


def resumed(server: JobServer, name: str = "train") -> None:
    """Wait until the job may run."""
    eventually(lambda: server.jobs.get(name, {}).get("spec", {}).get("suspend") is False, "the job may run")


def followed(server: JobServer, times: int = 1) -> None:
    """Wait until so many requests for logs have come."""
    eventually(lambda: len(server.log_requests) >= times, "requests for logs", show=lambda: server.log_requests)


@pytest.mark.parametrize("code", [0, 3, 137])
def test_a_script_runs_is_printed_and_its_exit_code_is_the_commands(server: JobServer, script: str, code: int):
    def operate() -> None:
        resumed(server)
        pod = server.begin("train", 1, "hello")
        followed(server)
        server.write(pod, "world")
        server.end(pod, code)
        server.finish("train", "Failed" if code else "Complete", "the program failed", code=code)

    with beside(operate):
        result = invoke("run", script, "--name", "train")

    assert (result.exit_code, result.stdout) == (code, "hello\nworld\n"), result.stderr
    assert ("error: job 'train' failed: BecauseFailed: the program failed" in result.stderr) is bool(code)


def test_a_retry_is_told_and_its_log_follows(server: JobServer):
    server.add_job("train")
    first = server.begin("train", 1, "first")

    def operate() -> None:
        followed(server)
        server.end(first, 1, "OOMKilled")
        server.report("train", phase="Retrying")
        second = server.begin("train", 2, "second")
        eventually(lambda: len(server.log_requests) >= 3, "the second log is read")
        server.end(second, 0)
        server.finish("train", "Complete", code=0)

    with beside(operate):
        result = invoke("attach", "train")

    assert (result.exit_code, result.stdout) == (0, "first\nsecond\n"), result.stderr
    assert "attempt 1 ended with exit code 1 (OOMKilled); attempt 2 begins" in result.stderr


def test_attempts_that_went_by_meanwhile_are_printed_one_by_one(server: JobServer):
    server.add_job("train")
    first = server.begin("train", 1, "first")

    def operate() -> None:
        followed(server)
        for attempt in (2, 3):
            server.end(server.begin("train", attempt, f"attempt {attempt}"), 0)
        server.finish("train", "Complete", code=0)
        server.end(first, 1)

    with beside(operate):
        result = invoke("attach", "train")

    assert (result.exit_code, result.stdout) == (0, "first\nattempt 2\nattempt 3\n"), result.stderr


def test_attaching_to_a_job_that_has_ended_prints_its_last_attempt(server: JobServer):
    server.add_job("train")
    for attempt, code in ((1, 1), (2, 7)):
        server.end(server.begin("train", attempt, f"attempt {attempt}"), code)
    server.finish("train", "Failed", "no more retries", code=7)
    result = invoke("attach", "gpudaskjob.gpudask.dev/train")

    assert (result.exit_code, result.stdout) == (7, "attempt 2\n")


# ---------------------------------------------------------------------- without an end of its own


@pytest.mark.parametrize("code", [None, 0, 256, -9, "3"])
def test_a_job_that_never_ran_has_the_condition_and_1(server: JobServer, code: object):
    server.add_job("train")
    server.finish("train", "Failed", "no node\x1b[31m has a GPU")
    server.report("train", runner={"exitCode": code})
    result = invoke("attach", "train")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: job 'train' failed: BecauseFailed: no node has a GPU\n"


def test_a_job_that_is_deleted_meanwhile_is_told(server: JobServer):
    server.add_job("train")
    server.begin("train", 1, "begun")

    def operate() -> None:
        followed(server)
        server.pods.clear()
        server.jobs.clear()

    with beside(operate):
        result = invoke("attach", "train")

    assert (result.exit_code, result.stdout) == (1, "begun\n")
    assert "error: job 'train' was deleted meanwhile" in result.stderr


def test_another_job_of_the_name_is_not_followed(server: JobServer):
    server.add_job("train")
    server.begin("train", 1, "begun")

    def operate() -> None:
        followed(server)
        server.pods.clear()
        server.jobs["train"]["metadata"]["uid"] = "made-anew"
        server.finish("train", "Complete", code=0)

    with beside(operate):
        assert invoke("attach", "train").exit_code == 1


def test_a_job_that_is_not_there_is_told_with_those_that_are(server: JobServer):
    server.add_job("train")
    result = invoke("attach", "trian")

    assert (result.exit_code, result.stdout) == (Exit.NOT_FOUND, "")
    assert result.stderr.startswith("error: no job 'trian' in namespace 'lab': there are: train.")


@pytest.mark.program
def test_jobs_are_offered_after_tab(server: JobServer):
    server.add_job("train")
    environment = {"_GPUDASK_COMPLETE": "complete_bash", "COMP_WORDS": "gpudask attach ", "COMP_CWORD": "2"}
    patient = {TIMEOUT_VARIABLE: "60"}
    done = subprocess.run(
        COMMAND, env=os.environ | environment | patient, capture_output=True, text=True, check=True, timeout=90
    )

    assert (done.stdout.split(), done.stderr) == (["train"], "")


def test_what_it_waits_for_is_told(server: JobServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attachment, "_QUIET_SECONDS", 0.0)
    server.add_job("train")

    def operate() -> None:
        asked = len(server.requests)
        eventually(lambda: len(server.requests) > asked + 4, "it waits")
        server.report("train", phase="Pending", reason="ClusterPending", message="no node for\x1b[2J the scheduler")
        asked = len(server.requests)
        eventually(lambda: len(server.requests) > asked + 4, "it waits")
        waiting = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
        pod = server.begin("train", 1)
        started = [item["status"] for item in server.pods]
        server.pods[0]["status"] = {"phase": "Pending", **waiting}
        asked = len(server.requests)
        eventually(lambda: len(server.requests) > asked + 4, "it waits")
        server.pods[0]["status"] = started[0]
        server.end(pod, 0)
        server.finish("train", "Complete", code=0)

    with beside(operate):
        result = invoke("attach", "train")

    told = [line for line in result.stderr.splitlines() if line.startswith("waiting: ")]
    assert [line for line in told if "runner ended" not in line] == [
        "waiting: the operator has reported nothing yet: is it running?",
        "waiting: ClusterPending: no node for the scheduler",
        "waiting: ImagePullBackOff",
    ], result.stderr


# ---------------------------------------------------------------------- logs that cannot be read


def test_a_log_that_breaks_in_the_middle_is_printed_whole_and_once(server: JobServer):
    server.add_job("train")
    lines = [f"line {number}" for number in range(50)]
    pod = server.begin("train", 1, *lines)
    server.cuts[pod] = [100, 333, 1]
    server.ends[pod] = [50]

    def operate() -> None:
        followed(server, 4)
        server.write(pod, "end")
        server.end(pod, 0)
        server.finish("train", "Complete", code=0)

    with beside(operate):
        result = invoke("attach", "train")

    assert (result.exit_code, result.stdout.splitlines()) == (0, [*lines, "end"]), result.stderr


@pytest.mark.parametrize("status", [0, 503])
def test_an_api_server_that_is_away_for_a_while_costs_no_line_and_no_exit_code(server: JobServer, status: int):
    server.add_job("train")
    pod = server.begin("train", 1, "before")

    def operate() -> None:
        followed(server)
        server.broken = status
        server.cuts[pod] = [0]
        server.write(pod, "meanwhile")
        asked = len(server.requests)
        eventually(lambda: len(server.requests) > asked + 3, "it is asked again")
        server.end(pod, 5)
        server.finish("train", "Failed", "it failed", code=5)
        server.broken = None

    with beside(operate):
        result = invoke("attach", "train")

    assert (result.exit_code, result.stdout) == (5, "before\nmeanwhile\n"), result.stderr


def test_who_may_not_read_logs_gets_the_exit_code_and_the_last_lines(server: JobServer):
    server.add_job("train")
    server.forbidden.add("GET log")
    pod = server.begin("train", 1, "secret")

    def operate() -> None:
        eventually(lambda: any(request.endswith("/log") for request in server.requests), "it is asked for")
        server.end(pod, 4)
        server.report("train", runner={"pod": pod, "exitCode": 4, "lastLines": "its\x1b]0;title\x07 last\nlines"})
        server.finish("train", "Failed", "it failed")

    with beside(operate):
        result = invoke("attach", "train")

    assert (result.exit_code, result.stdout) == (4, "its last\nlines\n"), result.stderr
    assert 'resources: ["pods/log"], verbs: ["get"]' in result.stderr


def test_the_log_of_a_pod_that_is_gone_is_told(server: JobServer):
    server.add_job("train")
    server.begin("train", 1, "read")

    def operate() -> None:
        followed(server)
        server.pods.clear()
        server.finish("train", "Failed", "its node is gone", code=1)

    with beside(operate):
        result = invoke("attach", "train")

    assert (result.exit_code, result.stdout) == (1, "read\n")
    assert "the rest of the log of pod train-runner-1 cannot be read" in result.stderr


async def test_a_node_that_does_not_answer_does_not_hold_up_the_end(
    server: JobServer, capsys: pytest.CaptureFixture[str]
):
    server.add_job("train")
    pod = server.begin("train", 1, "read")
    server.unread_logs[pod] = 502
    server.finish("train", "Failed", "its node is gone", code=1)
    connection = await Server.connect(None)
    async with asyncio.timeout(60):
        assert await Attachment(connection, server.jobs["train"]).follow() == 1
    await connection.close()

    said = capsys.readouterr().err
    assert "cannot be read, trying again: no log of train-runner-1" in said
    assert "the rest of the log of pod train-runner-1 cannot be read: its node does not answer" in said


async def test_a_connection_that_died_in_its_sleep_is_made_anew(server: JobServer, capsys: pytest.CaptureFixture[str]):
    server.add_job("train")
    pod = server.begin("train", 1, "before")

    def operate() -> None:
        followed(server, 2)
        server.write(pod, "after")
        server.end(pod, 0)
        server.finish("train", "Complete", code=0)

    connection = await Server.connect(None)
    async with asyncio.timeout(60):
        following = Attachment(connection, server.jobs["train"], silence_seconds=0.3).follow()
        code, _ = await asyncio.gather(following, asyncio.to_thread(operate))
    await connection.close()

    assert (code, capsys.readouterr().out) == (0, "before\nafter\n")


# ---------------------------------------------------------------------- terminals


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain", "plain"),
        ("    indented\tand more   ", "    indented    and more"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07x", "red x"),
        ("\x1b]52;c;c2VjcmV0\x07", ""),
        ("10%\r50%\r100%\r", "100%"),
        ("done\r\x1b[K", "done"),
        ("windows\r", "windows"),
        ("a\u202eb\x00", "a\ufffdb\ufffd"),
        ("", ""),
        ("\t" * 500, ""),
        ("x" * 100_000, "x" * 100_000),
    ],
)
def test_a_line_is_cleaned_and_else_whole(line: str, shown: str):
    assert log_line(line) == shown


def start(*words: str) -> subprocess.Popen[str]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # one that is ignored here is not heard there
    try:
        return subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.program
def test_ctrl_c_detaches_and_says_how_to_go_on(server: JobServer, script: str):
    process = start("run", script, "--name", "train")
    try:
        resumed(server)
        server.begin("train", 1, "begun")
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == Exit.INTERRUPTED
    assert "gpudask attach train -n lab" in said
    assert "kubectl delete gdj train -n lab" in said
    assert "Traceback" not in said
    assert not any(request.startswith(f"DELETE {JOBS}") for request in server.requests)


@pytest.mark.program
def test_whose_reader_has_gone_lets_go_of_the_job(server: JobServer):
    server.add_job("train")
    server.begin("train", 1, "begun")
    process = start("attach", "train")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.stdout.close()
        assert process.wait(timeout=60) == Exit.UNREAD
        assert process.stderr is not None
        assert "job 'train' goes on" in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
