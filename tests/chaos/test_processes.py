"""Parts of the control plane that end by themselves are started again, and others are left alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local.host.processes import Part, Processes
from tests.chaos.processes import restart_ended


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Processes]:
    """A scheduler, and an API server, that do nothing."""
    (tmp_path / "records").mkdir()
    (tmp_path / "logs").mkdir()
    processes = Processes(tmp_path / "records", tmp_path / "logs")
    for name in ("kube-scheduler", "kube-apiserver"):
        processes.ensure(Part(name, ("sleep", "600")))
    yield processes
    processes.stop([record.name for record in processes.all()])


def end(parts: Processes, name: str) -> None:
    record = parts.find(name)
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while record.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not record.alive


def test_a_part_that_ends_itself_is_started_again(parts: Processes):
    cluster: Any = SimpleNamespace(processes=parts)
    assert restart_ended(cluster) == []

    end(parts, "kube-scheduler")
    assert restart_ended(cluster) == ["kube-scheduler"]
    found = parts.find("kube-scheduler")
    assert found is not None
    assert found.alive
    assert restart_ended(cluster) == []


def test_what_faults_end_is_theirs_to_start_again(parts: Processes):
    end(parts, "kube-apiserver")
    assert restart_ended(SimpleNamespace(processes=parts)) == []  # type: ignore[arg-type]
