"""The sections of the page: what each has, in the words and places in which the template draws it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from gpudask.api import Json
from gpudask.api.resource import is_past
from gpudask.cli import untrusted
from gpudask.cli.cost.causes import CAUSES, WORKING, rank, words
from gpudask.cli.cost.ledgers import ClusterLedger
from gpudask.cli.cost.statement import IDLE, Statement, statement
from gpudask.cli.report import geometry
from gpudask.cli.report.record import EndedPod, Event, Prefix, Record, Size, TaskError
from gpudask.cli.report.wording import NOTHING, count, duration, hours, money, percent, stamp

if TYPE_CHECKING:
    from gpudask.cli.cost.prices import Prices

# What ends a pod as it was meant to, or where nobody saw it; every other reason is one to look at.
_HARMLESS = {"Drained", "Cancelled", "Replaced", "Deleted", "ClusterDeleted", "Completed", "Unseen"}
_MOST_ROWS = 10
_MOST_BAD = 20
_MOST_EVENTS = 40
_WORTH_ADVICE = 0.05  # of what was held


@dataclass(frozen=True)
class Subject:
    """The cluster that a page is about: `body` where it is there, `record` where it has one."""

    ledger: ClusterLedger
    body: Json | None = None
    record: Record | None = None


@dataclass(frozen=True)
class Tile:
    """A figure at the top: what it counts, the figure, and a few words under it; `is_bad` where it needs a look."""

    label: str
    figure: str
    note: str = ""
    is_bad: bool = False


@dataclass(frozen=True)
class Part:
    """A part of a bar: the kind that colours it, where it is in percent, and what it is, for those who point at it."""

    kind: str
    begin: float
    width: float
    title: str


@dataclass(frozen=True)
class Bar:
    """A bar with a name, a figure, and its parts."""

    name: str
    figure: str
    parts: tuple[Part, ...]
    note: str = ""


@dataclass(frozen=True)
class CauseRow:
    """A row of the ledger: one cause."""

    kind: str
    words: str
    hours: str
    share: str
    money: str
    meaning: str
    advice: str


@dataclass(frozen=True)
class Series:
    """A line of a chart, and where `is_area` what is under it; `kind` is its look."""

    kind: str
    label: str
    line: str
    is_area: bool = True

    @property
    def area(self) -> str:
        """The area under the line."""
        return geometry.area(self.line)


@dataclass(frozen=True)
class Chart:
    """A chart over time: its lines, its axes, and in words what it shows."""

    title: str
    series: tuple[Series, ...]
    amounts: tuple[geometry.Tick, ...]
    times: tuple[geometry.Tick, ...]
    words: str


@dataclass(frozen=True)
class PoolCharts:
    """The charts of one pool."""

    pool: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Reason:
    """A reason for which pods ended, and how many did."""

    reason: str
    pods: int
    codes: str
    last: str
    is_bad: bool


@dataclass(frozen=True)
class Page:
    """All that the template draws."""

    name: str
    namespace: str
    labels: tuple[tuple[str, str], ...]
    state: str
    headline: str
    tiles: tuple[Tile, ...]
    currency: str
    pool_bars: tuple[Bar, ...]
    causes: tuple[CauseRow, ...]
    total: CauseRow | None
    owners: tuple[Bar, ...]
    charts: tuple[PoolCharts, ...]
    starts: tuple[Bar, ...]
    idle: tuple[Bar, ...]
    reasons: tuple[Reason, ...]
    bad_pods: tuple[EndedPod, ...]
    events: tuple[Event, ...]
    tasks: tuple[Bar, ...]
    errors: tuple[TaskError, ...]
    now: tuple[tuple[str, ...], ...] = ()
    troubles: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)


def page(subject: Subject, now: float, prices: Prices | None = None) -> Page:
    """The page about a cluster at `now`, seconds since 1970."""
    ledger, record = subject.ledger, subject.record or Record()
    by_cause = statement([ledger], ["cause"], prices)
    bad = _bad_pods(record)
    return Page(
        name=ledger.name,
        namespace=ledger.namespace,
        labels=_attribution(subject),
        state=_state(ledger, now),
        headline=_headline(by_cause),
        tiles=_tiles(by_cause, record, len(bad)),
        currency=by_cause.currency,
        pool_bars=_pool_bars(ledger),
        causes=tuple(_cause_row(by_cause, index) for index in range(len(by_cause.rows))),
        total=_total_row(by_cause) if by_cause.rows else None,
        owners=_owner_bars(statement([ledger], ["owner"], prices)),
        charts=_charts(record, ledger, now),
        starts=_start_bars(record.pods),
        idle=_idle_bars(record.pods),
        reasons=_reasons(record.pods),
        bad_pods=tuple(bad[:_MOST_BAD]),
        events=_latest_events(record.events),
        tasks=_task_bars(record.tasks),
        errors=tuple(sorted(record.errors, key=lambda error: -(error.at or 0.0))),
        now=_now(subject.body),
        troubles=_troubles(subject.body),
        notes=_notes(subject, by_cause),
    )


def _attribution(subject: Subject) -> tuple[tuple[str, str], ...]:
    """What the costs are attributed to: a cluster that is there has labels for other things, too."""
    shown = untrusted.texts(subject.body, "metadata", "labels")
    wanted = {key: value for key, value in subject.ledger.labels.items() if "/" not in key or key in shown}
    return tuple(sorted((key, value) for key, value in wanted.items() if "kubernetes.io" not in key))[:_MOST_ROWS]


def _state(ledger: ClusterLedger, now: float) -> str:
    if ledger.ended is not None:
        lived = f", after {duration(ledger.ended - ledger.began)}" if ledger.began is not None else ""
        return f"ended {stamp(ledger.ended)} UTC{lived}"
    if ledger.began is None:
        return "there"
    return f"there since {stamp(ledger.began)} UTC, for {duration(max(0.0, now - ledger.began))}"


def _headline(by_cause: Statement) -> str:
    """What matters most, in a sentence or two."""
    total = by_cause.total
    if not by_cause.rows:
        return "No pod of it has held a GPU."
    said = f"{percent(total.share)} of {hours(total.hours)} GPU-hours worked."
    lost = [row for row in by_cause.rows if row.keys[0] != WORKING]
    if not lost:
        return said
    most = max(lost, key=lambda row: row.gpu_seconds)
    share = most.gpu_seconds / total.gpu_seconds
    cost = f", {money(most.money, by_cause.currency)}" if most.money else ""
    return f"{said} The largest loss: {words(most.keys[0])}, {hours(most.hours)} GPU-hours ({percent(share)}){cost}."


def _tiles(by_cause: Statement, record: Record, bad: int) -> tuple[Tile, ...]:
    total = by_cause.total
    tiles = [
        Tile("GPU-hours held", hours(total.hours), f"{hours(total.hours_worked)} of them worked"),
        Tile("Share that worked", percent(total.share) if by_cause.rows else NOTHING, "of the GPU-hours held"),
    ]
    if total.money is not None:
        idle = money(total.money_idle, by_cause.currency)
        tiles.append(Tile("Cost of the GPUs", money(total.money, by_cause.currency), f"{idle} of it idle"))
    if record.pods:
        tiles.append(Tile("Pods that ended badly", str(bad), f"of {len(record.pods)} that ended last", is_bad=bad > 0))
    if record.tasks:
        erred, tasks = sum(each.erred for each in record.tasks), sum(each.tasks for each in record.tasks)
        tiles.append(
            Tile("Tasks that failed", geometry.short(erred), f"beside {geometry.short(tasks)} done", is_bad=erred > 0)
        )
    return tuple(tiles)


def kind(cause: str) -> str:
    """The look of a cause: its name where it is a known one, so that nobody writes a class of their own."""
    return cause if cause in CAUSES else "unknown"


def _cause_parts(causes: Mapping[str, float]) -> tuple[Part, ...]:
    ordered = sorted(((cause, seconds) for cause, seconds in causes.items() if seconds > 0), key=lambda c: rank(c[0]))
    places = geometry.shares([seconds for _, seconds in ordered])
    return tuple(
        Part(kind(cause), begin, width, f"{words(cause)}: {duration(seconds)}, {percent(width / 100)}")
        for (cause, seconds), (begin, width) in zip(ordered, places, strict=True)
    )


def _pool_bars(ledger: ClusterLedger) -> tuple[Bar, ...]:
    return tuple(
        Bar(pool.name, f"{percent(pool.worked / pool.held)} worked", _cause_parts(pool.causes), _gpu_time(pool.held))
        for pool in ledger.pools
        if pool.held > 0
    )


def _gpu_time(seconds: float) -> str:
    return f"{hours(Decimal(repr(seconds)) / 3600)} GPU-hours"


def _cause_row(by_cause: Statement, index: int) -> CauseRow:
    row, (cause,) = by_cause.rows[index], by_cause.rows[index].keys
    share = row.gpu_seconds / by_cause.total.gpu_seconds
    known = CAUSES.get(cause)
    return CauseRow(
        kind(cause),
        words(cause),
        hours(row.hours),
        percent(share),
        money(row.money, by_cause.currency),
        known.meaning if known else "",
        known.advice if known and share >= _WORTH_ADVICE else "",
    )


def _total_row(by_cause: Statement) -> CauseRow:
    total = by_cause.total
    return CauseRow("", "all", hours(total.hours), "100%", money(total.money, by_cause.currency), "", "")


def _owner_bars(by_owner: Statement) -> tuple[Bar, ...]:
    """The owners of what worked, the largest first; those behind the tenth together."""
    rows = [row for row in by_owner.rows if row.keys[0] != IDLE and row.hours_worked > 0]
    if not any(row.keys[0] for row in rows):
        return ()
    worked = sum((row.hours_worked for row in rows), Decimal())
    listed = [(row.keys[0] or "without an owner", row.hours_worked, row.money_worked) for row in rows[:_MOST_ROWS]]
    if rest := rows[_MOST_ROWS:]:
        paid = sum((row.money_worked or Decimal() for row in rest), Decimal()) if by_owner.currency else None
        listed.append((count(len(rest), "other"), sum((row.hours_worked for row in rest), Decimal()), paid))
    return tuple(
        Bar(
            name,
            f"{hours(amount)} GPU-hours",
            (Part(WORKING, 0.0, round(float(amount / worked) * 100, 3), percent(float(amount / worked))),),
            " \N{MIDDLE DOT} ".join(
                part for part in (percent(float(amount / worked)), money(paid, by_owner.currency)) if part
            ),
        )
        for name, amount, paid in listed
    )


def _charts(record: Record, ledger: ClusterLedger, now: float) -> tuple[PoolCharts, ...]:
    times = [size.at for sizes in record.sizes.values() for size in sizes]
    if not times:
        return ()
    end = ledger.ended if ledger.ended is not None else record.updated or now
    span = geometry.Span(min(times), max(end, *times, min(times) + 1))
    return tuple(PoolCharts(name, _pool_charts(name, sizes, span)) for name, sizes in record.sizes.items())


def _pool_charts(name: str, sizes: Sequence[Size], span: geometry.Span) -> tuple[Chart, ...]:
    has_gpus = any(size.gpus_held for size in sizes)
    pods = _chart(f"Pods of {name}", sizes, span, [("area-ready", "ready"), ("line-desired", "desired")])
    tasks = _chart(f"Tasks for {name}", sizes, span, [("area-waiting", "waiting"), ("line-running", "running")])
    if not has_gpus:
        return (pods, tasks)
    gpus = _chart(f"GPUs of {name}", sizes, span, [("area-held", "gpus_held"), ("area-busy", "gpus_busy")])
    return (gpus, pods, tasks)


_LABELS = {"gpus_held": "held", "gpus_busy": "busy"}


def _chart(title: str, sizes: Sequence[Size], span: geometry.Span, shown: list[tuple[str, str]]) -> Chart:
    """A chart of some of the amounts of `Size`, each with its look."""
    times = [size.at for size in sizes]
    columns = {name: [float(getattr(size, name)) for size in sizes] for _, name in shown}
    highest = geometry.top([value for values in columns.values() for value in values])
    series = [
        Series(
            look,
            _LABELS.get(name, name),
            geometry.steps(times, columns[name], span, highest),
            is_area=look.startswith("area"),
        )
        for look, name in shown
    ]
    most = ", ".join(f"at most {geometry.short(max(columns[name]))} {_LABELS.get(name, name)}" for _, name in shown)
    return Chart(
        title,
        tuple(series),
        tuple(geometry.amount_ticks(highest)),
        tuple(geometry.time_ticks(span)),
        f"{title}, from {stamp(span.begin)} to {stamp(span.end)} UTC: {most}.",
    )


def _start_bars(pods: Sequence[EndedPod]) -> tuple[Bar, ...]:
    known = [(pod.start_seconds, pod) for pod in pods if pod.pool and pod.start_seconds is not None]
    slowest = sorted(known, key=lambda pair: (-(pair[0] or 0.0), pair[1].pod))[:_MOST_ROWS]
    longest = max((seconds or 0.0 for seconds, _ in slowest), default=0.0)
    return tuple(
        Bar(
            pod.pod,
            duration(seconds),
            (Part("starting", 0.0, _percent(seconds or 0.0, longest), duration(seconds)),),
            f"{stamp(pod.created)}, on {pod.node or 'no node'}",
        )
        for seconds, pod in slowest
    )


def _idle_bars(pods: Sequence[EndedPod]) -> tuple[Bar, ...]:
    most = sorted((pod for pod in pods if pod.idle > 0), key=lambda pod: (-pod.idle, pod.pod))[:_MOST_ROWS]
    longest = max((pod.idle for pod in most), default=0.0)
    bars = []
    for pod in most:
        idle = _idle_of(pod)
        scale = pod.idle / longest
        parts = (replace(part, begin=part.begin * scale, width=part.width * scale) for part in _cause_parts(idle))
        why = f"mostly {words(max(idle, key=lambda cause: idle[cause]))}, on {pod.node or 'no node'}"
        bars.append(Bar(pod.pod, f"{duration(pod.idle)} idle", tuple(parts), why))
    return tuple(bars)


def _idle_of(pod: EndedPod) -> dict[str, float]:
    return {cause: seconds for cause, seconds in pod.gpu_seconds.items() if cause != WORKING}


def _percent(part: float, whole: float) -> float:
    return round(part / whole * 100, 3) if whole > 0 else 0.0


def _is_bad(pod: EndedPod) -> bool:
    return pod.reason not in _HARMLESS


def _bad_pods(record: Record) -> list[EndedPod]:
    """The pods that did not end as it was meant, the last one first."""
    return sorted((pod for pod in record.pods if _is_bad(pod)), key=lambda pod: (-(pod.ended or 0.0), pod.pod))


def _reasons(pods: Sequence[EndedPod]) -> tuple[Reason, ...]:
    found = Counter(pod.reason for pod in pods)
    rows = []
    for reason, number in found.most_common():
        those = [pod for pod in pods if pod.reason == reason]
        codes = sorted({pod.exit_code for pod in those if pod.exit_code is not None})
        last = max((pod.ended for pod in those if pod.ended is not None), default=None)
        told = ", ".join(map(str, codes[:5])) or NOTHING
        rows.append(Reason(reason or "not told", number, told, stamp(last), _is_bad(those[0])))
    return tuple(sorted(rows, key=lambda row: (not row.is_bad, -row.pods, row.reason)))


def _latest_events(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: -(event.at or 0.0))[:_MOST_EVENTS])


def _task_bars(tasks: Sequence[Prefix]) -> tuple[Bar, ...]:
    longest = max((each.seconds for each in tasks), default=0.0)
    return tuple(
        Bar(
            each.prefix,
            duration(each.seconds),
            (Part("task", 0.0, _percent(each.seconds, longest), duration(each.seconds)),),
            count(each.tasks, "task") + (f", {geometry.short(each.erred)} failed" if each.erred else ""),
        )
        for each in tasks[:_MOST_ROWS]
    )


def _now(body: Json | None) -> tuple[tuple[str, ...], ...]:
    """The pools of a cluster that is there: pods, GPUs, tasks, and why it has this size."""
    rows = []
    for pool in untrusted.objects(body, "status", "pools", most=_MOST_ROWS * 5):
        if is_past(pool):
            continue
        held = untrusted.amount(pool, "gpusHeld")
        why = [untrusted.text(pool, key, length=300) for key in ("reason", "message", "held", "leaving")]
        rows.append(
            (
                untrusted.name(pool, "name"),
                f"{untrusted.amount(pool, 'ready'):.0f} of {untrusted.amount(pool, 'desired'):.0f}",
                f"{untrusted.amount(pool, 'gpusBusy'):.0f} of {held:.0f}" if held else NOTHING,
                geometry.short(untrusted.amount(pool, "demand", "waiting")),
                geometry.short(untrusted.amount(pool, "demand", "running")),
                "; ".join(part for part in why if part),
            )
        )
    return tuple(rows)


def _troubles(body: Json | None) -> tuple[str, ...]:
    """The conditions of a cluster that is there which are not as they should be."""
    found = []
    for item in untrusted.objects(body, "status", "conditions", most=50):
        about, holds = untrusted.text(item, "type", length=63), untrusted.text(item, "status", length=7)
        if about != "Ready" and holds == ("True" if about == "Degraded" else "False"):
            reason, message = untrusted.text(item, "reason", length=63), untrusted.text(item, "message", length=600)
            found.append(f"{about} is {holds}, {reason}: {message}")
    return tuple(found)


def _notes(subject: Subject, by_cause: Statement) -> tuple[str, ...]:
    notes = []
    if subject.record is None:
        notes.append(
            "This cluster has no record, which would tell of its sizes over time, of pods that ended, tasks and events."
        )
    elif subject.record.report:
        notes.append(f"Dask's performance report: {subject.record.report}")
    if by_cause.unpriced:
        notes.append(f"Without a price, counted as 0: {', '.join(by_cause.unpriced)}")
    if by_cause.rows and not by_cause.total.hours:
        notes.append("All of it is less than 0.01 GPU-hours.")
    return tuple(notes)
