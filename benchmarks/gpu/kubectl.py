"""kubectl: found, and called; what it gives back is text or JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from local.layout import Layout

_LOCAL_CLUSTER = "default"


class BenchmarkError(Exception):
    """A measurement cannot go on; the text says why, and what to do."""


@dataclass(frozen=True)
class Kubectl:
    """One kubectl and one namespace; `environment` has KUBECONFIG."""

    path: str
    namespace: str
    environment: dict[str, str]

    @classmethod
    def find(cls, namespace: str) -> Kubectl:
        """KUBECONFIG's cluster, else the local one.

        Raises:
            BenchmarkError: there is no kubectl.
        """
        layout = Layout.of(_LOCAL_CLUSTER)
        environment = dict(os.environ)
        environment.setdefault("KUBECONFIG", str(layout.kubeconfig))
        own = layout.commands / "kubectl"
        path = shutil.which("kubectl") or (str(own) if own.exists() else None)
        if path is None:
            raise BenchmarkError("there is no kubectl: start a cluster (python3 -m local up --from-bundle DIRECTORY)")
        return cls(path, namespace, environment)

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run it.

        Raises:
            BenchmarkError: it failed; the text is what it wrote.
        """
        done = subprocess.run(
            self._command(arguments), input=stdin, capture_output=True, text=True, check=False, env=self.environment
        )
        if done.returncode:
            raise BenchmarkError(f"kubectl {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """What `get` and its like say, as JSON."""
        return json.loads(self(*arguments, "--output=json"))

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply objects."""
        self("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """One that goes on, such as a watch, whose lines are read; ended afterwards."""
        process = subprocess.Popen(
            self._command(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [self.path, f"--namespace={self.namespace}", *arguments]
