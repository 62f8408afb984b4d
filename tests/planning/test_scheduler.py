"""Whom the Service leads to, as scheduler pods come and go."""

from __future__ import annotations

import pytest

from gpudask.planning.observed import Pod
from gpudask.planning.scheduler import served_by
from tests.builders import a_pool
from tests.planning.builders import NOW, cluster, scheduler_pod, seen

CLUSTER = cluster(a_pool())
RUNS = scheduler_pod(CLUSTER)
ENDS = scheduler_pod(CLUSTER, name="demo-scheduler-old", uid="uid-old", delete_by=NOW + 30)
ENDED = scheduler_pod(CLUSTER, phase="Failed")


@pytest.mark.parametrize(
    ("pods", "name"),
    [
        ((RUNS,), RUNS.name),
        ((scheduler_pod(CLUSTER, running=False),), RUNS.name),
        ((ENDS, RUNS), RUNS.name),
        ((ENDS,), ""),
        ((), None),
        ((ENDED,), None),
    ],
    ids=["it runs", "it starts", "its successor is there", "it ends", "there was none", "it ended"],
)
def test_the_service_leads_to_the_live_scheduler_and_nowhere_while_the_last_one_ends(
    pods: tuple[Pod, ...], name: str | None
):
    assert served_by(seen(CLUSTER, *pods)) == name
