"""A pod of the API server, reduced to what a pass reads."""

from __future__ import annotations

from typing import Any

from gpudask.planning.observed import Ended, Retirement
from gpudask.planning.reduce import observe_pod, owner_uid

Json = dict[str, Any]


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
            "ownerReferences": [{"kind": "GpuDaskCluster", "uid": "c", "controller": True}],
        },
        "spec": {"nodeName": "n"},
        "status": status or {},
    }


def container(state: Json, **fields: Any) -> Json:
    sidecar = {"name": "sidecar", "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}
    return {"containerStatuses": [sidecar, {"name": "dask", "state": state, **fields}]}


def test_a_retirement_survives_the_way_through_its_annotation():
    retirement = Retirement("idle", if_idle=True, release=True)
    assert observe_pod(body(retire=retirement.dump())).retirement == retirement


def test_an_annotation_written_by_hand_retires_the_pod_all_the_same():
    assert observe_pod(body(retire="please")).retirement == Retirement("asked for by annotation")
    assert observe_pod(body(retire="[1]")).retirement == Retirement("asked for by annotation")


def test_a_pod_says_how_many_gpus_it_was_made_with():
    assert observe_pod(body(gpus="4")).gpus == 4
    assert (observe_pod(body()).gpus, observe_pod(body(gpus="many")).gpus) == (0, 0)


def test_only_the_main_container_counts_as_running():
    assert not observe_pod(body(container({"waiting": {"reason": "ContainerCreating"}}))).running
    assert observe_pod(body(container({"running": {"startedAt": "2026-01-01T00:00:05Z"}}))).running


def test_starting_is_no_trouble_and_a_missing_image_is():
    assert observe_pod(body(container({"waiting": {"reason": "PodInitializing"}}))).waiting == ""
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    assert observe_pod(body(container(waiting))).waiting == "ErrImagePull: not found"


def test_the_last_end_is_kept():
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": "x" * 5000}}
    found = observe_pod(body(container({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended)))
    assert found.ended == Ended("OOMKilled", 137, "x" * 1024)
    evicted = observe_pod(body({"phase": "Failed", "reason": "Evicted", "message": "disk"}))
    assert evicted.ended == Ended("Evicted", 0, "disk")


def test_the_schedulers_words_are_kept():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    assert observe_pod(body({"conditions": [condition]})).unschedulable == "0/3 nodes"


def test_an_object_belongs_to_the_cluster_that_controls_it():
    assert owner_uid({"ownerReferences": [{"kind": "GpuDaskCluster", "uid": "c"}]}) == ""
    assert owner_uid({"ownerReferences": [{"kind": "ReplicaSet", "uid": "r", "controller": True}]}) == ""
    assert owner_uid({}) == ""
