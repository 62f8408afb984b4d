"""`gpudask run` and `gpudask attach`: a script of this machine as a job, its log until it ends, its exit code."""

from __future__ import annotations

import secrets
import shlex
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.api import Json
from gpudask.api.resource import JOB_PLURAL
from gpudask.cli import client, output
from gpudask.cli.commands.create import size
from gpudask.cli.jobs.manifest import Program, check_name, read_script
from gpudask.cli.options import Context, JobName, Kubeconfig, Namespace, OnCluster, read_length
from gpudask.cli.output import CliError, Exit, write_message
from gpudask.kubecluster import manifest as kubecluster
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

_SIZE = "a number, or MIN..MAX to follow demand"
_DEFAULT_CPUS = "1..4"
_MAX_RETRIES = 100


def run_command(
    *,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file, of 900 kB at most.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="What the script gets; write -- before it.")
    ] = None,
    gpus: Annotated[str | None, typer.Option(help=f"Pods with a GPU each, in the pool gpu: {_SIZE}.")] = None,
    cpus: Annotated[
        str | None, typer.Option(help=f"Pods of the pool cpu: {_SIZE}; without --gpus {_DEFAULT_CPUS}.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="One environment for every pod; default: the operator's.")] = None,
    name: Annotated[str | None, typer.Option(help="The job's name; by default made from the script's.")] = None,
    on: OnCluster = None,
    on_gpu: Annotated[bool, typer.Option("--on-gpu", help="The script itself has a GPU, too.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Print the job's name, and do not wait.")] = False,
    retries: Annotated[int, typer.Option(min=0, max=_MAX_RETRIES, help="How often it is run again when it fails.")] = 0,
    deadline: Annotated[str | None, typer.Option(help="How long it may take, such as 1h.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Run a script as a job beside a cluster.

    The job has a cluster of its own, which goes when the script ends, or uses the one that --on names. In the script
    distributed.Client() connects to it. Its log is printed, and its exit code is this command's: 1 where it never ran.
    Ctrl-C ends the printing, and not the job; gpudask attach goes on with it.

    \b
    Example:
      gpudask run train.py --gpus 0..4 -- --epochs 10
      gpudask run train.py --on demo --retries 2 --deadline 1h
      gpudask run prepare.py --gpus 2 --on-gpu --detach
    """  # noqa: D301
    from gpudask.cli.jobs.submission import Submission  # noqa: PLC0415 - help does without

    if name is not None:
        check_name(name)
    if deadline is not None:
        read_length(deadline, "--deadline")
    if on is not None and (gpus is not None or cpus is not None):
        what, pool, asked = ("--gpus", "gpu", gpus) if gpus is not None else ("--cpus", "cpu", cpus)
        raise CliError(
            f"{what} {asked} beside --on {on}: that cluster has sizes of its own. Leave {what} out;"
            f" gpudask scale {on} {pool}=N sets one",
            Exit.USAGE,
        )
    program = Program(
        name=name or default_name(script, secrets.token_hex(3)),
        script=read_script(script),
        cluster={"name": on} if on is not None else {"spec": cluster_spec(gpus, cpus, image)},
        arguments=arguments or [],
        image=(image or "") if on is not None else "",
        on_gpu=on_gpu,
        retries=retries,
        deadline=deadline or "",
    )
    submission = Submission(program)

    async def submit(server: Server) -> Json:
        if on is not None:
            await server.cluster(on)  # whose error names those that there are
        return await submission.submit(server)

    target = client.Target(kubeconfig, context, namespace)
    with client.connected(target) as connection:
        try:
            body = connection.run(submit)
        except BaseException:
            if submission.may_be_left:
                there = _place(connection, target)
                write_message(f"job {program.name!r} may be left, suspended: kubectl delete gdj {program.name} {there}")
            raise
        if detach:
            typer.echo(f"{output.job_reference(program.name)} created")
            place = _place(connection, target)
            write_message(f"gpudask attach {program.name} {place} shows its log until it ends")
            return
        write_message(f"{output.job_reference(program.name)} created")
        _until_end(connection, body, target)


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

    target = client.Target(kubeconfig, context, namespace)
    with client.connected(target) as connection:
        _until_end(connection, connection.run(find), target)


def _until_end(connection: client.Connected, body: Json, target: client.Target) -> None:
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
        place = _place(connection, target)
        write_message(
            f"job {name!r} goes on. gpudask attach {name} {place} shows its log again;"
            f" kubectl delete gdj {name} {place} ends it"
        )
        if isinstance(error, BrokenPipeError):
            raise
        raise typer.Exit(Exit.INTERRUPTED) from error
    if code:
        raise typer.Exit(code)


def _place(connection: client.Connected, target: client.Target) -> str:
    """The options by which another command, also of kubectl's, finds what this one did."""
    options = {"--context": target.context, "--kubeconfig": target.kubeconfig}
    given = [f"{option} {shlex.quote(value)}" for option, value in options.items() if value]
    return " ".join([f"-n {connection.server.namespace}", *given])


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


def default_name(script: str, nonce: str) -> str:
    """A name for the job, from the script's file name."""
    return kubecluster.cluster_name("{script}-{uuid}", user="", nonce=nonce, environment={"script": Path(script).stem})


def cluster_spec(gpus: str | None, cpus: str | None, image: str | None) -> Json:
    """The spec of a cluster of the job's own: a pool cpu unless only GPUs are asked for, a pool gpu where they are.

    Raises:
        CliError: a size cannot be read.
        KubeClusterError: what the flags say together is not valid.
    """
    pools: list[Json] = []
    if cpus is not None or gpus is None:
        pools.append({"name": "cpu", **_size("--cpus", cpus or _DEFAULT_CPUS)})
    if gpus is not None:
        pools.append({"name": "gpu", **_size("--gpus", gpus), "gpu": {"count": 1}})
    spec: Json = kubecluster.manifest("run", kubecluster.Arguments(image=image, pools=pools))["spec"]
    return spec


def _size(flag: str, text: str) -> Json:
    made = size(flag, text)
    limits = made.get("autoscale", {"min": 0, "max": 0})
    if limits["min"] > limits["max"]:
        smaller = f"{limits['max']}..{limits['min']}"
        raise CliError(f"{flag} {text}: write the smaller number first, such as {smaller}", Exit.USAGE)
    return made
