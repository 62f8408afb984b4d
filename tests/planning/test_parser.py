"""A pod of the API server, reduced to what a pass reads."""

from __future__ import annotations

from gpudask.api import Json

import json
import sys
from typing import Any

import pytest

from gpudask.desired.scheduler import MadeWith, scheduler_pod
from gpudask.planning.observed.fields import UnreadableError
from gpudask.planning.observed.pods import Ended, Pod, Retirement
from gpudask.planning.observed.parser import parse_pod, owner_key
from gpudask.api.status import iso
from tests.builders import a_cluster


OWNER = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCluster", "uid": "c", "controller": True}


def body(status: Json | None = None, **annotations: str) -> Json:
    names = {key.replace("_", "-"): value for key, value in annotations.items()}
    return {
        "metadata": {
            "uid": "u",
            "name": "demo-gpu-worker-0",
            "namespace": "default",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"gpudask.dev/pool": "gpu"},
            "annotations": {f"gpudask.dev/{key}": value for key, value in names.items()},
            "ownerReferences": [OWNER],
        },
        "spec": {"nodeName": "n"},
        "status": status or {},
    }


def container(state: Json, **fields: Any) -> Json:
    sidecar = {"name": "sidecar", "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}
    return {"containerStatuses": [sidecar, {"name": "dask", "state": state, **fields}]}


def test_a_retirement_survives_the_way_through_its_annotation():
    retirement = Retirement("idle", if_idle=True, release=True)
    assert parse_pod(body(retire=retirement.dump())).retirement == retirement


def test_an_annotation_written_by_hand_retires_the_pod_all_the_same():
    assert parse_pod(body(retire="please")).retirement == Retirement("asked for by annotation")
    assert parse_pod(body(retire="[1]")).retirement == Retirement("asked for by annotation")


def test_a_pod_says_how_many_gpus_it_was_made_with():
    assert parse_pod(body(gpus="4")).gpus == 4
    assert (parse_pod(body()).gpus, parse_pod(body(gpus="many")).gpus) == (0, 0)


MADE_WITH = MadeWith("registry.example/dask:1", "registry.example/scheduler:1", "tls")


def test_what_a_scheduler_was_made_with_survives_the_way_through_its_annotation():
    assert parse_pod(body(made_with=MADE_WITH.dump())).made_with == MADE_WITH
    assert parse_pod(body()).made_with is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[" * 5000,
        '"tcp"',
        json.dumps({"image": "a", "schedulerImage": "a", "protocol": "smoke"}),
        json.dumps({"image": "a", "schedulerImage": "a", "protocol": ["tcp"]}),
        json.dumps({"image": "", "schedulerImage": "a", "protocol": "tcp"}),
        json.dumps({"image": "a", "schedulerImage": None, "protocol": "tcp"}),
        json.dumps({"image": "a" * 513, "schedulerImage": "a", "protocol": "tcp"}),
        json.dumps({"image": "\ud800", "schedulerImage": "a", "protocol": "tcp"}),
    ],
)
def test_a_scheduler_that_says_what_no_spec_can_was_made_with_nobody_knows_what(text: str):
    assert parse_pod(body(made_with=text)).made_with is None


def test_a_scheduler_pod_says_whose_code_it_mounts_whichever_version_made_it():
    pod = body()
    assert parse_pod(pod).preload == ""
    ours = {"name": "gpudask-preload", "configMap": {"name": "demo-gpudask-preload-1"}}
    pod["spec"]["volumes"] = [{"name": "data", "configMap": {"name": "other"}}, ours]
    assert parse_pod(pod).preload == "demo-gpudask-preload-1"
    made = scheduler_pod(a_cluster(), "demo-scheduler-1", "gpudask-preload-2")
    made["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    assert parse_pod(made).preload == "gpudask-preload-2"


def test_only_the_main_container_counts_as_running():
    assert not parse_pod(body(container({"waiting": {"reason": "ContainerCreating"}}))).running
    assert parse_pod(body(container({"running": {"startedAt": "2026-01-01T00:00:05Z"}}))).running


def test_starting_is_no_trouble_and_a_missing_image_is():
    assert parse_pod(body(container({"waiting": {"reason": "PodInitializing"}}))).waiting == ""
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    assert parse_pod(body(container(waiting))).waiting == "ErrImagePull: not found"


def test_the_last_end_is_kept():
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": "x" * 5000}}
    found = parse_pod(body(container({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended)))
    assert found.ended == Ended("OOMKilled", 137, "x" * 1024)
    evicted = parse_pod(body({"phase": "Failed", "reason": "Evicted", "message": "disk"}))
    assert evicted.ended == Ended("Evicted", 0, "disk", is_container=False)
    assert (evicted.status_reason, evicted.status_message, evicted.disruption) == ("Evicted", "disk", "")


def test_of_two_ends_the_present_one_is_the_last():
    before, now = ({"terminated": {"reason": "Error", "exitCode": code}} for code in (1, 2))
    found = parse_pod(body(container(now, lastState=before)))
    assert found.ended == Ended("Error", 2)


def test_who_ends_a_pod_for_anothers_sake_is_kept():
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    assert parse_pod(body({"conditions": [condition]})).disruption == "EvictionByEvictionAPI"
    assert parse_pod(body({"conditions": [condition | {"status": "False"}]})).disruption == ""


def test_the_schedulers_words_are_kept():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    assert parse_pod(body({"conditions": [condition]})).unschedulable == "0/3 nodes"


ASKED = Retirement("asked for by annotation")


def in_time(at: object) -> str:
    return json.dumps({"why": "idle", "ifIdle": False, "release": False, "at": at})


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        '{"why":' * 800 + "1" + "}" * 800,
        json.dumps({"why": [[[]]], "ifIdle": True, "release": False}),
        json.dumps({"why": "x" * 5000, "ifIdle": True, "release": False}),
        '"why"',
        "null",
        "9" * 5000,
    ],
    ids=["nested deep", "objects nested deep", "no text", "too long", "a string", "null", "many digits"],
)
def test_nonsense_in_the_annotation_of_a_retirement_retires_the_pod_all_the_same(text: str):
    assert parse_pod(body(retire=text)).retirement == ASKED


