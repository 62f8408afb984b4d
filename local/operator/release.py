"""The operator on a cluster, as the chart installs it: for the demo, the tests and the benchmarks alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from local.clusters.cluster import Cluster
from local.host.commands import run
from local.host.progress import Steps
from local.images.build import build_images
from local.layout import REPOSITORY

NAMESPACE = "gpudask-system"
# What a platform's administrators decide, switched on here: the tests try it, and drivers come by hostPath.
EVERYTHING = (
    "deleteAfter=true",
    "limits.serviceTypes={ClusterIP,NodePort,LoadBalancer}",
    "limits.serviceAnnotations=true",
    "limits.templateFields={serviceAccountName,hostPath}",
)
_CHART = REPOSITORY / "charts" / "gpudask"


def install_checkout(cluster: Cluster, steps: Steps) -> str:
    """Build the operator's and Dask's image of this checkout, put them on the nodes, and install; the operator's image.

    Raises:
        LocalClusterError: as `install_operator`, and where an image cannot be built.
    """
    operator, dask = build_images(["operator", "dask"], cluster.images, steps)
    with steps.step("Installing the operator"):
        install_operator(cluster.layout.commands, cluster.kubeconfig, operator, f"defaults.image={dask}")
    return operator


def install_operator(commands: Path, kubeconfig: Path, image: str, *settings: str) -> None:
    """Install on a local cluster, whose nodes have `image` already; `commands` is where its helm and kubectl are.

    `settings` are more values for `helm --set`.

    Raises:
        LocalClusterError: kubectl or helm failed; the text has what it printed.
    """
    tools = Tools(commands / "kubectl", commands / "helm", str(kubeconfig))
    tools.install(image, *EVERYTHING, *settings, "image.pullPolicy=Never", patience_seconds=120)


def image_values(image: str) -> list[str]:
    """The chart's values for an image of the operator."""
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:  # no tag, but perhaps a registry's port
        repository, tag = image, "latest"
    return [f"image.repository={repository}", f"image.tag={tag}"]


@dataclass(frozen=True)
class Tools:
    """kubectl and helm, and the cluster that they are for: a kubeconfig, or several as in $KUBECONFIG."""

    kubectl: Path
    helm: Path
    kubeconfig: str

    def install(self, image: str, *settings: str, patience_seconds: int) -> None:
        """`helm upgrade --install` and wait until the operator is ready.

        Helm leaves CRDs that exist alone, so those are applied first.

        Raises:
            LocalClusterError: kubectl or helm failed; the text has what it printed.
        """
        environment = {"KUBECONFIG": self.kubeconfig}
        crds = ["apply", "--server-side", "--force-conflicts", "-f", str(_CHART / "crds")]
        run([str(self.kubectl), *crds], environment=environment)
        values = [*image_values(image), *settings]
        run(
            [
                *(str(self.helm), "upgrade", "--install", "gpudask", str(_CHART)),
                *("--namespace", NAMESPACE, "--create-namespace", "--skip-crds"),
                *("--wait", "--timeout", f"{patience_seconds}s"),
                *(part for value in values for part in ("--set", value)),
            ],
            environment=environment,
        )
