"""The record of one cluster: read back as hostile input, gone on with by what was noted since, and bounded.

`read` is total: whatever the API server has under a record's name, forged or of another version, what fits stays and
the rest is left out. `written` bounds the whole by a budget of bytes for each part, so that no part pushes another out.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from gpudask.api import Json
from gpudask.api.reasons import Cause
from gpudask.api.record import (
    MAX_COUNT,
    MAX_ERRORS,
    MAX_EVENTS,
    MAX_LOG,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_PODS,
    MAX_POOLS,
    MAX_PREFIXES,
    MAX_SAMPLES,
    Part,
    PrefixTasks,
    Record,
    RecordedCluster,
    RecordedEvent,
    RecordedPod,
    RecordedPool,
    Sample,
    TaskError,
    dumped,
)
from gpudask.api.resource import (
    ANNOTATION_ENDED,
    ANNOTATION_KEEP,
    ANNOTATION_UID,
    API_VERSION,
    LABEL_CLUSTER,
    RECORD_KIND,
    Identity,
    record_name,
)
from gpudask.api.status import epoch, iso
from gpudask.api.untrusted_text import quote, quote_lines
from gpudask.history import pools, samples, tasks
from gpudask.history.ends import PodEnd
from gpudask.history.pools import Ending
from gpudask.history.tasks import TaskHistory
from gpudask.planning.ledger.totals import OTHERS

# Bytes of JSON of each part; together below MAX_RECORD_BYTES.
_POD_BYTES, _SAMPLE_BYTES, _EVENT_BYTES, _ERROR_BYTES = 70_000, 55_000, 24_000, 24_000
_POOL_BYTES, _TASK_BYTES = 12_000, 6_000
_OTHERS_BYTES = 3_500  # of the row of pools that have no room for one: its causes and owners are bounded
# Of what is left for logs the newest one gets this share at most, and so on: the oldest are cut first.
_LOG_SHARE = 8
_SHORTEST_LOG = 20  # characters
_READ_AT_MOST = 4  # times as many items as are kept are looked at, of what somebody may have written
# Of a pod's ledger: what is too little to be told, and how far its stamps, in whole seconds, may differ from it.
_LEAST_SECONDS, _SAME_SECONDS, _UNKNOWN = 0.05, 2.0, "unknown"
_ENDED_UNSEEN = "EndedUnseen"
_SAME_ERROR_SECONDS = 5.0  # ages are told, and two answers differ by what they took

AnyPart = TypeVar("AnyPart", bound=Part)


def ended_unseen(at: str) -> RecordedEvent:
    """The event of a cluster that nobody saw end: `at`, when that was noticed."""
    why = "it was deleted while no operator watched: when is not known"
    return RecordedEvent(at=at, reason=_ENDED_UNSEEN, message=why)


@dataclass(slots=True)
class Notes:
    """What was noted of a cluster since its record was last written: bounded, as the record is.

    `history`: the scheduler's last answer on its tasks. `attribution`: what the cluster's labels and annotations say of
    who pays; None: as before. `ended`: when the cluster was deleted; empty: it is there. `unseen_gpus`: as the
    record's; None: as before. `surplus`: as that of `pools.merged`. `is_whole`: who noted them has seen all pods since
    the status that the counters go on from, and their ends.
    """

    pods: list[RecordedPod] = field(default_factory=list)
    events: list[RecordedEvent] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    history: TaskHistory | None = None
    pools: list[RecordedPool] | None = None
    attribution: dict[str, str] | None = None
    report: str = ""
    ended: str = ""
    unseen_gpus: int | None = None
    surplus: Mapping[str, float] = field(default_factory=dict)
    is_whole: bool = False

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to write."""
        return not (self.pods or self.events or self.samples or self.history or self.report or self.ended)

    def add_pod(self, pod: RecordedPod) -> None:
        """Note the end of a pod."""
        self.pods = _last([*self.pods, pod], MAX_PODS)

    def add_event(self, event: RecordedEvent) -> None:
        """Note an event; one that says the same again takes the place of the first."""
        self.events = _merged_events(self.events, [event])

    def add_sample(self, sample: Sample) -> None:
        """Note a sample."""
        self.samples = samples.thinned([*self.samples, sample], MAX_SAMPLES)

    def before(self, newer: Notes) -> Notes:
        """These notes, which could not be written, with what was noted since."""
        return Notes(
            pods=_last([*self.pods, *newer.pods], MAX_PODS),
            events=_merged_events(self.events, newer.events),
            samples=samples.thinned([*self.samples, *newer.samples], MAX_SAMPLES),
            history=newer.history or self.history,
            pools=newer.pools if newer.pools is not None else self.pools,
            attribution=newer.attribution if newer.attribution is not None else self.attribution,
            report=newer.report or self.report,
            ended=newer.ended or self.ended,
            unseen_gpus=newer.unseen_gpus if newer.unseen_gpus is not None else self.unseen_gpus,
            surplus=newer.surplus if newer.pools is not None else self.surplus,
            is_whole=newer.is_whole if newer.pools is not None else self.is_whole,
        )


