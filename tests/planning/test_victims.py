"""Where pods are decides who leaves, among those that are equal otherwise."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("name", ["mine", "demo-cpu-worker-", "demo-cpu-worker-x", f"demo-cpu-worker-{'9' * 200}"])
def test_a_pod_that_somebody_gave_a_name_of_his_own_is_the_first_to_be_too_many(name: str):
    of = cluster(a_pool(replicas=1))
    ours, theirs = pod(of, "cpu"), pod(of, "cpu", name=name, uid="theirs", dask_name=name)
    says = demand(workers=(worker(ours), worker(theirs)))
    actions = plan(seen(of, scheduler_pod(of), ours, theirs, says=says)).pools["cpu"].actions
    assert [action.pod.name for action in actions if isinstance(action, MarkRetiring)] == [name]
