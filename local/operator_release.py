"""The operator on a cluster, as the chart installs it: for the demo, the tests and the benchmarks alike."""

from __future__ import annotations

import os
from pathlib import Path

from local.commands import run

NAMESPACE = "gpudask-system"
_CHART = Path(__file__).resolve().parents[1] / "charts" / "gpudask"


def install_operator(commands: Path, kubeconfig: Path, image: str, *settings: str, pull_policy: str = "Never") -> None:
    """`helm upgrade --install` and wait until the operator is ready; `commands` is where helm and kubectl are.

    `settings` are more values for `helm --set`. Helm leaves CRDs that exist alone, so those are applied first.

    Raises:
        LocalClusterError: kubectl or helm failed; the text has what it printed.
    """
    environment = {"KUBECONFIG": str(kubeconfig), "PATH": f"{commands}{os.pathsep}{os.environ.get('PATH', '')}"}
    crds = ["apply", "--server-side", "--force-conflicts", "-f", str(_CHART / "crds")]
    run([str(commands / "kubectl"), *crds], environment=environment)
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:  # no tag, but perhaps a registry's port
        repository, tag = image, "latest"
    values = [f"image.repository={repository}", f"image.tag={tag}", f"image.pullPolicy={pull_policy}", *settings]
    run(
        [
            *(str(commands / "helm"), "upgrade", "--install", "gpudask", str(_CHART)),
            *("--namespace", NAMESPACE, "--create-namespace", "--skip-crds", "--wait", "--timeout", "120s"),
            *(part for value in values for part in ("--set", value)),
        ],
        environment=environment,
    )