def read(body: Json, cluster: Identity) -> Record | None:
    """The record of `cluster` in an object; None where it holds none, or that of another cluster.

    Its texts are cleaned again: what is in it somebody may have written.
    """
    given = body.get("record")
    if not isinstance(given, dict):
        return None
    recorded = _one(RecordedCluster, given.get("cluster"))
    if recorded is None or recorded.uid != cluster.uid or recorded.name != cluster.name:
        return None
    return Record(
        cluster=recorded,
        began=_time(given.get("began")),
        ended=_time(given.get("ended")),
        updated=_time(given.get("updated")),
        unseen_gpus=_count(given.get("unseenGpus")),
        report=_text(given.get("report"), MAX_MESSAGE),
        pools=_many(RecordedPool, given.get("pools"), MAX_POOLS),
        pods=[_clean_pod(pod) for pod in _many(RecordedPod, given.get("pods"), MAX_PODS)],
        events=_many(RecordedEvent, given.get("events"), MAX_EVENTS),
        samples=_many(Sample, given.get("samples"), MAX_SAMPLES),
        tasks=_many(PrefixTasks, given.get("tasks"), MAX_PREFIXES),
        errors=_many(TaskError, given.get("errors"), MAX_ERRORS),
        process=_text(given.get("process"), MAX_NAME),
        tasks_before=_many(PrefixTasks, given.get("tasksBefore"), MAX_PREFIXES),
    )


def begun(cluster: Identity, created: str, now: float) -> Record:
    """The empty record of `cluster`."""
    recorded = RecordedCluster(name=cluster.name, uid=cluster.uid, created=_time(created), attribution={})
    return Record.model_validate({"cluster": recorded, "began": iso(now, to="seconds")})


def ends_of(record: Record) -> list[tuple[str, bool, int]]:
    """The keys of the ends that `record` has, as `PodEnd.key`."""
    return [_key(pod) for pod in record.pods]


def gone_on(record: Record, notes: Notes, now: float, *, is_own: bool = False) -> Record:
    """`record` with `notes`, bounded. `is_own`: it is as who comes with these left it.

    A guess is also replaced by who has seen all.
    """
    history, ending = notes.history, _ending(record)
    is_own = is_own or (notes.is_whole and ending is Ending.GUESSED)
    rows = record.pools
    if notes.pools is not None:
        rows = pools.merged(rows, notes.pools, ending=ending, is_own=is_own, surplus=notes.surplus)
    is_taken = notes.pools is None or pools.are_in(notes.pools, rows)  # else a guess stays, and says so
    before, process = list(record.tasks_before), record.process
    counted, errors = list(record.tasks), list(record.errors)
    if history is not None:
        if history.scheduler_id != process:
            before, process = counted, history.scheduler_id
        counted = tasks.added(before, history.tasks)
        errors = _merged_errors(errors, history.errors)
    return bounded(
        record.model_copy(
            update={
                "updated": iso(now, to="seconds"),
                "ended": record.ended or notes.ended,
                "unseen_gpus": notes.unseen_gpus if notes.unseen_gpus is not None and is_taken else record.unseen_gpus,
                "report": notes.report or record.report,
                "cluster": _attributed(record.cluster, notes.attribution),
                "pools": rows,
                "pods": _merged_pods(record.pods, notes.pods),
                "events": _merged_events(record.events, notes.events),
                "samples": samples.thinned(_ordered([*record.samples, *notes.samples]), MAX_SAMPLES),
                "tasks": counted,
                "errors": errors,
                "process": process,
                "tasks_before": before,
            }
        )
    )


def has_taken(record: Record, notes: Notes) -> bool:
    """Whether `record` has the counters of `notes`, and no others that were thought better."""
    return notes.pools is None or pools.are_in(notes.pools, record.pools)


def _ending(record: Record) -> Ending:
    if not record.ended:
        return Ending.NONE
    is_guess = record.unseen_gpus or any(event.reason == _ENDED_UNSEEN for event in record.events)
    return Ending.GUESSED if is_guess else Ending.TOLD


def bounded(record: Record) -> Record:
    """`record`, with no part larger than its budget: the oldest go first, and of pods their logs before themselves."""
    return record.model_copy(
        update={
            "pools": _pools_within(record.pools),
            "pods": _pods_within(record.pods),
            "events": _last_within(record.events, _EVENT_BYTES),
            "samples": _samples_within(record.samples),
            "tasks": _first_within(record.tasks, _TASK_BYTES),
            "errors": _last_within(record.errors, _ERROR_BYTES),
            "tasks_before": _first_within(record.tasks_before, _TASK_BYTES),
        }
    )


