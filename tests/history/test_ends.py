"""Each way in which a pod ends has its reason, and its log or the reason why there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.history.ends import LogSource, PodEnd, PodWatch, with_log
from gpudask.planning.actions import DeletePod, Plan, PoolPlan
from gpudask.planning.observed.pods import Ended, Pod, Retirement
from gpudask.scaling.sizing import Size
from tests.planning.builders import NOW, cluster, gpu_pool, pod

CLUSTER = cluster(gpu_pool())
RUNS = pod(CLUSTER, "gpu", placed=NOW - 95)
RETIRED = replace(RUNS, retirement=Retirement("it is idle"))
DELETING = {"delete_by": NOW + 30, "grace_seconds": 30.0}
TERMINATED = {"phase": "Running", "ready": False, "started": 0.0}
SUCCEEDED = {"phase": "Succeeded", "ready": False, "started": 0.0}
FAILED = {"phase": "Failed", "ready": False, "started": 0.0}


def deletes(of: Pod, **fields: Any) -> Plan:
    """A plan that deletes this pod."""
    action = DeletePod(of, "why", **fields)
    return Plan(pools={"gpu": PoolPlan(Size(0, "", "autoscale"), (action,))})


def ends_of(*states: Pod | None, plan: Plan | None = None, **look: Any) -> list[PodEnd]:
    """The ends that are told of a pod that was in these states, one after another; None: it is gone."""
    watch, found = PodWatch(), []
    for number, state in enumerate(states):
        if number == len(states) - 1 and plan is not None:
            watch.intend(plan)
        found += watch.look([state] if state else [], NOW + number, **look).ends
    return found


ENDED = Ended("Error", 137, "the last line", NOW - 1)
WAYS: dict[str, tuple[list[PodEnd], str, int | None, LogSource]] = {
    "deleted by a person": (
        ends_of(RUNS, replace(RUNS, **DELETING), None), "Deleted", None, LogSource.FOLLOWED
    ),
    "deleted by a person, and its exit was seen": (
        ends_of(RUNS, replace(RUNS, **DELETING, **TERMINATED, ended=Ended("Error", 143, "", NOW)), None),
        "Deleted", 143, LogSource.FOLLOWED,
    ),
    "deleted by a person, and its phase was seen": (
        ends_of(RUNS, replace(RUNS, **DELETING, **SUCCEEDED, ended=Ended("Completed", 0, "", NOW)), None),
        "Deleted", 0, LogSource.CURRENT,
    ),
    "drained, and its phase was seen": (
        ends_of(RUNS, replace(RETIRED, **DELETING, **SUCCEEDED, ended=Ended("Completed", 0, "", NOW)), None),
        "Drained", 0, LogSource.CURRENT,
    ),
    "deleted by force": (ends_of(RUNS, None), "Deleted", None, LogSource.FOLLOWED),
    "drained": (ends_of(RUNS, RETIRED, None, plan=deletes(RETIRED)), "Drained", None, LogSource.NONE),
    "drained, deleted by an operator before this one": (
        ends_of(replace(RETIRED, **DELETING), None), "Drained", None, LogSource.NONE
    ),
    "deleted though not drained": (
        ends_of(RUNS, RETIRED, None, plan=deletes(RETIRED, forced=True)), "Forced", None, LogSource.FOLLOWED
    ),
    "never needed": (
        ends_of(pod(CLUSTER, "gpu", running=False), None, plan=deletes(pod(CLUSTER, "gpu", running=False))),
        "Cancelled", None, LogSource.NONE,
    ),
    "out of memory": (
        ends_of(RUNS, replace(RUNS, restarts=1, ended=replace(ENDED, reason="OOMKilled"))),
        "OOMKilled", 137, LogSource.KNOWN,
    ),
    "an exit without a word": (
        ends_of(RUNS, replace(RUNS, restarts=1, ended=Ended("Completed", 0, "", NOW - 1))),
        "Completed", 0, LogSource.PREVIOUS,
    ),
    "an exit, and no restart yet": (
        ends_of(RUNS, replace(RUNS, **TERMINATED, ended=Ended("Error", 3, "", NOW - 1))),
        "Error", 3, LogSource.CURRENT,
    ),
    "evicted by the kubelet": (
        ends_of(RUNS, replace(RUNS, **FAILED, status_reason="Evicted", status_message="The node was low on memory",
                              disruption="TerminationByKubelet", ended=ENDED)),
        "Evicted", 137, LogSource.KNOWN,
    ),
    "evicted by the API": (
        ends_of(RUNS, replace(RUNS, **DELETING, disruption="EvictionByEvictionAPI"), None),
        "Evicted", None, LogSource.FOLLOWED,
    ),
    "preempted": (
        ends_of(RUNS, replace(RUNS, **DELETING, disruption="PreemptionByScheduler"), None),
        "Preempted", None, LogSource.FOLLOWED,
    ),
    "its node shut down": (
        ends_of(RUNS, replace(RUNS, **FAILED, status_reason="Terminated", disruption="TerminationByKubelet")),
        "NodeShutdown", None, LogSource.CURRENT,
    ),
    "its node was lost, and its pods were collected": (
        ends_of(RUNS, replace(RUNS, **FAILED, disruption="DeletionByPodGC")), "NodeLost", None, LogSource.NONE
    ),
    "its node was lost, and does not answer": (
        ends_of(RUNS, replace(RUNS, delete_by=NOW - 60, disruption="DeletionByTaintManager")),
        "NodeLost", None, LogSource.NONE,
    ),
    "it should be gone, and is not": (
        ends_of(RUNS, replace(RUNS, delete_by=NOW - 60)), "NodeLost", None, LogSource.NONE
    ),
    "its cluster was deleted": (
        ends_of(RUNS, None, cluster_gone=True), "ClusterDeleted", None, LogSource.FOLLOWED
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_way_to_end_has_its_reason(way: str):
    ends, reason, code, source = WAYS[way]
    assert [(end.reason, end.exit_code, end.source) for end in ends] == [(reason, code, source)]


@pytest.mark.parametrize("way", [way for way in WAYS if WAYS[way][3] is LogSource.NONE])
def test_where_there_is_no_log_it_is_said_why(way: str):
    (end,) = WAYS[way][0]
    assert "no log: " in end.message


def test_a_container_that_ended_is_told_once_and_its_next_end_again():
    first = replace(RUNS, restarts=1, ended=ENDED)
    second = replace(RUNS, restarts=2, ended=replace(ENDED, at=NOW + 20))
    assert [end.at for end in ends_of(RUNS, first, first, second, second)] == [NOW - 1, NOW + 20]


def test_a_pod_that_finished_is_told_once_though_it_goes_later():
    failed = replace(RUNS, **FAILED, status_reason="Evicted")
    assert len(ends_of(RUNS, failed, failed, None)) == 1


def test_the_time_of_an_end_is_the_kubelets():
    stamped = replace(RUNS, restarts=1, ended=ENDED, stamps=(0.0, 0.0, 0.0, NOW - 7, 0.0))
    (end,) = ends_of(RUNS, stamped)
    assert end.at == NOW - 7
    assert end.held_seconds == 94.0, "by the operator's own clock"


def test_what_nobody_stamped_has_the_api_servers_time():
    watch = PodWatch()
    watch.look([RUNS], NOW)
    (end,) = watch.look([], NOW, ahead=3.0).ends
    assert end.at == NOW + 3


def test_a_deletion_that_was_refused_explains_nothing_later():
    watch = PodWatch()
    watch.look([RUNS], NOW)
    watch.intend(deletes(RUNS))
    watch.look([RUNS], NOW)  # it is there, and not to be gone
    (end,) = watch.look([], NOW).ends
    assert end.reason == "Deleted"


def test_the_last_state_counts_also_where_no_pass_saw_it():
    watch = PodWatch()
    watch.look([RUNS], NOW)
    watch.last_seen(replace(RUNS, **DELETING, **TERMINATED, ended=Ended("OOMKilled", 137, "boom", NOW)))
    (end,) = watch.look([], NOW).ends
    assert (end.reason, end.exit_code, end.log) == ("Deleted", 137, "boom")


def test_a_pod_that_is_deleted_is_followed_once_and_one_that_drained_is_not():
    watch = PodWatch()
    watch.look([RUNS], NOW)
    deleting = replace(RUNS, **DELETING)
    assert watch.look([deleting], NOW).ending == (deleting,)
    assert watch.look([deleting], NOW).ending == ()
    drained = PodWatch()
    drained.look([RETIRED], NOW)
    drained.intend(deletes(RETIRED))
    assert drained.look([replace(RETIRED, **DELETING)], NOW).ending == ()


def test_a_log_that_was_read_stands_in_the_end_or_why_it_was_not():
    (end,) = ends_of(RUNS, None)
    assert with_log(end, "a line").log == "a line"
    assert with_log(end, "", "no log: it was gone").message == "no log: it was gone"
