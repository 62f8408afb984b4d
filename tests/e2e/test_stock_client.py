"""The stock Dask client's documented calls, unchanged, against clusters of ours, from outside.

https://kubernetes.dask.org/en/latest/operator_kubecluster.html
"""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from dask_kubernetes.operator import KubeCluster
from dask_kubernetes.operator.kubecluster.discovery import discover
from dask_kubernetes.operator.kubecluster.kubecluster import make_cluster_spec, make_worker_spec
from distributed import Client
from kr8s._api import Api as Kr8s

from tests.e2e.breakages import broken_connection
from tests.e2e.kubeconfigs import breakable_network
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.provider import chosen
from tests.e2e.space import Space

pytestmark = pytest.mark.alone  # it installs the operator with other values

AUTOSCALED = {"autoscale": {"min": 0, "max": 3}}
# Else it looks the Service's name up for 10 s, twice, before it forwards a port.
FORWARDED = {"port_forward_cluster_ip": True}


@pytest.fixture
def demo(space: Space, mirror: None, monkeypatch: pytest.MonkeyPatch) -> Space:
    """A cluster `demo` with a CPU and a GPU pool, both autoscaled, that the stock client finds."""
    monkeypatch.setenv("KUBECONFIG", str(space.kubectl.kubeconfig))
    space.apply(cluster("demo", cpu(**AUTOSCALED), gpu()))
    space.wait_ready("demo")
    space.wait(lambda: space.condition("demo", "Mirrored").get("status") == "True", "demo is mirrored")
    return space


def wait_set_by(demo: Space, pool: str, words: str) -> None:
    demo.wait(lambda: words in demo.pool("demo", pool)["sizeSetBy"], f"{pool} says that it is set: {words}")


def test_from_name_scale_and_compute(demo: Space) -> None:
    existing = KubeCluster.from_name(name="demo", namespace=demo.kubectl.namespace)
    existing.scale(2)
    demo.wait_workers("demo", "cpu", 2)
    existing.scale(1, worker_group="gpu")
    demo.wait_workers("demo", "gpu", 1)
    with Client(existing) as client:
        assert client.submit(sum, [1, 2]).result(timeout=120) == 3
        assert client.submit(sum, [1, 2], resources={"GPU": 1}).result(timeout=120) == 3
    logs = existing.get_logs()
    assert any("scheduler" in name and "Scheduler at" in text for name, text in logs.items()), logs
    assert sum("worker" in name for name in logs) == 3, list(logs)
    wait_set_by(demo, "gpu", "on DaskWorkerGroup demo-gpu")
    existing.close()
    assert demo.names("demo", "cpu"), "close() of a client that only connected leaves the cluster"


def test_adapt_lets_the_default_pool_follow_demand_within_the_limits(demo: Space) -> None:
    with KubeCluster.from_name("demo", namespace=demo.kubectl.namespace, **FORWARDED) as existing:
        existing.adapt(minimum=1, maximum=2)
        demo.wait_pods("demo", "cpu", 1)
        wait_set_by(demo, "cpu", "limits by")
        existing.scale(2)
        demo.wait_workers("demo", "cpu", 2)
    demo.wait(lambda: demo.get("daskautoscalers") == [], "no autoscaler is left")


