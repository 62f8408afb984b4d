"""Whom the Service leads to, as scheduler pods come and go."""

from __future__ import annotations

import pytest

from gpudask.planning.actions import DeletePod, RemoveFromService
from gpudask.planning.observed.pods import Pod
from gpudask.planning.scheduler import named_by_service, plan_scheduler
from tests.builders import a_pool
from tests.planning.builders import NOW, cluster, scheduler_pod, seen

CLUSTER = cluster(a_pool())
RUNS = scheduler_pod(CLUSTER)
ENDS = scheduler_pod(CLUSTER, name="demo-scheduler-old", uid="uid-old", delete_by=NOW + 30)
TAKEN_OFF = scheduler_pod(CLUSTER, name="demo-scheduler-old", uid="uid-old", delete_by=NOW + 30, serves=False)
ENDED = scheduler_pod(CLUSTER, phase="Failed")
SECOND = scheduler_pod(CLUSTER, name="demo-scheduler-new", uid="uid-new", created=NOW)
OF_BEFORE = scheduler_pod(CLUSTER, serves=False)


@pytest.mark.parametrize(
    ("pods", "taken_off"),
    [
        ((RUNS,), []),
        ((scheduler_pod(CLUSTER, running=False),), []),
        ((ENDS, RUNS), [ENDS]),
        ((ENDS,), [ENDS]),
        ((TAKEN_OFF,), []),
        ((ENDED,), []),
        ((RUNS, SECOND), [SECOND]),
    ],
    ids=["it runs", "it starts", "its successor is there", "it ends", "that is done", "it ended", "there are two"],
)
def test_the_service_leads_to_the_live_scheduler_and_nowhere_while_the_last_one_ends(
    pods: tuple[Pod, ...], taken_off: list[Pod]
):
    actions = plan_scheduler(seen(CLUSTER, *pods)).actions

    assert [action.pod for action in actions if isinstance(action, RemoveFromService)] == taken_off


def test_it_is_taken_off_also_where_the_cluster_is_suspended():
    suspended = cluster(a_pool(), suspend=True)

    assert plan_scheduler(seen(suspended, ENDS)).actions == (RemoveFromService(ENDS),)


def test_one_that_is_deleted_serves_until_it_ends():
    assert [type(action) for action in plan_scheduler(seen(cluster(a_pool(), suspend=True), RUNS)).actions] == [
        DeletePod
    ]


@pytest.mark.parametrize(
    ("pods", "name"),
    [((RUNS,), ""), ((), ""), ((TAKEN_OFF,), ""), ((OF_BEFORE,), OF_BEFORE.name)],
    ids=["it runs", "there is none", "it ends", "an older version made it"],
)
def test_the_service_names_a_pod_that_has_no_label_for_it(pods: tuple[Pod, ...], name: str):
    assert named_by_service(seen(CLUSTER, *pods)) == name
