"""Python environments with another release of distributed, for a program or for the preload's tests.

Each is from a lock with hashes, and made once.
"""

from __future__ import annotations

from gpudask.api import Json

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from local.host.commands import run
from local.host.hashing import content_key
from local.layout import REPOSITORY, cache_dir
from local.host.lock import exclusive


OLDEST = "2025.4.0"
"""What pyproject.toml promises. Its environment has the oldest of every package that is named there."""
NEWEST = "2026.8.0"
"""Newer than the image's."""
TOO_OLD = "2025.3.1"
"""The last that writes graphs which the image's scheduler cannot read."""
STOCK = "stock"
"""No release, but what a user of the stock client has: `requirements/client-stock.in`."""

CLIENT = "client"
"""The environment is a program's, beside scheduler and workers of the image."""
PRELOAD = "preload"
"""The environment is an image's: scheduler, workers and client have the same release, and the tests run there too."""

RAN_ELSEWHERE = "ran elsewhere"
"""The property of a test under which it records what tests ran in an environment, for the end of pytest's report."""

_PROGRAM = Path(__file__).with_name("program.py")
_LIMIT_SECONDS = 150
_TESTS_LIMIT_SECONDS = 1500
_VARIABLES = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY / "operator")}
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


def requirements_of(release: str, of: str = CLIENT) -> Path:
    """What the environment is to hold, for people; the lock beside it says so exactly."""
    return REPOSITORY / "requirements" / f"{of}-{release}.in"


@dataclass(frozen=True)
class Environment:
    """A virtual environment. gpudask itself is this checkout's, whatever the environment was made for."""

    python: Path

    @classmethod
    def ensure(cls, release: str, of: str = CLIENT, python: str = sys.executable) -> Environment:
        """Find the environment of a release of distributed, made first where it is missing: seconds.

        Args:
            release: of distributed.
            of: `CLIENT` or `PRELOAD`.
            python: the interpreter.

        Raises:
            LocalClusterError: a package cannot be installed; the text has the installer's words.
        """
        return cls._of_lock(requirements_of(release, of).with_suffix(".lock"), python)

    @classmethod
    def of_images(cls) -> Environment:
        """Find the one of the images themselves, dask-cuda included, made first where it is missing.

        Raises:
            LocalClusterError: as above.
        """
        return cls._of_lock(REPOSITORY / "requirements" / "dask.lock", sys.executable)

    @classmethod
    def of_jupyterlab(cls) -> Environment:
        """Find the one of JupyterLab with Dask's extension, made first where it is missing: seconds.

        Raises:
            LocalClusterError: as above.
        """
        return cls._of_lock(REPOSITORY / "requirements" / "lab.lock", sys.executable)

    @classmethod
    def _of_lock(cls, lock: Path, python: str) -> Environment:
        version = sys.version if python == sys.executable else full_version(python)
        key = content_key(texts=[version], files=[lock], relative_to=lock.parent)
        root = cache_dir() / "clients" / f"{lock.stem}-{key}"
        with exclusive(root):
            if not root.exists():
                _make(root, lock, python)
        return cls(root / "bin" / "python")

    @property
    def packages(self) -> Path:
        """Its site-packages, with bytecode: a pod that mounts them may not write it, and each of its processes would
        compile what it imports.
        """
        root = self.python.parent.parent
        (found,) = root.glob("lib/python*/site-packages")
        with exclusive(root):
            if not (stamp := root / ".compiled").exists():
                # It fails, since some packages have files for a later Python; the others are compiled.
                subprocess.run([self.python, "-m", "compileall", "-qq", "-j", "2", found], check=False)
                stamp.touch()
        return found

    def start(self, *command: str, kubeconfig: str = "") -> subprocess.Popen[str]:
        """Start Python with these arguments; its input, output and errors are pipes."""
        return subprocess.Popen(
            [self.python, *command],
            env=_VARIABLES | {"KUBECONFIG": kubeconfig},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, kubeconfig: str = "") -> Json:
        """Run Python with these arguments, and read the JSON object that it prints last."""
        done = subprocess.run(
            [self.python, *command],
            env=_VARIABLES | {"KUBECONFIG": kubeconfig},
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def test(self, *arguments: str) -> str:
        """Run pytest with these arguments on this checkout, and return what it said.

        Raises:
            AssertionError: a test failed, none ran, or they took too long; the text is what pytest said.
        """
        # Nothing is written into the checkout, where another pytest may run; and all is compiled once, not each time.
        bytecode = f"pycache_prefix={cache_dir() / 'bytecode'}"
        command = [self.python, "-X", bytecode, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        try:
            done = subprocess.run(
                command,
                env=_VARIABLES,
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_TESTS_LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = (late.output or b"").decode(errors="replace")
            raise AssertionError(f"not done within {_TESTS_LIMIT_SECONDS} s:\n{said}") from late
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0, said
        return said


def run_program(release: str, kubeconfig: str, cluster: str, namespace: str) -> Json:
    """Run `program.py` under a release of distributed, and return what it saw."""
    return Environment.ensure(release).run(str(_PROGRAM), cluster, namespace, kubeconfig=kubeconfig)


def interpreter(version: str) -> str | None:
    """A Python such as 3.12 on PATH, or of pyenv, whose program on PATH may do nothing; None where there is none."""
    name = f"python{version}"
    of_pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [shutil.which(name), *map(str, sorted(of_pyenv.glob(f"{version}.*/bin/{name}")))]
    return next((path for path in candidates if path and full_version(path).startswith(f"{version}.")), None)


def full_version(python: str) -> str:
    """What an interpreter calls its version; empty where it does not run."""
    code = "import sys; print(sys.version)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def _make(root: Path, lock: Path, python: str) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    unfinished = root.with_name(f"{root.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    run([uv, "venv", "--quiet", "--python", python, str(unfinished)])
    made = str(unfinished / "bin" / "python")
    run([uv, "pip", "sync", "--quiet", "--python", made, "--require-hashes", str(lock)])
    unfinished.rename(root)
