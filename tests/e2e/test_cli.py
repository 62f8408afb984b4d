"""The command line on the real cluster: what needs pods. It runs as users run it, as a program of its own."""

from __future__ import annotations

import pytest

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from distributed import Client

from gpudask.api import Json
from gpudask.cli.output import Exit
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space
from tests.eventually import eventually


@dataclass(frozen=True)
class Shell:
    """`gpudask` in a namespace."""

    space: Space

    def run(self, *arguments: str, then: Sequence[str] = (), seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command; `then` stands behind the options of where."""
        command = [*self._command(*arguments), *then]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)

    def ok(self, *arguments: str, seconds: float = 120) -> str:
        done = self.run(*arguments, seconds=seconds)
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def started(self, *arguments: str, ends_with: int = 130) -> Iterator[subprocess.Popen[str]]:
        """One that runs until ctrl-C, which it gets at the end and must heed."""
        # One that this process's parent ignores, as in a shell's background, would not be heard.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            self._command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            yield process
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == ends_with
        finally:
            signal.signal(signal.SIGINT, before)
            process.kill()
            process.wait()

    def _command(self, *arguments: str) -> list[str]:
        where = ["--kubeconfig", str(self.space.kubectl.kubeconfig), "-n", self.space.kubectl.namespace]
        return [sys.executable, "-m", "gpudask.cli", *arguments, *where]


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_cluster_from_waiting_to_deletion(space: Space) -> None:
    shell = Shell(space)
    space.apply(cluster("story", cpu(), gpu()))
    waited = shell.run("wait", "story", "--timeout", "2m", seconds=150)
    assert (waited.returncode, waited.stdout) == (0, "gpudaskcluster.gpudask.dev/story: ready\n"), waited.stderr

    shell.ok("scale", "story", "gpu=2")
    shell.ok("wait", "story", "--for", "workers=gpu:2", "--timeout", "2m", seconds=150)
    top = shell.ok("top", "story")
    assert "GPUs held 2, busy 0" in top, top
    assert re.search(r"^story +gpu +2/2 +2 +0/2 ", top, re.MULTILINE), top
    assert re.search(r"^gpu +2/2 ", shell.ok("get", "story"), re.MULTILINE)

    shell.ok("scale", "story", "gpu=auto")
    space.wait_pods("story", "gpu", 0)
    shell.ok("suspend", "story")
    shell.ok("wait", "story", "--for", "suspended", "--timeout", "2m", seconds=150)
    assert shell.run("connect", "story").returncode == 1
    shell.ok("resume", "story")
    shell.ok("wait", "story", "--timeout", "2m", seconds=150)
    shell.ok("delete", "story", "--yes")
    shell.ok("wait", "story", "--for", "deleted", "--timeout", "2m", seconds=150)
    assert [*space.pods("story"), *space.pods("story", "cpu")] == []


@pytest.mark.local_cluster("it ends a container's process as a crash does")
def test_logs_of_the_scheduler_of_a_pool_and_as_they_come(space: Space) -> None:
    shell = Shell(space)
    space.apply(cluster("talk", cpu(replicas=2), gpu()))
    space.wait_ready("talk")

    assert "Scheduler at:" in shell.ok("logs", "talk")
    assert len(shell.ok("logs", "talk", "scheduler", "--tail", "1").splitlines()) == 1
    lines = shell.ok("logs", "talk", "cpu").splitlines()
    assert {line.partition("]")[0] for line in lines} == {"[talk-cpu-worker-0", "[talk-cpu-worker-1"}
    assert "Start worker at" in shell.ok("logs", "talk", "talk-cpu-worker-1")
    nothing = shell.run("logs", "talk", "gpu")
    assert (nothing.returncode, nothing.stdout) == (3, "")

    (pod,) = space.pods("talk")
    space.platform.kill(pod)
    eventually(lambda: shell.run("logs", "talk", "--previous").returncode == 0, "the log before the restart is there")

    def runs_again() -> bool:
        (container,) = space.pods("talk")[0]["status"]["containerStatuses"]
        return container["restartCount"] == 1 and "running" in container["state"]

    space.wait(runs_again, "the scheduler runs again")  # the log of one that has ended is not followed
    with shell.started("logs", "talk", "--follow", "--tail", "1") as process:
        assert first_line(process)


def test_a_program_connects_through_the_line_that_connect_prints(space: Space) -> None:
    shell = Shell(space)
    space.apply(cluster("link", cpu()))
    space.wait_ready("link")
    with shell.started("connect", "link", ends_with=0) as process:
        found = re.search(r'Client\("(?P<address>tcp://127\.0\.0\.1:\d+)"\)', first_line(process))
        assert found
        with Client(found["address"], timeout=120) as client:
            assert client.submit(sum, [1, 2]).result(timeout=120) == 3


def test_the_dashboard_answers_at_the_printed_address(space: Space) -> None:
    shell = Shell(space)
    space.apply(cluster("board", cpu()))
    space.wait_ready("board")
    with shell.started("dashboard", "board", ends_with=0) as process:
        url = first_line(process)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/status", url)
        with urlopen(url, timeout=120) as answer:  # noqa: S310 - the address was looked at
            assert answer.status == 200


ANSWERS = """\
import sys
from distributed import Client

with Client(timeout="60s") as client:
    print("the answer is", client.submit(sum, [40, 2]).result(timeout=60), *sys.argv[1:])
sys.exit(3)
"""


def test_a_script_runs_beside_a_cluster_and_its_exit_code_comes_through(space: Space, tmp_path: Path) -> None:
    shell = Shell(space)
    script = tmp_path / "answer.py"
    script.write_text(ANSWERS)
    space.apply(cluster("base", cpu()))
    space.wait_ready("base")
    done = shell.run("run", str(script), "--name", "answer", "--on", "base", then=["--", "to $(HOME)"], seconds=180)

    assert done.returncode == 3, done.stderr
    assert "the answer is 42 to $(HOME)" in done.stdout.splitlines(), done.stdout
    again = shell.run("attach", "answer")
    assert (again.returncode, again.stdout) == (3, done.stdout), again.stderr


@pytest.mark.alone  # others take the operator and nodes away
def test_the_doctor_finds_this_cluster_well(space: Space) -> None:
    space.apply(cluster("well", cpu()))
    space.wait_ready("well")
    done = Shell(space).run("doctor", "-o", "json")
    findings = json.loads(done.stdout)
    # A run that was broken off may have left clusters behind, which are not well.
    ours = [item for item in findings if _namespace_of(item) in ("", space.kubectl.namespace)]
    assert [item for item in ours if item["level"] == "problem" or _namespace_of(item)] == []
    assert done.returncode == (Exit.PROBLEM_FOUND if any(item["level"] == "problem" for item in findings) else Exit.OK)
    checks = {item["check"]: item for item in ours}
    assert checks["operator"]["level"] == "ok", checks["operator"]
    assert checks["operator's rights"]["level"] == "ok", checks["operator's rights"]
    assert any(item["check"] == "GPU nodes" and item["level"] == "ok" for item in findings), findings


def _namespace_of(finding: Json) -> str:
    """The namespace of the cluster that a finding of the doctor is about; empty where it is about none."""
    about = finding["text"] if finding["check"] == "images" else finding["check"]
    found = re.match(r"(?:cluster|pool) ([^/ ]+)/", about)
    return found[1] if found else ""
