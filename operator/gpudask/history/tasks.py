"""What a scheduler tells of its tasks: counts by prefix, and the last errors. The schema is docs/preload-protocol.md.

A scheduler runs its user's code, so all of it is hostile, as in `scaling.demand`: what comes out of `parse` has the
types and bounds that stand here, and a row that has not is left out alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpudask.api import Json
from gpudask.api.record import (
    MAX_ERRORS,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_PREFIXES,
    MAX_TRACEBACK,
    PrefixTasks,
    TaskError,
)
from gpudask.api.status import iso
from gpudask.api.untrusted_text import quote, quote_lines
from gpudask.scaling.demand import PROTOCOL, Demand, UnknownProtocolError

_LOOKED_AT = 4  # times as many rows as are kept are looked at
_LONGEST_SECONDS = 1e9
_MOST = 10**15


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """The tasks of one scheduler process, since it started. `scheduler_id`: which process."""

    scheduler_id: str
    tasks: tuple[PrefixTasks, ...]
    errors: tuple[TaskError, ...]


class TaskNews:
    """Whether a scheduler has news of its tasks. `must_ask`: it has. `must_hurry`: some of them failed."""

    def __init__(self) -> None:
        self.must_ask = self.must_hurry = False
        self._heard = "", 0, 0  # the scheduler's process, tasks ended, and errors

    def hear(self, demand: Demand) -> None:
        """Note what it says, with the demand, of how many ended and failed."""
        ended = sum(worker.tasks_done or 0 for worker in demand.workers)
        before = self._heard if self._heard[0] == demand.scheduler_id else (demand.scheduler_id, 0, 0)
        self._heard = demand.scheduler_id, ended, demand.erred
        self.must_ask |= self._heard != before
        self.must_hurry |= demand.erred > before[2]

    def asked(self) -> None:
        """Note that it was asked for them."""
        self.must_ask = self.must_hurry = False


def parse(answer: Any, now: float) -> TaskHistory:
    """Parse the answer of the history route; `now`: the API server's time, since ages are told and no times.

    Raises:
        UnknownProtocolError: it is not the preload's, or not this version's.
    """
    if not isinstance(answer, dict) or answer.get("protocol") != PROTOCOL:
        raise UnknownProtocolError("the answer of the history route is not of this protocol")
    tasks = [task for row in _rows(answer, "tasks", MAX_PREFIXES) if (task := _task(row)) is not None]
    errors = [_error(row, now) for row in _rows(answer, "errors", MAX_ERRORS)]
    scheduler = answer.get("scheduler_id")
    return TaskHistory(
        quote(scheduler, MAX_NAME) if isinstance(scheduler, str) else "",
        tuple(tasks[:MAX_PREFIXES]),
        tuple(errors[-MAX_ERRORS:]),
    )


def parse_report(answer: Any) -> str:
    """The message about a performance report, of the answer of the report route, whatever that is."""
    row = answer if isinstance(answer, dict) else {}
    if path := _text(row, "path"):
        return f"{quote(path, MAX_MESSAGE // 2)} in the scheduler's pod, {_number(row.get('bytes'), _MOST):.0f} bytes"
    return f"no performance report: {quote(_text(row, 'why')) or 'the scheduler does not say why'}"


def with_most_seconds(tasks: Iterable[PrefixTasks]) -> list[PrefixTasks]:
    """The prefixes that are kept, those with the most seconds first."""
    return sorted(tasks, key=lambda row: (-row.seconds, -row.tasks, row.prefix))[:MAX_PREFIXES]


def added(before: Sequence[PrefixTasks], more: Sequence[PrefixTasks]) -> list[PrefixTasks]:
    """The sum of both: the tasks of an earlier scheduler process, and of the present one."""
    sums = {row.prefix: row for row in before}
    for row in more:
        known = sums.get(row.prefix)
        sums[row.prefix] = row if known is None else _sum(known, row)
    return with_most_seconds(sums.values())


def _sum(one: PrefixTasks, other: PrefixTasks) -> PrefixTasks:
    return PrefixTasks(
        prefix=one.prefix,
        tasks=min(one.tasks + other.tasks, _MOST),
        erred=min(one.erred + other.erred, _MOST),
        seconds=min(one.seconds + other.seconds, float(_MOST)),
    )


def _rows(answer: Json, name: str, kept: int) -> list[Json]:
    rows = answer.get(name)
    return [row for row in rows[: _LOOKED_AT * kept] if isinstance(row, dict)] if isinstance(rows, list) else []


def _task(row: Json) -> PrefixTasks | None:
    prefix = row.get("prefix")
    if not isinstance(prefix, str) or not prefix:
        return None
    seconds = round(_number(row.get("seconds"), float(_MOST)), 3)
    tasks, erred = (int(_number(row.get(name), _MOST)) for name in ("tasks", "erred"))
    return PrefixTasks(prefix=quote(prefix, MAX_NAME), tasks=tasks, erred=erred, seconds=seconds)


def _error(row: Json, now: float) -> TaskError:
    age = _number(row.get("age_seconds"), _LONGEST_SECONDS)
    return TaskError(
        at=iso(max(1.0, now - age), to="seconds"),
        key=quote(_text(row, "key"), MAX_NAME),
        exception=quote(_text(row, "exception"), MAX_MESSAGE),
        traceback=quote_lines(_text(row, "traceback"), MAX_TRACEBACK),
        worker=quote(_text(row, "worker"), MAX_NAME),
    )


def _text(row: Json, name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""


def _number(value: Any, most: float) -> float:
    """A number within bounds; 0 where there is none."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and math.isnan(value))
    ):
        return 0.0
    return min(max(0.0, value), most)
