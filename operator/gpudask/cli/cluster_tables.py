"""Tables of clusters and pools, as `get` and `top` print them: columns, rows, and how rich draws them.

Columns have no lines, as kubectl's, and stay readable in a narrow terminal. The rows are pure: bodies in, cells out.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

from gpudask.api import Json
from gpudask.api.resource import is_past
from gpudask.cli import untrusted
from gpudask.cli.cost.causes import WORKING, rank, words

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

Rows = tuple[list[str], list[list[str]]]
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_MOST_CAUSES = 32
# What a pool's status leaves out is zero: a program finds it all the same.
_NUMBERS = dict.fromkeys(("desired", "pods", "ready", "workers", "gpusHeld", "gpusBusy"), 0)
_GOOD_WHEN_FALSE = {"Degraded"}
_WIDTHS = {"NAMESPACE": 12, "NAME": 16, "PHASE": 10, "CPU": 5, "GPU": 5, "WORKED": 6, "AGE": 4, "ADDRESS": 44}
_GAP = 3
_MESSAGES = ("WHY", "REASON", "GPUS ARE")
_MIN_MESSAGE_COLUMNS = 30  # columns in which a message can be read
_KEYS = ("NAMESPACE", "NAME", "CLUSTER", "POOL")


def cluster_rows(bodies: list[Json], now: datetime, *, wide: bool = False, namespaces: bool = False) -> Rows:
    """A row for each cluster; `now` is for their ages."""
    columns = [*(["NAMESPACE"] if namespaces else []), "NAME", "PHASE", "CPU", "GPU"]
    columns += ["WORKED", "AGE", "ADDRESS", "REASON"] if wide else ["AGE"]
    rows = []
    for body in bodies:
        metadata, status = body["metadata"], body.get("status") or {}
        summary, scheduler = status.get("summary") or {}, status.get("scheduler") or {}
        row = [metadata["namespace"]] if namespaces else []
        row += [metadata["name"], status.get("phase", ""), summary.get("cpu", ""), summary.get("gpu", "")]
        row += [untrusted.text(summary, "worked", length=_WIDTHS["WORKED"])] if wide else []
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


def cause_rows(bodies: list[Json], *, namespaces: bool = False) -> Rows:
    """A row for each pool that holds GPUs or has held some: the share that worked so far, and what they do now."""
    columns = [*(["NAMESPACE"] if namespaces else []), "CLUSTER", "POOL", "WORKED", "GPUS ARE"]
    rows = []
    for body in bodies:
        for pool in untrusted.objects(body, "status", "pools"):
            causes = untrusted.objects(pool, "causes", most=_MOST_CAUSES)
            total = math.fsum(untrusted.amount(item, "gpuSeconds") for item in causes)
            if not total and not any(untrusted.whole(item, "gpus") for item in causes):
                continue
            worked = math.fsum(
                untrusted.amount(item, "gpuSeconds") for item in causes if untrusted.name(item, "cause") == WORKING
            )
            row = [body["metadata"]["namespace"]] if namespaces else []
            row += [body["metadata"]["name"], untrusted.name(pool, "name")]
            rows.append([*row, f"{worked / total:.0%}" if total else "-", _held_for(causes) or "-"])
    return columns, rows


def _held_for(causes: list[Json]) -> str:
    """`2 working, 1 kept by a result`, in the ledger's order."""
    now = [(untrusted.name(item, "cause"), untrusted.whole(item, "gpus")) for item in causes]
    return ", ".join(
        f"{gpus} {words(cause)}" for cause, gpus in sorted(now, key=lambda each: rank(each[0])) if gpus > 0
    )


def snapshot(bodies: list[Json], now: datetime, version: str) -> Json:
    """The figures of `top` for programs: of each pool what its status says, under the status' own names.

    `version`: this program's.
    """
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
    time = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    return {"version": version, "time": time, "gpusHeld": held, "gpusBusy": busy, "clusters": clusters}


