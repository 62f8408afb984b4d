"""What stays of clusters as people read it: the list of records, and one record's life. Pure: records in, cells out.

Whoever may edit a namespace may edit its records, and their logs are programs' own: all of it is quoted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpudask.api import Json
from gpudask.api.resource import LABEL_CLUSTER
from gpudask.api.untrusted_text import quote, quote_last_line, quote_lines

Table = tuple[str, list[str], list[list[str]]]  # a title, the columns' heads, the rows
_LOG_LENGTH = 4000
_EVENTS = 15  # the last, of those that a record has
_HOUR = 3600.0


def list_rows(bodies: list[Json], *, namespaces: bool = False) -> tuple[list[str], list[list[str]]]:
    """A row for each record, the last that began first."""
    columns = [
        *(["NAMESPACE"] if namespaces else []),
        "NAME",
        "CLUSTER",
        "BEGAN",
        "ENDED",
        "PODS",
        "ERRORS",
        "GPU-HOURS",
    ]
    rows = []
    for body in sorted(bodies, key=_began, reverse=True):
        metadata, record = body["metadata"], record_of(body)
        row = [str(metadata.get("namespace", ""))] if namespaces else []
        row += [str(metadata["name"]), cluster_of(body), _cell(record, "began"), _cell(record, "ended") or "-"]
        row += [str(len(_rows(record, "pods"))), str(len(_rows(record, "errors"))), _hours(_rows(record, "pools"))]
        rows.append(row)
    return columns, rows


def head(body: Json) -> list[str]:
    """The lines that say whose record it is, and from when to when."""
    record = record_of(body)
    of = record.get("cluster")
    cluster = of if isinstance(of, dict) else {}
    lines = [f"{cluster_of(body)} ({_cell(cluster, 'uid')}), record {body['metadata']['name']}"]
    lines.append(f"created {_cell(cluster, 'created') or '?'}, ended {_cell(record, 'ended') or 'not yet'}")
    lines.append(f"written {_cell(record, 'updated') or '?'}")
    attribution = cluster.get("attribution")
    if isinstance(attribution, dict) and attribution:
        lines.append(", ".join(f"{quote(str(key))}: {quote(str(value))}" for key, value in sorted(attribution.items())))
    if report := _cell(record, "report"):
        lines.append(f"performance report: {report}")
    return lines


def tables(body: Json) -> list[Table]:
    """The tables of one record: the pools' ledger, ended pods, tasks, errors and events; those with rows alone."""
    record = record_of(body)
    made: list[Table] = [
        ("GPU-seconds by cause", ["POOL", "CAUSE", "GPU-SECONDS"], list(_ledger(record))),
        ("ended pods", ["ENDED", "POD", "NODE", "REASON", "EXIT", "WHY"], [_pod(row) for row in _rows(record, "pods")]),
        (
            "tasks",
            ["PREFIX", "TASKS", "ERRED", "SECONDS"],
            [
                [_cell(row, name) or "0" for name in ("prefix", "tasks", "erred", "seconds")]
                for row in _rows(record, "tasks")
            ],
        ),
        (
            "errors",
            ["AT", "KEY", "WORKER", "WHY"],
            [[_cell(row, name) for name in ("at", "key", "worker", "exception")] for row in _rows(record, "errors")],
        ),
        (
            "events",
            ["AT", "REASON", "WHY"],
            [[_cell(row, name) for name in ("at", "reason", "message")] for row in _rows(record, "events")[-_EVENTS:]],
        ),
    ]
    return [table for table in made if table[2]]


def cluster_of(body: Json) -> str:
    """The name of the cluster whose record it is."""
    return quote(str((body["metadata"].get("labels") or {}).get(LABEL_CLUSTER, "")))


def ends_of(bodies: Iterable[Json], of: str) -> list[Json]:
    """The last end of each pod `of` that name, or of that pool, in these records; of the scheduler by `scheduler`."""
    found: dict[str, Json] = {}
    for body in sorted(bodies, key=_began):
        for row in _rows(record_of(body), "pods"):
            pool = row.get("pool") or "scheduler"
            if of in (row.get("pod"), pool):
                found[str(row.get("pod"))] = row
    return list(found.values())


def log_of(row: Json) -> list[str]:
    """The last lines of the log of a pod that ended."""
    return quote_lines(str(row.get("log") or ""), _LOG_LENGTH).splitlines()


def why_no_log(row: Json) -> str:
    """Why an ended pod has no log, and how it ended."""
    return "; ".join(part for part in (_cell(row, "reason"), _cell(row, "message") or "it wrote nothing") if part)


def record_of(body: Json) -> Json:
    """What a record holds; nothing, where it is of another shape."""
    record = body.get("record")
    return record if isinstance(record, dict) else {}


def _rows(record: Json, name: str) -> list[Json]:
    rows = record.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _began(body: Json) -> str:
    return str(record_of(body).get("began") or body["metadata"].get("creationTimestamp") or "")


def _cell(row: Json, name: str) -> str:
    value: Any = row.get(name)
    return "" if value is None else quote(str(value))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _ledger(record: Json) -> Iterable[list[str]]:
    for pool in _rows(record, "pools"):
        for cause in _rows(pool, "causes"):
            yield [_cell(pool, "name"), _cell(cause, "cause"), f"{_number(cause.get('gpuSeconds')):.0f}"]


def _hours(pools: list[Json]) -> str:
    total = sum(_number(cause.get("gpuSeconds")) for pool in pools for cause in _rows(pool, "causes"))
    return f"{total / _HOUR:.2f}" if total else "-"


def _pod(row: Json) -> list[str]:
    reason = _cell(row, "reason") + (" (restarted)" if row.get("restarted") is True else "")
    why = quote_last_line(str(row.get("log") or "")) or _cell(row, "message")
    return [_cell(row, "ended"), _cell(row, "pod"), _cell(row, "node"), reason, _cell(row, "exitCode") or "-", why]
