"""Where pods are decides who leaves, among those that are equal otherwise."""

from __future__ import annotations

from gpudask.planning.actions import MarkRetiring
from gpudask.planning.plan import plan
from tests.builders import a_pool
from tests.planning.builders import cluster, demand, pod, scheduler_pod, seen, worker


def test_the_pod_that_empties_its_node_leaves_first():
    of = cluster(a_pool(replicas=3), a_pool("other", replicas=1))
    pods = [pod(of, "cpu", number, node=node) for number, node in enumerate(["a", "b", "c", "c"])]
    beside = pod(of, "other", node="a")
    says = demand(workers=tuple(worker(p) for p in [*pods, beside]))
    actions = plan(seen(of, scheduler_pod(of), *pods, beside, says=says)).pools["cpu"].actions
    assert [action.pod.name for action in actions if isinstance(action, MarkRetiring)] == ["demo-cpu-worker-1"]