def gpus(bodies: list[Json]) -> tuple[int, int]:
    """GPUs held and busy, of all clusters."""
    pools = [pool for body in bodies for pool in _pools(body)]
    return sum(pool.get("gpusHeld", 0) for pool in pools), sum(pool.get("gpusBusy", 0) for pool in pools)


def line(columns: list[str], cells: list[str]) -> str:
    """`cells` under `columns`, of which not all rows are known yet: each as wide as is usual."""
    padded = [cell.ljust(_WIDTHS.get(column, 0)) for column, cell in zip(columns, cells, strict=True)]
    return "   ".join(padded).rstrip()


def troubles(body: Json) -> list[str]:
    """The troubles of a cluster, in the operator's words: conditions, and a schedule that waits."""
    lines = []
    for item in (body.get("status") or {}).get("conditions") or []:
        bad = item["status"] == ("True" if item["type"] in _GOOD_WHEN_FALSE else "False")
        if bad and item["type"] != "Ready":
            lines.append(f"{item['type']} is {item['status']}, {item['reason']}: {item.get('message', '')}")
    return lines


def age(created: str, now: datetime) -> str:
    """The age in one unit, as kubectl shows it; empty where it is not known."""
    if not created:
        return ""
    elapsed = max(0, int((now - datetime.fromisoformat(created)).total_seconds()))
    for length, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if elapsed >= 2 * length:
            return f"{elapsed // length}{unit}"
    return f"{elapsed}s"


def _pools(body: Json) -> list[Json]:
    reported = [pool for pool in (body.get("status") or {}).get("pools") or [] if not is_past(pool)]
    return reported or [{"name": pool["name"]} for pool in body["spec"]["pools"]]


def _gpus(body: Json, pool: str) -> bool:
    return any(item["name"] == pool and item.get("gpu") is not None for item in body["spec"]["pools"])


def _pool(pool: Json, gpus: bool) -> list[str]:
    demand = pool.get("demand") or {}
    messages = [pool[key] for key in ("reason", "message", "held", "leaving") if pool.get(key)]
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
        "; ".join(messages),
    ]


def table(columns: list[str], rows: list[list[str]], width: int, *, heads: bool = True) -> Group:
    """A table, and under it the messages of its rows where they have no room in it.

    Args:
        columns: the heads; a last one of messages may be cut from the table.
        rows: a cell for each column.
        width: of the terminal, in characters. Cells are never broken: what has no room runs over, as kubectl's.
        heads: whether the columns have heads.
    """
    from rich.console import Group  # noqa: PLC0415 - help and programs' output do without
    from rich.text import Text  # noqa: PLC0415

    first = [columns] if heads else []
    widths = [max(map(len, column)) for column in zip(*first, *rows, strict=True)] or [0] * len(columns)
    taken = sum(size + _GAP for size in widths[:-1])
    has_message = columns[-1] in _MESSAGES
    if not has_message or taken + min(widths[-1], _MIN_MESSAGE_COLUMNS) <= width:
        return Group(_drawn(columns, rows, widths, has_message=has_message, heads=heads))
    named = [index for index, column in enumerate(columns) if column in _KEYS]
    notes = [Text(f"{'/'.join(row[index] for index in named)}: {row[-1]}") for row in rows if row[-1]]
    return Group(
        _drawn(columns[:-1], [row[:-1] for row in rows], widths[:-1], has_message=False, heads=heads), Text(), *notes
    )


def show(console: Console, drawn: Group) -> None:
    """Print it without cutting what is wider than the terminal."""
    for part in drawn.renderables:
        console.print(part, crop=False)


def _drawn(columns: list[str], rows: list[list[str]], widths: list[int], *, has_message: bool, heads: bool) -> Table:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415 - Text, not markup: a message may hold [brackets]

    # Left to itself, rich drops columns that have no room.
    natural = None if has_message else sum(size + _GAP for size in widths) - _GAP
    made = Table(
        width=natural, show_header=heads, box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold"
    )
    for column, size in zip(columns, widths, strict=True):
        is_message = has_message and column == columns[-1]
        made.add_column(column, no_wrap=not is_message, min_width=None if is_message else size)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made
