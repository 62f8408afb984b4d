"""The demand that a scheduler reports, by resource, and its workers. The schema is docs/preload-protocol.md.

A scheduler runs its user's code, so all of it is hostile. `parse` is total: what it returns has the types and the
bounds that stand here, and whatever it cannot make so is one error that names the field. Fields that it does not know
are left out, since a newer preload may say more.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, BeforeValidator, FailFast, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # typing's own is enough for pydantic from Python 3.12 on

from gpudask.api.untrusted_text import QUOTE_LENGTH, quote, quote_last_line, quote_name

PROTOCOL = 1
# Several times what an honest scheduler says: the preload keeps 1,000 requirements of at most 32 resources apart.
_WORKERS, _REQUIREMENTS, _NAMED = 10_000, 2_000, 64
OWNER_LENGTH = 63  # characters of an owner's name, as of a label's value
_MOST = 10**15  # tasks, results, bytes, or seconds of work; far beyond what there is, and exact in a JSON number
_LONGEST_SECONDS = 1e9  # 30 years: a moment so far away still is a date
_NAME_LENGTH = 253  # of an object of Kubernetes, and more than Dask's workers need
# So many times the tasks that found no worker before, or of those that run or could run, may need pods.
_MORE_WAIT, _MORE = 1.1, 2.0
_WITHIN_UNION = ("constrained-", "function-")  # how pydantic names the branches of one


def _duration(seconds: float) -> float:
    """`seconds` within bounds: two clocks, read one after the other, may give a little less than nothing."""
    return min(max(0.0, seconds), _LONGEST_SECONDS)


def _few(items: Any) -> Any:
    """Count an object's fields before looking at them: of thousands that are wrong each would be an error."""
    if isinstance(items, dict) and len(items) > _NAMED:
        raise ValueError(f"expected at most {_NAMED} names, got {len(items)}")
    return items


def _as_shown(names: dict[str, float]) -> dict[str, float]:
    """`names`, each as it is shown."""
    return {quote_name(name): amount for name, amount in names.items()}


# A text that is its own quote: tried first, since pydantic finds it without Python, thousands of times an answer.
_CLEAN = r"^(?:[!-~]+(?: [!-~]+)*)?$"
_CLEAN_NAME = r"^(?:[!#-&(-~][!-~]*(?: [!-~]+)*)?$"  # no quotation mark is first
_String = Annotated[str, Field(strict=True)]
_Order = Field(union_mode="left_to_right")
Count = Annotated[int, Field(strict=True, ge=0, le=_MOST)]
Work = Annotated[float, Field(strict=True, ge=0, le=_MOST, allow_inf_nan=False)]
Amount = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Duration = Annotated[
    Annotated[float, Field(strict=True, ge=0, le=_LONGEST_SECONDS)]
    | Annotated[float, Field(strict=True, allow_inf_nan=False), AfterValidator(_duration)],
    _Order,
]
# Sent back with the next question, so it has to be what it was.
Version = Annotated[str, Field(strict=True, max_length=200, pattern=r"^[!-~]*$")]
Name = Annotated[
    Annotated[str, Field(strict=True, max_length=_NAME_LENGTH, pattern=_CLEAN_NAME)]
    | Annotated[_String, AfterValidator(lambda name: quote_name(name, _NAME_LENGTH))],
    _Order,
]
Text = Annotated[
    Annotated[str, Field(strict=True, max_length=QUOTE_LENGTH, pattern=_CLEAN)]
    | Annotated[_String, AfterValidator(quote)],
    _Order,
]
Owner = Annotated[
    Annotated[str, Field(strict=True, max_length=OWNER_LENGTH, pattern=_CLEAN)]
    | Annotated[_String, AfterValidator(lambda name: quote_name(name, OWNER_LENGTH))],
    _Order,
]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
LastLine = Annotated[_String, AfterValidator(quote_last_line)]
Amounts = Annotated[dict[_String, Amount], BeforeValidator(_few), AfterValidator(_as_shown)]


