"""Prometheus and promtool are those of the machine, else Debian's, and they run."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from local.host.commands import run
from local.host.progress import QUIET
from local.programs.prometheus import Prometheus, ensure_prometheus


def test_what_is_on_the_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("prometheus", "promtool"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ensure_prometheus(QUIET) == Prometheus(tmp_path / "prometheus", tmp_path / "promtool")


@pytest.mark.registry
def test_both_programs_run(prometheus: Prometheus):
    assert "promtool" in run([str(prometheus.promtool), "--version"])
    assert "prometheus" in run([str(prometheus.server), "--version"])