@pytest.mark.parametrize(
    "at",
    [10**400, 1e308, -5, float("inf"), float("nan"), "soon", None, [], 253402300800],
    ids=["400 digits", "huge", "negative", "infinite", "no number", "a word", "null", "a list", "the year 10000"],
)
def test_a_drain_that_began_at_no_moment_is_told_without_trouble(at: object):
    retirement = parse_pod(body(retire=in_time(at))).retirement
    assert retirement is not None
    assert retirement.why == "idle"
    assert iso(retirement.at) <= "9999-12-31T23:59:59.000Z"


def test_why_a_pod_leaves_is_one_line_of_a_log():
    forged = json.dumps({"why": "idle\n[2026-01-01] gpudask [ERROR] forged\r\x1b[31m", "ifIdle": True, "release": True})
    retirement = parse_pod(body(retire=forged)).retirement
    assert retirement is not None
    assert retirement.why == "idle [2026-01-01] gpudask [ERROR] forged"


def test_half_a_character_is_replaced_where_it_would_be_sent_on():
    retirement = parse_pod(body(retire='{"why": "\\ud800!", "ifIdle": true, "release": true}')).retirement
    assert retirement is not None
    assert retirement.why == "?!"


@pytest.mark.parametrize("text", ["9" * 5000, "-1", "1e3", "\u0665", "99999", " 4", ""])
def test_a_number_of_gpus_that_is_none_is_as_good_as_no_annotation(text: str):
    assert parse_pod(body(gpus=text)).gpus == 0


def changed(path: str, value: object) -> Json:
    """The pod with `value` at `path`."""
    pod = body(container({"running": {"startedAt": "2026-01-01T00:00:05Z"}}))
    of, keys = pod, path.split(".")
    for key in keys[:-1]:
        of = of.setdefault(key, {})
    of[keys[-1]] = value
    return pod


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("metadata", [], "metadata: expected an object, got list"),
        ("metadata.labels", ["gpudask.dev/pool"], "labels: expected an object, got list"),
        ("metadata.labels", {"gpudask.dev/pool": 5}, "gpudask.dev/pool: expected a string, got int"),
        ("metadata.annotations", {"gpudask.dev/retire": 5}, "gpudask.dev/retire: expected a string, got int"),
        ("metadata.annotations", {"gpudask.dev/spec-hash": {}}, "gpudask.dev/spec-hash: expected a string, got dict"),
        ("metadata.uid", None, "uid: expected 1 to 253 characters, got nothing"),
        ("metadata.name", "x" * 254, "name: expected 1 to 253 characters, got str"),
        ("metadata.resourceVersion", 7, "resourceVersion: expected a number of at most 20 digits, got int"),
        ("metadata.resourceVersion", "9" * 5000, "resourceVersion: expected a number of at most 20 digits, got str"),
        ("metadata.resourceVersion", "\u0665", "resourceVersion: expected a number of at most 20 digits, got str"),
        ("metadata.creationTimestamp", "soon", "creationTimestamp: expected a time such as 2026-12-01T18:00:00Z"),
        ("metadata.deletionTimestamp", 10**20, "deletionTimestamp: expected a time, got int"),
        ("metadata.finalizers", "x", "finalizers: expected a list of strings, got str 'x'"),
        ("metadata.ownerReferences", {}, "ownerReferences: expected a list, got dict"),
        ("metadata.ownerReferences", ["x"], "ownerReferences: expected a list of objects, got str 'x'"),
        ("status", "Running", "status: expected an object, got str 'Running'"),
        ("status.conditions", ["Ready"], "conditions: expected a list of objects, got str 'Ready'"),
        ("status.containerStatuses", 5, "containerStatuses: expected a list, got int"),
        ("spec", 5, "spec: expected an object, got int"),
    ],
)
def test_an_object_of_another_shape_is_refused_with_the_field(path: str, value: object, told: str):
    with pytest.raises(UnreadableError) as caught:
        parse_pod(changed(path, value))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0001-01-01T00:00:00Z", "1970-01-01T00:00:01"), ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59")],
)
def test_times_at_the_ends_of_the_calendar_are_moments_that_can_be_told(text: str, shown: str):
    pod = parse_pod(changed("metadata.deletionTimestamp", text))
    assert pod.deleting
    assert iso(pod.delete_by).startswith(shown)


