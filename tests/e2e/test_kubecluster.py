"""`KubeCluster` creates, sizes, holds, suspends and survives, on the real cluster, from outside it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from distributed import Client

from gpudask import KubeCluster, KubeClusterError, discover
from gpudask.api.spec import Spec
from tests.e2e.breakages import broken_connection
from tests.e2e.kubeconfigs import breakable_network
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.programs import IMAGE
from tests.e2e.space import Space

SMALL = {"cpu": "100m", "memory": "512Mi"}


@pytest.fixture(autouse=True)
def _kubeconfig(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(space.kubectl.kubeconfig))


def test_it_creates_a_cluster_of_a_file_computes_on_it_and_deletes_it(
    space: Space, tmp_path: Path, unused_tcp_port: int
) -> None:
    made = tmp_path / "made.yaml"
    made.write_text(yaml.safe_dump(cluster("made", cpu(replicas=2), gpu())))
    options = {"custom_cluster_spec": made, "scheduler_forward_port": unused_tcp_port, "timeout": 120}
    with KubeCluster("made", namespace=space.kubectl.namespace, **options) as found, Client(found) as client:
        assert found.dashboard_link == f"http://127.0.0.1:{unused_tcp_port}/status"
        assert httpx.get(found.dashboard_link, timeout=120).status_code == 200
        found.wait_for_workers(2, pool="cpu", timeout=90)
        assert client.submit(sum, [1, 2]).result(timeout=120) == 3
        assert any("scheduler" in name for name in found.get_logs(tail=5))
        assert "cpu=2" in repr(found)
    space.wait(lambda: not space.get("gdc"), "the cluster is gone")


def test_the_short_words_make_a_cluster_that_the_server_accepts(space: Space) -> None:
    with KubeCluster(
        "short",
        namespace=space.kubectl.namespace,
        image=IMAGE,
        n_workers=1,
        gpus=2,
        resources=SMALL,
        env={"LEVEL": "3"},
        worker_command="dask worker --lifetime 1h",
        timeout=120,
    ) as found:
        found.wait_for_workers(1, pool="cpu", timeout=90)
        with Client(found) as client:
            (seen,) = client.run(lambda dask_worker: (dask_worker.lifetime, os.environ["LEVEL"])).values()
        assert seen == (3600, "3")
    space.wait(lambda: not space.get("gdc"), "the cluster is gone")


def test_a_pool_is_held_adapted_added_and_removed(space: Space) -> None:
    space.apply(cluster("held", cpu(), gpu()))
    space.wait_ready("held")
    with KubeCluster.from_name("held", namespace=space.kubectl.namespace) as found:
        with found.hold("gpu", 2, timeout=90) as workers:
            assert len(workers) == 2
            with found.hold("gpu", 2, timeout=120) as same:
                assert set(same) == set(workers)
            held = space.pool("held", "gpu")
            assert (held["desired"], held["sizeSetBy"].partition(":")[0]) == (2, "hold")
        space.wait_pods("held", "gpu", 0)

        found.adapt(1, 2, pool="gpu")
        space.wait_workers("held", "gpu", 1)
        space.wait(
            lambda: space.pool("held", "gpu")["sizeSetBy"].startswith("autoscale, limits by"), "who set the limits"
        )
        found.unscale("gpu")
        space.wait_pods("held", "gpu", 0)

        found.add_pool("more", n_workers=1, resources=SMALL)
        found.wait_for_workers(1, pool="more", timeout=90)
        found.remove_pool("more")
        space.wait_pods("held", "more", 0)


def test_it_suspends_and_resumes(space: Space) -> None:
    model = Spec.model_validate(cluster("rests", cpu())["spec"])
    options = {"custom_cluster_spec": model, "quiet": True, "timeout": 120}
    with KubeCluster("rests", namespace=space.kubectl.namespace, **options) as found:
        found.suspend()
        space.wait_pods("rests", "", 0)
        found.resume(timeout=90)
        found.wait_for_workers(1, pool="cpu", timeout=90)


async def test_it_is_discovered(space: Space) -> None:
    space.apply(cluster("seen", cpu()))

    assert [name async for name, _ in discover(space.kubectl.namespace)] == ["seen"]


def test_a_killed_port_forward_and_a_restarted_scheduler_leave_a_client_that_works_again(
    space: Space, tmp_path: Path
) -> None:
    space.apply(cluster("breaks", cpu()))
    space.wait_ready("breaks")
    with (
        breakable_network(space, tmp_path / "kubeconfig") as network,
        KubeCluster.from_name("breaks", kubeconfig=str(tmp_path / "kubeconfig"), quiet=True) as found,
        Client(found, timeout=120) as client,
    ):
        assert client.submit(sum, [1, 2]).result(timeout=120) == 3
        with broken_connection(client):
            assert network.cut() > 0

        (pod,) = space.pods("breaks")
        with broken_connection(client):
            space.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=1")
        assert pod["metadata"]["uid"] not in space.uids("breaks")


def test_a_cluster_that_nobody_uses_goes_also_when_its_program_is_gone(space: Space) -> None:
    words = {"image": IMAGE, "n_workers": 1, "resources": SMALL, "idle_timeout": 30, "shutdown_on_close": False}
    options = {"namespace": space.kubectl.namespace, "quiet": True, "timeout": 120}
    with KubeCluster("brief", **words, **options) as found, Client(found) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    assert space.get("gdc"), "it outlives its program"
    space.wait(lambda: not space.get("gdc"), "the operator deleted it")


_KILLED = """
import os, signal, sys
from gpudask import KubeCluster
KubeCluster("orphan", namespace=sys.argv[1], image=sys.argv[2], n_workers=1, shutdown_after_disconnect="2m",
            resources={"cpu": "100m", "memory": "512Mi"}, quiet=True, timeout=120)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_cluster_whose_program_was_killed_goes_and_one_that_is_held_without_a_client_stays(space: Space) -> None:
    namespace = space.kubectl.namespace
    options = {"namespace": namespace, "quiet": True, "timeout": 120, "image": IMAGE, "n_workers": 1}
    with KubeCluster("held", resources=SMALL, shutdown_after_disconnect="2m", **options) as held:
        killed = subprocess.run([sys.executable, "-c", _KILLED, namespace, IMAGE], check=False, timeout=300)
        assert killed.returncode == -signal.SIGKILL
        assert {item["metadata"]["name"] for item in space.get("gdc")} == {"held", "orphan"}

        def left() -> set[str]:
            return {item["metadata"]["name"] for item in space.get("gdc")}

        space.wait(lambda: "orphan" not in left(), "the operator deleted it", seconds=300)
        assert "held" in left(), "its program lives"
        with pytest.raises(KubeClusterError, match="the operator deleted it: no client has been connected for"):
            KubeCluster.from_name("orphan", namespace=namespace, quiet=True)
        assert held.status.name == "running"


