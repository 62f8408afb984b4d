"""TAB after `kubectl gpudask`: what is offered, and what kubectl is told to do with it. kubectl: the plugin's tests."""

from __future__ import annotations

import pytest

from gpudask.cli.completion import candidates, kubectl_answer
from gpudask.cli.main import COMPLETION_VARIABLE, make_app


@pytest.fixture(autouse=True)
def _no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_GPUDASK_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["sc"], ["scale"]), (["re"], ["resume", "report", "render"]), (["get", "--all"], ["--all-namespaces"])],
)
def test_commands_and_flags_are_offered(words: list[str], expected: list[str]):
    assert candidates(make_app(), words, COMPLETION_VARIABLE) == expected


def test_before_the_first_letter_every_command_is_offered():
    assert {"get", "create", "doctor"} <= set(candidates(make_app(), [""], COMPLETION_VARIABLE))


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
    assert kubectl_answer(found) == expected
