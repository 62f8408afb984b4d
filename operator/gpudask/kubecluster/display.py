"""How a cluster looks: its pools as text and as HTML. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from gpudask.kubecluster.placement import pool_of

Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One pool: its size as asked for, who set it, and the Dask workers that are there."""

    name: str
    size: str
    gpus: str
    workers: int


def pool_rows(body: Json, workers: Mapping[str, Json]) -> list[Row]:
    """The pools of a cluster, in its manifest's order.

    Args:
        body: the cluster as last read; empty where it never was.
        workers: of the scheduler's identity, by address.
    """
    spec = body.get("spec") or {}
    name = (body.get("metadata") or {}).get("name", "")
    counted = Counter(pool_of(worker.get("name", ""), name) for worker in workers.values())
    set_sizes = {entry["pool"]: entry for entry in spec.get("overrides") or []}
    return [
        Row(
            pool["name"],
            _size(pool, set_sizes.get(pool["name"])),
            str((pool["gpu"] or {}).get("count", 1)) if "gpu" in pool else "",
            counted[pool["name"]],
        )
        for pool in spec.get("pools", [])
    ]


def as_text(rows: list[Row]) -> str:
    """`cpu=2, gpu=0`: workers of each pool."""
    return ", ".join(f"{row.name}={row.workers}" for row in rows)


def as_html(rows: list[Row]) -> str:
    """Rows for Dask's own table of a cluster."""
    if not rows:
        return ""
    lines = [
        f"<tr><td><strong>{escape(row.name)}</strong></td><td>{_count(row.workers, 'worker')}, {escape(row.size)}"
        f"{f', {escape(row.gpus)} GPU a pod' if row.gpus else ''}</td></tr>"
        for row in rows
    ]
    return "".join(lines)


def _size(pool: Json, override: Json | None) -> str:
    if override is not None:
        by = f" (set by {override['by']})" if override.get("by") else " (set)"
        return _words(override.get("replicas"), override.get("min", 0), override.get("max")) + by
    limits = pool.get("autoscale") or {}
    return _words(pool.get("replicas", 1), limits.get("min", 0), limits.get("max"))


def _words(replicas: Any, least: Any, most: Any) -> str:
    return _count(replicas, "pod") if most is None else f"{least} to {most} pods"


def _count(number: Any, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
