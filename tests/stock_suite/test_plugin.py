"""The plugin under a pytest of its own, with tests like those of dask-kubernetes and a kubectl that is played."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.stock_suite.__main__ import SUITES, command
from tests.stock_suite.report import Ran, read

TESTS = """
import pytest

def make_cluster_spec(name, image="latest"):
    return image

def test_applies(kopf_runner, k8s_cluster, namespace, tmp_path):
    (tmp_path / "cluster.yaml").write_text("image: dask-kubernetes:dev")
    with kopf_runner:
        for path in (tmp_path, tmp_path / "cluster.yaml"):
            said = k8s_cluster.kubectl("apply", "-n", namespace, "-f", str(path))
            assert said.splitlines()[1:] == [f"apply -n {namespace} -f -", "image: here:1"]

def test_deployments(k8s_cluster):
    assert "get deployments,pods -n x" in k8s_cluster.kubectl("get", "deployments", "-n", "x")

def test_other_kinds(k8s_cluster):
    assert "get svc -n x" in k8s_cluster.kubectl("get", "svc", "-n", "x")

def test_forwards(k8s_cluster):
    with k8s_cluster.port_forward("service/simple", 8786, "-n", "x") as port:
        assert port == 41234

def test_kubectl_fails(k8s_cluster):
    k8s_cluster.kubectl("fail")

def test_log(kopf_runner):
    with kopf_runner as runner:
        pass
    assert "created" in runner.output

def test_image(docker_image):
    assert make_cluster_spec("a") == docker_image == "here:1"
    assert make_cluster_spec("a", image="other") == "other"

@pytest.mark.anyio
async def test_async(kopf_runner, namespace):
    with kopf_runner:
        assert namespace.startswith("stock-")

def test_never_run():
    raise AssertionError

@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ["a", "b"])
def test_known(name, request):
    assert request.node.get_closest_marker("timeout").args == (90,), "no longer"
    assert name == "a"
"""
KUBECTL = """#!/bin/sh
[ "$2" = fail ] && exit 3
[ "$3" = endpointslices ] && [ ! -e "$0.asked" ] && { touch "$0.asked"; exit 0; }
[ "$3" = endpointslices ] && { echo "$0 $@" >> "$0.asked"; echo true; exit 0; }
[ "$2" = port-forward ] && [ -s "$0.asked" ] && { echo "Forwarding from 127.0.0.1:41234 -> 8786"; exec sleep 60; }
echo "$1"; shift; echo "$@"; case "$*" in *"-f -") cat;; esac
"""
EXPECTED = '[not_applicable]\ntest_never_run = "own process"\n[failed]\ntest_known = "differs"\n'


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """What the plugin recorded of each test, by its name."""
    checkout, beside = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("beside")
    for suite in SUITES:
        (checkout / suite).mkdir(parents=True)
    (checkout / SUITES[0] / "test_theirs.py").write_text(TESTS)
    (checkout / "dask_kubernetes" / "conftest.py").write_text("raise RuntimeError('no docker here')")
    kubectl, expected, results = beside / "kubectl", beside / "expected.toml", beside / "results"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    expected.write_text(EXPECTED)
    options = {"kubectl": kubectl, "kubeconfig": beside / "kubeconfig", "image": "here:1"}
    given = {key: str(value) for key, value in (options | {"expected": expected, "results": results}).items()}
    done = subprocess.run(
        command(Path(sys.executable), checkout, given, ["-p", "no:asyncio", "-p", "no:xdist"]),
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join([str(checkout), str(ROOT)])},
        cwd=beside,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert results.exists(), done.stdout + done.stderr
    assert "get daskclusters" in done.stdout, "the namespace of a failed test is shown"
    written = {path.relative_to(checkout).as_posix() for path in checkout.rglob("*") if path.is_file()}
    assert written == {f"{SUITES[0]}/test_theirs.py", "dask_kubernetes/conftest.py"}, "nothing is written there"
    return {each.test: each for each in read(results.read_text())}


@pytest.mark.parametrize(
    "test",
    [
        "test_applies",
        "test_deployments",
        "test_other_kinds",
        "test_forwards",
        "test_image",
        "test_async[asyncio]",
        "test_known[a]",
    ],
)
def test_their_fixtures_are_there(test: str, ran: dict[str, Ran]) -> None:
    assert (ran[test].outcome, ran[test].text) == ("passed", "")


def test_a_failure_has_its_error_and_its_function(ran: dict[str, Ran]) -> None:
    assert ran["test_kubectl_fails"].outcome == "failed"
    assert "CalledProcessError" in ran["test_kubectl_fails"].text
    assert (ran["test_known[b]"].outcome, ran["test_known[b]"].function) == ("failed", "test_known")


def test_who_looks_into_the_operators_process_is_left_there(ran: dict[str, Ran]) -> None:
    assert ran["test_log"].outcome == "skipped"
    assert ran["test_log"].text.startswith("up to here it passes")


def test_what_is_not_applicable_is_not_run(ran: dict[str, Ran]) -> None:
    assert (ran["test_never_run"].outcome, ran["test_never_run"].text) == ("skipped", "own process")


def test_only_who_asks_for_deployments_was_shown_pods(ran: dict[str, Ran]) -> None:
    assert [name for name, test in ran.items() if test.pods_shown] == ["test_deployments"]