def test_a_cut_a_restarted_scheduler_and_a_deleted_operator_leave_a_client_that_works_again(
    demo: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(Kr8s, "_instances", {})  # which keep to the kubeconfig of an earlier test
    with (
        breakable_network(demo, tmp_path / "kubeconfig") as network,
        KubeCluster.from_name("demo", namespace=demo.kubectl.namespace, **FORWARDED) as existing,
        Client(existing) as client,
    ):
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        with broken_connection(client):
            assert network.cut() > 0

        (pod,) = demo.pods("demo")
        with broken_connection(client):
            demo.kubectl("delete", "pod", pod["metadata"]["name"])  # and waits: it serves for its last seconds
        assert pod["metadata"]["uid"] not in demo.uids("demo")
        assert httpx.get(existing.dashboard_link, timeout=120).status_code == 200
        with Client(existing, set_as_default=False) as another:
            assert another.submit(sum, [1, 2], pure=False).result(timeout=120) == 3

        deleted = demo.platform.delete_operator()
        assert client.submit(sum, [1, 2], pure=False).result(timeout=120) == 3
        existing.scale(2)
        demo.wait_workers("demo", "cpu", 2)
        demo.platform.await_operator(after=deleted)


def test_kubectl_scale_of_a_worker_group(demo: Space) -> None:
    demo.kubectl("scale", "daskworkergroup", "demo-gpu", "--replicas", "4")
    demo.wait_pods("demo", "gpu", 4)
    wait_set_by(demo, "gpu", "on DaskWorkerGroup demo-gpu")
    demo.kubectl("scale", "daskworkergroup", "demo-gpu", "--replicas", "0")
    demo.wait_pods("demo", "gpu", 0)


async def test_the_listing_of_dask_ctl_names_it(demo: Space) -> None:
    assert ("demo", KubeCluster) in [found async for found in discover()]


def test_a_client_that_owns_it_deletes_it(demo: Space) -> None:
    with KubeCluster.from_name("demo", namespace=demo.kubectl.namespace, shutdown_on_close=True, **FORWARDED):
        pass
    demo.wait(lambda: not demo.get("gdc") and not demo.get("pods"), "the cluster and its pods are gone")


@pytest.mark.pod_security("baseline")  # the stock client's pods may run as root
def test_what_an_existing_program_makes_computes_scales_and_leaves_nothing(
    space: Space, mirror: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(space.kubectl.kubeconfig))
    small = {"cpu": "100m", "memory": "500Mi"}
    with (
        KubeCluster(
            name="mine",
            namespace=space.kubectl.namespace,
            image=chosen().image,
            n_workers=1,
            resources={"requests": small, "limits": {"memory": "500Mi"}},
            **FORWARDED,
        ) as made,
        Client(made) as client,
    ):
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        made.scale(2)
        space.wait_workers("mine", "default", 2)
        made.add_worker_group("more", n_workers=1)
        space.wait_workers("mine", "more", 1)
        made.delete_worker_group("more")
        space.wait(lambda: not space.pods("mine", "more"), "the group's pods are gone")
    left = ("daskclusters", "daskworkergroups", "gdc", "pods", "services")
    space.wait(lambda: not any(space.get(kind) for kind in left), "nothing is left")


@pytest.mark.pod_security("baseline")
def test_a_gpu_group_with_limits_in_an_annotation_starts_a_pod_for_a_gpu_task(space: Space, mirror: None) -> None:
    if reason := chosen().lacks_gpus():
        pytest.skip(reason)
    small = {"cpu": "100m", "memory": "500Mi"}
    of_cpu = {"requests": small, "limits": {"memory": "500Mi"}}
    of_gpu = {"requests": small, "limits": {"memory": "500Mi", "nvidia.com/gpu": 1}}
    space.apply(make_cluster_spec("mine", image=chosen().image, n_workers=1, resources=of_cpu))
    worker = make_worker_spec(image=chosen().image, n_workers=0, resources=of_gpu, worker_command="dask-worker")
    metadata = {"name": "mine-gpu", "annotations": {"gpudask.dev/autoscale": "0..1"}}
    space.apply(
        {
            "apiVersion": "kubernetes.dask.org/v1",
            "kind": "DaskWorkerGroup",
            "metadata": metadata,
            "spec": {"cluster": "mine", "worker": worker},
        }
    )
    space.wait_workers("mine", "default", 1)
    with space.client("mine") as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        assert space.pods("mine", "gpu") == [], "a plain task starts none"
        assert client.submit(sum, [1, 3], resources={"GPU": 1}).result(timeout=120) == 4
    space.wait_pods("mine", "gpu", 0, seconds=180)


@pytest.mark.pod_security("baseline")
def test_pods_that_start_dask_by_a_command_of_their_own_compute_and_are_scaled(
    space: Space, mirror: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as `bash -c "pip install ...; exec dask-worker"`: what our own commands would be told are variables."""
    monkeypatch.setenv("KUBECONFIG", str(space.kubectl.kubeconfig))
    small = {"requests": {"cpu": "100m", "memory": "500Mi"}, "limits": {"memory": "500Mi"}}
    spec = make_cluster_spec("own", image=chosen().image, n_workers=1, resources=small)
    for part, line in (("scheduler", "dask scheduler"), ("worker", "dask worker --name $DASK_WORKER_NAME --no-nanny")):
        spec["spec"][part]["spec"]["containers"][0] |= {"args": ["sh", "-c", f"echo mine; exec {line}"]}
    with (
        KubeCluster(custom_cluster_spec=spec, namespace=space.kubectl.namespace, **FORWARDED) as made,
        Client(made) as client,
    ):
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        made.scale(2)
        space.wait_workers("own", "default", 2)
        made.scale(1)
        space.wait_pods("own", "default", 1)  # an idle worker is released, and gone: the stock client lists its pod
        logs = made.get_logs()
        assert all("mine" in text for text in logs.values()), logs
