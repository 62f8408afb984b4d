"""What a record has beside its ledger: sizes over time, pods that ended, events, tasks, errors.

Whatever is in a record, some of it is read: what is no pod, no event or no sample is left out, and texts are quoted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpudask.api import Json
from gpudask.cli import untrusted
from gpudask.cli.cost.causes import WORKING

# As many as the operator keeps, and some more: a later one may keep more.
_MOST_PODS, _MOST_EVENTS, _MOST_SAMPLES, _MOST_PREFIXES, _MOST_ERRORS = 200, 200, 1000, 100, 40
_MOST_POOLS, _MOST_CAUSES = 64, 32


@dataclass(frozen=True)
class Size:
    """One pool from `at` (seconds since 1970) to its next size: pods, tasks and GPUs."""

    at: float
    desired: float
    ready: float
    waiting: float
    running: float
    gpus_held: float
    gpus_busy: float


@dataclass(frozen=True)
class EndedPod:
    """A pod that ended, or with `restarted` its container. Times are seconds since 1970, None where nobody saw them.

    `pool` is empty for the scheduler; `gpu_seconds` is by cause.
    """

    pod: str
    pool: str
    node: str
    created: float | None
    started: float | None
    ended: float | None
    reason: str
    message: str
    exit_code: int | None
    log: str
    gpu_seconds: Mapping[str, float]
    restarted: bool = False

    @property
    def start_seconds(self) -> float | None:
        """Seconds from its creation until its container ran: for a node, for the image, for its start."""
        if self.created is None or self.started is None or self.started < self.created:
            return None
        return self.started - self.created

    @property
    def idle(self) -> float:
        """GPU-seconds in which it did not work."""
        return math.fsum(seconds for cause, seconds in self.gpu_seconds.items() if cause != WORKING)


@dataclass(frozen=True)
class Event:
    """An event of the cluster."""

    at: float | None
    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Prefix:
    """The tasks of one prefix: how many, how many of them failed, and how many seconds they took together."""

    prefix: str
    tasks: float
    erred: float
    seconds: float


@dataclass(frozen=True)
class TaskError:
    """A task that failed."""

    at: float | None
    key: str
    exception: str
    traceback: str
    worker: str


@dataclass(frozen=True)
class Record:
    """What a record has beside its ledger; `name`: the record's own. Times are seconds since 1970.

    `began`: when the record did, or was made. `unseen_gpus`: those whose end nobody saw, of a cluster that ended.
    """

    name: str = ""
    created: float | None = None
    began: float | None = None
    updated: float | None = None
    report: str = ""
    unseen_gpus: int = 0
    sizes: Mapping[str, tuple[Size, ...]] = field(default_factory=dict)
    pods: tuple[EndedPod, ...] = ()
    events: tuple[Event, ...] = ()
    tasks: tuple[Prefix, ...] = ()
    errors: tuple[TaskError, ...] = ()


def parse(body: Json) -> Record:
    """The record in a GpuDaskRecord."""
    record = untrusted.field(body, "record")
    prefixes = [_prefix(item) for item in untrusted.objects(record, "tasks", most=_MOST_PREFIXES)]
    made = untrusted.time(body, "metadata", "creationTimestamp")
    began = untrusted.time(record, "began")
    return Record(
        name=untrusted.name(body, "metadata", "name"),
        created=untrusted.time(record, "cluster", "created"),
        began=made if began is None else began,
        updated=untrusted.time(record, "updated"),
        report=untrusted.text(record, "report", length=400),
        unseen_gpus=max(0, untrusted.whole(record, "unseenGpus")),
        sizes=_sizes(record),
        pods=tuple(_pod(item) for item in untrusted.objects(record, "pods", most=_MOST_PODS)),
        events=tuple(_event(item) for item in untrusted.objects(record, "events", most=_MOST_EVENTS)),
        tasks=tuple(sorted(prefixes, key=lambda each: (-each.seconds, each.prefix))),
        errors=tuple(_error(item) for item in untrusted.objects(record, "errors", most=_MOST_ERRORS)),
    )


def _sizes(record: object) -> dict[str, tuple[Size, ...]]:
    """The sizes of each pool in their order; a sample that has a pool no longer says that it is empty."""
    samples = [(untrusted.time(item, "at"), item) for item in untrusted.objects(record, "samples", most=_MOST_SAMPLES)]
    ordered = sorted(((at, item) for at, item in samples if at is not None), key=lambda pair: pair[0])
    rows = [
        (at, {untrusted.name(pool, "name"): pool for pool in untrusted.objects(item, "pools", most=_MOST_POOLS)})
        for at, item in ordered
    ]
    names = list(dict.fromkeys(name for _, pools in rows for name in pools))[:_MOST_POOLS]
    return {name: tuple(_size(at, pools.get(name, {})) for at, pools in rows) for name in names}


def _size(at: float, pool: Json) -> Size:
    return Size(
        at,
        untrusted.amount(pool, "desired"),
        untrusted.amount(pool, "ready"),
        untrusted.amount(pool, "waiting"),
        untrusted.amount(pool, "running"),
        untrusted.amount(pool, "gpusHeld"),
        untrusted.amount(pool, "gpusBusy"),
    )


def _pod(item: Json) -> EndedPod:
    spent: dict[str, float] = {}
    for part in untrusted.objects(item, "gpuSeconds", most=_MOST_CAUSES):
        cause = untrusted.name(part, "cause")
        spent[cause] = spent.get(cause, 0.0) + untrusted.amount(part, "gpuSeconds")
    return EndedPod(
        untrusted.name(item, "pod"),
        untrusted.name(item, "pool"),
        untrusted.name(item, "node"),
        untrusted.time(item, "created"),
        untrusted.time(item, "started"),
        untrusted.time(item, "ended"),
        untrusted.text(item, "reason", length=63),
        untrusted.text(item, "message", length=400),
        None if untrusted.field(item, "exitCode") is None else untrusted.whole(item, "exitCode"),
        untrusted.lines(item, "log"),
        spent,
        restarted=untrusted.field(item, "restarted") is True,
    )


def _event(item: Json) -> Event:
    return Event(
        untrusted.time(item, "at"),
        untrusted.text(item, "type", length=16),
        untrusted.text(item, "reason", length=128),
        untrusted.text(item, "message", length=400),
    )


def _prefix(item: Json) -> Prefix:
    return Prefix(
        untrusted.name(item, "prefix"),
        untrusted.amount(item, "tasks"),
        untrusted.amount(item, "erred"),
        untrusted.amount(item, "seconds"),
    )


def _error(item: Json) -> TaskError:
    return TaskError(
        untrusted.time(item, "at"),
        untrusted.text(item, "key", length=253),
        untrusted.text(item, "exception", length=400),
        untrusted.lines(item, "traceback"),
        untrusted.text(item, "worker", length=253),
    )
