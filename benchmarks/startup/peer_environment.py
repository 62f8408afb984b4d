"""The Python environment of dask-kubernetes' operator: its own, from a lock with hashes, made once."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.layout import cache_dir

_LOCK = Path(__file__).with_name("peer.lock")
_CRDS = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds"
# Run there, not here: what a user of that package gets.
_SPEC = """
import json, sys
from dask_kubernetes.operator import make_cluster_spec
json.dump(make_cluster_spec(**json.load(sys.stdin)), sys.stdout)
"""


@dataclass(frozen=True)
class PeerEnvironment:
    """A virtual environment with the peer in it."""

    root: Path

    @classmethod
    def ensure(cls) -> PeerEnvironment:
        """Make it where it is missing; its directory carries the lock's hash.

        Raises:
            subprocess.CalledProcessError: a package could not be installed; its output is on the terminal.
        """
        digest = hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:12]
        environment = cls(cache_dir() / "peer" / digest)
        complete = environment.root / ".compiled"
        if not complete.exists():
            print(f"installing dask-kubernetes' operator into {environment.root}", flush=True)
            uv = Path(sys.executable).with_name("uv")
            subprocess.run([uv, "venv", "--quiet", "--clear", environment.root], check=True)
            sync: list[str | Path] = [
                uv,
                "pip",
                "sync",
                "--quiet",
                "--compile-bytecode",  # as pip does for a user; else each process compiles what it imports anew
                "--python",
                environment.python,
                "--require-hashes",
                _LOCK,
            ]
            subprocess.run(sync, check=True)
            complete.touch()
        return environment

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "bin" / "python"

    @property
    def kopf(self) -> Path:
        """The command that runs the peer's controller."""
        return self.root / "bin" / "kopf"

    @property
    def crds(self) -> list[Path]:
        """The files of its custom resource definitions, as its Helm chart installs them."""
        return sorted(self.root.glob(f"lib/python*/site-packages/{_CRDS}/*.yaml"))

    def cluster_spec(self, **arguments: Any) -> dict[str, Any]:
        """What its `make_cluster_spec` makes of `arguments`: a DaskCluster."""
        done = subprocess.run(
            [self.python, "-c", _SPEC], input=json.dumps(arguments), capture_output=True, text=True, check=True
        )
        return dict(json.loads(done.stdout))


def version() -> str:
    """The peer's version, from the lock."""
    lines = (line.split()[0] for line in _LOCK.read_text().splitlines() if line.startswith("dask-kubernetes=="))
    return next(lines).partition("==")[2]
