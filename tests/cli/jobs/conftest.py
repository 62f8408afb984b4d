"""A server that knows of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.jobs.job_server import JobServer
from tests.kubecluster import fake_server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobServer]:
    """One with the cluster `demo`, and no job yet."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with JobServer() as fake:
        fake.clusters["demo"] = fake_server.cluster("demo", "cpu", "gpu")
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(fake.kubeconfig()))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield fake


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A script's path."""
    path = tmp_path / "train it.py"
    path.write_text("print('hello')\n")
    return str(path)
