"""Builders of statuses and records with a ledger, as the operator writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gpudask.api import Json

HOUR = 3600.0
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()


def at(hours: float) -> str:
    """So many hours after NOON, as the API has it."""
    return datetime.fromtimestamp(NOON + hours * HOUR, UTC).isoformat().replace("+00:00", "Z")


def a_ledger(name: str = "gpu", owners: dict[str, float] | None = None, **causes: float) -> Json:
    """A pool's row: GPU-hours by cause, and of those that worked by owner."""
    return {
        "name": name,
        "causes": [{"cause": cause, "gpuSeconds": hours * HOUR} for cause, hours in causes.items()],
        "owners": [{"owner": owner, "gpuSeconds": hours * HOUR} for owner, hours in (owners or {}).items()],
    }


def a_cluster(*pools: Json, name: str = "demo", created: float = -10, **metadata: Any) -> Json:
    """A cluster that is there since `created` hours before NOON."""
    known = {"name": name, "namespace": "lab", "uid": f"uid-of-{name}", "creationTimestamp": at(created)}
    spec = {"pools": [{"name": pool["name"], "gpu": {"count": 1}} for pool in pools]}
    return {"metadata": known | metadata, "spec": spec, "status": {"pools": list(pools)}}


def a_record(*pools: Json, name: str = "old", created: float = -10, ended: float | None = -1, **fields: Any) -> Json:
    """The record of a cluster, which ended so many hours after NOON, or is there."""
    cluster = {"name": name, "uid": f"uid-of-{name}", "created": at(created), **fields.pop("cluster", {})}
    record = {"cluster": cluster, "began": at(created), "ended": "" if ended is None else at(ended)}
    return {
        "metadata": {"name": f"{name}-00000000", "namespace": "lab", "labels": {"gpudask.dev/cluster": name}},
        "record": record | {"pools": list(pools)} | fields,
    }


def a_sample(hours: float, held: int, busy: int, pool: str = "gpu", **more: Any) -> Json:
    """The GPUs of a pool from so many hours after NOON on."""
    return {"at": at(hours), "pools": [{"name": pool, "gpusHeld": held, "gpusBusy": busy} | more]}