def rendered(record: Record, cluster: Identity, *, keep_seconds: float, version: str = "") -> Json:
    """The object of `record`; it has no owner, so it outlives its cluster.

    `keep_seconds`: for how long after the cluster's end. `version`: of the object that it replaces; empty: a new one.
    """
    annotations = {ANNOTATION_UID: cluster.uid, ANNOTATION_KEEP: f"{keep_seconds:.0f}"}
    if record.ended:
        annotations[ANNOTATION_ENDED] = record.ended
    metadata: Json = {
        "name": record_name(cluster),
        "namespace": cluster.namespace,
        "labels": {LABEL_CLUSTER: cluster.name, "app.kubernetes.io/managed-by": "gpudask"},
        "annotations": annotations,
    }
    if version:
        metadata["resourceVersion"] = version
    return {"apiVersion": API_VERSION, "kind": RECORD_KIND, "metadata": metadata, "record": dumped(record)}


def recorded_pod(end: PodEnd, gpus: int, server_ahead: float, seconds: Mapping[Cause, float]) -> RecordedPod:
    """The row of an end. `gpus`: of the pod. `server_ahead`: by how much its stamps are ahead of the operator's clock.

    `seconds`: the pod's GPU-seconds, since this operator knows it. What is missing of those since it got its node has
    no cause here.
    """
    pod = end.pod
    counted = {str(cause): round(amount, 1) for cause, amount in seconds.items() if amount >= _LEAST_SECONDS}
    missing = round(gpus * end.held_seconds - sum(counted.values()), 1)
    if missing > _SAME_SECONDS or (missing > 0 and not counted):
        counted[_UNKNOWN] = missing
    return RecordedPod.model_validate(
        {
            "pod": pod.name,
            "uid": pod.uid,
            "pool": pod.pool,
            "node": pod.node,
            "created": _stamp(pod.created, server_ahead),
            "started": _stamp(pod.started, server_ahead),
            "ended": iso(end.at, to="seconds"),
            "restarted": end.restarted,
            "reason": quote(end.reason, 63),
            "message": quote(end.message, MAX_MESSAGE),
            "exit_code": end.exit_code,
            "log": quote_lines(end.log, MAX_LOG),
            "gpu_seconds": [{"cause": cause, "gpuSeconds": amount} for cause, amount in counted.items()],
        }
    )


def size(part: Any) -> int:
    """The bytes of JSON of a part of a record."""
    return len(json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))


def _attributed(cluster: RecordedCluster, attribution: dict[str, str] | None) -> RecordedCluster:
    return cluster if attribution is None else cluster.model_copy(update={"attribution": attribution})


def _stamp(seconds: float, ahead: float) -> str:
    return iso(seconds + ahead, to="seconds") if seconds else ""


@functools.cache
def _list_of(model: type[AnyPart]) -> TypeAdapter[list[AnyPart]]:
    return TypeAdapter(list[model])  # type: ignore[valid-type]


def _one(model: type[AnyPart], value: Any) -> AnyPart | None:
    try:
        return model.model_validate(value)
    except (ValidationError, RecursionError):
        return None


def _many(model: type[AnyPart], value: Any, at_most: int) -> list[AnyPart]:
    """The items of a list that fit, the last of them."""
    if not isinstance(value, list):
        return []
    with contextlib.suppress(ValidationError, RecursionError):  # nearly always: nobody wrote it but the operator
        return _list_of(model).validate_python(value[-at_most:])
    items = (_one(model, item) for item in value[-_READ_AT_MOST * at_most :])
    return [item for item in items if item is not None][-at_most:]


def _clean_pod(pod: RecordedPod) -> RecordedPod:
    return pod.model_copy(update={"log": quote_lines(pod.log, MAX_LOG), "message": quote(pod.message, MAX_MESSAGE)})


