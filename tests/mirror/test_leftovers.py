"""When what the stock operator left of a cluster may be replaced: tables."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpudask.api import Json
from gpudask.api.reasons import Reason
from gpudask.clients.kubernetes import Kubernetes
from gpudask.mirror import objects
from gpudask.mirror.leftovers import (
    IDLE_SECONDS,
    IDLE_WITH_CLIENTS_SECONDS,
    Heard,
    Leftovers,
    OldPod,
    decide,
    ending_message,
    needs_answer,
    read,
    reduced_pod,
)
from gpudask.mirror.state import MirrorObject
from gpudask.mirror.takeover import Takeover
from tests.mirror.builders import group

CLUSTER = MirrorObject(
    uid="c", name="demo", kind=objects.CLUSTER, owner="default/demo", controller="", version="1", foreign=True
)
JOBS = replace(CLUSTER, references=({"kind": "DaskJob", "name": "demo", "uid": "j"},))
LONG, SHORT = IDLE_SECONDS, IDLE_SECONDS - 1


def owner(kind: str, uid: str, **more: Any) -> Json:
    return {"apiVersion": "kubernetes.dask.org/v1", "kind": kind, "name": "demo", "uid": uid, "controller": True} | more


def made(name: str, *owners: Json, **metadata: Any) -> Json:
    """The metadata of an object, as a list has them."""
    known = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"}
    return {"metadata": known | {"ownerReferences": list(owners)} | metadata}


def a_pod(component: str, kind: str = "ReplicaSet", uid: str = "r", **status: Any) -> Json:
    labels = {"labels": {"dask.org/component": component}}
    return made("p", owner(kind, uid), **labels) | {"status": {"phase": "Running", "podIP": "10.0.0.1"} | status}


SCHEDULER = made("demo-scheduler", owner("DaskCluster", "c"))
WORKER = made("demo-default-worker-1", owner("DaskWorkerGroup", "uid-default"))
GROUPS = (group("default", 2),)
LEFT = read(CLUSTER, GROUPS, [SCHEDULER, WORKER], [SCHEDULER], [a_pod("scheduler")])


@pytest.mark.parametrize(
    ("cluster", "heard", "reason"),
    [
        (CLUSTER, Heard(), Reason.SCHEDULER_UNREACHABLE),
        (CLUSTER, Heard(3, 0), Reason.WORK_IN_PROGRESS),
        (CLUSTER, Heard(0, 0, SHORT), Reason.WORK_IN_PROGRESS),
        (CLUSTER, Heard(0, 0, LONG), None),
        (CLUSTER, Heard(0, 1, LONG), Reason.CLIENTS_CONNECTED),
        (CLUSTER, Heard(0, 1, IDLE_WITH_CLIENTS_SECONDS), None),
        (JOBS, Heard(0, 1, IDLE_WITH_CLIENTS_SECONDS), Reason.CLIENTS_CONNECTED),
        (JOBS, Heard(0, 0, LONG), None),
        (replace(CLUSTER, take_over_now=True), Heard(3, 1), None),
    ],
)
def test_a_cluster_is_replaced_once_it_is_idle_for_a_while(cluster: MirrorObject, heard: Heard, reason: Reason | None):
    decision = decide(cluster, LEFT, heard)
    assert decision.replace == (reason is None)
    assert reason is None or decision.reason == reason
    assert decision.message


OF_JOB = replace(CLUSTER, references=(owner("DaskJob", "j"),))


@pytest.mark.parametrize(
    ("pods", "goes"),
    [
        ([a_pod("job-runner", kind="DaskJob", uid="j")], False),
        ([a_pod("job-runner", kind="DaskJob", uid="j", phase="Pending")], False),
        ([a_pod("job-runner", kind="DaskJob", uid="j", phase="")], False),
        ([a_pod("job-runner", kind="DaskJob", uid="j", phase="Succeeded")], True),
        ([a_pod("job-runner", kind="DaskJob", uid="j", phase="Failed")], True),
        ([a_pod("job-runner", kind="DaskJob", uid="of another")], True),
        ([a_pod("job-runner", kind="DaskJob", uid="j", phase=3)], True),
        ([], True),
    ],
)
def test_the_cluster_of_a_job_goes_with_its_program_whatever_the_scheduler_does(pods: list[Json], goes: bool):
    left = read(OF_JOB, GROUPS, [SCHEDULER, WORKER], [SCHEDULER], [a_pod("scheduler"), *pods])
    assert not needs_answer(OF_JOB, left)
    assert decide(OF_JOB, left, Heard()).replace == goes


def test_without_a_scheduler_there_is_nothing_to_lose():
    assert decide(CLUSTER, replace(LEFT, schedulers=()), Heard()).replace
    ending = replace(LEFT.schedulers[0], ending=True)
    assert decide(CLUSTER, replace(LEFT, schedulers=(ending,)), Heard()).replace


def test_what_cannot_be_asked_says_how_it_is_confirmed():
    message = decide(CLUSTER, LEFT, Heard()).message
    assert "kubectl -n default annotate daskcluster demo gpudask.dev/take-over=now" in message


@pytest.mark.parametrize(
    "pod", [a_pod("scheduler"), a_pod("scheduler", phase="Failed"), a_pod("job-runner", kind="DaskJob", uid="j")]
)
def test_a_pod_is_kept_only_as_far_as_it_is_read(pod: Json):
    large = pod | {"spec": {"containers": "x" * 1_000_000}}
    large["metadata"] = pod["metadata"] | {"annotations": {"note": "x" * 1_000_000}}
    assert len(str(reduced_pod(large))) < 1000
    assert read(OF_JOB, (), [], [], [reduced_pod(large)]) == read(OF_JOB, (), [], [], [pod])


async def test_of_whole_objects_few_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []

    async def list_page(path: str, *, query: dict[str, str], accept: str) -> Json:
        asked.append(int(query["limit"]))
        return {"items": [a_pod("worker")] * asked[-1], "metadata": {"continue": "more"}}

    api = object.__new__(Kubernetes)
    monkeypatch.setattr(api, "list_page", list_page)
    found = await api.list_labelled("/pods", "a=b", most=150, reduce=reduced_pod)
    assert max(asked) <= 100
    assert (len(asked), len(found)) == (2, 200)


def test_the_scheduler_is_deleted_first():
    assert [item.name for item in LEFT.all] == ["demo-scheduler", "demo-default-worker-1", "demo-scheduler"]
    assert [item.kind for item in LEFT.all] == ["Deployment", "Deployment", "Service"]
    assert (LEFT.pods, LEFT.address) == ((OldPod("p", "scheduler", "10.0.0.1"),), "10.0.0.1")


@pytest.mark.parametrize(
    "body",
    [
        made("demo-scheduler"),
        made("demo-scheduler", owner("DaskCluster", "of another name")),
        made("demo-scheduler", owner("DaskWorkerGroup", "c")),
        made("demo-scheduler", owner("DaskCluster", "c", controller=False)),
        made("demo-scheduler", owner("DaskCluster", "c"), uid=7),
        made("demo-scheduler", owner("DaskCluster", "c"), resourceVersion="x"),
        {"metadata": {"ownerReferences": "x"}},
        {"metadata": []},
        {},
    ],
)
def test_what_is_somebody_elses_or_cannot_be_read_is_left_alone(body: Json):
    assert read(CLUSTER, GROUPS, [body], [body], [body]) == Leftovers()


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("scheduler", kind="GpuDaskCluster"),
        a_pod("job-runner"),
        a_pod("scheduler", phase="Failed"),
        a_pod("scheduler", phase=3),
    ],
)
def test_pods_that_no_deployment_made_hold_nothing_up(pod: Json):
    assert read(CLUSTER, GROUPS, [], [], [pod]) == Leftovers()


@pytest.mark.parametrize("status", [{"phase": "Pending"}, {"podIP": None}])
def test_a_pod_that_does_not_run_has_no_address_and_is_waited_for(status: Json):
    assert read(CLUSTER, GROUPS, [], [], [a_pod("scheduler", **status)]) == Leftovers(pods=(OldPod("p", "scheduler"),))


DUE = 1_790_000_000.0  # 2026-09-21T14:13:20Z
DELETED = {"deletionTimestamp": "2026-09-21T14:13:20Z"}


def deleted(node: str = "", **metadata: Any) -> Json:
    pod = a_pod("worker")
    return pod | {"metadata": pod["metadata"] | DELETED | metadata, "spec": {"nodeName": node}}


@pytest.mark.parametrize(
    ("pods", "deployments", "now", "waited", "said"),
    [
        ([deleted("n")], [], DUE + 59, 1000, None),
        ([deleted("n")], [], DUE + 61, 0, "pod p is deleted, but its node n does not confirm its end"),
        ([deleted("n")], [], DUE + 61, 0, "`kubectl delete node n`"),
        ([deleted("n", finalizers=["a/b", "c/d"])], [], DUE + 61, 0, "its finalizers keep it: a/b, c/d: whoever set"),
        ([deleted("n", finalizers=["a/b"])], [], DUE + 59, 1000, None),
        ([deleted(finalizers=["a/b"])] * 3, [], DUE + 61, 0, "and 2 more are kept"),
        ([a_pod("worker")], [], DUE, 59, None),
        ([a_pod("worker")], [], DUE, 61, "pod p is not deleted, though its Deployment is"),
        ([a_pod("worker")], [made("demo-scheduler", owner("DaskCluster", "c"), **DELETED)], DUE, 61, None),
        (
            [],
            [made("demo-scheduler", owner("DaskCluster", "c"), finalizers=["a/b"], **DELETED)],
            DUE,
            61,
            "Deployment demo-scheduler is deleted, but its finalizers keep it: a/b",
        ),
        ([], [made("demo-scheduler", owner("DaskCluster", "c"), finalizers=["a/b"], **DELETED)], DUE, 59, None),
    ],
)
def test_what_does_not_end_is_told_with_what_keeps_it(
    pods: list[Json], deployments: list[Json], now: float, waited: float, said: str | None
):
    left = read(CLUSTER, GROUPS, deployments, [], [reduced_pod(pod) for pod in pods])
    message = ending_message(left, now, waited)
    assert message == "the stock operator's pods end" if said is None else said in message, message


def test_the_takeover_tells_it_a_minute_after_it_was_first_seen():
    now = [DUE]
    context: Any = SimpleNamespace(clock=lambda: now[0], server_ahead=lambda: 0.0)
    takeover = Takeover(context, definitions=cast("Any", None))
    takeover._uids[CLUSTER.owner] = CLUSTER.uid
    left = read(CLUSTER, GROUPS, [], [], [a_pod("worker")])

    def message() -> str:
        (said,) = takeover._ends(CLUSTER, left).conditions or ()
        return said.message

    assert message() == "the stock operator's pods end"
    now[0] += 61
    assert "garbage collector" in message()
    takeover.forget(CLUSTER.owner)
    assert message() == "the stock operator's pods end", "another of its name begins anew"


def test_what_keeps_a_pod_is_told_in_bounded_words():
    pod = reduced_pod(deleted("n" * 100_000, finalizers=["f" * 100_000] * 1000))
    assert len(str(pod)) < 4000
    assert len(ending_message(read(CLUSTER, GROUPS, [], [], [pod]), DUE + 61, 0)) <= 1024
