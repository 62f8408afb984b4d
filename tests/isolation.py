"""What a test may leave to those after it in the same process, and what it may take from those beside it: nothing.

A default client that is left behind gets the next test's tasks. Who listens on the dashboard's port of all addresses
takes it from every loopback address, and the fake schedulers of the tests that run now have one each.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FAKE_SCHEDULERS_PORT = 8787
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 (to see who does)


@contextmanager
def isolated(test: str) -> Iterator[None]:
    """Let a test run.

    Raises:
        AssertionError: it left a client or a cluster of Dask running, or listened where it may not.
    """
    before, listened = _running(), len(_listened)
    yield
    left = [thing for thing in _running() if all(thing is not other for other in before)]
    for thing in left:
        _forget(thing)
    everywhere = _listened[listened:]
    assert not left, f"{test} leaves behind what others would use: {', '.join(map(repr, left))}. Close it."
    assert not everywhere, (
        f"{test} listens on {', '.join(everywhere)}, and takes that port from the fake schedulers of other tests."
        ' Give what it starts dashboard_address="127.0.0.1:0": without a dashboard, too, Dask takes that port.'
    )


_listened: list[str] = []


def watch_sockets() -> None:
    """Note from now on who binds the fake schedulers' port of all addresses; Dask would take another, and warn."""
    original = socket.socket.bind

    def bind(self: socket.socket, address: Any, /) -> None:
        if isinstance(address, tuple) and address[0] in _EVERYWHERE and address[1] == FAKE_SCHEDULERS_PORT:
            _listened.append(f"{address[0]}:{address[1]}")
        original(self, address)

    socket.socket.bind = bind  # type: ignore[method-assign]


def _running() -> list[Any]:
    """The default clients of Dask, and the clusters of this process, that are not closed."""
    client, spec = sys.modules.get("distributed.client"), sys.modules.get("distributed.deploy.spec")
    clients = list(client._global_clients.values()) if client else []
    clusters = list(spec.SpecCluster._instances) if spec else []
    return [
        *(thing for thing in clients if thing.status != "closed"),
        *(thing for thing in clusters if thing.status.name not in {"created", "closed", "failed"}),
    ]


def _forget(thing: Any) -> None:
    """Let the next test do without it, so that one fault fails one test."""
    clients = sys.modules["distributed.client"]._global_clients
    for key in [key for key, client in clients.items() if client is thing]:
        del clients[key]
