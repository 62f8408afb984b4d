"""How commands reach the API server: connect, run what is asynchronous, end.

kr8s is imported here, when the first command needs it: `gpudask --help` should not wait for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from gpudask.cli import kubeconfig
from gpudask.cli.exits import CliError

if TYPE_CHECKING:
    from gpudask.kubecluster.server import Server

Result = TypeVar("Result")


@dataclass(frozen=True)
class Target:
    """Which cluster and namespace, as kubectl's flags of the same names say."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


def run(target: Target, work: Callable[[Server], Awaitable[Result]]) -> Result:
    """What `work` gives for a connection to `target`.

    Raises:
        CliError: no such kubeconfig or context.
        KubeClusterError: the API server refuses or cannot be reached.
    """

    async def connected() -> Result:
        return await work(await connect(target))

    return asyncio.run(connected())


async def connect(target: Target) -> Server:
    """A connection as the kubeconfig says, or the pod's own where there is none."""
    import httpx  # noqa: PLC0415 - see the module's docstring
    import kr8s  # noqa: PLC0415
    from kr8s.asyncio import api  # noqa: PLC0415

    from gpudask.kubecluster.errors import KubeClusterError  # noqa: PLC0415
    from gpudask.kubecluster.server import Server  # noqa: PLC0415

    config = kubeconfig.load(target.kubeconfig, dict(os.environ))
    if config is None and target.context:
        raise CliError(
            f"there is no kubeconfig, so there is no context {target.context!r}: name its file, --kubeconfig"
        )
    if config is None:
        return await Server.connect(target.namespace)
    context, namespace = kubeconfig.choose(config, target.context)
    try:
        # kr8s takes a mapping as well as a path; its annotation knows the path only.
        client = await api(kubeconfig=config, context=context)  # type: ignore[arg-type,unused-ignore]
    except (ValueError, KeyError, OSError, httpx.HTTPError, kr8s.APITimeoutError, kr8s.ServerError) as error:
        raise KubeClusterError(
            f"cannot reach the API server of context {context!r}",
            reason=str(error) or type(error).__name__,
            next_step="Check that `kubectl version` answers",
        ) from error
    return Server(client, target.namespace or namespace)
