"""The command line: `python -m local up`. Parses, calls, prints; everything else is elsewhere."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from local.bundle.activation import activate, active_bundle
from local.bundle.packing.pack import pack, parse_size
from local.clusters.api_server import ApiServer
from local.clusters.cluster import Cluster
from local.clusters.no_proxy import reach_cluster_directly
from local.clusters.settings import Settings
from local.clusters.status import print_status, read_status
from local.errors import LocalClusterError
from local.host.progress import Steps
from local.images.build import IMAGE_NAMES, build_images, image_in_storage
from local.images.node_images import Loadable
from local.images.offline_operator import load_operator
from local.images.offline_worker import load_worker, template_text
from local.layout import Layout
from local.operator.release import Tools, install_checkout, install_operator
from local.programs.binaries import ensure_commands, find_commands

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
_PULL_SECONDS = 300
"""How long a cluster may take to pull the operator's image, of 300 MB, and to start it."""
_errors = Console(stderr=True, highlight=False)

Name = Annotated[str, typer.Option(help="Which cluster.")]


class Output(Enum):
    """The forms of `status`."""

    TABLE = "table"
    JSON = "json"


@app.command()
def up(
    *,
    name: Name = "default",
    api_only: Annotated[bool, typer.Option(help="Only etcd and the API server.")] = False,
    gpus: Annotated[
        int | None,
        typer.Option(
            help="Pretended GPUs of each node whose name begins with gpu; default: the machine's own, else 8."
        ),
    ] = None,
    nodes: Annotated[
        str,
        typer.Option(help="Names of the nodes, with commas between; default: cpu-0,gpu-0, or gpu-0 with real GPUs."),
    ] = "",
    audit: Annotated[bool, typer.Option(help="Log every request, as JSON lines.")] = False,
    from_bundle: Annotated[
        Path | None, typer.Option(help="A directory that `bundle` wrote: nothing is downloaded, built or installed.")
    ] = None,
) -> None:
    """Bring a cluster up, or repair it."""
    del from_bundle  # received before this module could be imported: see bundle/start.py
    if api_only:
        instance = ApiServer.start(name, audit=audit, steps=Steps())
        print(f"export KUBECONFIG={instance.kubeconfig}")
        return
    settings = Settings.for_machine(tuple(filter(None, nodes.split(","))), gpus, audit=audit)
    Cluster.up(name, settings, Steps())
    _errors.print(f'Up. [bold]eval "$({_invocation()} env)"[/bold] sets kubectl and helm up for it.')


@app.command()
def down(*, name: Name = "default") -> None:
    """End a cluster and remove what it left on the machine; binaries and images stay cached."""
    instance = ApiServer.find(name)
    if instance:
        instance.stop()
    else:
        settings = Settings.read(Layout.of(name)) or Settings()
        if settings.bundle:
            activate(Path(settings.bundle))
        Cluster(Layout.of(name), settings).down(Steps())


@app.command()
def bundle(
    *,
    size: Annotated[str, typer.Option(help="No part is larger: 48MiB, 1GiB, or a number of bytes.")] = "48MiB",
    out: Annotated[Path, typer.Option(help="The directory for the parts; an older bundle there is replaced.")] = Path(
        "bundle"
    ),
    cuda13: Annotated[
        bool, typer.Option("--cuda13", help="Bring RMM and UCX along, for GPU pools on a driver for CUDA 13.")
    ] = False,
    rapids: Annotated[
        bool, typer.Option("--rapids", help="Bring cuDF and XGBoost along, for H100 and H200, CUDA 13 and Python 3.12.")
    ] = False,
) -> None:
    """Pack what `up` and `install` need on a machine without network into parts of at most a size."""
    manifest = pack(out, part_bytes=parse_size(size), steps=Steps(), cuda13=cuda13, rapids=rapids)
    total = sum(part.size for part in manifest.parts)
    _errors.print(f"{len(manifest.parts)} parts, {total / (1 << 20):.1f} MiB in all, with {len(manifest.files)} files.")
    print(out)


