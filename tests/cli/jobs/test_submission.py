"""`gpudask run --detach`: what is made of a script and flags, in which order, and what becomes of half of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpudask.api.job import parse_job
from gpudask.cli.commands.run import default_name
from gpudask.cli.jobs import submission
from gpudask.cli.output import Exit
from tests.cli.invoke import invoke
from tests.cli.jobs.job_server import CONFIG_MAPS, JOBS, JobServer, Once
from tests.eventually import eventually

COMMAND = [sys.executable, "-m", "gpudask.cli"]


def writes(server: JobServer) -> list[str]:
    """The requests that changed something, in order."""
    kinds = {JOBS: "job", CONFIG_MAPS: "script", f"{JOBS}/train": "job"}
    found = [request.split() for request in server.requests]
    return [f"{verb} {kinds.get(path, path)}" for verb, path in found if verb != "GET"]


def test_the_script_is_there_before_the_job_may_run(server: JobServer, script: str):
    result = invoke("run", script, "--name", "train", "--detach", "--context", "lab")

    assert (result.exit_code, result.stdout) == (Exit.OK, "gpudaskjob.gpudask.dev/train created\n"), result.stderr
    assert result.stderr == "gpudask attach train -n lab --context lab shows its log until it ends\n"
    assert writes(server) == ["POST job", "POST script", "PATCH job"]
    job, (config_map,) = server.jobs["train"], server.config_maps.values()
    assert job["spec"]["suspend"] is False
    assert config_map["data"] == {"script.py": "print('hello')\n"}
    assert config_map["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "gpudask.dev/v1alpha1",
            "kind": "GpuDaskJob",
            "name": "train",
            "uid": "uid-of-train",
            "controller": True,
        }
    ]
    pod = job["spec"]["runner"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "program", "configMap": {"name": config_map["metadata"]["name"]}}]
    assert pod["containers"][0]["command"] == ["python", "/gpudask/program/script.py"]


def test_what_is_made_is_what_the_operator_takes(server: JobServer, script: str):
    words = ["--gpus", "0..4", "--cpus", "2", "--image", "me/dask:1", "--retries", "3", "--deadline", "1h", "--on-gpu"]
    invoke("run", script, "--name", "train", "--detach", *words, "--", "--epochs", "10", "$(HOME) $x")

    job = parse_job(server.jobs["train"])
    pools = {pool["name"]: pool for pool in job.cluster_body["pools"]}
    assert pools["gpu"]["autoscale"] == {"min": 0, "max": 4}
    assert pools["cpu"]["replicas"] == 2
    assert (job.cluster_body["image"], job.spec.retries, job.spec.deadline_seconds) == ("me/dask:1", 3, 3600.0)
    pod = job.spec.runner.template.spec
    (container,) = pod["containers"]
    assert container["command"][2:] == ["--epochs", "10", "$$(HOME) $$x"], "Kubernetes puts in no variables"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert pod["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert "image" not in container, "it has the cluster's"


@pytest.mark.parametrize(
    ("flags", "pools"),
    [
        ([], [{"name": "cpu", "autoscale": {"min": 1, "max": 4}}]),
        (["--gpus", "2"], [{"name": "gpu", "replicas": 2, "gpu": {"count": 1}}]),
        (["--cpus", "0-3"], [{"name": "cpu", "autoscale": {"min": 0, "max": 3}}]),
    ],
)
def test_the_pools_are_those_that_are_asked_for(server: JobServer, script: str, flags: list[str], pools: list[object]):
    assert invoke("run", script, "--name", "train", "--detach", *flags).exit_code == Exit.OK
    assert server.jobs["train"]["spec"]["cluster"] == {"spec": {"pools": pools}}


def test_a_cluster_that_is_there_is_used_as_it_is(server: JobServer, script: str):
    assert invoke("run", script, "--name", "train", "--on", "demo", "--image", "me:2", "--detach").exit_code == 0
    spec = server.jobs["train"]["spec"]
    assert spec["cluster"] == {"name": "demo"}
    assert spec["runner"]["template"]["spec"]["containers"][0]["image"] == "me:2"


def test_a_cluster_that_is_not_there_is_told_before_anything_is_made(server: JobServer, script: str):
    result = invoke("run", script, "--name", "train", "--on", "dmeo", "--detach")
    assert (result.exit_code, result.stdout) == (Exit.NOT_FOUND, "")
    assert "there are: demo" in result.stderr
    assert writes(server) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--gpus", "many"], "--gpus many: write a number of pods, such as 4, or MIN-MAX"),
        (["--cpus", "4..2"], "--cpus 4..2: write the smaller number first, such as 2..4"),
        (
            ["--gpus", "2", "--on", "demo"],
            "--gpus 2 beside --on demo: that cluster has sizes of its own. Leave --gpus out",
        ),
        (["--name", "Train_1"], "--name Train_1: write at most 35 lower-case letters"),
        (["--name", "t" * 36], "write at most 35"),
        (["--deadline", "soon"], "--deadline"),
        (["--deadline", "0s"], "--deadline 0s: no time at all"),
        (["--retries", "101"], "--retries"),
        (["--epochs", "10"], "Write what is for the script after --: gpudask run SCRIPT -- --epochs"),
    ],
)
def test_what_cannot_be_meant_is_told_with_what_to_write(server: JobServer, script: str, words: list[str], told: str):
    result = invoke("run", script, *words)
    assert result.exit_code in (Exit.USAGE, Exit.FAILED)
    assert told in " ".join(result.stderr.split())
    assert writes(server) == []


def test_what_is_no_script_is_told(server: JobServer, tmp_path: Path):
    large, binary, most = tmp_path / "large.py", tmp_path / "binary.py", tmp_path / "most.py"
    large.write_bytes(b"#" * 900_001)
    binary.write_bytes(b"\xff\xfe")
    most.write_bytes(b"#" * 900_000)
    for path, told in (
        (large, "has 900001 bytes, and a ConfigMap takes 900000: put data and modules into the image"),
        (binary, "is not UTF-8"),
        (tmp_path, "is a directory: write one Python file"),
        (tmp_path / "none.py", "cannot be read: No such file"),
    ):
        result = invoke("run", str(path), "--detach")
        assert (result.exit_code, writes(server)) == (Exit.USAGE, []), path
        assert told in result.stderr
    assert invoke("run", str(most), "--detach").exit_code == Exit.OK


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/train it.py", "train-it-abcde"),
        ("2nd.py", "dask-2nd-abcde"),
        ("Ü.py", "dask-abcde"),
        ("x" * 80 + ".py", "x" * 29 + "-abcde"),
        ("-.py", "dask-abcde"),
    ],
)
def test_a_name_is_made_from_the_scripts(path: str, name: str):
    assert default_name(path, "abcdef") == name


# ---------------------------------------------------------------------- what goes wrong in between


@pytest.mark.parametrize("lost", ["POST gpudaskjobs", "POST configmaps", "PATCH train"])
def test_an_answer_that_is_lost_makes_nothing_twice(server: JobServer, script: str, lost: str):
    server.unanswered = Once([lost])
    result = invoke("run", script, "--name", "train", "--detach")

    assert result.exit_code == Exit.OK, result.stderr
    assert "the API server does not answer, trying again" in result.stderr
    assert (list(server.jobs), len(server.config_maps)) == (["train"], 1)
    assert server.jobs["train"]["spec"]["suspend"] is False
    assert "DELETE job" not in writes(server)


def test_a_job_of_somebody_else_is_left_alone(server: JobServer, script: str):
    server.add_job("train")
    result = invoke("run", script, "--name", "train", "--detach")

    assert result.exit_code == Exit.FAILED
    assert "--name train: there is a job of this name in namespace 'lab'. gpudask attach train" in result.stderr
    assert writes(server) == ["POST job"]
    assert server.jobs["train"]["spec"] == {}


def test_a_step_that_is_refused_takes_back_the_job(server: JobServer, script: str):
    server.forbidden.add("POST configmaps")
    result = invoke("run", script, "--name", "train", "--detach")

    assert result.exit_code == Exit.FAILED
    assert 'resources: ["configmaps"], verbs: ["create"]' in result.stderr
    assert server.jobs == {}


def test_a_job_that_cannot_be_taken_back_is_named(server: JobServer, script: str):
    server.forbidden |= {"POST configmaps", "DELETE train"}
    result = invoke("run", script, "--name", "train", "--detach")

    assert result.exit_code == Exit.FAILED
    assert "job 'train' may be left, suspended" in result.stderr
    assert "kubectl delete gdj train -n lab" in result.stderr
    assert server.jobs["train"]["spec"]["suspend"] is True


def test_a_server_that_stays_away_ends_it(server: JobServer, script: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(submission, "PATIENCE_SECONDS", 0.0)
    server.unanswered.add("POST configmaps")
    result = invoke("run", script, "--name", "train", "--detach")

    assert result.exit_code == Exit.FAILED
    assert server.jobs == {}


def test_a_server_without_jobs_is_told(server: JobServer, script: str):
    server.no_jobs = True
    result = invoke("run", script, "--detach")

    assert result.exit_code == Exit.NOT_FOUND
    assert "this server knows no gpudaskjobs.gpudask.dev. kubectl apply" in result.stderr


@pytest.mark.program
@pytest.mark.parametrize("held", ["POST gpudaskjobs", "POST configmaps", "PATCH train"])
def test_ctrl_c_in_between_leaves_nothing(server: JobServer, script: str, held: str):
    server.late[held] = threading.Event()  # it is done, and never answered
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # one that is ignored here is not heard there
    try:
        process = subprocess.Popen(
            [*COMMAND, "run", script, "--name", "train"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        verb, path = held.split()
        eventually(lambda: any(r.startswith(verb) and r.endswith(path) for r in server.requests), "the step is asked")
        eventually(lambda: "train" in server.jobs, "the job is there")
        process.send_signal(signal.SIGINT)
        eventually(lambda: server.jobs == {}, "the job is deleted")
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()

    assert (process.returncode, out) == (Exit.INTERRUPTED, "")
    assert server.jobs == {}
    assert "Traceback" not in err
