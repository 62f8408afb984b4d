"""The API server, as commands reach it: connect, run what is asynchronous, end.

The client is imported here, when the first command needs it: `gpudask --help` should not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

Result = TypeVar("Result")


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

        return self.runner.run(step())


async def connect(target: Target) -> Server:
    """A connection as the kubeconfig says, or the pod's own where there is none."""
    from gpudask.kubecluster.kube.server import Server  # noqa: PLC0415 - see the module's docstring

    return await Server.connect(target.namespace, target.kubeconfig, target.context)
