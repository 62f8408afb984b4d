"""`gpudask wait`: until a cluster is as it should be, saying meanwhile why it is not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudask.cli import access, output
from gpudask.cli.exits import CliError, Exit
from gpudask.cli.goals import Goal, Kind, read_goal
from gpudask.cli.options import Context, Kubeconfig, Name, Namespace
from gpudask.cli.sizes import read_length
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.server import Server

Json = dict[str, Any]
_NOT_FOUND = 404


def wait_command(
    *,
    name: Name,
    goal: Annotated[
        str, typer.Option("--for", metavar="GOAL", help="ready, suspended, deleted, or workers=POOL:N.")
    ] = "ready",
    timeout: Annotated[str, typer.Option(help="How long at most, such as 30s or 5m.")] = "5m",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Wait until a cluster is as it should be.

    Meanwhile it says why it is not, in the operator's words.

    \b
    Example:
      gpudask wait demo
      gpudask wait demo --for workers=gpu:4 --timeout 10m
      gpudask wait demo --for deleted
    """  # noqa: D301
    wanted = read_goal(goal)
    patience_seconds = read_length(timeout)
    waiting = _Waiting(name, wanted)

    async def wait(server: Server) -> None:
        try:
            async with asyncio.timeout(patience_seconds):
                await waiting.follow(server)
        except TimeoutError as error:
            what = f"{name}: not {goal} within {timeout}: {waiting.why or 'no word of it came'}"
            raise CliError(what, Exit.TIMED_OUT) from error

    access.run(access.Target(kubeconfig, context, namespace), wait)
    typer.echo(f"{output.cluster_reference(name)}: {goal}")


class _Waiting:
    """One wait; `why` is what was said last."""

    def __init__(self, name: str, goal: Goal) -> None:
        self._name, self._goal = name, goal
        self.why = ""

    async def follow(self, server: Server) -> None:
        try:
            async for body in server.watch(self._name):
                if self._goal.reached(body):
                    return
                self._say(self._goal.why(body))
        except KubeClusterError as error:
            if error.status != _NOT_FOUND or self._goal.kind != Kind.DELETED:
                raise
            return
        if self._goal.kind != Kind.DELETED:
            raise CliError(f"{self._name} was deleted meanwhile", Exit.NOT_FOUND)

    def _say(self, why: str) -> None:
        if why != self.why:
            output.say(f"waiting: {why}")
        self.why = why