@pytest.mark.alone  # it takes the operator away
def test_without_its_operator_a_client_computes_and_what_waits_for_the_operator_says_so(space: Space) -> None:
    space.apply(cluster("alone", cpu()))
    space.wait_ready("alone")
    namespace = space.kubectl.namespace
    with KubeCluster.from_name("alone", namespace=namespace, quiet=True) as found, Client(found) as client:
        assert client.submit(sum, [1, 2]).result(timeout=120) == 3
        replicas = space.platform.scale_operator(0)
        try:
            assert client.submit(sum, [1, 2], pure=False).result(timeout=120) == 3
            found.scale(2, pool="cpu")
            with pytest.raises(KubeClusterError, match=r"not looked at generation \d+ .*is it running"):
                found.wait_for_workers(2, pool="cpu", timeout=3)
            with pytest.raises(KubeClusterError, match="the operator has reported nothing yet: is it running"):
                KubeCluster("unborn", namespace=namespace, image="any", quiet=True, timeout=3)
        finally:
            space.platform.scale_operator(replicas)
        found.wait_for_workers(2, pool="cpu", timeout=60)
        assert client.submit(sum, [1, 2], pure=False).result(timeout=120) == 3


def test_what_keeps_a_cluster_is_told_while_it_waits_and_in_the_error(
    space: Space, capsys: pytest.CaptureFixture[str]
) -> None:
    """An image that cannot be pulled, a GPU that no node has, and a quota: in Kubernetes' own words."""
    space.limit("no-gpus", {"requests.nvidia.com/gpu": "0"})
    slices = {"name": "slices", "gpu": {"resourceName": "nvidia.com/mig-7g.80gb"}, "replicas": 1}
    made = cluster("kept", gpu(replicas=1), slices)
    made["spec"]["image"], made["spec"]["imagePullPolicy"] = "localhost/no/such:image", "IfNotPresent"
    with pytest.raises(KubeClusterError) as raised:
        KubeCluster("kept", namespace=space.kubectl.namespace, custom_cluster_spec=made, timeout=20)

    told = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("created cluster")]
    print(raised.value, *told, sep="\n")
    assert "localhost/no/such:image" in str(raised.value)
    for words in (
        r"scheduler: .*localhost/no/such:image",
        r"pool gpu: .*exceeded quota: no-gpus, requested: requests.nvidia.com/gpu=1",
        r"pool slices: .*0/\d+ nodes are available: .*Insufficient nvidia.com/mig-7g.80gb",
    ):
        assert any(re.match(f"cluster kept: {words}", line) for line in told), (words, told)
    space.wait(lambda: not space.get("gdc"), "the cluster that did not come up is gone")
