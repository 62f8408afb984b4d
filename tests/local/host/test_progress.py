"""Without a terminal, a step says that it has begun before it is done: builds take minutes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from local.host import progress
from local.host.progress import Steps
from tests.eventually import eventually

LOG = Path("/a/rather/long/path/that/does/not/fit/into/eighty/columns/logs/build-kubernetes.log")


def _steps() -> tuple[Steps, io.StringIO]:
    printed = io.StringIO()
    return Steps(Console(file=printed, highlight=False)), printed


def test_a_step_is_announced_with_its_log_while_it_runs():
    steps, printed = _steps()
    with steps.step("Building kubernetes", log=LOG):
        eventually(lambda: printed.getvalue() == f"… Building kubernetes (log: {LOG})\n", "it is announced")
    assert printed.getvalue().splitlines()[1].startswith("✓ Building kubernetes ")


def test_a_step_that_found_its_work_done_prints_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "_QUICK_SECONDS", 60)
    steps, printed = _steps()
    with steps.step("Building kubernetes", log=LOG):
        pass
    assert printed.getvalue() == ""


def test_a_step_that_fails_says_so_with_its_log():
    steps, printed = _steps()
    with pytest.raises(ValueError, match="no"), steps.step("Building kubernetes", log=LOG):
        raise ValueError("no")
    line = printed.getvalue().splitlines()[-1]
    assert line.startswith("✗ Building kubernetes after ")
    assert line.endswith(f" s (log: {LOG})")
