"""`gpudask create`: a cluster from a manifest, or from a few flags."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.api import Json
from gpudask.cli import client, output
from gpudask.cli.manifests import checked, namespace_of, read_clusters
from gpudask.cli.options import Context, Format, Kubeconfig, Namespace, Output
from gpudask.cli.output import CliError, Exit
from gpudask.kubecluster import manifest as kubecluster
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

_SIZE = "a number, or MIN-MAX to follow demand."
_SIZE_PATTERN = re.compile(r"^(?P<least>\d+)((-|\.\.)(?P<most>\d+))?$")


_CLIENT, _SERVER, _NONE = "client", "server", "none"


def _read_dry_run(value: str) -> str:
    if value not in (_CLIENT, _SERVER, _NONE):
        raise typer.BadParameter(f"{value!r} is not one of '{_CLIENT}', '{_SERVER}', '{_NONE}'")
    return value


def create_command(
    *,
    name: Annotated[str | None, typer.Argument(help="The new cluster's name; none with -f.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="A manifest; - reads standard input.")] = None,
    image: Annotated[str | None, typer.Option(help="One environment for every pod; default: the operator's.")] = None,
    workers: Annotated[str | None, typer.Option(help=f"Pods of the pool cpu: {_SIZE}")] = None,
    gpus: Annotated[str | None, typer.Option(help=f"Pods with a GPU each, in the pool gpu: {_SIZE}")] = None,
    cpu: Annotated[str | None, typer.Option(help="Cores of each worker pod, such as 4 or 500m.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of each worker pod, such as 16Gi.")] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="For every pod; repeatable.")] = None,
    dry_run: Annotated[
        str,
        typer.Option(
            metavar="[client|server|none]",
            help="Create nothing, print the manifest, which the server checks or nobody; alone: client.",
            callback=_read_dry_run,
        ),
    ] = "none",
    output_form: Output = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Create a cluster from a manifest or flags.

    One that exists is left alone: kubectl apply changes it.

    \b
    Example:
      gpudask create demo --workers 2 --gpus 0-8
      gpudask create demo --image me/dask:1 --gpus 4 --dry-run -o yaml > demo.yaml
      gpudask create -f demo.yaml
    """  # noqa: D301
    flags = Flags(image, workers, gpus, cpu, memory, env or [])
    bodies = _bodies(name, file, flags)
    target = client.Target(kubeconfig, context, namespace_of(bodies, namespace))
    for body in bodies:
        checked(body)
    if dry_run == _CLIENT:
        placed = [_placed(body, target.namespace) for body in bodies] if target.namespace else bodies
        typer.echo(output.documents(placed, output_form or Format.YAML, whole_list=False), nl=False)
        return

    made, refused = client.run(target, lambda server: _create(server, bodies, dry_run=dry_run == _SERVER))
    if dry_run == _SERVER and made:
        typer.echo(output.documents(made, output_form or Format.YAML, whole_list=False), nl=False)
    elif output_form is not None and made:
        typer.echo(output.documents(made, output_form), nl=False)
    for body in made if output_form is None and dry_run == _NONE else []:
        typer.echo(f"{output.reference(body)} created")
        output.write_message(f"gpudask wait {body['metadata']['name']} waits until it is ready")
    for error in refused[:-1]:
        output.write_message(f"error: {error}")
    if refused:
        raise refused[-1]


def _bodies(name: str | None, file: str | None, flags: Flags) -> list[Json]:
    if file is not None:
        if name is not None or flags.given:
            raise CliError("a manifest says it all: leave out the name and the flags, or -f", Exit.USAGE)
        return read_clusters(file)
    if name is None:
        raise CliError("name the cluster, or give its manifest: -f FILE", Exit.USAGE)
    return [manifest(name, flags)]


async def _create(server: Server, bodies: list[Json], *, dry_run: bool) -> tuple[list[Json], list[KubeClusterError]]:
    """Those that were made, and why others were not: as with kubectl, one that is refused holds back no other."""
    made, refused = [], []
    for body in bodies:
        try:
            made.append(await server.create(_placed(body, server.namespace), dry_run=dry_run))
        except KubeClusterError as error:
            refused.append(_exists(body, server.namespace) if error.status == HTTPStatus.CONFLICT else error)
    return made, refused


def _exists(body: Json, namespace: str) -> KubeClusterError:
    name = body["metadata"]["name"]
    return KubeClusterError(
        f"cannot create cluster {name!r}",
        reason=f"it exists already in namespace {namespace!r}",
        next_step=f"kubectl apply changes it, gpudask get {name} shows it; or choose another name",
        status=HTTPStatus.CONFLICT,
    )


def _placed(body: Json, namespace: str) -> Json:
    return {**body, "metadata": {**body["metadata"], "namespace": namespace}}


@dataclass(frozen=True)
class Flags:
    """The flags of `create` as they were typed: the words that KubeCluster makes a manifest of."""

    image: str | None = None
    workers: str | None = None
    gpus: str | None = None
    cpu: str | None = None
    memory: str | None = None
    env: list[str] = field(default_factory=list)

    @property
    def given(self) -> bool:
        """True if any flag is given."""
        return any(astuple(self))


def manifest(name: str, flags: Flags) -> Json:
    """The manifest of cluster `name`: a pool cpu unless only GPUs are asked for, a pool gpu where they are.

    Raises:
        CliError: a flag cannot be read.
        KubeClusterError: what the flags say together is not valid.
    """
    asked = {key: _plain(value) for key, value in (("cpu", flags.cpu), ("memory", flags.memory)) if value}
    resources = {"resources": _whole(asked)} if asked else {}
    pools: list[Json] = []
    if flags.workers is not None or flags.gpus is None:
        pools.append({"name": "cpu", **size("--workers", flags.workers or "1"), **resources})
    if flags.gpus is not None:
        pools.append({"name": "gpu", **size("--gpus", flags.gpus), "gpu": {"count": 1}, **resources})
    env = [_variable(text) for text in flags.env]
    return kubecluster.manifest(name, kubecluster.Arguments(image=flags.image, env=env, pools=pools))


def size(flag: str, text: str) -> Json:
    """`4` as replicas, `0-8` or `0..8` as autoscale.

    Raises:
        CliError: it is neither.
    """
    match = _SIZE_PATTERN.match(text)
    if match is None:
        raise CliError(f"{flag} {text}: write a number of pods, such as 4, or MIN-MAX, such as 0-8", Exit.USAGE)
    if match["most"] is None:
        return {"replicas": int(match["least"])}
    return {"autoscale": {"min": int(match["least"]), "max": int(match["most"])}}


def _whole(asked: Json) -> Json:
    # What one flag leaves out keeps the default that a pool without resources has.
    return {"cpu": 1, "memory": "2Gi"} | asked


def _plain(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _variable(text: str) -> Json:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CliError(f"--env {text}: write NAME=VALUE", Exit.USAGE)
    return {"name": name, "value": value}
