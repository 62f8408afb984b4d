"""The budget guards the scheduler pod while it is worth it, and no worker."""

from __future__ import annotations

import pytest

from gpudask.desired.disruption import budget
from gpudask.desired.scheduler import scheduler_pod
from gpudask.desired.workers import worker_pod
from tests.builders import a_pool
from tests.planning.builders import cluster

OF = cluster(a_pool(), name="demo")


@pytest.mark.parametrize(("guarded", "least"), [(True, 1), (False, 0)])
def test_a_whole_number_of_pods_because_their_owner_has_no_scale(guarded: bool, least: int) -> None:
    spec = budget(OF, is_protected=guarded)["spec"]
    assert spec["minAvailable"] == least
    assert type(spec["minAvailable"]) is int
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_it_is_the_schedulers_alone_and_goes_with_its_cluster() -> None:
    body = budget(OF, is_protected=True)
    labels = body["spec"]["selector"]["matchLabels"]
    scheduler = scheduler_pod(OF, "demo-scheduler-abcde", {})["metadata"]["labels"]
    worker = worker_pod(OF, OF.spec.pools[0], 0, "n")["metadata"]["labels"]
    assert labels.items() <= scheduler.items()
    assert not labels.items() <= worker.items()
    assert body["metadata"]["ownerReferences"] == [OF.reference]
