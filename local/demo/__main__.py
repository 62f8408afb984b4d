"""`python -m local.demo`: the mixed example on a cluster that is up and has the operator."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console

from gpudask.kubecluster.errors import KubeClusterError
from local.clusters.cluster import Cluster
from local.demo.demonstration import DemoError, Demonstration, print_summary
from local.demo.overlay import localize, without_devices
from local.errors import LocalClusterError

ROOT = Path(__file__).parents[2]
_LOG_WIDTH = 140


def main(
    *,
    kubeconfig: Annotated[Path | None, typer.Option(help="Default: $KUBECONFIG, else the local cluster's.")] = None,
    namespace: Annotated[str, typer.Option(help="Where to make the cluster.")] = "default",
    image: Annotated[str, typer.Option(help="Apply the example as it is, with this image: a cluster of yours.")] = "",
    stand_ins: Annotated[bool, typer.Option("--stand-ins", help="With --image: its GPUs are pretended ones.")] = False,
    plot: Annotated[Path, typer.Option(help="Where to write the plot.")] = Path("out/demo.png"),
) -> None:
    """Apply examples/mixed.yaml, run examples/mixed_pipeline.py on it, and watch the pools."""
    console = Console(width=None if sys.stdout.isatty() else _LOG_WIDTH)
    path = find_kubeconfig(kubeconfig, console)
    manifest = yaml.safe_load((ROOT / "examples" / "mixed.yaml").read_text())
    if image:
        manifest["spec"]["image"] = image
        manifest = without_devices(manifest) if stand_ins else manifest
        # There, the image of half a GB may have to be pulled, and a node be made for it.
        demonstration = Demonstration(path, namespace, manifest, plot, start_seconds=600, pipeline_seconds=1800)
    else:
        demonstration = Demonstration(path, namespace, localize(manifest), plot)
    try:
        summary = asyncio.run(demonstration.run(console))
    except (DemoError, OSError, KubeClusterError) as error:
        console.print(f"\ndemo: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    print_summary(summary, console)
    console.print(f"plot of pool sizes and demand: {plot}", highlight=False)
    print_next(path, demonstration, has_kubectl=shutil.which("kubectl") is not None)


def find_kubeconfig(given: Path | None, console: Console) -> str:
    """What was given, else the environment's, else the local cluster's."""
    if given or "KUBECONFIG" in os.environ:
        return str(given or os.environ["KUBECONFIG"])
    try:
        return str(Cluster.find().kubeconfig)
    except LocalClusterError as error:
        console.print(f"demo: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None


def print_next(kubeconfig: str, demonstration: Demonstration, *, has_kubectl: bool) -> None:
    """Three commands worth typing, after one where kubectl is to be had of the local cluster alone."""
    name, namespace = demonstration.name, demonstration.namespace
    python = Path(sys.executable)
    program = python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python
    print("\nThe cluster stays up. Next:")
    if not has_kubectl:
        print(f'  eval "$({program} -m local env)"    # kubectl and helm')
    print(f"  export KUBECONFIG={kubeconfig}; kubectl get gdc {name} -n {namespace} -o wide --watch")
    print(f"  {program} examples/mixed_pipeline.py --cluster {name} --namespace {namespace} --parts 60")
    print(f"  kubectl describe gdc {name} -n {namespace}")


if __name__ == "__main__":
    typer.run(main)
