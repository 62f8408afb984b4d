"""A cluster that was deleted leaves pods for a while, with the labels of the next cluster of its name."""

import threading

import pytest
from distributed import Client, SpecCluster

from gpudask import KubeCluster
from gpudask.api import Json
from gpudask.kubecluster.kube.pods import list_pods
from gpudask.kubecluster.kube.server import Server
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import add_scheduler
from tests.kubecluster.test_connecting import wait_until


def test_a_new_cluster_is_not_connected_to_the_scheduler_of_the_last_one(server: fake.FakeServer, dask: SpecCluster):
    add_scheduler(server, dask, "mine-scheduler-old", owner_uid="of the last", created="2026-02-02T00:00:00Z")

    def operate() -> None:
        eventually(lambda: "mine" in server.clusters, "the cluster is created")
        server.clusters["mine"]["status"] = {"observedGeneration": 1}
        looks = server.requests.count(f"GET {fake.PODS}")
        eventually(lambda: server.requests.count(f"GET {fake.PODS}") > looks, "its pods are looked for")
        add_scheduler(server, dask, "mine-scheduler-new")

    operating = threading.Thread(target=operate)
    operating.start()
    with KubeCluster("mine", image="i", n_workers=1, quiet=True) as cluster, Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    operating.join()

    assert set(server.forwards) == {"mine-scheduler-new"}


def test_the_scheduler_of_a_cluster_that_is_made_again_is_found(demo: fake.FakeServer, dask: SpecCluster):
    with KubeCluster.from_name("demo") as cluster, Client(cluster) as client:
        demo.clusters["demo"]["metadata"]["uid"] = "made again"
        add_scheduler(demo, dask, "demo-scheduler-11111", owner_uid="made again")
        demo.pods[:] = demo.pods[1:]
        demo.cut_connections()
        wait_until(lambda: "demo-scheduler-11111" in demo.forwards, "its scheduler is connected to")
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3


def test_while_both_are_there_the_scheduler_of_the_cluster_as_it_is_now_is_taken(
    demo: fake.FakeServer, dask: SpecCluster
):
    with KubeCluster.from_name("demo"):
        demo.clusters["demo"]["metadata"]["uid"] = "made again"
        add_scheduler(demo, dask, "demo-scheduler-11111", owner_uid="made again", created="2025-01-01T00:00:00Z")
        before = len(demo.forwards)
        demo.cut_connections()
        wait_until(lambda: len(demo.forwards) > before, "it connects again")
        assert set(demo.forwards[before:]) == {"demo-scheduler-11111"}


def test_logs_are_of_the_pods_of_this_cluster(demo: fake.FakeServer):
    demo.pods.append(fake.pod("demo-cpu-worker-9", "worker", owner_uid="of the last"))
    demo.logs = {"demo-scheduler-00000": ["ours"], "demo-cpu-worker-9": ["theirs"]}
    with KubeCluster.from_name("demo") as cluster:
        assert set(cluster.get_logs()) == {"demo-scheduler-00000", "Cluster"}


@pytest.mark.parametrize(
    "references",
    [
        [],
        None,
        "none",
        [None, "text", 7, {}],
        [fake.owner("demo") | {"controller": False}],
        [fake.owner("demo") | {"kind": "DaskCluster"}],
        [fake.owner("demo") | {"apiVersion": "kubernetes.dask.org/v1"}],
        [fake.owner("demo") | {"uid": None}],
        [fake.owner("demo") | {"uid": "another"}],
    ],
    ids=str,
)
async def test_a_pod_that_the_cluster_does_not_control_is_none_of_its_own(demo: fake.FakeServer, references: Json):
    demo.pods[0]["metadata"]["ownerReferences"] = references
    assert await list_pods(await Server.connect(None), "demo", "uid-of-demo") == []
