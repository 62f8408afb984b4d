"""A release of the chart beside the platform's own."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from local.operator.release import image_values
from tests.e2e.platform import Platform

CHART = Path(__file__).resolve().parents[2] / "charts" / "gpudask"


@dataclass(frozen=True)
class Release:
    """Helm's name of it, and the namespace of its operator. `user`: for whom helm acts, if not for an administrator."""

    platform: Platform
    name: str
    namespace: str
    user: str = ""

    @property
    def fullname(self) -> str:
        """The name of its objects."""
        return f"{self.name}-gpudask"

    @property
    def account(self) -> str:
        """Its operator, as the API server knows it."""
        return f"system:serviceaccount:{self.namespace}:{self.fullname}"

    def install(self, *settings: str, options: tuple[str, ...] = ()) -> None:
        """`helm install`, with this checkout's image, until the operator is ready."""
        done = self.attempt(
            "install", self.name, str(CHART), "--wait", "--timeout=60s", *self._values(settings), *options
        )
        assert done.returncode == 0, done.stderr

    def uninstall(self) -> None:
        """`helm uninstall`; one that is not there is fine."""
        done = self.attempt("uninstall", self.name, "--ignore-not-found", "--wait")
        assert done.returncode == 0, done.stderr

    def rendered(self, *settings: str, only: tuple[str, ...]) -> str:
        """What `helm template` makes of some of the templates."""
        shown = [f"--show-only=templates/{name}" for name in only]
        done = self.attempt("template", self.name, str(CHART), *shown, *self._values(settings))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def attempt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run helm, whatever comes of it."""
        helm = str(self.platform.provider.helm)
        cluster = ["--kubeconfig", str(self.platform.kubectl.kubeconfig), "--namespace", self.namespace]
        behalf = ["--kube-as-user", self.user] if self.user else []
        return subprocess.run([helm, *arguments, *cluster, *behalf], capture_output=True, text=True, check=False)

    def log(self) -> str:
        """All that the operator has logged since it started."""
        inside = self.platform.kubectl.inside(self.namespace)
        return inside("logs", f"deployment/{self.fullname}", "--tail=-1").stdout

    def _values(self, settings: tuple[str, ...]) -> list[str]:
        pull_policy = f"image.pullPolicy={self.platform.provider.pull_policy}"
        values = (*image_values(self.platform.operator_image), pull_policy, *settings)
        return [part for value in values for part in ("--set", value)]
