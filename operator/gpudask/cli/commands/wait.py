"""`gpudask wait`: the goals that a cluster can reach, the wait for one, and why it is not there yet."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.api import Json
from gpudask.api.resource import LABEL_POOL
from gpudask.cli import client, output
from gpudask.cli.completion import goals
from gpudask.cli.options import Context, Kubeconfig, Name, Namespace, Output, read_length
from gpudask.cli.output import CliError, Exit, ended
from gpudask.cli.watch import follow
from gpudask.kubecluster.errors import (
    KubeClusterError,
    not_observed,
    where_to_look,
    why_not_ready,
    why_pod_waits,
    why_pool_waits,
)
from gpudask.kubecluster.overrides import pool_names

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

_LOOK_SECONDS = 5.0
_POD_SECONDS = 1.0


def wait_command(
    *,
    name: Name,
    goal: Annotated[
        str,
        typer.Option(
            "--for", metavar="GOAL", help="ready, suspended, created, deleted, or workers=POOL:N.", autocompletion=goals
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
    operator's words and Kubernetes' own. An API server that is away for a while does not end it. One that is not
    there is an error, unless --for created waits for it. It is deleted when its pods have ended, too.

    \b
    Example:
      gpudask wait demo
      gpudask wait demo --for workers=gpu:4 --timeout 10m
      gpudask wait demo --for created --timeout 1h
      gpudask wait demo --for deleted
      gpudask wait demo -o name
    """  # noqa: D301
    wanted = read_goal(goal)
    timeout_seconds = read_length(timeout, "--timeout")
    waiting = _Waiting(name, wanted)

    async def wait(server: Server) -> None:
        try:
            async with asyncio.timeout(timeout_seconds):
                await waiting.follow(server)
        except TimeoutError as error:
            what = f"{name}: not {goal} within {timeout}: {waiting.why or 'its status was never read'}"
            step = f" {where_to_look(waiting.body)}, or wait longer: --timeout 30m" if waiting.body else ""
            raise CliError(ended(what) + step, Exit.TIMED_OUT) from error

    client.run(client.Target(kubeconfig, context, namespace), wait)
    if output_form is None:
        typer.echo(f"{output.cluster_reference(name)}: {goal}")
    elif waiting.body is not None:
        typer.echo(output.documents([waiting.body], output_form), nl=False)


async def wait_until_gone(server: Server, bodies: list[Json], timeout_seconds: float) -> None:
    """Wait until clusters that are being deleted are gone, with their pods.

    Raises:
        CliError: they are not in time; the message has what is left.
    """
    waits = [_Waiting(body["metadata"]["name"], Goal(Kind.DELETED), body) for body in bodies]
    try:
        async with asyncio.timeout(timeout_seconds):
            for waiting in waits:
                await waiting.follow(server)
    except TimeoutError as error:
        left = "; ".join(waiting.why for waiting in waits if waiting.why)
        raise CliError(
            f"not gone within {timeout_seconds:g} s: {ended(left)} --timeout sets how long", Exit.TIMED_OUT
        ) from error


class _Waiting:
    """One wait. `why` is what was said last, `body` the cluster as last seen: None where it was not there at all."""

    def __init__(self, name: str, goal: Goal, body: Json | None = None) -> None:
        self._name, self._goal = name, goal
        self._may_list_pods = True
        self.why = ""
        self.body = body

    async def follow(self, server: Server) -> None:
        """Return when the goal is reached.

        Raises:
            CliError: the cluster was deleted meanwhile, or has no such pool.
            KubeClusterError: there is no such cluster, or the server refuses.
        """
        if await self._is_there(server):
            await self._follow(server)
        if self._goal.kind == Kind.DELETED:
            await self._until_pods_end(server)
            self.why = ""

    async def _follow(self, server: Server) -> None:
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
                        self._report(self._goal.why(self.body, await self._pods(server, self.body["metadata"]["uid"])))
            finally:
                pending.cancel()
                await asyncio.wait({pending})

    async def _is_there(self, server: Server) -> bool:
        try:
            await server.cluster(self._name)
        except KubeClusterError as error:
            if error.status == HTTPStatus.NOT_FOUND and self._goal.kind == Kind.DELETED:
                return False
            if error.status == HTTPStatus.NOT_FOUND and self._goal.kind == Kind.CREATED:
                self._report(f"there is no cluster {self._name!r} yet")
                return True
            if not error.may_pass:
                raise
        return True

    def _is_over(self, body: Json, *, there: bool) -> bool:
        if not there and self._goal.kind == Kind.CREATED:
            return False
        if not there and self._goal.kind != Kind.DELETED:
            raise CliError(f"{self._name} was deleted meanwhile", Exit.NOT_FOUND)
        return not there or self._goal.reached(body)

    async def _pods(self, server: Server, uid: str) -> list[Json]:
        """The cluster's pods; none where they cannot be read: the operator's words have to do then."""
        from gpudask.kubecluster.kube.pods import list_pods  # noqa: PLC0415 - httpx comes with it

        if not self._may_list_pods:
            return []
        try:
            return await list_pods(server, self._name, uid)
        except KubeClusterError as error:
            self._may_list_pods = error.may_pass
            return []

    async def _until_pods_end(self, server: Server) -> None:
        """The resource goes at once, and its pods, with the GPUs that they hold, when they have ended."""
        from gpudask.kubecluster.kube.pods import list_pods  # noqa: PLC0415 - the client comes with it

        uid = "" if self.body is None else self.body["metadata"]["uid"]
        while True:
            try:
                left = [pod["metadata"]["name"] for pod in await list_pods(server, self._name, uid)]
            except KubeClusterError as error:
                if not error.may_pass:
                    output.write_message(f"{self._name}: its pods may still run: {error.reason}")
                    return
                self._report(f"the API server does not answer: {error.reason}")
            else:
                if not left:
                    return
                more = f" and {len(left) - 1} more" if len(left) > 1 else ""
                self._report(f"it is deleted, its pods end: {left[0]}{more}")
            await asyncio.sleep(_POD_SECONDS)

    def _report(self, why: str) -> None:
        if why != self.why:
            output.write_message(f"waiting: {why}")
        self.why = why


