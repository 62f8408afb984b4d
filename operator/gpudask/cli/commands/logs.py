"""`gpudask logs`: of the scheduler, of a pool's pods, or of one pod."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudask.api import Json
from gpudask.api.resource import LABEL_DASK_COMPONENT, LABEL_POOL
from gpudask.cli import client, output
from gpudask.cli.completion import pools
from gpudask.cli.options import Context, Kubeconfig, Name, Namespace, read_length
from gpudask.cli.output import CliError, Exit
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

SCHEDULER = "scheduler"


def logs_command(
    *,
    name: Name,
    of: Annotated[str, typer.Argument(metavar="scheduler|POOL|POD", help="Whose.", autocompletion=pools)] = SCHEDULER,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come, until ctrl-C.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last lines of each.")] = None,
    since: Annotated[str | None, typer.Option(help="Only lines that are no older, such as 10m.")] = None,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the container before its restart.")] = False,
    container: Annotated[str, typer.Option("--container", "-c", help="Another container of the pods.")] = "dask",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print logs of the scheduler or of workers.

    Of several pods, each line begins with its pod's name.

    \b
    Example:
      gpudask logs demo
      gpudask logs demo gpu --tail 20
      gpudask logs demo gpu --since 10m --follow
      gpudask logs demo demo-gpu-worker-0 --previous
    """  # noqa: D301
    if follow and previous:
        raise CliError("a container that has ended writes no more: --follow or --previous, not both", Exit.USAGE)
    since_seconds = None if since is None else math.ceil(read_length(since, "--since"))

    wanted = _Wanted(of, tail, since_seconds, container, follow=follow, previous=previous)
    target = client.Target(kubeconfig, context, namespace)
    client.run(target, lambda server: client.while_read(_print(server, name, wanted)))


@dataclass(frozen=True)
class _Wanted:
    """Whose logs, and how much of them."""

    of: str
    tail: int | None
    since_seconds: int | None
    container: str
    follow: bool
    previous: bool


async def _print(server: Server, name: str, wanted: _Wanted) -> None:
    from gpudask.kubecluster.kube.pods import follow_log, list_pods, read_log  # noqa: PLC0415 - the client is large

    chosen = choose(await server.cluster(name), await list_pods(server, name), wanted.of)
    limits = {"tail": wanted.tail, "since_seconds": wanted.since_seconds}

    async def one(pod: str) -> None:
        prefix = f"[{pod}] " if len(chosen) > 1 else ""
        if wanted.follow:
            async for line in follow_log(server, pod, **limits, container=wanted.container):
                typer.echo(prefix + line)
            return
        for line in await read_log(server, pod, **limits, previous=wanted.previous, container=wanted.container):
            typer.echo(prefix + line)

    if wanted.follow:
        outcomes = await asyncio.gather(*(one(pod) for pod in chosen), return_exceptions=True)
    else:  # one after the other: their lines stay together
        outcomes = [await _outcome(one(pod)) for pod in chosen]
    failed = [error for error in outcomes if isinstance(error, BaseException)]
    if unknown := [error for error in failed if not isinstance(error, KubeClusterError)]:
        raise unknown[0]  # also where nobody reads any more
    for error in failed:
        output.write_message(f"error: {error}")
    if failed:
        raise CliError(f"no log of {len(failed)} of {len(chosen)} pods")


async def _outcome(reading: Any) -> BaseException | None:
    try:
        await reading
    except KubeClusterError as error:
        return error
    return None


def choose(body: Json, pods: list[Json], of: str) -> list[str]:
    """The names of the pods that `of` means: the scheduler's, a pool's, or the pod of that name.

    Raises:
        CliError: there is none; the message names those that are there.
    """
    labels = {pod["metadata"]["name"]: pod["metadata"].get("labels") or {} for pod in pods}
    if of.removeprefix("pod/") in labels:
        return [of.removeprefix("pod/")]
    if of == SCHEDULER:
        found = [name for name, of_pod in labels.items() if of_pod.get(LABEL_DASK_COMPONENT) == SCHEDULER]
    else:
        found = [name for name, of_pod in labels.items() if of_pod.get(LABEL_POOL) == of]
    if found:
        return found
    cluster = body["metadata"]["name"]
    known = [pool["name"] for pool in body["spec"]["pools"]]
    if of in (SCHEDULER, *known):
        reason = (body.get("status") or {}).get("reason") or (body.get("status") or {}).get("phase") or "no status yet"
        what = f"{of} of cluster {cluster!r} has no pod now ({reason})"
        raise CliError(f"{what}: gpudask get {cluster} says why", Exit.NOT_FOUND)
    there = ", ".join([SCHEDULER, *known, *sorted(labels)])
    raise CliError(f"cluster {cluster!r} has no pool or pod {of!r}; there are: {there}", Exit.NOT_FOUND)
