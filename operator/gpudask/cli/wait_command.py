"""`gpudask wait`: until a cluster is as it should be, saying meanwhile why it is not."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudask.cli import connecting, output
from gpudask.cli.completion import goals
from gpudask.cli.exits import CliError, Exit, ended
from gpudask.cli.goals import Goal, Kind, read_goal
from gpudask.cli.options import Context, Kubeconfig, Name, Namespace, Output
from gpudask.cli.sizes import read_length
from gpudask.cli.watching import follow
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.reasons import where_to_look

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

Json = dict[str, Any]
_LOOK_SECONDS = 5.0


def wait_command(
    *,
    name: Name,
    goal: Annotated[
        str,
        typer.Option(
            "--for", metavar="GOAL", help="ready, suspended, deleted, or workers=POOL:N.", autocompletion=goals
        ),
    ] = "ready",
    timeout: Annotated[str, typer.Option(help="How long at most, such as 30s or 5m.")] = "5m",
    output_form: Output = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Wait until a cluster is as it should be.

    Meanwhile it says on standard error why it is not: which pods are missing, and what keeps them, in the
    operator's words and Kubernetes' own. An API server that is away for a while does not end it.

    \b
    Example:
      gpudask wait demo
      gpudask wait demo --for workers=gpu:4 --timeout 10m
      gpudask wait demo --for deleted
      gpudask wait demo -o name
    """  # noqa: D301
    wanted = read_goal(goal)
    patience_seconds = read_length(timeout, "--timeout")
    waiting = _Waiting(name, wanted)

    async def wait(server: Server) -> None:
        try:
            async with asyncio.timeout(patience_seconds):
                await waiting.follow(server)
        except TimeoutError as error:
            what = f"{name}: not {goal} within {timeout}: {waiting.why or 'no word of it came'}"
            step = f" {where_to_look(waiting.body)}, or wait longer: --timeout 30m" if waiting.body else ""
            raise CliError(ended(what) + step, Exit.TIMED_OUT) from error

    connecting.run(connecting.Target(kubeconfig, context, namespace), wait)
    if output_form is None:
        typer.echo(f"{output.cluster_reference(name)}: {goal}")
    elif waiting.body is not None:
        typer.echo(output.documents([waiting.body], output_form), nl=False)


class _Waiting:
    """One wait. `why` is what was said last, `body` the cluster as last seen: None where it was not there at all."""

    def __init__(self, name: str, goal: Goal) -> None:
        self._name, self._goal = name, goal
        self._may_list_pods = True
        self.why = ""
        self.body: Json | None = None

    async def follow(self, server: Server) -> None:
        """Return when the goal is reached.

        Raises:
            CliError: the cluster was deleted meanwhile, or has no such pool.
            KubeClusterError: there is no such cluster, or the server refuses.
        """
        if not await self._is_there(server):
            return
        async with aclosing(follow(server, [self._name])) as changes:
            pending = asyncio.ensure_future(anext(changes))
            try:
                while True:
                    # Why a pod waits may change, and the operator may be away: it looks without a change as well.
                    await asyncio.wait({pending}, timeout=_LOOK_SECONDS)
                    if pending.done():
                        self.body, there = pending.result()
                        if self._is_over(self.body, there=there):
                            return
                        pending = asyncio.ensure_future(anext(changes))
                    if self.body is not None:
                        self._say(self._goal.why(self.body, await self._pods(server)))
            finally:
                pending.cancel()
                await asyncio.wait({pending})

    async def _is_there(self, server: Server) -> bool:
        try:
            await server.cluster(self._name)
        except KubeClusterError as error:
            if error.status == HTTPStatus.NOT_FOUND and self._goal.kind == Kind.DELETED:
                return False
            if not error.may_pass:
                raise
        return True

    def _is_over(self, body: Json, *, there: bool) -> bool:
        if not there and self._goal.kind != Kind.DELETED:
            raise CliError(f"{self._name} was deleted meanwhile", Exit.NOT_FOUND)
        return not there or self._goal.reached(body)

    async def _pods(self, server: Server) -> list[Json]:
        """The cluster's pods; none where they cannot be read: the operator's words have to do then."""
        from gpudask.kubecluster.kube.pods import list_pods  # noqa: PLC0415 - kr8s comes with it

        if not self._may_list_pods:
            return []
        try:
            return await list_pods(server, self._name)
        except KubeClusterError as error:
            self._may_list_pods = error.may_pass
            return []

    def _say(self, why: str) -> None:
        if why != self.why:
            output.say(f"waiting: {why}")
        self.why = why