class _RequirementRow(TypedDict):
    resources: Amounts
    waiting: Count
    unrunnable: Count
    processing: Count
    seconds: Work
    unknown: Count
    since_seconds: Duration
    next_seconds: NotRequired[Duration | None]
    next_tasks: NotRequired[Count]
    lent: NotRequired[Count]


class _OwnerRow(TypedDict):
    owner: Owner
    seconds: Duration
    share: Share


class _WorkerRow(TypedDict):
    name: Name
    address: Name
    pool: Name
    status: Name
    nthreads: Count
    processing: Count
    own: Count
    idle_seconds: Duration
    blockers: Annotated[list[Name], Field(max_length=_NAMED), FailFast()]
    held_keys: Count
    held_bytes: Count
    retiring: Name
    detail: Text
    tasks_done: NotRequired[Count]  # a preload of an earlier version says nothing of these
    sick: NotRequired[Text]
    busy_seconds: NotRequired[Duration]
    owners: NotRequired[Annotated[list[_OwnerRow], Field(max_length=_NAMED), FailFast()]]


class _IgnoredRow(TypedDict):
    resources: Text
    tasks: Count
    why: Text


class _Clients(TypedDict):
    connected: Count
    absent_seconds: Duration
    ever: Annotated[bool, Field(strict=True)]


class _ListenerRow(TypedDict):
    port: Count
    why: Text


class _Answer(TypedDict):
    version: Version
    scheduler_id: Version
    desired_version: Version
    tasks: Count
    demand: Annotated[list[_RequirementRow], Field(max_length=_REQUIREMENTS), FailFast()]
    workers: Annotated[list[_WorkerRow], Field(max_length=_WORKERS), FailFast()]
    features: Annotated[dict[Name, LastLine], BeforeValidator(_few)]
    offers: NotRequired[Annotated[dict[Name, Amounts], BeforeValidator(_few)]]
    listeners: NotRequired[Annotated[dict[Name, _ListenerRow], BeforeValidator(_few)]]
    idle_seconds: NotRequired[Duration | None]
    clients: NotRequired[_Clients | None]
    ignored: NotRequired[Annotated[list[_IgnoredRow], Field(max_length=_NAMED), FailFast()]]
    erred: NotRequired[Count]


class _RefusedRow(TypedDict):
    pod: Name
    why: Text


class _Refusals(TypedDict):
    refused: NotRequired[Annotated[list[_RefusedRow], Field(max_length=_WORKERS), FailFast()]]


class _Health(TypedDict):
    error: NotRequired[LastLine]


_ANSWER, _REFUSALS, _HEALTH = TypeAdapter(_Answer), TypeAdapter(_Refusals), TypeAdapter(_Health)


class UnknownProtocolError(ValueError):
    """An answer that this version of the operator must not act on; the message names the field and what came."""


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

    @property
    def holds_nothing(self) -> bool:
        """True if it asks for 0 of what a pool offers: to be there, not to hold it. One pod serves any number of such.

        The client parts of programs that run beside their data are such tasks: each waits for other tasks, and a pod
        of its own for each would be one in which nothing computes.
        """
        return bool(self.resources) and not any(amount for _, amount in self.resources)

    def __str__(self) -> str:
        """The resources as people write them, where that is short: `GPU: 2, MEMORY: 5e+10`."""
        return quote(", ".join(f"{name}: {amount:g}" for name, amount in self.resources)) or "no resources"


@dataclass(frozen=True, slots=True)
class OwnerTime:
    """The seconds in which tasks of one owner kept a worker busy, and the owner's share of it now, from 0 to 1."""

    owner: str
    seconds: float
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Worker:
    """A Dask worker process, as the scheduler sees it.

    `busy_seconds`: in which it had work of its pool's own since it came, with `owners` as those whose it was; None
    where an older preload does not say.
    """

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
    busy_seconds: float | None = None
    owners: tuple[OwnerTime, ...] = ()


