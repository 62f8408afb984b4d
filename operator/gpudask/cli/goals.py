"""What `gpudask wait` waits for, and why it is not there yet. Pure: bodies in, answers out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpudask.api.resource import LABEL_POOL
from gpudask.cli.exits import CliError, Exit
from gpudask.kubecluster.overrides import pool_names
from gpudask.kubecluster.reasons import unseen, why_not_ready, why_pod_waits, why_pool_waits

Json = dict[str, Any]


class Kind(StrEnum):
    """The kinds of goals."""

    READY = "ready"
    SUSPENDED = "suspended"
    DELETED = "deleted"
    WORKERS = "workers"


@dataclass(frozen=True)
class Goal:
    """One goal; `workers` counts Dask workers of `pool`, at least that many."""

    kind: Kind
    pool: str = ""
    workers: int = 0

    def reached(self, body: Json) -> bool:
        """Whether a cluster that exists is there. What the operator said of an older spec does not count.

        Raises:
            CliError: the cluster has no such pool.
        """
        status = body.get("status") or {}
        seen = status.get("observedGeneration", 0) >= body["metadata"].get("generation", 0)
        if self.kind == Kind.WORKERS:
            return self._running(body) >= self.workers
        if self.kind == Kind.SUSPENDED:
            return seen and status.get("phase") == "Suspended"
        if self.kind == Kind.READY:
            conditions = {item["type"]: item["status"] for item in status.get("conditions") or []}
            return seen and conditions.get("Ready") == "True"
        return False

    def why(self, body: Json, pods: list[Json] | None = None) -> str:
        """What it still waits for: in the operator's words, and in Kubernetes' own about `pods`, the cluster's."""
        name = body["metadata"]["name"]
        if self.kind == Kind.WORKERS:
            running = f"{self._running(body)} of {self.workers} workers of pool {self.pool}"
            words = why_pool_waits(body, self.pool) or why_not_ready(body)
            return "; ".join([f"{running} run", words, *_unsaid(body, pods or [], {self.pool})])
        if self.kind == Kind.SUSPENDED and not body["spec"].get("suspend"):
            return f"nobody suspends it: gpudask suspend {name}"
        if self.kind == Kind.DELETED and "deletionTimestamp" not in body["metadata"]:
            return f"nobody deletes it: gpudask delete {name}"
        if self.kind == Kind.READY and body["spec"].get("suspend"):
            return f"it is suspended: gpudask resume {name}"
        if self.kind != Kind.READY:
            return why_not_ready(body)
        return "; ".join([why_not_ready(body), *_short(body), *_unsaid(body, pods or [], set(pool_names(body)))])

    def _running(self, body: Json) -> int:
        if self.pool not in pool_names(body):
            listed = ", ".join(pool_names(body))
            what = f"cluster {body['metadata']['name']!r} has no pool {self.pool!r}; its pools are {listed}"
            raise CliError(what, Exit.NOT_FOUND)
        pools = (body.get("status") or {}).get("pools") or []
        return next((pool.get("workers", 0) for pool in pools if pool["name"] == self.pool), 0)


def _short(body: Json) -> list[str]:
    """The pools that miss pods, with what the operator says keeps them."""
    if unseen(body):
        return []
    return [
        f"pool {pool['name']}: {why_pool_waits(body, pool['name'])}"
        for pool in body["status"].get("pools") or []
        if pool.get("message") and pool.get("ready", 0) < pool.get("desired", 0)
    ]


def _unsaid(body: Json, pods: list[Json], pools: set[str]) -> list[str]:
    """Why pods wait of which the operator says nothing, as while it is away; alike ones are one entry."""
    told = {pool["name"] for pool in (body.get("status") or {}).get("pools") or [] if pool.get("message")}
    waiting: dict[str, list[str]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        pool = labels.get(LABEL_POOL)
        meant = pool in pools - told or (pool is None and bool(unseen(body)))
        if meant and "deletionTimestamp" not in pod["metadata"] and (words := why_pod_waits(pod)):
            waiting.setdefault(words, []).append(pod["metadata"]["name"])
    return [
        f"pod {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {words}"
        for words, names in waiting.items()
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
    if text in (Kind.READY, Kind.SUSPENDED, Kind.DELETED):
        return Goal(Kind(text))
    raise CliError(
        f"--for {text}: write ready, suspended, deleted, or workers=POOL:N such as workers=gpu:4", Exit.USAGE
    )
