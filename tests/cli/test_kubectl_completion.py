"""TAB after `kubectl gpudask`: what is offered, what kubectl is told to do with it, and kubectl itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudask.cli import completion
from gpudask.cli.kubectl_completion import answer, candidates
from tests.kubectl import Kubectl


@pytest.fixture(autouse=True)
def _no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_GPUDASK_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["sc"], ["scale"]), (["re"], ["resume", "render"]), (["get", "--all"], ["--all-namespaces"])],
)
def test_commands_and_flags_are_offered(words: list[str], expected: list[str]):
    assert candidates(words) == expected


def test_before_the_first_letter_every_command_is_offered():
    assert {"get", "create", "doctor"} <= set(candidates([""]))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["scale"], "scale\n:4\n"),
        (["gpu=", "cpu="], "gpu=\ncpu=\n:6\n"),
        ([], ":0\n"),
    ],
    ids=["a word", "the beginning of one", "nothing: files may fit"],
)
def test_kubectl_is_told_what_to_do(found: list[str], expected: str):
    assert answer(found) == expected


@pytest.mark.api
def test_kubectl_asks_the_program_and_offers_the_clusters(in_namespace: Kubectl):
    in_namespace("apply", "-f", str(Path(__file__).parents[2] / "examples" / "mixed.yaml"))
    scripts = Path(sys.executable).parent
    flags = ["--kubeconfig", str(in_namespace.kubeconfig), "-n", in_namespace.namespace]
    done = subprocess.run(
        [in_namespace.path, "__complete", "gpudask", "scale", *flags, "de"],
        env=os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", completion.PATIENCE: "60"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.splitlines()[:1] == ["demo"], done
