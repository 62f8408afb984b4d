"""The Python environment of a program that has another release of distributed: from a lock with hashes, made once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.commands import run
from local.hashing import content_key
from local.layout import REPOSITORY, cache_dir
from local.lock import exclusive

Json = dict[str, Any]

OLDEST = "2025.4.0"
"""What pyproject.toml promises. Its environment has the oldest of every package that is named there."""
NEWEST = "2026.8.0"
"""Newer than the image's."""
TOO_OLD = "2025.3.1"
"""The last that writes graphs which the image's scheduler cannot read."""

_PROGRAM = Path(__file__).with_name("program.py")
_LIMIT_SECONDS = 150
# What `program.py` says, but for the release that it runs with.
COMPUTED = {
    "submitted": 42,
    "mapped": [0, 2, 4, 6],
    "scattered": 6,
    "graph": 12,
    "large": 5_000_000,
    "restricted": "gpu",
    "annotated": "gpu",
    "raised": "ZeroDivisionError('on purpose')",
}


def requirements_of(release: str) -> Path:
    """What the environment is to hold, for people; the lock beside it says so exactly."""
    return REPOSITORY / "requirements" / f"client-{release}.in"


@dataclass(frozen=True)
class Environment:
    """A virtual environment. gpudask itself is this checkout's, whatever the environment was made for."""

    python: Path

    @classmethod
    def ensure(cls, release: str) -> Environment:
        """Find the environment of a release of distributed, made first where it is missing: seconds.

        Raises:
            LocalClusterError: a package cannot be installed; the text has the installer's words.
        """
        lock = requirements_of(release).with_suffix(".lock")
        key = content_key(texts=[sys.version], files=[lock], relative_to=lock.parent)
        root = cache_dir() / "clients" / f"{release}-{key}"
        with exclusive(root):
            if not root.exists():
                _make(root, lock)
        return cls(root / "bin" / "python")

    def run(self, *command: str, kubeconfig: str = "") -> Json:
        """Run Python with these arguments, and read the JSON object that it prints last."""
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY / "operator"), "KUBECONFIG": kubeconfig}
        done = subprocess.run(
            [self.python, *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))


def run_program(release: str, kubeconfig: str, cluster: str, namespace: str) -> Json:
    """Run `program.py` under a release of distributed, and return what it saw."""
    return Environment.ensure(release).run(str(_PROGRAM), cluster, namespace, kubeconfig=kubeconfig)


def _make(root: Path, lock: Path) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    unfinished = root.with_name(f"{root.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    run([uv, "venv", "--quiet", "--python", sys.executable, str(unfinished)])
    python = str(unfinished / "bin" / "python")
    run([uv, "pip", "sync", "--quiet", "--python", python, "--require-hashes", str(lock)])
    unfinished.rename(root)