@pytest.mark.parametrize("running", [{}, {"startedAt": None}, {"startedAt": "0001-01-01T00:00:00Z"}])
def test_a_container_that_runs_since_nobody_knows_when_runs(running: Json):
    assert parse_pod(body(container({"running": running}))).running


def test_nothing_that_is_kept_of_a_pod_is_large():
    huge = "x" * 1_000_000
    pod = body(gpus=huge, retire=huge, dask_name=huge, spec_hash=huge)
    pod["metadata"]["labels"] = {"gpudask.dev/pool": huge, "gpudask.dev/serves": huge}
    pod["metadata"]["finalizers"] = [huge] * 100
    pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] = huge
    pod["spec"]["nodeName"] = huge
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": huge}
    ended = {"terminated": {"reason": huge, "exitCode": 10**30, "message": huge}}
    status = container({"waiting": {"reason": huge, "message": huge}}, lastState=ended, restartCount=10**30)
    pod["status"] = status | {"phase": huge, "podIP": huge, "conditions": [condition]}
    assert size(parse_pod(pod)) < 12_000


def size(pod: Pod) -> int:
    """Bytes of all that a pod's fields hold."""
    values = [getattr(pod, name) for name in Pod.__dataclass_fields__]
    assert pod.ended is not None
    values += [*pod.eviction_annotations, *pod.finalizers, pod.ended.message, pod.ended.reason]
    return sum(sys.getsizeof(value) for value in values)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({}, "default/c"),
        ({"apiVersion": "gpudask.dev/v2"}, "default/c"),
        ({"controller": False}, ""),
        ({"controller": None}, ""),
        ({"controller": "true"}, ""),
        ({"kind": "ReplicaSet"}, ""),
        ({"apiVersion": "evil.example/v1alpha1"}, ""),
        ({"apiVersion": "v1"}, ""),
        ({"apiVersion": "gpudask.dev"}, ""),
        ({"apiVersion": "gpudask.dev.evil/v1"}, ""),
        ({"apiVersion": None}, ""),
    ],
)
def test_an_object_belongs_to_the_cluster_that_controls_it(fields: Json, key: str):
    assert owner_key({"namespace": "default", "ownerReferences": [OWNER | fields]}) == key


def test_an_object_without_an_owner_or_with_two_belongs_to_none():
    other = {"apiVersion": "v1", "kind": "Node", "uid": "n", "controller": True}
    assert owner_key({"namespace": "default"}) == ""
    assert owner_key({"namespace": "default", "ownerReferences": [other, OWNER]}) == ""


def test_the_uid_of_a_cluster_elsewhere_is_no_cluster_of_this_namespace():
    mine, theirs = (owner_key({"namespace": n, "ownerReferences": [OWNER]}) for n in ("mine", "theirs"))
    assert mine != theirs
    forged = owner_key({"namespace": "theirs", "ownerReferences": [OWNER | {"uid": "../mine/c"}]})
    assert not forged.startswith("mine/")


def ended_at(*seconds: int | None) -> Json:
    """A pod of as many containers, and when they ended; None: the kubelet does not say."""
    states = [{"terminated": {"finishedAt": f"2026-01-01T00:00:{at:02}Z"}} if at else {} for at in seconds]
    before = {"terminated": {"finishedAt": "2026-01-01T00:00:01Z", "exitCode": 1}}
    statuses = [{"name": f"c{n}", "state": state, "lastState": before} for n, state in enumerate(states)]
    return {"phase": "Failed", "containerStatuses": statuses}


def test_a_pod_ended_with_the_last_of_its_containers():
    assert iso(parse_pod(body(ended_at(20, 40, 30))).finished_at) == "2026-01-01T00:00:40.000Z"


def test_one_whose_kubelet_could_not_tell_at_once_ended_when_it_did():
    """As while etcd is frozen: until then nobody else gets its GPUs."""
    words: list[Json] = [
        {"manager": "kubelet", "subresource": "status", "time": "2026-01-01T00:00:55Z"},
        {"manager": "kubectl", "time": "2026-01-01T00:01:10Z"},
        {"manager": "kube-scheduler", "subresource": "status", "time": "2026-01-01T00:00:10Z"},
    ]
    ended = body(ended_at(20, 40))
    ended["metadata"]["managedFields"] = words
    assert iso(parse_pod(ended).finished_at) == "2026-01-01T00:00:55.000Z"
    ended["metadata"]["managedFields"] = words[1:]
    assert iso(parse_pod(ended).finished_at) == "2026-01-01T00:00:40.000Z"


@pytest.mark.parametrize(
    "status",
    [ended_at(), ended_at(20, None), ended_at(None), {**ended_at(20), "phase": "Running"}, {"phase": "Failed"}],
)
def test_where_no_kubelet_says_when_a_pod_ended_nobody_knows(status: Json):
    assert parse_pod(body(status)).finished_at == 0.0
