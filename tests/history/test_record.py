"""A record is gone on with, whatever somebody wrote into it, and never gets larger than it may."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api import Json
from gpudask.api.record import (
    MAX_ERRORS,
    MAX_EVENTS,
    MAX_LOG,
    MAX_PODS,
    MAX_PREFIXES,
    MAX_RECORD_BYTES,
    MAX_SAMPLES,
    PoolSample,
    PrefixTasks,
    Record,
    RecordedEvent,
    RecordedPod,
    RecordedPool,
    Sample,
    TaskError,
    dumped,
)
from gpudask.api.reasons import Cause
from gpudask.api.resource import Identity, record_name
from gpudask.api.status import iso
from gpudask.history.ends import PodEnd
from gpudask.history.record import Notes, begun, ends_of, gone_on, read, recorded_pod, rendered, size
from gpudask.history.tasks import TaskHistory
from tests.planning.builders import NOW, cluster, gpu_pool, pod

CLUSTER = Identity("demo", "default", "11111111-1111-1111-1111-111111111111")
EMPTY = begun(CLUSTER, "2027-01-15T08:00:00Z", NOW)


def a_pod(number: int = 0, **fields: Any) -> RecordedPod:
    return RecordedPod.model_validate({"pod": f"demo-gpu-worker-{number}", "uid": f"uid-{number}"} | fields)


def an_event(number: int = 0, message: str = "") -> RecordedEvent:
    return RecordedEvent(at=iso(NOW + number), reason="ScaledUp", message=message or f"{number} pods")


def a_sample(number: int, pools: int = 1) -> Sample:
    rows = [PoolSample(name=f"pool{n}", desired=number, waiting=10**9) for n in range(pools)]
    return Sample(at=iso(NOW + 10 * number, to="seconds"), pools=rows)


def stored(record: Record) -> Json:
    """The object as the API server returns it."""
    return json.loads(json.dumps(rendered(record, CLUSTER, keep_seconds=60.0, version="7")))


def test_a_record_is_read_back_as_it_was_written():
    notes = Notes(pods=[a_pod(log="one\ntwo", exit_code=137)], events=[an_event()], samples=[a_sample(0)])
    notes.history = TaskHistory("S-1", (PrefixTasks(prefix="inc", tasks=3, seconds=1.5),), (TaskError(key="inc-1"),))
    record = gone_on(EMPTY, notes, NOW + 5)
    assert read(stored(record), CLUSTER) == record
    assert (record.began, record.updated) == (iso(NOW, to="seconds"), iso(NOW + 5, to="seconds"))


def test_it_outlives_its_cluster_and_says_whose_it_is():
    metadata = rendered(replace_ended(EMPTY), CLUSTER, keep_seconds=3600.0)["metadata"]
    assert metadata["name"] == record_name(CLUSTER) == "demo-11111111"
    assert "ownerReferences" not in metadata
    assert metadata["labels"]["gpudask.dev/cluster"] == "demo"
    assert metadata["annotations"] == {
        "gpudask.dev/cluster-uid": CLUSTER.uid,
        "gpudask.dev/keep-seconds": "3600",
        "gpudask.dev/ended": "2027-01-15T09:00:00Z",
    }


def replace_ended(record: Record) -> Record:
    return gone_on(record, Notes(ended="2027-01-15T09:00:00Z"), NOW)


def test_the_end_of_a_cluster_stays_the_first_that_was_noted():
    ended = replace_ended(EMPTY)
    assert gone_on(ended, Notes(ended="2028-01-01T00:00:00Z"), NOW).ended == ended.ended


def test_an_end_that_is_noted_again_takes_the_place_of_the_first():
    first = gone_on(EMPTY, Notes(pods=[a_pod(), a_pod(1)]), NOW)
    again = gone_on(first, Notes(pods=[a_pod(log="the rest")]), NOW)
    assert [(pod.uid, pod.log) for pod in again.pods] == [("uid-1", ""), ("uid-0", "the rest")]
    restart = {"restarted": True, "ended": iso(NOW, to="seconds")}
    assert len(gone_on(again, Notes(pods=[a_pod(**restart)]), NOW).pods) == 3, "a container's end is another one"
    assert ends_of(again) == [("uid-1", False, 0), ("uid-0", False, 0)]


def test_tasks_of_an_earlier_scheduler_process_are_added():
    def heard(process: str, tasks: int) -> Notes:
        return Notes(history=TaskHistory(process, (PrefixTasks(prefix="inc", tasks=tasks, seconds=float(tasks)),), ()))

    record = gone_on(EMPTY, heard("S-1", 3), NOW)
    record = gone_on(record, heard("S-1", 5), NOW)
    assert [row.tasks for row in record.tasks] == [5]
    record = gone_on(read(stored(record), CLUSTER) or EMPTY, heard("S-2", 1), NOW)
    record = gone_on(record, heard("S-2", 2), NOW)
    assert [(row.tasks, row.seconds) for row in record.tasks] == [(7, 7.0)]


def test_an_error_that_is_told_again_is_one():
    def error(at: float, key: str = "inc-1") -> Notes:
        return Notes(history=TaskHistory("S-1", (), (TaskError(at=iso(at), key=key, exception="E()"),)))

    record = gone_on(gone_on(EMPTY, error(NOW), NOW), error(NOW + 1), NOW)
    assert len(record.errors) == 1
    record = gone_on(gone_on(record, error(NOW + 60), NOW), error(NOW, "inc-2"), NOW)
    assert len(record.errors) == 3


def test_what_could_not_be_written_is_noted_before_what_came_since():
    late = Notes(pods=[a_pod(0)], events=[an_event(0)], samples=[a_sample(0)], ended="2027-01-15T09:00:00Z")
    both = late.before(Notes(pods=[a_pod(1)], events=[an_event(1)], samples=[a_sample(1)]))
    assert [pod.uid for pod in both.pods] == ["uid-0", "uid-1"]
    assert [event.message for event in both.events] == ["0 pods", "1 pods"]
    assert [sample.pools[0].desired for sample in both.samples] == [0, 1]
    assert both.ended == late.ended


FULL = Notes(
    pods=[a_pod(n, log="\u20ac" * MAX_LOG, message="m" * 400, node="n" * 253, exit_code=137) for n in range(MAX_PODS)],
    events=[an_event(n, f"{n} " + "\u20ac" * 390) for n in range(MAX_EVENTS)],
    samples=[a_sample(n, pools=32) for n in range(MAX_SAMPLES)],
    history=TaskHistory(
        "S-1",
        tuple(PrefixTasks(prefix=f"{n:03}" + "\u20ac" * 250, seconds=float(n)) for n in range(MAX_PREFIXES)),
        tuple(
            TaskError(key=f"{n}", exception="\u20ac" * 400, traceback="\u20ac" * 4000, worker="w" * 253)
            for n in range(MAX_ERRORS)
        ),
    ),
)


def test_the_largest_record_is_no_larger_than_it_may_be():
    record = gone_on(EMPTY, FULL, NOW)
    again = gone_on(record, replace(FULL, history=replace(FULL.history, scheduler_id="S-2")), NOW)  # type: ignore[type-var]
    for each in (record, again):
        assert size(rendered(each, CLUSTER, keep_seconds=60.0)) <= MAX_RECORD_BYTES
    assert again.pods[-1].log, "the newest has its log, or the end of it"
    assert len(again.pods) > 20
    assert again.samples[0].at == iso(NOW, to="seconds"), "what is thinned keeps its beginning"
    assert again.samples[-1].at == a_sample(MAX_SAMPLES - 1).at


FORGED: dict[str, Any] = {
    "nothing": None,
    "a text": "record",
    "a list": [1, 2],
    "another cluster": {"cluster": {"name": "demo", "uid": "another"}},
    "no cluster": {"pods": []},
    "a cluster that is a list": {"cluster": []},
}


@pytest.mark.parametrize("what", FORGED)
def test_what_is_no_record_of_the_cluster_is_none(what: str):
    assert read({"record": FORGED[what]}, CLUSTER) is None


def test_what_fits_of_a_forged_record_stays_and_the_rest_is_left_out():
    body = stored(gone_on(EMPTY, Notes(pods=[a_pod()], events=[an_event()]), NOW))
    body["record"]["pods"] += [3, {"pod": ["x"]}, {"pod": "p", "exitCode": 10**30}, {"pod": "q", "log": "\x1b[2Jhi"}]
    body["record"] |= {"samples": {"a": 1}, "errors": [None] * 10_000, "ended": "never", "tasks": [{"prefix": 1}]}
    record = read(body, CLUSTER)
    assert record is not None
    assert [(pod.pod, pod.log) for pod in record.pods] == [("demo-gpu-worker-0", ""), ("q", "hi")]
    assert (len(record.events), record.samples, record.errors, record.tasks, record.ended) == (1, [], [], [], "")


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_FIELDS = (
    "pods",
    "events",
    "samples",
    "tasks",
    "errors",
    "pools",
    "ended",
    "began",
    "updated",
    "report",
    "tasksBefore",
    "unseenGpus",
)


@given(st.dictionaries(st.sampled_from(_FIELDS), _ANYTHING))
def test_whatever_stands_in_a_record_it_is_gone_on_with(fields: Json):
    forged = {"record": {"cluster": {"name": "demo", "uid": CLUSTER.uid}} | fields}
    record = read(forged, CLUSTER)
    assert record is not None
    after = gone_on(record, Notes(pods=[a_pod()]), NOW)
    assert after.pods[-1].uid == "uid-0"
    assert size(rendered(after, CLUSTER, keep_seconds=60.0)) <= MAX_RECORD_BYTES


def test_the_row_of_a_pod_has_its_times_and_the_gpu_seconds_that_it_held():
    of = cluster(gpu_pool(count=2))
    end = PodEnd(pod(of, "gpu", node="node-1"), NOW, "Error", exit_code=1, log="a\x1b[31mb\nc", held_seconds=50.0)
    row = recorded_pod(end, gpus=2, server_ahead=5.0, seconds={})
    assert (row.created, row.started, row.ended) == tuple(iso(NOW + n, to="seconds") for n in (-95, -85, 0))
    assert [(item.cause, item.gpu_seconds) for item in row.gpu_seconds] == [("unknown", 100.0)]
    assert row.log == "ab\nc"


def test_the_gpu_seconds_of_a_pod_have_their_causes_and_those_before_this_operator_have_none():
    of = pod(cluster(gpu_pool()), "gpu", node="node-1")
    end = PodEnd(of, NOW, "Error", held_seconds=50.0)
    seconds = {Cause.WORKING: 30.0, Cause.DRAINING: 5.0, Cause.SPARE: 0.0}
    row = recorded_pod(end, gpus=1, server_ahead=0.0, seconds=seconds)
    assert {item.cause: item.gpu_seconds for item in row.gpu_seconds} == {
        "working": 30.0,
        "draining": 5.0,
        "unknown": 15.0,
    }


def a_pool_row(name: str, *, is_gone: bool) -> RecordedPool:
    owners = [{"owner": f"team-{number:040}", "gpuSeconds": 1.0} for number in range(20)]
    causes = [{"cause": "working", "gpuSeconds": 20.0}]
    row = {"name": name, "causes": causes, "owners": owners}
    return RecordedPool.model_validate(row | ({"causesBefore": causes, "ownersBefore": owners} if is_gone else {}))


def test_pools_beyond_the_bytes_of_a_record_stay_in_its_sum_and_count_once_when_the_status_has_them():
    cluster = Identity("demo", "lab", "11111111-1111")
    there = [a_pool_row(f"p{number}", is_gone=False) for number in range(20)]
    gone = [a_pool_row(f"old{number}", is_gone=True) for number in range(20)]
    record = begun(cluster, "", 1.0).model_copy(update={"pools": [*there, *gone]})
    for _ in range(3):
        record = gone_on(record, Notes(pools=there), 2.0)
        assert size([dumped(pool) for pool in record.pools]) <= 12_000
        assert (record.pools[0].name, record.pools[-1].name) == ("p0", "")
        assert sum(row.gpu_seconds for pool in record.pools for row in pool.causes) == 800.0
