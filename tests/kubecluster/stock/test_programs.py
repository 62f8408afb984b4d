"""Programs for the stock client and for LocalCUDACluster, as they run against an API server and a scheduler."""

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import dask
import pytest
from distributed import Adaptive, SpecCluster

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.timing import Clock
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import PATIENT, until
from tests.kubecluster.test_creating import an_operator


def entries(server: fake.FakeServer) -> dict[str, Any]:
    listed = server.clusters["demo"]["spec"].get("overrides", [])
    return {entry["pool"]: {key: entry[key] for key in entry if key not in ("pool", "by")} for entry in listed}


def test_configuration_names_and_makes_the_cluster(
    demo: fake.FakeServer, dask_cluster_of_lab: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JUPYTERHUB_USER", "Ada")
    settings = {"kubernetes": {"name": "dask-{JUPYTERHUB_USER}", "image": "me/dask:1", "count": {"start": 3}}}
    with dask.config.set(settings), KubeCluster(quiet=True) as cluster:
        spec = demo.clusters["dask-ada"]["spec"]
        assert (spec["image"], spec["pools"]) == ("me/dask:1", [{"name": "cpu", "replicas": 3}])
        assert cluster.name == "dask-ada"


@pytest.fixture
def dask_cluster_of_lab(demo: fake.FakeServer, dask: SpecCluster) -> Any:
    with an_operator(demo, dask):
        yield


def test_a_cluster_begins_without_workers_and_is_scaled_then(demo: fake.FakeServer, dask_cluster_of_lab: None):
    with KubeCluster("mine", image="i", n_workers=0, quiet=True) as cluster:
        assert cluster.n_workers == 0
        cluster.scale(4)
        assert demo.clusters["mine"]["spec"]["overrides"][0]["replicas"] == 4
        assert cluster.n_workers == 4


def test_attributes_are_those_of_the_cluster(demo: fake.FakeServer):
    demo.clusters["demo"]["spec"] |= {
        "env": [{"name": "A", "value": "1"}],
        "idle": {"deleteAfter": "10m"},
        "scheduler": {"extraArgs": ["--jupyter"], "service": {"type": "NodePort"}},
    }
    demo.clusters["demo"]["spec"]["pools"][0] |= {"autoscale": {"min": 2, "max": 8}, "extraArgs": ["--lifetime", "1h"]}
    demo.clusters["demo"]["status"] = {"pools": [{"name": "cpu", "desired": 3, "pods": 2}, {"name": "gpu"}]}

    with KubeCluster.from_name("demo", image="ignored", scheduler_forward_port=None) as cluster:
        assert (cluster.image, cluster.n_workers, cluster.env) == ("i", 2, [{"name": "A", "value": "1"}])
        assert (cluster.resources, cluster.worker_command) == ({}, ["dask", "worker", "--lifetime", "1h"])
        assert (cluster.jupyter, cluster.idle_timeout, cluster.scheduler_service_type) == (True, 600.0, "NodePort")
        assert (cluster.create_mode.value, cluster.scheduler_forward_port) == ("CONNECT_ONLY", None)
        assert not cluster.port_forward_cluster_ip
        assert cluster.dashboard_link == f"http://127.0.0.1:{cluster.forwarded_dashboard_port}/status"
        assert cluster.plan == {"cpu-0", "cpu-1", "cpu-2"}
        assert cluster.requested == {"cpu-0", "cpu-1"}
        assert cluster.observed == {"demo-cpu-worker-0-aaaaa", "demo-gpu-worker-0-bbbbb-0"}


def test_before_the_start_attributes_are_as_the_program_asked(server: fake.FakeServer):
    async def read() -> None:
        cluster = KubeCluster("new", image="i", n_workers=2, jupyter=True, env={"A": 1}, asynchronous=True)
        assert (cluster.image, cluster.n_workers, cluster.jupyter, cluster.env) == ("i", 2, True, {"A": 1})
        assert (cluster.plan, cluster.forwarded_dashboard_port) == (set(), "")
        await cluster.close()

    assert server.clusters
    asyncio.run(read())


def test_a_dashboard_link_is_as_dasks_configuration_says(demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    demo.clusters["demo"]["spec"]["scheduler"] = {"extraArgs": ["--jupyter"]}
    with KubeCluster.from_name("demo") as cluster:
        port = cluster.forwarded_dashboard_port
        with dask.config.set({"distributed.dashboard.link": "/user/{JUPYTERHUB_USER}/proxy/{port}/status"}):
            assert cluster.dashboard_link == f"/user/ada/proxy/{port}/status"
            assert cluster.jupyter_link == f"/user/ada/proxy/{port}/jupyter/lab"
        with dask.config.set({"distributed.dashboard.link": "{scheme}://proxy/{host}:{port}"}):
            assert cluster.dashboard_link == f"http://proxy/127.0.0.1:{port}"


@pytest.mark.parametrize("template", ["{NO_SUCH_VARIABLE}/status", "{}", "{port", "{port.x}"])
def test_a_link_that_cannot_be_filled_in_is_not_used_and_that_is_said(
    demo: fake.FakeServer, template: str, caplog: pytest.LogCaptureFixture
):
    with KubeCluster.from_name("demo") as cluster, dask.config.set({"distributed.dashboard.link": template}):
        assert cluster.dashboard_link == f"http://127.0.0.1:{cluster.forwarded_dashboard_port}/status"
    assert "distributed.dashboard.link=" in caplog.text
    assert demo.clusters


def test_adapt_answers_with_its_limits(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        limits = cluster.adapt(1, 8)
        assert (limits.minimum, limits.maximum) == (1, 8)
        assert entries(demo) == {"cpu": {"min": 1, "max": 8}}


def test_a_pool_that_came_since_the_cluster_was_read_is_adapted_too(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        demo.clusters["demo"]["spec"]["pools"].append({"name": "late", "autoscale": {"min": 1, "max": 7}})
        limits = cluster.adapt(pool="late")

    assert (limits.minimum, limits.maximum) == (1, 7)


def test_the_default_pool_is_not_removed_by_its_alias(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster, pytest.raises(KubeClusterError, match="no pool 'default'"):
        cluster.delete_worker_group("default")
    assert [pool["name"] for pool in demo.clusters["demo"]["spec"]["pools"]] == ["cpu", "gpu"]


def test_the_sliders_of_the_jupyterlab_extension_work(demo: fake.FakeServer):
    """It works in the loop, and awaits nothing of adapt()."""

    async def manage() -> None:
        async with KubeCluster.from_name("demo", asynchronous=True) as cluster:
            adaptive = cluster.adapt(minimum=2, maximum=5)
            assert (adaptive.minimum, adaptive.maximum) == (2, 5)
            await until(lambda: entries(demo) == {"cpu": {"min": 2, "max": 5}}, "what nobody awaited")
            assert await cluster.adapt(0, 3, pool="gpu") == await adaptive.__class__(0, 3)
            assert entries(demo)["gpu"] == {"min": 0, "max": 3}
            with pytest.raises(KubeClusterError, match="no pool 'none'"):
                await cluster.adapt(0, 3, pool="none")

    asyncio.run(asyncio.wait_for(manage(), 60))


def test_an_adapt_that_nobody_awaits_says_that_it_has_failed(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    async def manage() -> None:
        async with KubeCluster.from_name("demo", asynchronous=True) as cluster:
            demo.forbidden.add("PATCH demo")
            cluster.adapt(0, 3, pool="gpu")
            await until(lambda: "adapt() has set nothing" in caplog.text, "the warning")

    asyncio.run(asyncio.wait_for(manage(), 60))


def test_words_for_dasks_own_adaptive_are_answered_by_a_warning(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        with pytest.warns(UserWarning, match=r"adapt\(interval=...\) is not used: the operator looks at once"):
            cluster.adapt(minimum=0, maximum=3, interval="500ms")
        with pytest.warns(UserWarning, match=r"adapt\(Adaptive=...\) is not used: the operator decides"):
            cluster.adapt(Adaptive, maximum=3)
        with pytest.raises(ValueError, match=r"adapt\(maximum_cores=8\): .*Write maximum=, in pods"):
            cluster.adapt(maximum_cores=8)
        with pytest.raises(TypeError, match=r"adapt\(\) has no argument 'max'"):
            cluster.adapt(max=8)
    assert entries(demo) == {"cpu": {"min": 0, "max": 3}}


def test_the_jobs_of_dask_jobqueue_are_pods(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        limits = cluster.adapt(minimum_jobs=1, maximum_jobs=4)
        assert (limits.minimum, limits.maximum) == (1, 4)
        with pytest.raises(ValueError, match=r"maximum=8 beside maximum_jobs=4"):
            cluster.adapt(maximum=8, maximum_jobs=4)
    assert entries(demo) == {"cpu": {"min": 1, "max": 4}}


def test_close_waits_until_the_cluster_and_its_pods_are_gone(demo: fake.FakeServer, dask_cluster_of_lab: None):
    cluster = KubeCluster("mine", image="i", n_workers=1, quiet=True)
    left = fake.pod("mine-cpu-worker-0", "worker")
    demo.pods.append(left)

    def end() -> None:
        eventually(lambda: "mine" not in demo.clusters, "the resource is deleted")
        looks = demo.requests.count(f"GET {fake.PODS}")
        eventually(lambda: demo.requests.count(f"GET {fake.PODS}") > looks + 1, "it looks for the pods, and again")
        demo.pods[:] = [pod for pod in demo.pods if not pod["metadata"]["name"].startswith("mine-")]

    ending = threading.Thread(target=end)
    ending.start()
    cluster.close(timeout=200)
    ending.join()

    assert left not in demo.pods
    assert "mine" not in demo.clusters


def test_close_that_waits_in_vain_says_what_is_left(demo: fake.FakeServer, dask_cluster_of_lab: None):
    asked = f"DELETE {fake.CLUSTERS}/mine"
    a_minute_passes = Clock(monotonic=lambda: time.monotonic() + (60.0 if asked in demo.requests else 0.0))
    timing = replace(PATIENT, readiness_poll_seconds=0.01, clock=a_minute_passes)
    cluster = KubeCluster("mine", image="i", n_workers=1, quiet=True, timing=timing)
    left = fake.pod("mine-cpu-worker-0", "worker")
    demo.pods.append(left)

    with pytest.raises(TimeoutError, match=r"is not gone within 60 s: there are still: pod mine-cpu-worker-0"):
        cluster.close(timeout="60000ms")
    cluster.close()


def test_errors_are_also_what_others_raise_there(demo: fake.FakeServer):
    with pytest.raises(ValueError, match="exists already"):
        KubeCluster("demo", create_mode="CREATE_ONLY", image="i")
    with pytest.raises(ValueError, match="no cluster 'none'"):
        KubeCluster.from_name("none")
    with KubeCluster.from_name("demo", timing=PATIENT) as cluster, pytest.raises(TimeoutError, match="2 of 9 workers"):
        cluster.wait_for_workers(9, timeout=0.1)
    with pytest.raises(TypeError, match=r"Did you mean n_workers=\?"):
        KubeCluster("demo", n_worker=3)
    assert issubclass(KubeClusterError, RuntimeError), "as the stock client's jupyter_link raises"


def test_a_scheduler_that_does_not_come_in_time_is_a_timeout(server: fake.FakeServer):
    with pytest.raises(TimeoutError, match=r"not ready within 0\.1 s"):
        KubeCluster.from_name("demo", timeout=0.1)
    assert server.clusters
