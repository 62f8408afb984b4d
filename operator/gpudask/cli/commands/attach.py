"""`gpudask attach`: the log of a job until it ends, and its exit code."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import typer

from gpudask.api import Json
from gpudask.api.resource import JOB_PLURAL
from gpudask.cli import client
from gpudask.cli.options import Context, JobName, Kubeconfig, Namespace
from gpudask.cli.output import CliError, Exit, write_message
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server


def attach_command(
    *,
    name: JobName,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show the log of a job until it ends.

    From its beginning: of its last attempt, and of those that follow. It outlasts an API server that is away and a
    laptop that sleeps. The exit code is that of the job's program: 1 where it never ran. Ctrl-C ends the printing, and
    not the job.

    \b
    Example:
      gpudask attach train-5f1c0
    """  # noqa: D301

    async def find(server: Server) -> Json:
        found = await server.find(name, JOB_PLURAL)
        if found is None:
            raise CliError(await _no_such_job(server, name), Exit.NOT_FOUND)
        return found

    with client.connected(client.Target(kubeconfig, context, namespace)) as connection:
        until_end(connection, connection.run(find))


def until_end(connection: client.Connected, body: Json) -> None:
    """Print the log of the job `body` until it ends, and end with its exit code.

    Raises:
        typer.Exit: with that, or with what Ctrl-C is.
        CliError: the job was deleted.
        KubeClusterError: the server refuses.
    """
    from gpudask.cli.jobs.attachment import Attachment  # noqa: PLC0415 - help does without

    name = body["metadata"]["name"]
    try:
        code = connection.run(lambda server: client.while_read(Attachment(server, body).follow()))
    except (KeyboardInterrupt, BrokenPipeError) as error:
        place = f"-n {connection.server.namespace}"
        write_message(
            f"job {name!r} goes on. gpudask attach {name} {place} shows its log again;"
            f" kubectl delete gdj {name} {place} ends it"
        )
        if isinstance(error, BrokenPipeError):
            raise
        raise typer.Exit(Exit.INTERRUPTED) from error
    if code:
        raise typer.Exit(code)


async def _no_such_job(server: Server, name: str) -> str:
    place = f"no job {name!r} in namespace {server.namespace!r}"
    try:
        listed = await server.call("list", JOB_PLURAL)
    except KubeClusterError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            from gpudask.kubecluster.kube.jobs import no_jobs  # noqa: PLC0415 - httpx comes with it

            return str(no_jobs(place))
        return place
    names = ", ".join(sorted(item["metadata"]["name"] for item in listed["items"]))
    return f"{place}: {f'there are: {names}' if names else 'there is none at all'}. Use another namespace with -n"
