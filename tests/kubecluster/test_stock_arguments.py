"""The stock client's arguments: each is used where it means something here, or refused with what to write instead."""

import pytest
from dask_kubernetes.operator.kubecluster.kubecluster import CreateMode as StockMode

from gpudask import KubeCluster, KubeClusterError, make_worker_spec
from gpudask.kubecluster.manifest import Arguments, manifest
from tests.kubecluster import fake_server as fake


def pools(server: fake.FakeServer) -> list[fake.Json]:
    listed: list[fake.Json] = server.clusters["demo"]["spec"]["pools"]
    return listed


def sizes(server: fake.FakeServer) -> dict[str, int]:
    return {entry["pool"]: entry["replicas"] for entry in server.clusters["demo"]["spec"].get("overrides", [])}


def test_a_worker_group_is_a_pool(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(3, worker_group="gpu")
        cluster.scale(2, worker_group="default")
        assert sizes(demo) == {"gpu": 3, "cpu": 2}
        with pytest.raises(KubeClusterError, match=r"pool='cpu' beside worker_group='gpu'.*Write pool= alone"):
            cluster.scale(3, pool="cpu", worker_group="gpu")


def test_the_default_group_is_the_pool_of_that_name_where_there_is_one(demo: fake.FakeServer):
    pools(demo).append({"name": "default", "gpu": {}})

    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(2, worker_group="default")

    assert sizes(demo) == {"default": 2}


def test_worker_groups_are_added_and_deleted(demo: fake.FakeServer):
    words = {
        "image": "me/dask:1",
        "resources": {"requests": {"memory": "8Gi"}},
        "worker_command": "dask worker --lifetime 1h",
        "env": {"LEVEL": 3},
    }
    with KubeCluster.from_name("demo") as cluster:
        cluster.add_worker_group("himem", 2, **words)
        assert pools(demo)[-1] == {
            "name": "himem",
            "replicas": 2,
            "image": "me/dask:1",
            "resources": {"memory": "8Gi"},
            "extraArgs": ["--lifetime", "1h"],
            "env": [{"name": "LEVEL", "value": "3"}],
        }
        cluster.delete_worker_group("himem")
        assert [pool["name"] for pool in pools(demo)] == ["cpu", "gpu"]


def test_a_worker_group_is_as_the_default_pool_but_for_what_it_says(demo: fake.FakeServer):
    pools(demo)[0] |= {
        "resources": {"memory": "4Gi"},
        "extraArgs": ["--lifetime", "1h"],
        "env": [{"name": "A", "value": "1"}],
    }
    with KubeCluster.from_name("demo") as cluster:
        cluster.add_worker_group("more")
        cluster.add_worker_group("gpus", 1, resources={"limits": {"nvidia.com/gpu": 1}}, worker_command="dask worker")

    assert pools(demo)[2:] == [
        pools(demo)[0] | {"name": "more", "replicas": 3},
        {
            "name": "gpus",
            "replicas": 1,
            "gpu": {"count": 1, "launcher": "dask", "nodeSelector": {}},
            "accepts": "any",
            "env": [{"name": "A", "value": "1"}],
        },
    ]


def test_a_groups_name_is_a_pools_without_its_hyphens(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.add_worker_group("high-mem-workers", 2)
        cluster.scale(5, worker_group="high-mem-workers")
        assert sizes(demo) == {"highmemworkers": 5}
        cluster.delete_worker_group("high-mem-workers")
    assert [pool["name"] for pool in pools(demo)] == ["cpu", "gpu"]


def test_a_custom_spec_of_a_worker_group_is_converted(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    spec = make_worker_spec(image="big:1", n_workers=2, resources={"limits": {"nvidia.com/gpu": 1}})
    spec["spec"]["tolerations"] = [{"operator": "Exists"}]
    spec["spec"]["containers"][0]["args"] = ["dask-worker", "--nworkers", "2"]
    with KubeCluster.from_name("demo") as cluster:
        cluster.add_worker_group("big", custom_spec=spec)
        with pytest.raises(ValueError, match=r"worker group bad: custom_spec\.spec\.containers: a"):
            cluster.add_worker_group("bad", custom_spec={"spec": {"containers": []}})
        with pytest.raises(KubeClusterError, match="worker group bad: "):
            cluster.add_worker_group("bad", custom_spec=3)

    pool = pools(demo)[-1]
    assert (pool["name"], pool["replicas"], pool["image"]) == ("big", 2, "big:1")
    assert (pool["gpu"]["count"], pool["template"]["spec"]["tolerations"]) == (1, [{"operator": "Exists"}])
    assert "raise replicas instead" in caplog.text


def test_resource_timeout_limits_the_start(server: fake.FakeServer):
    with pytest.raises(KubeClusterError, match="not ready within 0 s"):
        KubeCluster.from_name("demo", resource_timeout=0)
    with pytest.raises(KubeClusterError, match=r"timeout=5 beside resource_timeout=60.*Write timeout= alone"):
        KubeCluster.from_name("demo", timeout=5, resource_timeout=60)


def test_ports_are_forwarded_inside_too_where_that_is_asked_for(demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(demo.port))

    with KubeCluster.from_name("demo", port_forward_cluster_ip=True) as cluster:
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
    assert demo.forwards


def test_jupyter_starts_beside_the_scheduler(demo: fake.FakeServer):
    spec = manifest("mine", Arguments(jupyter=True, scheduler_service_type="NodePort"))["spec"]
    assert spec["scheduler"] == {"service": {"type": "NodePort"}, "extraArgs": ["--jupyter"]}

    with KubeCluster.from_name("demo") as cluster:
        with pytest.raises(KubeClusterError, match=r"has no Jupyter.*jupyter=True"):
            _ = cluster.jupyter_link
        demo.clusters["demo"]["spec"]["scheduler"] = {"extraArgs": ["--jupyter"]}
        cluster.scale(1, pool="gpu")
        assert cluster.jupyter_link == cluster.dashboard_link.replace("/status", "/jupyter/lab")


@pytest.mark.parametrize("mode", [StockMode.CREATE_ONLY, "CREATE_ONLY"])
def test_the_stock_clients_create_mode_is_taken(demo: fake.FakeServer, mode: StockMode | str):
    assert demo.clusters
    with pytest.raises(KubeClusterError, match="exists already"):
        KubeCluster("demo", create_mode=mode, timeout="20s")


def test_a_create_mode_that_there_is_none_of_is_refused():
    with pytest.raises(KubeClusterError, match=r"create_mode='CREATE'.*Write one of CREATE_ONLY, CREATE_OR_CONNECT"):
        KubeCluster("demo", create_mode="CREATE")


def test_a_timeout_may_be_a_duration(demo: fake.FakeServer):
    with KubeCluster.from_name("demo", timeout="1m") as cluster:
        cluster.wait_for_workers(0, timeout="10s")
        with pytest.raises(KubeClusterError, match=r"2 of 99 workers came within 0\.1 s"):
            cluster.wait_for_workers(99, timeout="100ms")
    assert demo.clusters


@pytest.mark.parametrize("timeout", ["soon", "5 parsecs", [1]])
def test_a_timeout_that_is_no_time_is_refused_before_anything_is_done(demo: fake.FakeServer, timeout: object):
    with pytest.raises(KubeClusterError, match=r"no time limit.*Write seconds"):
        KubeCluster.from_name("demo", timeout=timeout)
    with KubeCluster.from_name("demo") as cluster:
        for asked in (
            lambda: cluster.wait_for_workers(1, timeout=timeout),
            lambda: cluster.hold("gpu", 1, timeout=timeout),
        ):
            with pytest.raises(KubeClusterError, match="no time limit"):
                asked()
    assert sizes(demo) == {}
