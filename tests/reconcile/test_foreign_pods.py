"""A pod of another namespace, or of another group's owner, is no pod of the cluster whose uid it names."""

from __future__ import annotations

from gpudask.api import Json

from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.api.resource import LABEL_CLUSTER, Cluster
from gpudask.planning.observed.pods import current_scheduler
from gpudask.reconcile.drift_repair import observe_owned
from tests.builders import a_manifest, a_pool
from tests.planning.builders import UID, cluster, stored
from tests.reconcile.fake_api import Bench, FakeApi

CLUSTER = cluster(a_pool(replicas=1))
FOREIGN: dict[str, tuple[str, Json]] = {
    "of another namespace": ("evil", {}),
    "of another group": ("default", {"apiVersion": "evil.example/v1alpha1"}),
    "of another kind": ("default", {"kind": "DaskCluster"}),
    "not controlled": ("default", {"controller": False}),
    "of another uid": ("default", {"uid": "another"}),
}


@pytest.fixture
async def bench() -> Bench:
    return Bench(FakeApi(), stored(a_manifest(a_pool(replicas=1))))


def pod(namespace: str, reference: Json, name: str = "demo-scheduler-00000", **labels: str) -> Json:
    """A pod that looks like a scheduler which was there first, and listens."""
    running = {"name": "dask", "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "uid": f"{namespace}-{name}",
            "name": name,
            "namespace": namespace,
            "resourceVersion": "5",
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "labels": {LABEL_CLUSTER: "demo"} | labels,
            "ownerReferences": [CLUSTER.reference | reference],
        },
        "status": {"phase": "Running", "podIP": "10.6.6.6", "containerStatuses": [running]},
    }


@pytest.mark.parametrize(("namespace", "reference"), FOREIGN.values(), ids=FOREIGN)
async def test_it_is_neither_counted_nor_dialled_nor_deleted(bench: Bench, namespace: str, reference: Json):
    dialled: list[str] = []
    bench.passes._feed.follow = lambda found: dialled.append(found.ip if found else "")  # type: ignore[method-assign]
    for body in (
        pod(namespace, reference),
        pod(namespace, reference, "demo-cpu-worker-7", **{"gpudask.dev/pool": "cpu"}),
    ):
        assert bench.pods.upsert(body)
    await bench.run(1)
    assert {found.ip for found in bench.context.pods_of(CLUSTER)} == {""}
    assert set(dialled) == {""}
    assert bench.count("POST", "default/pods") == 2, "a scheduler and a worker of its own"
    assert not any("00000" in asked or "worker-7" in asked for asked in bench.api.asked)


async def test_the_same_pod_of_the_clusters_own_is_its_scheduler(bench: Bench):
    bench.pods.upsert(pod("default", {}))
    head = current_scheduler(bench.context.pods_of(CLUSTER))
    assert head is not None
    assert head.ip == "10.6.6.6"


@pytest.mark.parametrize(("namespace", "reference"), FOREIGN.values(), ids=FOREIGN)
async def test_it_wakes_no_loop_of_the_cluster(bench: Bench, namespace: str, reference: Json):
    woken: list[Cluster] = []
    loop: Any = SimpleNamespace(wake=lambda: woken.append(CLUSTER))
    bench.registry._loops[CLUSTER.owner_key] = loop
    bench.pods.upsert(pod(namespace, reference))
    assert woken == []
    bench.pods.upsert(pod("default", {}, "demo-scheduler-11111"))
    assert woken == [CLUSTER]


@pytest.mark.parametrize(("namespace", "reference"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("kind", ["Service", "ConfigMap", "PodDisruptionBudget"])
def test_no_object_beside_the_pods_is_the_clusters_either(kind: str, namespace: str, reference: Json):
    assert observe_owned(kind)(pod("default", {})).owner == CLUSTER.owner_key
    assert observe_owned(kind)(pod(namespace, reference)).owner != CLUSTER.owner_key


async def test_a_pod_of_a_foreign_owner_that_has_our_name_is_left_alone(bench: Bench):
    reference = {"apiVersion": "evil.example/v1alpha1"}
    theirs = pod("default", reference, "demo-cpu-worker-0", **{"gpudask.dev/pool": "cpu"})
    bench.api.put(f"{bench.path}/demo-cpu-worker-0", theirs)
    await bench.run(60)
    assert "demo-cpu-worker-1" in bench.names()
    assert bench.api.objects[f"{bench.path}/demo-cpu-worker-0"]["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert bench.count("DELETE") == bench.count("PATCH") == 0


def test_the_key_of_a_cluster_is_that_of_its_own_pods():
    assert CLUSTER.owner_key == f"default/{UID}"
