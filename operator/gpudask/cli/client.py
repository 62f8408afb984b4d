"""The API server, as commands reach it: connect, run what is asynchronous, end.

The client is imported here, when the first command needs it: `gpudask --help` should not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from gpudask.api import Json
from gpudask.cli import output

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

Result = TypeVar("Result")
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Target:
    """The cluster and the namespace, as kubectl's flags of the same names say."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


def run(target: Target, work: Callable[[Server], Awaitable[Result]]) -> Result:
    """Run `work` with a connection to `target`, and return what it gives.

    Raises:
        KubeClusterError: no such kubeconfig or context, or the API server refuses or cannot be reached.
    """

    async def connected() -> Result:
        return await work(await connect(target))

    try:
        return asyncio.run(connected())
    except asyncio.CancelledError as error:  # ctrl-C, where something within took it for its own
        raise KeyboardInterrupt from error


def run_anything(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work`, which connects by itself; as `run`."""
    try:
        return asyncio.run(work)
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error


@contextmanager
def connected(target: Target) -> Iterator[Connected]:
    """One connection for several steps of a command, with whatever stands between them, such as a question.

    The kubeconfig is read once: another context may be chosen while a person thinks.

    Raises:
        KubeClusterError: as `run`.
    """
    with asyncio.Runner() as runner:
        yield Connected(runner, runner.run(connect(target)))


@dataclass(frozen=True)
class Connected:
    """A connection, and the event loop that it is bound to. Between two steps Ctrl-C is Python's own."""

    runner: asyncio.Runner
    server: Server

    def run(self, work: Callable[[Server], Awaitable[Result]]) -> Result:
        """Run one step, and return what it gives."""

        async def step() -> Result:
            return await work(self.server)

        try:
            return self.runner.run(step())
        except asyncio.CancelledError as error:  # as in `run`
            raise KeyboardInterrupt from error


async def chosen(
    server: Server,
    names: list[str],
    selector: str | None = None,
    *,
    all_namespaces: bool = False,
    ignore_not_found: bool = False,
) -> list[Json]:
    """The clusters that a command is about: those that are named; without names those that a selector finds, or all.

    Raises:
        KubeClusterError: one that is named is not there, and that is not to be ignored; or the server refuses.
    """
    if not names:
        return await server.clusters(all_namespaces=all_namespaces, selector=selector or "")
    if not ignore_not_found:
        return [await server.cluster(name) for name in names]
    found = [await server.find(name) for name in names]
    return [body for body in found if body is not None]


async def while_read(work: Coroutine[Any, Any, Result]) -> Result:
    """What `work` gives, which may be silent for ever; it ends where nobody reads standard output any more.

    Raises:
        BrokenPipeError: nobody does.
    """
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK_SECONDS))[0]:
            if output.is_unread():
                raise BrokenPipeError
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def connect(target: Target) -> Server:
    """A connection as the kubeconfig says, or the pod's own where there is none."""
    from gpudask.kubecluster.kube.server import Server  # noqa: PLC0415 - see the module's docstring

    return await Server.connect(target.namespace, target.kubeconfig, target.context)
