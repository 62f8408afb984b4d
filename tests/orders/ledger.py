"""The oracle of the ledger: what statuses and records count of GPUs, beside what the pods lived."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from gpudask.api import Json
from gpudask.api.resource import KIND, RECORD_KIND
from gpudask.api.status import epoch
from tests.chaos.audit import PoolSample
from tests.chaos.lifetimes import Lifetimes, compare, recorded
from tests.orders.api_server import PODS, Event, SlowApiServer, wall
from tests.virtual_time import now

# What grows by itself while pods hold GPUs, or says of what is held now why: a new operator learns that anew.
COUNTED = frozenset(
    {"countedAt", "machineCountedAt", "podsKnownAt", "gpuSecondsHeld", "gpuSecondsUsed", "causes", "owners", "worked"}
)
_VERSIONED = COUNTED | {"resourceVersion"}
# News of a pod that is gone has no stamp, and may be so late: a watch falls behind by eight seconds, and where a leader
# ends before it hears of that, the next one takes half of the time until it counts.
_LATE_SECONDS = 25.0
_SAME = 0.002  # GPU-seconds are rounded


class Ledger:
    """Watches the statuses that are written, the records and the pods with GPUs, without any delay."""

    def __init__(self, server: SlowApiServer) -> None:
        self._server = server
        self._lifetimes = Lifetimes()
        self._held: dict[tuple[str, str], float] = {}  # GPU-seconds by cluster's uid and pool
        self._samples: list[PoolSample] = []
        self._problems: list[str] = []
        server.listeners.append(self._see)

    def problems(self) -> list[str]:
        """What is wrong that was not told before."""
        found, self._problems = self._problems, []
        bodies = self._server.objects.values()
        records = recorded(body["record"] for body in bodies if body.get("kind") == RECORD_KIND)
        comparison = compare(self._lifetimes, self._samples, records, late_seconds=_LATE_SECONDS)
        return found + list(comparison.verdict.wrong)

    def _see(self, event: Event) -> None:
        if event.path.startswith(f"{PODS}/"):
            self._lifetimes.heard({"type": event.type, "object": {"status": {}} | event.body}, wall())
        elif event.body.get("kind") == KIND and event.type != "DELETED":
            self._see_status(event.body["metadata"], event.body.get("status", {}))

    def _see_status(self, metadata: Json, status: Json) -> None:
        counted = {row["name"]: row.get("gpuSecondsHeld", 0.0) for row in status.get("pools", ())}
        before = {pool: held for (uid, pool), held in self._held.items() if uid == metadata["uid"]}
        uid, name, counted_at = metadata["uid"], metadata["name"], epoch(status.get("countedAt", "")) or 0.0
        for pool in before | counted:
            held = counted.get(pool, 0.0)
            if held < before.get(pool, 0.0) - _SAME:
                self._problems.append(f"{now():.3f}: {name}/{pool}: {before[pool]:.3f} GPU-seconds become {held:.3f}")
            self._held[uid, pool] = held
            self._samples.append(PoolSample(uid, name, pool, held, 0.0, counted_at, wall()))


def is_count(event: Event) -> bool:
    """Whether a change is one of what is counted alone."""
    before, body = event.before, event.body
    if before is None or body.get("kind") != KIND or event.type != "MODIFIED":
        return False
    return without(before, _VERSIONED) == without(body, _VERSIONED)


def without(body: Any, fields: AbstractSet[str]) -> Any:
    """An object without all fields of these names."""
    if isinstance(body, dict):
        return {key: without(value, fields) for key, value in body.items() if key not in fields}
    return [without(item, fields) for item in body] if isinstance(body, list) else body