@app.command()
def status(*, name: Name = "default", output: Annotated[Output, typer.Option("-o", "--output")] = Output.TABLE) -> None:
    """Show each part, node and image. Exits with 1 where `up` would repair something."""
    found = read_status(Cluster.find(name))
    if output is Output.JSON:
        print(json.dumps({"healthy": found.healthy, **asdict(found)}, indent=2))
    else:
        print_status(found, Console(highlight=False))
    raise typer.Exit(0 if found.healthy else 1)


@app.command()
def restart(part: Annotated[str, typer.Argument(help="As `status` names it.")], *, name: Name = "default") -> None:
    """Restart one part and wait until it works."""
    Cluster.find(name).restart(part)


@app.command()
def load(
    image: Annotated[str, typer.Argument(help="An archive, or an image in buildah's storage.")],
    *,
    name: Name = "default",
) -> None:
    """Put an image on every node that lacks it."""
    cluster, steps = Cluster.find(name), Steps()
    with steps.step(f"Loading {image}"):
        if Path(image).is_file():
            cluster.images.load(Loadable.from_archive(Path(image)))
        else:
            image_in_storage(image).load_into(cluster.images)


@app.command()
def images(
    names: Annotated[list[str] | None, typer.Argument(help="All where none is given.")] = None,
    *,
    name: Name = "default",
) -> None:
    """Build images/NAME/Containerfile and put the images on the nodes; prints their names."""
    cluster = Cluster.find(name) if Settings.read(Layout.of(name)) else None
    for image in build_images(names or list(IMAGE_NAMES), cluster.images if cluster else None, Steps()):
        print(image)


@app.command()
def install(
    image: Annotated[str, typer.Option(help="An operator image that the cluster can pull; default: built here.")] = "",
    *,
    default_image: Annotated[str, typer.Option(help="With --image: the image of clusters that name none.")] = "",
    name: Name = "default",
) -> None:
    """Install the operator with its chart; without --image, build its image and Dask's for the local nodes first.

    With --image it installs on the cluster of $KUBECONFIG, by the kubectl and helm that are on PATH.
    """
    steps = Steps()
    if image:
        kubeconfig = os.environ.get("KUBECONFIG")
        if not kubeconfig:
            raise LocalClusterError("install --image needs KUBECONFIG: it says on which cluster.")
        kubectl, helm = find_commands(steps)
        with steps.step(f"Installing the operator {image}"):
            default = f"defaults.image={default_image}"
            Tools(kubectl, helm, kubeconfig).install(image, default, patience_seconds=_PULL_SECONDS)
        return
    cluster = Cluster.find(name)
    if packed := active_bundle():
        operator = load_operator(cluster.images, steps)
        load_worker(cluster.images, packed, steps)
        with steps.step("Installing the operator"):
            install_operator(cluster.layout.commands, cluster.kubeconfig, operator)
        return
    install_checkout(cluster, steps)


@app.command()
def template() -> None:
    """Print the `template` with which pods of the image dask-host, which a bundle brings, run this very Python."""
    print(template_text())


@app.command()
def commands() -> None:
    """Print the directory with kubectl and helm; builds them where they are missing."""
    print(ensure_commands(Steps()))


@app.command()
def env(*, name: Name = "default") -> None:
    """Print what a shell needs: eval "$(python -m local env)"."""
    layout = Layout.of(name)
    print(f"export KUBECONFIG={layout.kubeconfig}")
    print(f"export PATH={layout.commands}:$PATH")
    reach_cluster_directly()
    print(f"export NO_PROXY={os.environ['NO_PROXY']} no_proxy={os.environ['NO_PROXY']}")
    settings = Settings.read(layout)
    if settings:
        print(f"export CONTAINERD_ADDRESS={layout.node(settings.nodes[0]).socket}")
        print("export CONTAINERD_NAMESPACE=k8s.io")
    if settings and settings.bundle:
        root = Path(settings.bundle)
        activate(root)
        print(f"export PATH=$PATH:{root / 'host' / 'bin'}:{root / 'host' / 'tools'}")


def _invocation() -> str:
    return os.environ.get("GPUDASK_START") or f"{os.path.relpath(sys.executable)} -m local"


def main() -> None:
    """Run the command line; what the user can act on is a message, not a traceback."""
    try:
        app()
    except LocalClusterError as error:
        _errors.print(f"[red]Error:[/red] {error}", markup=True, soft_wrap=True)
        sys.exit(1)
