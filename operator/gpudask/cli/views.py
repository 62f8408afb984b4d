"""Clusters and pools as rows for people. Pure: bodies in, columns and rows out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

Json = dict[str, Any]
Rows = tuple[list[str], list[list[str]]]
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# What a pool's status leaves out is zero: a program finds it all the same.
_NUMBERS = dict.fromkeys(("desired", "pods", "ready", "workers", "gpusHeld", "gpusBusy"), 0)
_GOOD_WHEN_FALSE = {"Degraded"}
_WIDTHS = {"NAMESPACE": 12, "NAME": 16, "PHASE": 10, "CPU": 5, "GPU": 5, "AGE": 4, "ADDRESS": 44}


def cluster_rows(bodies: list[Json], now: datetime, *, wide: bool = False, namespaces: bool = False) -> Rows:
    """A row for each cluster; `now` is for their ages."""
    columns = [*(["NAMESPACE"] if namespaces else []), "NAME", "PHASE", "CPU", "GPU", "AGE"]
    columns += ["ADDRESS", "REASON"] if wide else []
    rows = []
    for body in bodies:
        metadata, status = body["metadata"], body.get("status") or {}
        summary, scheduler = status.get("summary") or {}, status.get("scheduler") or {}
        row = [metadata["namespace"]] if namespaces else []
        row += [metadata["name"], status.get("phase", ""), summary.get("cpu", ""), summary.get("gpu", "")]
        row += [age(metadata.get("creationTimestamp", ""), now)]
        row += [scheduler.get("address", ""), status.get("reason", "")] if wide else []
        rows.append(row)
    return columns, rows


def pool_rows(bodies: list[Json], *, clusters: bool = False, namespaces: bool = False) -> Rows:
    """A row for each pool: pods ready of desired, workers, GPUs busy of held, tasks that wait and run, size and why.

    A cluster without any status yet has a row for each pool of its spec.
    """
    columns = [*(["NAMESPACE"] if namespaces else []), *(["CLUSTER"] if clusters else [])]
    columns += ["POOL", "PODS", "WORKERS", "GPUS", "WAIT", "RUN", "SIZE BY", "WHY"]
    rows = []
    for body in bodies:
        for pool in _pools(body):
            row = [body["metadata"]["namespace"]] if namespaces else []
            row += [body["metadata"]["name"]] if clusters else []
            rows.append(row + _pool(pool, _gpus(body, pool["name"])))
    return columns, rows


def snapshot(bodies: list[Json], now: datetime) -> Json:
    """What `top` shows, for programs: of each pool what its status says, under the status' own names."""
    held, busy = gpus(bodies)
    clusters = [
        {
            "namespace": body["metadata"]["namespace"],
            "name": body["metadata"]["name"],
            "phase": (body.get("status") or {}).get("phase", ""),
            "troubles": troubles(body),
            "pools": [_NUMBERS | pool for pool in _pools(body)],
        }
        for body in bodies
    ]
    return {"time": f"{now:%Y-%m-%dT%H:%M:%SZ}", "gpusHeld": held, "gpusBusy": busy, "clusters": clusters}


def gpus(bodies: list[Json]) -> tuple[int, int]:
    """GPUs held and busy, of all clusters."""
    pools = [pool for body in bodies for pool in _pools(body)]
    return sum(pool.get("gpusHeld", 0) for pool in pools), sum(pool.get("gpusBusy", 0) for pool in pools)


def line(columns: list[str], cells: list[str]) -> str:
    """`cells` under `columns`, of which not all rows are known yet: each as wide as is usual."""
    padded = [cell.ljust(_WIDTHS.get(column, 0)) for column, cell in zip(columns, cells, strict=True)]
    return "   ".join(padded).rstrip()


def troubles(body: Json) -> list[str]:
    """What is not as it should be, in the operator's words: conditions, and a schedule that waits."""
    lines = []
    for item in (body.get("status") or {}).get("conditions") or []:
        bad = item["status"] == ("True" if item["type"] in _GOOD_WHEN_FALSE else "False")
        if bad and item["type"] != "Ready":
            lines.append(f"{item['type']} is {item['status']}, {item['reason']}: {item.get('message', '')}")
    return lines


def age(created: str, now: datetime) -> str:
    """How long ago, in one unit, as kubectl shows it; empty where it is not known."""
    if not created:
        return ""
    elapsed = max(0, int((now - datetime.fromisoformat(created)).total_seconds()))
    for length, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if elapsed >= 2 * length:
            return f"{elapsed // length}{unit}"
    return f"{elapsed}s"


def _pools(body: Json) -> list[Json]:
    reported = (body.get("status") or {}).get("pools")
    return reported or [{"name": pool["name"]} for pool in body["spec"]["pools"]]


def _gpus(body: Json, pool: str) -> bool:
    return any(item["name"] == pool and item.get("gpu") is not None for item in body["spec"]["pools"])


def _pool(pool: Json, gpus: bool) -> list[str]:
    demand = pool.get("demand") or {}
    words = [pool[key] for key in ("reason", "message", "held", "leaving") if pool.get(key)]
    held = f"{pool.get('gpusBusy', 0)}/{pool.get('gpusHeld', 0)}" if gpus or pool.get("gpusHeld") else "-"
    name = f"{pool['name']} (removed)" if pool.get("removed") else pool["name"]
    return [
        name,
        f"{pool.get('ready', 0)}/{pool.get('desired', 0)}",
        str(pool.get("workers", 0)),
        held,
        str(demand.get("waiting", 0)),
        str(demand.get("running", 0)),
        pool.get("sizeSetBy", ""),
        "; ".join(words),
    ]