def _time(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= 40 and epoch(value) is not None else ""  # noqa: PLR2004


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT else 0


def _text(value: Any, length: int) -> str:
    return quote(value, length) if isinstance(value, str) else ""


def _key(pod: RecordedPod) -> tuple[str, bool, int]:
    return pod.uid or pod.pod, pod.restarted, int(epoch(pod.ended) or 0) if pod.restarted else 0


def _last(items: Sequence[AnyPart], at_most: int) -> list[AnyPart]:
    return list(items[-at_most:])


def _merged_pods(before: Iterable[RecordedPod], more: Iterable[RecordedPod]) -> list[RecordedPod]:
    """Both, the ends of one key once: what was noted later says more, but for what it lacks."""
    rows: dict[tuple[str, bool, int], RecordedPod] = {}
    for pod in (*before, *more):
        known = rows.pop(_key(pod), None)
        rows[_key(pod)] = pod if known is None else _with_earlier(pod, known)
    return _last(list(rows.values()), MAX_PODS)


def _with_earlier(pod: RecordedPod, known: RecordedPod) -> RecordedPod:
    """`pod` with the log and the exit code of an earlier row, where it has none: its writer came too late for them."""
    known_log = {"log": known.log, "message": known.message} if known.log and not pod.log else {}
    known_code = {"exit_code": known.exit_code} if pod.exit_code is None else {}
    return pod.model_copy(update={**known_log, **known_code})


def _merged_events(before: Iterable[RecordedEvent], more: Iterable[RecordedEvent]) -> list[RecordedEvent]:
    """Both; one that says the same as an earlier one takes its place."""
    rows: dict[tuple[str, str], RecordedEvent] = {}
    for event in (*before, *more):
        rows.pop((event.reason, event.message), None)
        rows[event.reason, event.message] = event
    return _last(list(rows.values()), MAX_EVENTS)


def _merged_errors(before: Sequence[TaskError], more: Iterable[TaskError]) -> list[TaskError]:
    new = [error for error in more if not any(_is_same(error, known) for known in before)]
    return _last([*before, *new], MAX_ERRORS)


def _is_same(one: TaskError, other: TaskError) -> bool:
    if (one.key, one.exception) != (other.key, other.exception):
        return False
    return abs((epoch(one.at) or 0.0) - (epoch(other.at) or 0.0)) <= _SAME_ERROR_SECONDS


def _ordered(rows: list[Sample]) -> list[Sample]:
    return sorted(rows, key=lambda sample: epoch(sample.at) or 0.0)


def _within(items: Iterable[AnyPart], budget: int) -> list[AnyPart]:
    kept = []
    for item in items:
        budget -= _cost(item)
        if budget < 0:
            break
        kept.append(item)
    return kept


def _total(items: Sequence[Part]) -> int:
    return size([dumped(item) for item in items])


def _cost(item: Part) -> int:
    return size(dumped(item)) + 1


def _first_within(items: Sequence[AnyPart], budget: int) -> list[AnyPart]:
    return list(items) if _total(items) <= budget else _within(items, budget)


def _last_within(items: Sequence[AnyPart], budget: int) -> list[AnyPart]:
    return list(items) if _total(items) <= budget else _within(reversed(items), budget)[::-1]


def _samples_within(items: Sequence[Sample]) -> list[Sample]:
    """Thinned until they fit."""
    total = _total(items)
    if total <= _SAMPLE_BYTES:
        return list(items)
    kept = samples.thinned(items, max(2, len(items) * _SAMPLE_BYTES // total))
    return _last_within(kept, _SAMPLE_BYTES)


def _pools_within(rows: Sequence[RecordedPool]) -> list[RecordedPool]:
    """Those that are gone go into one row, the last first; then owners, and then others go, which the status has."""
    left = _POOL_BYTES - _total(rows)
    if left >= 0:
        return list(rows)
    left -= _OTHERS_BYTES
    kept: list[RecordedPool] = []
    more: list[RecordedPool] = []
    for row in reversed(rows):
        if row.name == OTHERS or (left < 0 and pools.is_closed(row)):
            more.append(row)
            left += _cost(row)
        else:
            kept.insert(0, row)
    for index in reversed(range(len(kept))):
        if left < 0:
            bare = kept[index].model_copy(update={"owners": [], "owners_before": []})
            left += _cost(kept[index]) - _cost(bare)
            kept[index] = bare
    while left < 0 and kept:
        more.append(kept.pop())
        left += _cost(more[-1])
    return [*kept, *pools.in_one(more)]


def _pods_within(pods: Sequence[RecordedPod]) -> list[RecordedPod]:
    """The rows without their logs, as many as fit; then the logs, the newest first, each a share of the rest."""
    if _total(pods) <= _POD_BYTES:
        return list(pods)
    bare = _last_within([pod.model_copy(update={"log": ""}) for pod in pods], _POD_BYTES // 2)
    left = _POD_BYTES - sum(_cost(pod) for pod in bare)
    kept: list[RecordedPod] = []
    for pod in reversed(pods[len(pods) - len(bare) :] if bare else []):
        log = _end_within(pod.log, max(0, left // _LOG_SHARE))
        left -= size(log)
        kept.append(pod.model_copy(update={"log": log}))
    return kept[::-1]


def _end_within(text: str, budget: int) -> str:
    """The end of `text` that takes no more bytes of JSON; nothing where that is no line's worth."""
    while text and (taken := size(text)) > budget:
        length = len(text) * budget // taken - 1
        text = quote_lines(text, length) if length >= _SHORTEST_LOG else ""
    return text