class Kind(StrEnum):
    """The kinds of goals."""

    READY = "ready"
    SUSPENDED = "suspended"
    CREATED = "created"
    DELETED = "deleted"
    WORKERS = "workers"


@dataclass(frozen=True)
class Goal:
    """One goal; `workers` counts Dask workers of `pool`, at least that many."""

    kind: Kind
    pool: str = ""
    workers: int = 0

    def reached(self, body: Json) -> bool:
        """True if a cluster that exists has reached it. The status of an older generation does not count.

        Raises:
            CliError: the cluster has no such pool.
        """
        status = body.get("status") or {}
        seen = status.get("observedGeneration", 0) >= body["metadata"].get("generation", 0)
        if self.kind == Kind.WORKERS:
            return self._running(body) >= self.workers
        if self.kind == Kind.SUSPENDED:
            return seen and status.get("phase") == "Suspended"
        if self.kind == Kind.CREATED:
            return True
        if self.kind == Kind.READY:
            conditions = {item["type"]: item["status"] for item in status.get("conditions") or []}
            return seen and conditions.get("Ready") == "True"
        return False

    def why(self, body: Json, pods: list[Json] | None = None) -> str:
        """The reason why it is not there yet, in the operator's words and in Kubernetes' own about its `pods`."""
        name = body["metadata"]["name"]
        if self.kind == Kind.WORKERS:
            running = f"{self._running(body)} of {self.workers} workers of pool {self.pool}"
            reason = why_pool_waits(body, self.pool) or why_not_ready(body)
            return "; ".join([f"{running} run", reason, *_pod_reasons(body, pods or [], {self.pool})])
        if self.kind == Kind.SUSPENDED and not body["spec"].get("suspend"):
            return f"nobody suspends it: gpudask suspend {name}"
        if self.kind == Kind.DELETED and "deletionTimestamp" not in body["metadata"]:
            return f"nobody deletes it: gpudask delete {name}"
        if self.kind == Kind.READY and body["spec"].get("suspend"):
            return f"it is suspended: gpudask resume {name}"
        if self.kind != Kind.READY:
            return why_not_ready(body)
        return "; ".join([why_not_ready(body), *_short(body), *_pod_reasons(body, pods or [], set(pool_names(body)))])

    def _running(self, body: Json) -> int:
        if self.pool not in pool_names(body):
            listed = ", ".join(pool_names(body))
            what = f"cluster {body['metadata']['name']!r} has no pool {self.pool!r}; its pools are {listed}"
            raise CliError(what, Exit.NOT_FOUND)
        pools = (body.get("status") or {}).get("pools") or []
        return next((pool.get("workers", 0) for pool in pools if pool["name"] == self.pool), 0)


def _short(body: Json) -> list[str]:
    """The pools that miss pods, with what the operator says keeps them."""
    if not_observed(body):
        return []
    return [
        f"pool {pool['name']}: {why_pool_waits(body, pool['name'])}"
        for pool in body["status"].get("pools") or []
        if pool.get("message") and pool.get("ready", 0) < pool.get("desired", 0)
    ]


def _pod_reasons(body: Json, pods: list[Json], pools: set[str]) -> list[str]:
    """The reasons why pods wait of which the operator says nothing, as while it is away; alike ones are one entry."""
    explained = {pool["name"] for pool in (body.get("status") or {}).get("pools") or [] if pool.get("message")}
    waiting: dict[str, list[str]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        pool = labels.get(LABEL_POOL)
        meant = pool in pools - explained or (pool is None and bool(not_observed(body)))
        if meant and "deletionTimestamp" not in pod["metadata"] and (reason := why_pod_waits(pod)):
            waiting.setdefault(reason, []).append(pod["metadata"]["name"])
    return [
        f"pod {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
        for reason, names in waiting.items()
    ]


def read_goal(text: str) -> Goal:
    """`ready`, `suspended`, `deleted`, or `workers=gpu:4`.

    Raises:
        CliError: it is none of these.
    """
    kind, _, rest = text.partition("=")
    pool, _, count = rest.rpartition(":")
    if kind == Kind.WORKERS and pool and count.isascii() and count.isdecimal():
        return Goal(Kind.WORKERS, pool, int(count))
    if text in (Kind.READY, Kind.SUSPENDED, Kind.CREATED, Kind.DELETED):
        return Goal(Kind(text))
    raise CliError(
        f"--for {text}: write ready, suspended, created, deleted, or workers=POOL:N such as workers=gpu:4", Exit.USAGE
    )
