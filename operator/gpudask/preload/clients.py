"""Clients: how many are connected, and for how long none was; `spec.idle.shutdownAfterDisconnect` counts that.

An open connection proves little: a child that a killed program left behind holds it, and a laptop that was closed
leaves it half open. So a client is connected for as long as it is heard: Dask's sends a heartbeat every few seconds. A
program may hold a cluster without any client: then its cluster manager is seen by what it writes to the scheduler.

What happened between two answers counts as if it happened at the second: so the time may be too short, never too long.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from .part import Part

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

_WRITTEN = "cluster-manager-info"  # the metadata that each of Dask's cluster managers writes every few seconds
_SILENT_SECONDS = 60.0  # heartbeats come every 5 s, more rarely only with hundreds of clients; a program may be busy
# The names of those that tasks get by `get_client`, with a UUID: they live as long as their worker.
_OF_WORKER = re.compile(r"Client-worker-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Clients(Part):
    """Follows the scheduler's clients: the `clients` of the answer."""

    feature = "clients"
    attributes = ("clients", "client_comms", "task_metadata")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._heard: dict[str, tuple[float, float]] = {}  # client -> its last heartbeat, and when that was news here
        self._written: Any = None
        self._seen = time.monotonic()
        self._ever = False

    def add(self, client: str) -> bool:
        """Note a client that has come; whether it is the first of those that are there."""
        if not _counts(client):
            return False
        is_first = not self._heard
        now = time.monotonic()
        self._heard[client] = (self._beat(client), now)
        self._see(now)
        return is_first

    def remove(self, client: str) -> bool:
        """Note a client that has gone; whether it was the last one.

        That one which was silent for long is found to be dead only now is no sign of life.
        """
        heard = self._heard.pop(client, None)
        now = time.monotonic()
        if heard is not None and now - heard[1] < _SILENT_SECONDS:
            self._see(now)
        return heard is not None and not self._heard

    def answer(self, now: float) -> dict[str, Any]:
        """Return the `clients` of the protocol: O(clients)."""
        heard = {}
        # One has what queues and published data want, too; the other, for a moment, who has gone.
        for client in self._scheduler.clients.keys() & self._scheduler.client_comms.keys():
            if _counts(client):
                before, beat = self._heard.get(client), self._beat(client)
                heard[client] = before if before is not None and before[0] == beat else (beat, now)
        self._heard = heard
        connected = sum(now - at < _SILENT_SECONDS for _, at in heard.values())
        if connected:
            self._see(now)
        # What comes over the network is a new object each time, also where it says the same.
        written = self._scheduler.task_metadata.get(_WRITTEN)
        if written is not self._written:
            self._written = written
            self._see(now)
        return {"connected": connected, "absent_seconds": max(0.0, now - self._seen), "ever": self._ever}

    def _beat(self, client: str) -> float:
        state = self._scheduler.clients.get(client)
        return 0.0 if state is None else state.last_seen

    def _see(self, now: float) -> None:
        self._seen, self._ever = now, True


def _counts(client: str) -> bool:
    return _OF_WORKER.fullmatch(client) is None
