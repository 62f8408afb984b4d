"""Pods of a pool that speaks ucxx in a cluster of tcp wait until the scheduler listens for it, and are told why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.pool import Pool
from gpudask.api.resource import Cluster
from gpudask.api.status import Status
from gpudask.planning.actions import CreateWorker, DeletePod, MarkRetiring, Plan
from gpudask.planning.degraded import last_message
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Ended
from gpudask.planning.plan import plan
from gpudask.planning.status import report
from gpudask.scaling.demand import Demand, Listener
from tests.builders import a_pool
from tests.planning.builders import NOW, cluster, demand, pod, scheduler_pod, seen, tasks, worker

KNOWS = {"listen": ""}
LISTENS = {"ucxx": Listener(8788)}
LACKS = "ValueError: unknown address scheme 'ucxx' (known schemes: ['inproc', 'tcp'])"


def mixed(**gpu: Any) -> Cluster:
    return cluster(a_pool("cpu"), a_pool("gpu", gpu={}, protocol="ucxx", **({"replicas": 2} | gpu)))


OF = mixed()


def says(features: Json = KNOWS, listeners: dict[str, Listener] | None = None, **fields: Any) -> Demand:
    return demand(features=features, listeners=listeners or {}, **fields)


def made(planned: Plan) -> dict[str, int]:
    created = [action.pool for action in planned.actions if isinstance(action, CreateWorker)]
    return {pool: created.count(pool) for pool in ("cpu", "gpu")}


def status_of(observation: Observation) -> Status:
    return report(observation, plan(observation), Status())


def degraded(status: Status) -> tuple[str, str, str]:
    found = next(each for each in status.conditions if each.type == "Degraded")
    return found.status, found.reason, found.message


def row_message(status: Status) -> str:
    return next(row.message for row in status.pools if row.name == "gpu")


def test_they_are_made_once_it_listens_and_those_of_other_pools_at_once():
    head = scheduler_pod(OF)
    assert made(plan(seen(OF))) == {"cpu": 1, "gpu": 0}, "beside the scheduler"
    assert made(plan(seen(OF, scheduler_pod(OF, running=False)))) == {"cpu": 1, "gpu": 0}
    assert made(plan(seen(OF, head))) == {"cpu": 1, "gpu": 0}, "it runs, and is not heard yet"
    assert made(plan(seen(OF, head, says=says()))) == {"cpu": 1, "gpu": 0}, "it has been asked to listen"
    assert made(plan(seen(OF, head, says=says(listeners=LISTENS)))) == {"cpu": 1, "gpu": 2}


@pytest.mark.parametrize("now", [None, says()], ids=["silent", "another process"])
def test_after_a_restart_of_the_scheduler_they_wait_again(now: Demand | None):
    head, first = scheduler_pod(OF), pod(OF, "gpu", 0)
    assert made(plan(seen(OF, head, first, says=says(listeners=LISTENS))))["gpu"] == 1
    assert made(plan(seen(OF, head, first, says=now)))["gpu"] == 0


@pytest.mark.parametrize(
    "listeners",
    [{"ucxx": Listener(8788, LACKS)}, {"ucxx": Listener(1)}, {"tcp": Listener(8788)}],
    ids=["it fails", "elsewhere", "for another"],
)
def test_what_is_no_listener_of_theirs_is_none(listeners: dict[str, Listener]):
    assert made(plan(seen(OF, scheduler_pod(OF), says=says(listeners=listeners))))["gpu"] == 0


def test_they_are_not_made_in_the_pass_that_ends_the_scheduler():
    old = scheduler_pod(OF, spec_hash="old")
    assert made(plan(seen(OF, old, says=says(listeners=LISTENS))))["gpu"] == 0


def test_pods_of_before_stay_at_work_while_the_new_ones_wait():
    """An edit that adds the protocol must not cost what the pool has, on a scheduler that cannot listen."""
    old = [pod(OF, "gpu", n, spec_hash="old") for n in range(2)]
    workers = tuple(worker(each) for each in old)
    observation = seen(
        OF, scheduler_pod(OF), *old, says=says(listeners={"ucxx": Listener(8788, LACKS)}, workers=workers)
    )
    assert not any(
        isinstance(action, DeletePod | MarkRetiring | CreateWorker) for action in plan(observation).pools["gpu"].actions
    )
    there = replace(observation, demand=says(listeners=LISTENS, workers=workers))
    assert made(plan(there))["gpu"] == 1, "a surplus, to begin with"


def test_a_pool_that_follows_demand_waits_too_and_says_so():
    of = cluster(a_pool("cpu"), a_pool("gpu", gpu={}, protocol="ucxx", autoscale={"max": 4}))
    wants = demand(tasks(3, GPU=1), features=KNOWS)
    observation = seen(of, scheduler_pod(of), says=wants)
    assert made(plan(observation))["gpu"] == 0
    assert row_message(status_of(observation)) == "its pods are made once the scheduler listens for ucxx"
    there = seen(of, scheduler_pod(of), says=replace(wants, listeners=LISTENS))
    assert made(plan(there))["gpu"] > 0


def test_while_it_is_merely_asked_the_pool_waits_and_nothing_is_wrong():
    status = status_of(seen(OF, scheduler_pod(OF), pod(OF, "cpu"), says=says()))
    assert row_message(status) == "its pods are made once the scheduler listens for ucxx"
    assert degraded(status)[0] == "False"
    assert status.reason.endswith("pool gpu has 0 of 2 pods: " + row_message(status))


def test_an_image_that_lacks_the_package_is_told_with_what_it_needs():
    status = status_of(seen(OF, scheduler_pod(OF), says=says(listeners={"ucxx": Listener(8788, LACKS)})))
    assert degraded(status) == (
        "True",
        "SchedulerNotListening",
        "pool gpu: its pods are not made, since the scheduler does not listen for ucxx: " + LACKS + ": its image needs"
        " distributed-ucxx, for its CUDA version, as that of each pod that takes or gives data",
    )
    assert row_message(status) in degraded(status)[2]


def test_another_failure_is_told_as_it_is():
    busy = {"ucxx": Listener(8788, "UCXXBusyError: Device is busy")}
    said = degraded(status_of(seen(OF, scheduler_pod(OF), says=says(listeners=busy))))[2]
    assert said.endswith("does not listen for ucxx: UCXXBusyError: Device is busy")


def test_an_older_preload_is_told_of_with_the_cure():
    status = status_of(seen(OF, scheduler_pod(OF), says=says(features={"demand": ""})))
    assert degraded(status)[:2] == ("True", "SchedulerNotListening")
    assert (
        "its preload is older than that; it listens once the scheduler pod is replaced: delete that once"
        in degraded(status)[2]
    )
    ready = next(each for each in status.conditions if each.type == "SchedulerReady")
    assert "the scheduler's preload is older than pools.protocol" in ready.message


def test_a_part_that_is_off_is_told_with_its_reason():
    off = says(features={"listen": "Scheduler.listen is missing"})
    said = degraded(status_of(seen(OF, scheduler_pod(OF), says=off)))[2]
    assert said.endswith("does not listen for ucxx: Scheduler.listen is missing")


def test_a_pool_that_has_all_its_pods_has_no_message():
    both = [pod(OF, "gpu", n) for n in range(2)]
    workers = tuple(worker(each) for each in both)
    status = status_of(seen(OF, scheduler_pod(OF), *both, says=says(listeners=LISTENS, workers=workers)))
    assert (row_message(status), degraded(status)[0]) == ("", "False")


def test_an_edited_protocol_that_waits_for_the_scheduler_lets_pods_be_made_as_before():
    """tls -> tcp with such a pool: while the scheduler of tls stays, the pool speaks tls, and nobody opens anything."""
    tls = cluster(a_pool("cpu"), a_pool("gpu", gpu={}, replicas=2), protocol="tls")
    head = scheduler_pod(tls)
    observation = seen(OF, head, pod(tls, "gpu", 0), says=says(tasks=7))
    assert observation.cluster.spec.protocol == "tls"
    assert made(plan(observation))["gpu"] == 1
    assert not any(isinstance(action, DeletePod | MarkRetiring) for action in plan(observation).pools["gpu"].actions)


@pytest.mark.parametrize(("pool", "settles"), [("gpu", True), ("cpu", False)])
def test_workers_that_ended_with_the_last_scheduler_are_no_trouble_for_a_minute(pool: str, settles: bool):
    head = scheduler_pod(OF, started=NOW - 10)
    again = pod(
        OF, pool, ready=False, phase="Running", started=0.0, waiting="CrashLoopBackOff: back-off 20s", restarts=2
    )
    status = status_of(seen(OF, head, again, says=says(listeners=LISTENS)))
    assert (degraded(status)[1] == "PodsFail") is not settles


def test_a_pod_that_does_not_stay_up_is_told_what_its_image_may_lack_by_its_pool():
    failed = Ended("Error", 1, "RuntimeError: Worker failed to start.")
    words = {name: last_message(OF.spec, pod(OF, name, ended=failed)) for name in ("cpu", "gpu")}
    assert "distributed-ucxx" in words["gpu"]
    assert "distributed-ucxx" not in words["cpu"]


def test_the_effective_protocol_is_the_pools_only_beside_tcp():
    pool = next(each for each in OF.spec.pools if each.name == "gpu")
    assert isinstance(pool, Pool)
    assert OF.spec.protocol_of(pool) == "ucxx"
    other = OF.spec.model_copy(update={"protocol": "tls"})
    assert (other.own_protocol(pool), other.protocol_of(pool)) == (None, "tls")
