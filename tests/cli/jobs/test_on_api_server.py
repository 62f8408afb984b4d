"""`gpudask run` and `gpudask attach` on a real API server, where no pod runs: a test writes the status."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from gpudask.api import Json
from gpudask.cli.output import Exit
from tests.cli.test_on_api_server import Shell
from tests.eventually import eventually
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api


@pytest.fixture
def shell(in_namespace: Kubectl) -> Shell:
    return Shell(in_namespace)


def job(shell: Shell) -> Json:
    found = shell.kubectl("get", "gdj", "train", "-o", "json", "--ignore-not-found").stdout
    body: Json = json.loads(found) if found else {}
    return body


def report(shell: Shell, status: Json) -> None:
    patch = json.dumps({"status": status})
    shell.kubectl("patch", "gdj", "train", "--subresource=status", "--type=merge", "-p", patch)


def test_what_run_makes_is_accepted_and_goes_together(shell: Shell, script: str):
    flags = ["--gpus", "0..4", "--on-gpu", "--retries", "2", "--deadline", "1h"]
    created = shell.ok("run", script, "--name", "train", "--detach", *flags)

    assert created == "gpudaskjob.gpudask.dev/train created\n"
    made = job(shell)
    assert made["spec"]["suspend"] is False
    (volume,) = made["spec"]["runner"]["template"]["spec"]["volumes"]
    name = volume["configMap"]["name"]
    config_map = json.loads(shell.kubectl("get", "configmap", name, "-o", "json").stdout)
    assert config_map["data"] == {"script.py": Path(script).read_text()}
    assert config_map["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


def test_the_largest_script_is_accepted(shell: Shell, tmp_path: Path):
    path = tmp_path / "large.py"
    path.write_bytes(b'"\\\n' * 300_000)  # as long again in JSON
    shell.ok("run", str(path), "--name", "train", "--detach")


def test_a_name_that_is_taken_leaves_the_other_job_as_it_is(shell: Shell, script: str):
    shell.ok("run", script, "--name", "train", "--detach")
    before = job(shell)
    result = shell("run", script, "--name", "train", "--detach")

    assert result.exit_code == Exit.FAILED
    assert "there is a job of this name" in result.stderr
    assert job(shell) == before


def test_a_job_is_followed_by_its_status_to_its_exit_code(shell: Shell, script: str):
    def operate() -> None:
        eventually(lambda: job(shell).get("spec", {}).get("suspend") is False, "the job may run")
        runner = {"pod": "train-runner-1", "exitCode": 3, "reason": "Error", "lastLines": "one\ntwo"}
        report(shell, {"phase": "Running", "attempts": 1, "runner": runner})
        failed = {"type": "Failed", "status": "True", "reason": "RetriesSpent", "message": "the program failed"}
        report(shell, {"phase": "Failed", "conditions": [failed | {"lastTransitionTime": "2026-12-01T18:00:00Z"}]})

    operator = threading.Thread(target=operate)
    operator.start()
    result = shell("run", script, "--name", "train")
    operator.join()

    assert (result.exit_code, result.stdout) == (3, "one\ntwo\n"), result.stderr
    assert "error: job 'train' failed: RetriesSpent: the program failed" in result.stderr
    assert shell("attach", "train").exit_code == 3


def test_a_job_that_is_deleted_ends_it(shell: Shell, script: str):
    def operate() -> None:
        eventually(lambda: job(shell).get("spec", {}).get("suspend") is False, "the job may run")
        shell.kubectl("delete", "gdj", "train", "--wait=false")

    operator = threading.Thread(target=operate)
    operator.start()
    result = shell("run", script, "--name", "train")
    operator.join()

    assert result.exit_code == Exit.FAILED
    assert "job 'train' was deleted meanwhile" in result.stderr
