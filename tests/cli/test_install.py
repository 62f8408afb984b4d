"""What docs/tasks.md says of the installation: the package with its extra, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.registry
ROOT = Path(__file__).parents[2]


def run(*command: str | Path, **env: str) -> str:
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=ROOT, env=kept | env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_command_line_and_the_client_work_where_only_their_extra_is_installed(tmp_path: Path):
    uv, place = Path(sys.executable).with_name("uv"), tmp_path / "environment"
    run(uv, "venv", "--quiet", "--python", sys.executable, place)
    # The versions that everything else is tested with; what else the extra would take is its own business.
    constraint = ROOT / "requirements" / "dev.lock"
    run(
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        place / "bin" / "python",
        "--constraint",
        constraint,
        ".[cli,image]",
    )

    assert run(place / "bin" / "gpudask", "--version") == f"gpudask {metadata.version('gpudask')}\n"
    assert "kind: Pod" in run(place / "bin" / "gpudask", "render", "examples/mixed.yaml")
    said = run(place / "bin" / "python", "-c", "from gpudask import KubeCluster as K; print(K.__module__)", HOME="/")
    assert said == "gpudask.kubecluster.cluster\n"
    has = run(
        place / "bin" / "python", "-c", "import distributed as d, numpy as n; print(d.__version__, n.__version__)"
    )
    lock = (ROOT / "requirements" / "dask.lock").read_text()
    assert all(
        f"{name}=={version} " in lock for name, version in zip(("distributed", "numpy"), has.split(), strict=True)
    )
