import getpass

import pytest

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.errors import why_pool_waits, why_workers_wait
from tests.kubecluster import fake_server as fake


def overrides(server: fake.FakeServer) -> dict[str, int]:
    return {entry["pool"]: entry["replicas"] for entry in server.clusters["demo"]["spec"].get("overrides", [])}


def test_scale_writes_an_override_in_the_users_name(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(4, pool="gpu")

    assert demo.clusters["demo"]["spec"]["overrides"] == [{"pool": "gpu", "replicas": 4, "by": getpass.getuser()}]


def test_scaling_one_pool_keeps_what_was_set_for_another(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(4, pool="gpu")
        cluster.scale(2, pool="cpu")
        cluster.scale(3, pool="gpu")

    assert overrides(demo) == {"gpu": 3, "cpu": 2}


def test_anothers_override_is_never_applied_as_ours(demo: fake.FakeServer):
    demo.clusters["demo"]["spec"]["overrides"] = [{"pool": "cpu", "replicas": 7, "by": "git"}]
    demo.clusters["demo"]["metadata"]["managedFields"] = [fake.managed_fields("argocd", "cpu")]

    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(4, pool="gpu")

    assert overrides(demo) == {"cpu": 7, "gpu": 4}
    assert [entry["pool"] for entry in demo.applied[0]["spec"]["overrides"]] == ["gpu"]


@pytest.mark.parametrize("how", ["unscale", "scale(None)"])
def test_a_size_is_given_back_to_the_manifest(demo: fake.FakeServer, how: str):
    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(4, pool="gpu")
        cluster.scale(2, pool="cpu")
        if how == "unscale":
            cluster.unscale("gpu")
        else:
            cluster.scale(None, pool="gpu")

    assert overrides(demo) == {"cpu": 2}


def test_a_size_that_someone_else_holds_too_is_not_silently_kept(demo: fake.FakeServer):
    demo.clusters["demo"]["spec"]["overrides"] = [{"pool": "gpu", "replicas": 7, "by": "git"}]
    demo.clusters["demo"]["metadata"]["managedFields"] = [fake.managed_fields("argocd", "gpu")]

    with KubeCluster.from_name("demo") as cluster, pytest.raises(KubeClusterError, match="argocd set it as well"):
        cluster.unscale("gpu")


def test_the_pool_may_be_left_out_where_there_is_one(demo: fake.FakeServer):
    demo.clusters["demo"]["spec"]["pools"] = [{"name": "cpu"}]

    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(5)

    assert overrides(demo) == {"cpu": 5}


def test_without_a_pool_the_default_one_is_meant(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(5)
        assert overrides(demo) == {"cpu": 5}, "the first one without GPUs"
        cluster.unscale()
        assert overrides(demo) == {}


def test_an_unknown_pool_is_answered_with_those_that_exist(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster, pytest.raises(KubeClusterError, match=r"no pool 'gpus': .*cpu, gpu"):
        cluster.scale(5, pool="gpus")


def test_a_write_that_came_between_is_read_again(demo: fake.FakeServer):
    demo.conflicts = 2

    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(4, pool="gpu")

    assert overrides(demo) == {"gpu": 4}


def test_a_refused_write_names_the_rule_that_is_missing(demo: fake.FakeServer):
    demo.forbidden.add("PATCH demo")

    with KubeCluster.from_name("demo") as cluster, pytest.raises(KubeClusterError, match=r'verbs: \["patch"\]'):
        cluster.scale(4, pool="gpu")


def test_waiting_counts_the_workers_of_one_pool(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.wait_for_workers(2, timeout=60)
        cluster.wait_for_workers(1, pool="gpu", timeout=60)
        with pytest.raises(KubeClusterError, match="1 of 2 workers of pool 'gpu' came within 0 s"):
            cluster.wait_for_workers(2, pool="gpu", timeout=0)


def test_waiting_in_vain_gives_the_operators_reason():
    pool = {"name": "gpu", "desired": 4, "ready": 1, "message": "0/2 nodes: Insufficient nvidia.com/gpu"}
    body = fake.cluster("demo", "gpu", pools=[pool])

    assert why_pool_waits(body, "gpu") == "1 of 4 desired pods are ready, 0/2 nodes: Insufficient nvidia.com/gpu"


def test_waiting_in_vain_for_workers_of_any_pool_gives_the_reasons_of_all():
    pools = [
        {"name": "cpu", "desired": 1, "ready": 1, "reason": "no task waits"},
        {"name": "gpu", "desired": 2, "ready": 0, "message": "Insufficient nvidia.com/gpu"},
    ]
    unmet = {"type": "DemandServable", "status": "False", "reason": "NoPool", "message": "3 tasks want GPU: 2"}
    of_pools = "pool cpu: 1 of 1 desired pods are ready, no task waits; pool gpu: 0 of 2 desired pods are ready, "
    of_pools += "Insufficient nvidia.com/gpu"

    past = {"name": "old", "removed": True, "pods": 0, "gpuSecondsHeld": 100.0}
    assert why_workers_wait(fake.cluster("demo", "cpu", "gpu", pools=[*pools, past]), None) == of_pools
    assert why_workers_wait(fake.cluster("demo", "cpu", "gpu", pools=pools, conditions=[unmet]), None) == (
        f"DemandServable is False, NoPool: 3 tasks want GPU: 2; {of_pools}"
    )
    assert why_workers_wait(fake.cluster("demo", "cpu", pools=pools[:1]), None) == (
        "1 of 1 desired pods are ready, no task waits"
    )


def test_waiting_in_vain_for_an_operator_that_is_away_names_it(demo: fake.FakeServer):
    demo.clusters["demo"]["metadata"]["generation"] = 5
    demo.clusters["demo"]["status"] = {"observedGeneration": 4, "pools": [{"name": "gpu", "desired": 1, "ready": 1}]}

    with KubeCluster.from_name("demo", quiet=True) as cluster, pytest.raises(KubeClusterError) as raised:
        cluster.wait_for_workers(2, pool="gpu", timeout=0)

    reason = "the operator has not looked at generation 5 of the cluster yet, only at 4: is it running?"
    assert raised.value.reason == reason
    assert "kubectl get pods -A -l app.kubernetes.io/name=gpudask" in raised.value.next_step
