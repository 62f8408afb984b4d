"""`kubectl gpudask`: the real kubectl finds the plugin on PATH and runs it, and asks it after TAB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudask.cli import completion
from gpudask.cli.output import Exit
from tests.kubectl import Done, Kubectl

pytestmark = pytest.mark.api
MIXED = Path(__file__).parents[2] / "examples" / "mixed.yaml"
SCRIPTS = Path(sys.executable).parent  # where pip puts kubectl-gpudask and kubectl_complete-gpudask


@pytest.fixture
def demo(in_namespace: Kubectl) -> Kubectl:
    in_namespace("apply", "-f", str(MIXED))
    return in_namespace


def on_path(kubectl: Kubectl, *arguments: str, path: str = f"{SCRIPTS}:/usr/bin:/bin") -> Done:
    """kubectl with the plugin on PATH, as a user types it. A plugin gets the options after its name, and no others."""
    environment = os.environ | {"PATH": path, "KUBECONFIG": str(kubectl.kubeconfig), completion.TIMEOUT_VARIABLE: "60"}
    command = [kubectl.path, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_kubectl_runs_it_with_its_options_and_hands_its_exit_code_on(demo: Kubectl):
    listed = on_path(demo, "gpudask", "get", "-n", demo.namespace, "-o", "name")
    assert (listed.returncode, listed.stdout) == (0, "gpudaskcluster.gpudask.dev/demo\n"), listed

    scaled = on_path(demo, "gpudask", "scale", "demo", "gpu=2", "-n", demo.namespace)
    assert scaled.returncode == 0, scaled
    written = demo("get", "gdc", "demo", "-o", "jsonpath={.spec.overrides[0].pool}={.spec.overrides[0].replicas}")
    assert written.stdout == "gpu=2"

    absent = on_path(demo, "gpudask", "get", "nobody", "-n", demo.namespace)
    assert absent.returncode == Exit.NOT_FOUND, absent
    assert "nobody" in absent.stderr


def test_kubectl_lists_it_and_knows_nothing_of_it_without_path(demo: Kubectl):
    assert str(SCRIPTS / "kubectl-gpudask") in on_path(demo, "plugin", "list").stdout.split()
    without = on_path(demo, "gpudask", "get", path="/usr/bin:/bin")
    assert without.returncode != 0
    assert 'unknown command "gpudask"' in without.stderr


def test_kubectl_asks_the_program_and_offers_the_clusters(demo: Kubectl):
    done = on_path(demo, "__complete", "gpudask", "scale", "-n", demo.namespace, "de")
    assert (done.returncode, done.stdout.splitlines()[:1]) == (0, ["demo"]), done
