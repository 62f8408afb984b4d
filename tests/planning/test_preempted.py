"""Pods that their node or another pod ended are no failure of their pool; those that ended by themselves are."""

from __future__ import annotations

from gpudask.api import Json

from dataclasses import replace

import pytest

from gpudask.planning.observed.parser import parse_pod
from tests.builders import a_pool
from tests.planning.builders import cluster
from tests.planning.world import World


def failed(reason: str = "", message: str = "", disruption: str = "", exit_code: int | None = None) -> Json:
    """A pod that failed, as the API server has it."""
    status: Json = {"phase": "Failed", "reason": reason, "message": message, "conditions": []}
    if disruption:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": disruption}]
    if exit_code is not None:
        status["containerStatuses"] = [{"name": "dask", "state": {"terminated": {"exitCode": exit_code}}}]
    return {"metadata": {"uid": "u", "name": "p", "namespace": "n", "resourceVersion": "1"}, "status": status}


ENDED = {
    "a spot node shuts down": (failed("Terminated", "Pod was terminated in response to imminent node shutdown."), True),
    "so it was said before": (failed("NodeShutdown"), True),
    "and before that": (failed("Shutdown"), True),
    "its node is lost": (failed("NodeLost"), True),
    "a critical pod needs the room": (failed("Preempting"), True),
    "the scheduler preempts it": (failed(disruption="PreemptionByScheduler"), True),
    "the kubelet ends it": (failed("Terminated", disruption="TerminationByKubelet", exit_code=137), True),
    "its node is tainted": (failed(disruption="DeletionByTaintManager"), True),
    "its node was deleted": (failed(disruption="DeletionByPodGC"), True),
    "the descheduler evicts it": (failed("Evicted", disruption="EvictionByEvictionAPI"), True),
    "the node lacks memory": (failed("Evicted", "The node was low on resource: memory."), True),
    "the node is under pressure": (failed("Evicted", "The node had condition: [DiskPressure]."), True),
    "it exceeds its own limit": (failed("Evicted", 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".'), False),
    "its containers do": (failed("Evicted", "Pod ephemeral local storage usage exceeds the total limit"), False),
    "it fails": (failed(exit_code=1), False),
    "it is out of memory": (failed("OOMKilled", exit_code=137), False),
    "it does not fit its node": (failed("OutOfcpu"), False),
    "it took too long": (failed("DeadlineExceeded"), False),
}


@pytest.mark.parametrize(("body", "preempted"), ENDED.values(), ids=ENDED)
def test_who_ended_it(body: Json, preempted: bool):
    assert parse_pod(body).preempted is preempted


def test_a_condition_that_does_not_hold_says_nothing():
    body = failed()
    body["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "False"}]
    assert not parse_pod(body).preempted


@pytest.mark.parametrize(("preempted", "waited"), [(True, [0.0] * 6), (False, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0])])
def test_a_pool_on_spot_nodes_is_filled_again_at_once_however_often_they_go(preempted: bool, waited: list[float]):
    world = World(cluster(a_pool("gpu", gpu={}, replicas=1)))
    waits = []
    for _ in waited:
        world.run(5)
        (pod,) = [pod for pod in world.pods.values() if pod.pool]
        world.pods[pod.name] = replace(pod, phase="Failed", preempted=preempted, started=0.0, ready=False)
        world.reconcile()
        waits.append(max(0.0, world.memory.of("gpu").not_before - world.now))
        world.now += waits[-1]
    assert waits == waited
