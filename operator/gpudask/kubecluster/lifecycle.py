"""How a cluster comes and goes for a program: created or found as `create_mode` says, deleted when it was its own."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.request import CONFLICT, NOT_FOUND
from gpudask.kubecluster.server import Server
from gpudask.kubecluster.timing import Timing

Json = dict[str, Any]


class CreateMode(Enum):
    """What a name means, in the stock client's words."""

    CREATE_ONLY = "CREATE_ONLY"
    CREATE_OR_CONNECT = "CREATE_OR_CONNECT"
    CONNECT_ONLY = "CONNECT_ONLY"

    @classmethod
    def of(cls, given: Enum | str) -> CreateMode:
        """The mode that is meant: ours, the stock client's of the same name, or its text.

        Raises:
            KubeClusterError: there is none of that name.
        """
        value = given.value if isinstance(given, Enum) else given
        try:
            return cls(value)
        except ValueError:
            names = [mode.value for mode in cls]
            raise KubeClusterError(
                f"create_mode={value!r}",
                reason="there is no such mode",
                next_step=f"Write one of {', '.join(names)}",
            ) from None


@dataclass(frozen=True)
class Created:
    """A cluster that this process made: which one, and how to reach its server again."""

    name: str
    namespace: str
    uid: str
    kubeconfig: str | None = None
    context: str | None = None


async def find_or_create(server: Server, body: Json, mode: CreateMode) -> tuple[Json, bool]:
    """The cluster that `body` names, and whether it was made just now.

    Raises:
        KubeClusterError: it exists or does not, and `mode` says otherwise; or the server refuses.
    """
    name = body["metadata"]["name"]
    if mode is CreateMode.CONNECT_ONLY:
        return await server.cluster(name), False
    if mode is CreateMode.CREATE_ONLY:
        return await server.create(body), True
    found = await server.find(name)
    if found is not None:
        return found, False
    try:
        return await server.create(body), True
    except KubeClusterError as error:
        if error.status != CONFLICT:
            raise
        return await server.cluster(name), False  # somebody was faster


def delete_at_exit(created: Created) -> None:
    """Delete it when this interpreter ends, unless `keep` is called for it before."""
    _to_delete.add(created)


def keep(created: Created) -> None:
    """Take back `delete_at_exit`."""
    _to_delete.discard(created)


async def delete(created: Created, timing: Timing | None = None) -> None:
    """Delete it now; one that is gone, or was made anew by somebody else since, is left alone."""
    server = await Server.connect(created.namespace, created.kubeconfig, created.context, timing=timing)
    try:
        await server.delete(created.name, uid=created.uid)
    except KubeClusterError as error:
        if error.status not in (CONFLICT, NOT_FOUND):
            raise


_to_delete: set[Created] = set()
_process = os.getpid()


@atexit.register
def _delete_all() -> None:
    """In a process of its own: an interpreter that ends starts no threads any more, which a connection needs."""
    program = (
        "import asyncio, sys\n"
        "from gpudask.kubecluster.lifecycle import Created, delete\n"
        "asyncio.run(delete(Created(*sys.argv[1:4], sys.argv[4] or None, sys.argv[5] or None)))\n"
    )
    if os.getpid() != _process:
        return  # a fork of the one that created them
    started = []
    for created in _to_delete:
        words = [created.name, created.namespace, created.uid, created.kubeconfig or "", created.context or ""]
        started.append(subprocess.Popen([sys.executable, "-c", program, *words]))
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on by itself
            process.wait(Timing().exit_seconds)
