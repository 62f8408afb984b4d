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
from gpudask.cli.untrusted import log_line
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.cli.report.record import EndedPod
    from gpudask.kubecluster.kube.server import Server

SCHEDULER = "scheduler"


def logs_command(
    *,
    name: Name,
    of: Annotated[str, typer.Argument(metavar="scheduler|POOL|POD", help="Whose.", autocompletion=pools)] = SCHEDULER,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come, until ctrl-C.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last lines of each.")] = None,
    since: Annotated[str | None, typer.Option(help="Only lines that are no older, such as 10m.")] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of the container before its restart, or of a pod that is gone.")
    ] = False,
    container: Annotated[str, typer.Option("--container", "-c", help="Another container of the pods.")] = "dask",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print logs of the scheduler or of workers.

    Of several pods, each line begins with its pod's name. With --previous what the API server has no more is taken from
    the cluster's record, also after the cluster is gone.

    \b
    Example:
      gpudask logs demo
      gpudask logs demo gpu --tail 20
      gpudask logs demo gpu --since 10m --follow
      gpudask logs demo demo-gpu-worker-0 --previous
      gpudask logs --previous demo-gpu-worker-0
    """  # noqa: D301
    if follow and previous:
        raise CliError("a container that has ended writes no more: --follow or --previous, not both", Exit.USAGE)
    since_seconds = None if since is None else math.ceil(read_length(since, "--since"))

    wanted = _Wanted(of, tail, since_seconds, container, follow=follow, previous=previous)
    target = client.Target(kubeconfig, context, namespace)
    printing = _print_previous if previous else _print
    client.run(target, lambda server: client.while_read(printing(server, name, wanted)))


@dataclass(frozen=True)
class _Wanted:
    """Whose logs, and how much of them."""

    of: str
    tail: int | None
    since_seconds: int | None
    container: str
    follow: bool
    previous: bool


class _NoLogError(CliError):
    """Of some pods there is no log: `pods` are their names."""

    def __init__(self, pods: list[str], of: int) -> None:
        super().__init__(f"no log of {len(pods)} of {of} pods")
        self.pods = pods


async def _print(server: Server, name: str, wanted: _Wanted) -> None:
    from gpudask.kubecluster.kube.pods import follow_log, list_pods, read_log  # noqa: PLC0415 - the client is large

    body = await server.cluster(name)
    chosen = choose(body, await list_pods(server, name, body["metadata"]["uid"]), wanted.of)
    limits = {"tail": wanted.tail, "since_seconds": wanted.since_seconds}

    async def one(pod: str) -> None:
        prefix = f"[{pod}] " if len(chosen) > 1 else ""
        if wanted.follow:
            async for line in follow_log(server, pod, **limits, container=wanted.container):
                typer.echo(prefix + log_line(line))
            return
        for line in await read_log(server, pod, **limits, previous=wanted.previous, container=wanted.container):
            typer.echo(prefix + log_line(line))

    if wanted.follow:
        outcomes = await asyncio.gather(*(one(pod) for pod in chosen), return_exceptions=True)
    else:  # one after the other: their lines stay together
        outcomes = [await _outcome(one(pod)) for pod in chosen]
    failed = [error for error in outcomes if isinstance(error, BaseException)]
    if unknown := [error for error in failed if not isinstance(error, KubeClusterError)]:
        raise unknown[0]  # also where nobody reads any more
    for error in failed if not wanted.previous else []:
        output.write_message(f"error: {error}")
    if failed:
        pods = [pod for pod, outcome in zip(chosen, outcomes, strict=True) if outcome is not None]
        raise _NoLogError(pods, len(chosen))


async def _print_previous(server: Server, name: str, wanted: _Wanted) -> None:
    """Print what the API server has of containers that were started again; else what the records have."""
    missing = await _missing(server, name, wanted)
    if missing is None:
        return
    try:
        ends = await _recorded(server, name, wanted.of)
    except KubeClusterError as error:
        raise missing from error
    if isinstance(missing, _NoLogError):
        ends = [end for end in ends if end.pod in missing.pods]
    if not ends:
        raise missing
    printed = [_print_recorded(end, wanted.tail, prefix=f"[{end.pod}] " if len(ends) > 1 else "") for end in ends]
    if not any(printed):
        raise CliError(f"no log of {len(ends)} of {len(ends)} pods")


async def _missing(server: Server, name: str, wanted: _Wanted) -> CliError | None:
    """Print what the API server has; why it has not all of it, None where it has."""
    if await server.find(name) is None:
        return CliError(f"there is no cluster {name!r}, and no record of a pod of it", Exit.NOT_FOUND)
    try:
        await _print(server, name, wanted)
    except CliError as error:
        return error
    return None


def _print_recorded(end: EndedPod, tail: int | None, *, prefix: str) -> bool:
    """Print the last lines of a pod that ended; False where there are none, which is said with the reason."""
    from gpudask.cli.record_tables import why_no_log  # noqa: PLC0415 - help does without

    lines = end.log.splitlines()
    for line in lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]:
        typer.echo(prefix + line)
    if not lines:
        output.write_message(f"error: {end.pod}: {why_no_log(end)}")
    return bool(lines)


async def _recorded(server: Server, name: str, of: str) -> list[EndedPod]:
    """The last ends of pods that `of` means, of cluster `name`; of the pod `name`, where that is no cluster's."""
    from gpudask.cli.record_tables import ends_of, last_ends  # noqa: PLC0415 - help does without
    from gpudask.cli.records import read_records  # noqa: PLC0415

    pod = of.removeprefix("pod/")
    found = await read_records(server, lambda body: ends_of(body, pod), cluster=name, needed=True)
    return last_ends(found or await read_records(server, lambda body: ends_of(body, name), needed=True))


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