@dataclass(frozen=True, slots=True)
class Clients:
    """The programs that use a scheduler. `absent_seconds`: since one was seen, or, if not `ever`, since it began."""

    connected: int = 0
    absent_seconds: float = 0.0
    ever: bool = True


@dataclass(frozen=True, slots=True)
class Listener:
    """The port at which a scheduler listens for a protocol beside its own, with `why` empty; or why it does not."""

    port: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """One answer of the long poll. `answer_bytes`: how long it was."""

    version: str
    scheduler_id: str
    desired_version: str = ""
    tasks: int = 0
    requirements: tuple[Requirement, ...] = ()
    workers: tuple[Worker, ...] = ()
    features: dict[str, str] = field(default_factory=dict)
    offers: dict[str, dict[str, float]] = field(default_factory=dict)
    listeners: dict[str, Listener] = field(default_factory=dict)  # by protocol; none where an older preload opens none
    idle_seconds: float | None = None  # without any work; None where an older preload does not say
    clients: Clients | None = None  # None where an older preload does not say
    ignored: tuple[str, ...] = ()  # messages for people: tasks whose `resources=` is no demand that anybody could serve
    erred: int = 0  # tasks that failed for good since the scheduler started; 0 where an older preload does not say
    answer_bytes: int = field(default=0, compare=False)
    _by_pod: dict[str, tuple[Worker, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the workers: a pass asks for those of every pod, several times."""
        found: dict[str, list[Worker]] = {}  # lists, since a hostile answer may give all workers one pod
        for worker in self.workers:
            head, _, end = worker.name.rpartition("-")
            for name in (worker.name, head) if end.isdigit() else (worker.name,):
                found.setdefault(name, []).append(worker)
        self._by_pod.update((name, tuple(workers)) for name, workers in found.items())

    def workers_of(self, dask_name: str) -> tuple[Worker, ...]:
        """The registered workers of one pod."""
        return self._by_pod.get(dask_name, ())


def parse(answer: Any, *, answer_bytes: int = 0) -> Demand:
    """The answer of the demand route, JSON as Python reads it, as values.

    Raises:
        UnknownProtocolError: another protocol, or a shape that is not it.
    """
    protocol = answer.get("protocol") if isinstance(answer, dict) else None
    if protocol != PROTOCOL or isinstance(protocol, bool):
        raise UnknownProtocolError(
            f"the preload speaks protocol {_shown(protocol)}, this operator {PROTOCOL}:"
            " restart the scheduler pod to give it this operator's preload"
        )
    read = _read(_ANSWER, answer)
    return Demand(
        version=read["version"],
        scheduler_id=read["scheduler_id"],
        desired_version=read["desired_version"],
        tasks=read["tasks"],
        requirements=tuple(_requirement(row) for row in read["demand"]),
        workers=tuple(_worker(row) for row in read["workers"]),
        features=read["features"],
        offers=read.get("offers", {}),
        listeners={protocol: Listener(**row) for protocol, row in read.get("listeners", {}).items()},
        idle_seconds=read.get("idle_seconds"),
        clients=None if (clients := read.get("clients")) is None else Clients(**clients),
        ignored=tuple(_ignored(row) for row in read.get("ignored", ())),
        erred=read.get("erred", 0),
        answer_bytes=answer_bytes,
    )


def parse_refusals(answer: Any) -> dict[str, str]:
    """The answer of the desired route: the pods, by Dask name, that were not retired, and why.

    Raises:
        UnknownProtocolError: a shape that is not the protocol's.
    """
    return {row["pod"]: row["why"] for row in _read(_REFUSALS, answer).get("refused", ())}


def parse_health(answer: Any) -> str:
    """The answer of the health route: the error with which the preload failed, empty where it did not.

    Raises:
        UnknownProtocolError: a shape that is not the protocol's.
    """
    return str(_read(_HEALTH, answer).get("error", ""))


def _read(shape: TypeAdapter[Any], answer: Any) -> Any:
    try:
        return shape.validate_python(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = [str(part) for part in first["loc"] if not str(part).startswith(_WITHIN_UNION)]
        where = ".".join(path) or "the answer"
        came = "" if first["type"] == "missing" else f", got {_shown(first['input'])}"
        why = f"{quote(where)}: {quote(first['msg'])}{came}"
        raise UnknownProtocolError(
            f"the preload's answer has not the shape of protocol {PROTOCOL}: {why}"
        ) from None  # it holds the whole answer


def _shown(value: Any) -> str:
    """A value in few characters; a list or an object by its type alone, since it may be large."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() < 64 else f"a number of {value.bit_length()} bits"  # noqa: PLR2004
    return repr(quote(value, 40)) if isinstance(value, str) else f"a {type(value).__name__}"


def _requirement(row: _RequirementRow) -> Requirement:
    return Requirement(
        resources=tuple(sorted(row["resources"].items())),
        waiting=row["waiting"],
        unrunnable=row["unrunnable"],
        processing=row["processing"],
        seconds=row["seconds"],
        unknown=row["unknown"],
        since_seconds=row["since_seconds"],
        next_seconds=row.get("next_seconds"),
        next_tasks=row.get("next_tasks", 0),
        lent=row.get("lent", 0),
    )


def _ignored(row: _IgnoredRow) -> str:
    """A message about tasks that nobody can serve: what they ask for, as far as it can be shown, and what is wrong."""
    return f"{row['tasks']} tasks ask for {row['resources']}: {row['why']}"


def _worker(row: _WorkerRow) -> Worker:
    return Worker(
        name=row["name"],
        address=row["address"],
        pool=sys.intern(row["pool"]),
        status=sys.intern(row["status"]),
        nthreads=row["nthreads"],
        processing=row["processing"],
        own=row["own"],
        idle_seconds=row["idle_seconds"],
        blockers=tuple(row["blockers"]),
        held_keys=row["held_keys"],
        held_bytes=row["held_bytes"],
        retiring=row["retiring"],
        detail=row["detail"],
        tasks_done=row.get("tasks_done", 0),
        sick=row.get("sick", ""),
        busy_seconds=row.get("busy_seconds"),
        owners=tuple(OwnerTime(**each) for each in row.get("owners", ())),
    )


def is_urgent(before: Demand, now: Demand) -> bool:
    """True if a pass is due at once. Counts that move with every task can wait for a moment.

    It is where there are much more tasks, or none any more, or workers came, went, or are further on their way out.
    What is urgent here has to be so for quiet polls, too (preload/watch.py): else it is heard late.
    """
    return (
        _of_scheduler(before) != _of_scheduler(now)
        or bool(before.tasks) != bool(now.tasks)
        or _differs_much(before, now)
        or _of_workers(before) != _of_workers(now)
    )


def _of_scheduler(demand: Demand) -> tuple[object, ...]:
    return demand.scheduler_id, demand.features, demand.offers, demand.listeners


def _differs_much(before: Demand, now: Demand) -> bool:
    earlier = {requirement.resources: requirement for requirement in before.requirements}
    later = {requirement.resources: requirement for requirement in now.requirements}
    return any(
        _is_much(earlier.get(kind, Requirement(kind)), later.get(kind, Requirement(kind))) for kind in earlier | later
    )


def _is_much(before: Requirement, now: Requirement) -> bool:
    return (
        now.unrunnable > _MORE_WAIT * before.unrunnable
        or now.active > _MORE * before.active
        or bool(before.active) != bool(now.active)
    )


def _of_workers(demand: Demand) -> list[tuple[str, ...]]:
    return [(worker.name, worker.address, worker.status, worker.retiring, worker.sick) for worker in demand.workers]
