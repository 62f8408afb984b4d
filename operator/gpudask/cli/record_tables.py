"""What stays of clusters as people read it: the list of records, and one record's life. Pure: records in, cells out.

Whoever may edit a namespace may edit its records, and their logs are programs' own: `cli.report.record` and
`cli.cost.ledgers` read them, and all that they give is quoted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.api.status import iso
from gpudask.api.untrusted_text import quote_last_line
from gpudask.cli.cost.ledgers import ClusterLedger, of_record
from gpudask.cli.report.record import EndedPod, Record, parse

Table = tuple[str, list[str], list[list[str]]]  # a title, the columns' heads, the rows
_EVENTS = 15  # the last, of those that a record has
_HOUR = 3600.0
_SCHEDULER = "scheduler"


@dataclass(frozen=True)
class Entry:
    """A record in a list: all that is kept of its body. `began`: seconds since 1970."""

    namespace: str
    name: str
    cluster: str
    began: float
    cells: tuple[str, ...]


def entry(body: Json) -> Entry:
    """The entry of a record."""
    record, ledger = parse(body), of_record(body)
    gpu_seconds = sum(pool.held for pool in ledger.pools)
    cells = (
        record.name,
        ledger.name,
        _time(record.began),
        _time(ledger.ended) or "-",
        str(len(record.pods)),
        str(len(record.errors)),
        f"{gpu_seconds / _HOUR:.2f}" if gpu_seconds else "-",
    )
    return Entry(ledger.namespace, record.name, ledger.name, record.began or 0.0, cells)


def list_rows(entries: Iterable[Entry], *, namespaces: bool = False) -> tuple[list[str], list[list[str]]]:
    """A row for each record, the last that began first."""
    columns = ["NAME", "CLUSTER", "BEGAN", "ENDED", "PODS", "ERRORS", "GPU-HOURS"]
    ordered = sorted(sorted(entries, key=lambda each: (each.namespace, each.name)), key=lambda each: -each.began)
    rows = [[*([each.namespace] if namespaces else []), *each.cells] for each in ordered]
    return [*(["NAMESPACE"] if namespaces else []), *columns], rows


def head(record: Record, ledger: ClusterLedger) -> list[str]:
    """The lines that say whose record it is, and from when to when."""
    lines = [f"{ledger.name} ({ledger.uid}), record {record.name}"]
    lines.append(f"created {_time(record.created) or '?'}, ended {_time(ledger.ended) or 'not yet'}")
    lines.append(f"written {_time(record.updated) or '?'}")
    if record.unseen_gpus:
        pods = f"pods with {record.unseen_gpus} GPUs"
        lines.append(f"the end of {pods} is not told (yet): their GPU-seconds are incomplete, or an estimate")
    if ledger.labels:
        lines.append(", ".join(f"{key}: {value}" for key, value in sorted(ledger.labels.items())))
    if record.report:
        lines.append(f"performance report: {record.report}")
    return lines


def tables(record: Record, ledger: ClusterLedger) -> list[Table]:
    """The tables of one record: the pools' ledger, ended pods, tasks, errors and events; those with rows alone."""
    made: list[Table] = [
        ("GPU-seconds by cause", ["POOL", "CAUSE", "GPU-SECONDS"], list(_causes(ledger))),
        ("ended pods", ["ENDED", "POD", "NODE", "REASON", "EXIT", "WHY"], [_pod(pod) for pod in record.pods]),
        (
            "tasks",
            ["PREFIX", "TASKS", "ERRED", "SECONDS"],
            [[each.prefix, f"{each.tasks:.0f}", f"{each.erred:.0f}", f"{each.seconds:.1f}"] for each in record.tasks],
        ),
        (
            "errors",
            ["AT", "KEY", "WORKER", "WHY"],
            [[_time(error.at), error.key, error.worker, error.exception] for error in record.errors],
        ),
        (
            "events",
            ["AT", "REASON", "WHY"],
            [[_time(event.at), event.reason, event.message] for event in record.events[-_EVENTS:]],
        ),
    ]
    return [table for table in made if table[2]]


def ends_of(body: Json, of: str) -> tuple[float, list[EndedPod]]:
    """When a record began, and the ends in it of the pods that are `of` that name, or of that pool or the scheduler."""
    record = parse(body)
    return record.began or 0.0, [pod for pod in record.pods if pod.pod and of in (pod.pod, pod.pool or _SCHEDULER)]


def last_ends(found: Iterable[tuple[float, list[EndedPod]]]) -> list[EndedPod]:
    """Of each pod its last end, of what `ends_of` found in several records."""
    ordered = sorted(found, key=lambda each: each[0])
    return list({pod.pod: pod for _, pods in ordered for pod in pods}.values())


def why_no_log(pod: EndedPod) -> str:
    """Why an ended pod has no log, and how it ended."""
    return "; ".join(part for part in (pod.reason, pod.message or "it wrote nothing") if part)


def _time(at: float | None) -> str:
    return "" if at is None else iso(at, to="seconds")


def _causes(ledger: ClusterLedger) -> Iterator[list[str]]:
    for pool in ledger.pools:
        for cause, gpu_seconds in pool.causes.items():
            yield [pool.name, cause, f"{gpu_seconds:.0f}"]


def _pod(pod: EndedPod) -> list[str]:
    reason = pod.reason + (" (restarted)" if pod.restarted else "")
    code = "-" if pod.exit_code is None else str(pod.exit_code)
    return [_time(pod.ended), pod.pod, pod.node, reason, code, quote_last_line(pod.log) or pod.message]
