"""What the scheduler said: demand by resource, and its workers. The shape is docs/preload-protocol.md."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

PROTOCOL = 1
_SHOWN = 200  # characters of what a user wrote


class UnknownProtocolError(ValueError):
    """An answer that this version of the operator must not act on."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """Tasks with the same resource restrictions; `resources` is empty for plain tasks."""

    resources: tuple[tuple[str, float], ...]
    waiting: int = 0
    unrunnable: int = 0
    processing: int = 0
    seconds: float = 0.0
    unknown: int = 0
    since_seconds: float = 0.0
    next_seconds: float | None = None  # until the first of `waiting` can run; None when unknown
    next_tasks: int = 0  # about how many can run then
    lent: int = 0  # of `processing`: begun on workers that offer what they want only for a while (`fallback`)

    @property
    def active(self) -> int:
        """Tasks that run or could run now."""
        return self.unrunnable + self.processing

    def __str__(self) -> str:
        """As people write it: `GPU: 2, MEMORY: 5e+10`."""
        return ", ".join(f"{name}: {amount:g}" for name, amount in self.resources) or "no resources"


@dataclass(frozen=True, slots=True)
class Worker:
    """A Dask worker process, as the scheduler sees it."""

    name: str
    address: str = ""
    pool: str = ""
    status: str = "running"
    nthreads: int = 1
    processing: int = 0
    own: int = 0
    idle_seconds: float = 0.0
    blockers: tuple[str, ...] = ()
    held_keys: int = 0
    held_bytes: int = 0
    retiring: str = ""
    detail: str = ""
    tasks_done: int = 0
    sick: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """One answer of the long poll."""

    version: str
    scheduler_id: str
    desired_version: str = ""
    tasks: int = 0
    requirements: tuple[Requirement, ...] = ()
    workers: tuple[Worker, ...] = ()
    features: dict[str, str] = field(default_factory=dict)
    offers: dict[str, dict[str, float]] = field(default_factory=dict)
    idle_seconds: float | None = None  # without any work; None where an older preload does not say
    ignored: tuple[str, ...] = ()  # words for people: tasks whose `resources=` is no demand that anybody could serve
    _by_pod: dict[str, tuple[Worker, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the workers: a pass asks for those of every pod, several times."""
        for worker in self.workers:
            head, _, end = worker.name.rpartition("-")
            for name in (worker.name, head) if end.isdigit() else (worker.name,):
                self._by_pod[name] = (*self._by_pod.get(name, ()), worker)

    def workers_of(self, dask_name: str) -> tuple[Worker, ...]:
        """The registered workers of one pod."""
        return self._by_pod.get(dask_name, ())


def parse(answer: dict[str, Any]) -> Demand:
    """The answer as values.

    Raises:
        UnknownProtocolError: another protocol, or a shape that is not it.
    """
    if answer.get("protocol") != PROTOCOL:
        raise UnknownProtocolError(
            f"the preload speaks protocol {answer.get('protocol')!r}, this operator {PROTOCOL}:"
            " restart the scheduler pod to give it this operator's preload"
        )
    try:
        return Demand(
            version=answer["version"],
            scheduler_id=answer["scheduler_id"],
            desired_version=answer["desired_version"],
            tasks=answer["tasks"],
            requirements=tuple(_requirement(item) for item in answer["demand"]),
            workers=tuple(_worker(item) for item in answer["workers"]),
            features=dict(answer["features"]),
            offers=dict(answer.get("offers", {})),
            idle_seconds=answer.get("idle_seconds"),
            ignored=tuple(_ignored(item) for item in answer.get("ignored", ())),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UnknownProtocolError(
            f"the preload's answer has not the shape of protocol {PROTOCOL}: {error!r}"
        ) from error


def _requirement(item: dict[str, Any]) -> Requirement:
    return Requirement(
        resources=tuple(sorted((name, float(amount)) for name, amount in item["resources"].items())),
        waiting=item["waiting"],
        unrunnable=item["unrunnable"],
        processing=item["processing"],
        seconds=item["seconds"],
        unknown=item["unknown"],
        since_seconds=item["since_seconds"],
        next_seconds=item.get("next_seconds"),
        next_tasks=item.get("next_tasks", 0),
        lent=item.get("lent", 0),
    )


def _ignored(item: dict[str, Any]) -> str:
    """What the tasks ask for, as far as it can be shown, and what is wrong with it."""
    return f"{int(item['tasks'])} tasks ask for {str(item['resources'])[:_SHOWN]}: {str(item['why'])[:_SHOWN]}"


def _worker(item: dict[str, Any]) -> Worker:
    return Worker(
        name=str(item["name"]),
        address=item["address"],
        pool=sys.intern(item["pool"]),
        status=sys.intern(item["status"]),
        nthreads=item["nthreads"],
        processing=item["processing"],
        own=item["own"],
        idle_seconds=item["idle_seconds"],
        blockers=tuple(item["blockers"]),
        held_keys=item["held_keys"],
        held_bytes=item["held_bytes"],
        retiring=item["retiring"],
        detail=item["detail"],
        tasks_done=item.get("tasks_done", 0),  # a preload of an earlier version says nothing of these
        sick=item.get("sick", ""),
    )
