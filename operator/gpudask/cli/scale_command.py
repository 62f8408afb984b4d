"""`gpudask scale`: sizes that a person sets, for a while or until they are given back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudask.cli import connecting, output, sizes
from gpudask.cli.completion import sizes as complete_sizes
from gpudask.cli.exits import CliError, Exit
from gpudask.cli.options import Context, Kubeconfig, Name, Namespace, Output

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

Json = dict[str, Any]
Sizes = Annotated[
    list[str] | None,
    typer.Argument(metavar="POOL=N...", help="Pods, or auto to give it back.", autocompletion=complete_sizes),
]


def scale_command(
    *,
    name: Name,
    pool_sizes: Sizes = None,
    replicas: Annotated[str | None, typer.Option(metavar="N", help="As kubectl's, for a cluster of one pool.")] = None,
    lasting: Annotated[str | None, typer.Option("--for", help="How long it holds, such as 30m or 2h.")] = None,
    output_form: Output = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Set the sizes of pools, or give them back.

    They hold whatever the manifest says, until --for is over or auto gives the pool back to it.

    It writes spec.overrides under a field manager of its own, as KubeCluster.scale does, so that a GitOps tool that
    owns spec.pools does not fight it. Pods that are too many finish their tasks and hand over results first.

    \b
    Example:
      gpudask scale demo gpu=4
      gpudask scale demo gpu=4 cpu=10 --for 2h
      gpudask scale demo gpu=auto
    """  # noqa: D301
    words = [*(pool_sizes or []), *([] if replicas is None else [replicas])]
    if not words:
        raise CliError(f"say which pool is to have how many pods: gpudask scale {name} gpu=4", Exit.USAGE)
    asked = sizes.read_sizes(words)
    until = datetime.now(UTC) + timedelta(seconds=sizes.read_length(lasting)) if lasting else None

    async def write(server: Server) -> Json:
        return await sizes.write(server, name, asked, until)

    body = connecting.run(connecting.Target(kubeconfig, context, namespace), write)
    if output_form is not None:
        typer.echo(output.documents([body], output_form), nl=False)
        return
    typer.echo(f"{output.cluster_reference(name)} scaled: {sizes.told(body, asked)}")
    if body["spec"].get("suspend"):
        output.say(f"the cluster is suspended: sizes hold once it is resumed, gpudask resume {name}")
