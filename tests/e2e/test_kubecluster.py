"""`KubeCluster` creates, sizes, holds, suspends and survives, on the real cluster, from outside it."""

from __future__ import annotations

import contextlib
import time

import pytest
from distributed import Client
from distributed.client import FutureCancelledError

from gpudask import KubeCluster, KubeClusterError, discover
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space

_RECOVERS_SECONDS = 30


@pytest.fixture(autouse=True)
def _kubeconfig(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(space.kubectl.kubeconfig))


def works_again(client: Client) -> None:
    """Futures that are pending when a connection breaks are cancelled by Dask's client: ask again, for so long."""
    deadline = time.monotonic() + _RECOVERS_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(FutureCancelledError, TimeoutError, OSError):
            assert client.submit(sum, [1, 2], pure=False).result(timeout=5) == 3
            return
    pytest.fail(f"no result within {_RECOVERS_SECONDS} s")


def test_it_creates_a_cluster_computes_on_it_and_deletes_it(space: Space) -> None:
    made = cluster("made", cpu(replicas=2), gpu())
    with (
        KubeCluster("made", namespace=space.kubectl.namespace, custom_cluster_spec=made, timeout=120) as found,
        Client(found) as client,
    ):
        found.wait_for_workers(2, pool="cpu", timeout=90)
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        assert any("scheduler" in name for name in found.get_logs(tail=5))
        assert "cpu=2" in repr(found)
    space.wait(lambda: not space.get("gdc"), "the cluster is gone")


def test_the_short_words_make_a_cluster_that_the_server_accepts(space: Space) -> None:
    image = cluster("x", cpu())["spec"]["image"]
    with KubeCluster(
        "short",
        namespace=space.kubectl.namespace,
        image=image,
        n_workers=1,
        gpus=2,
        resources={"cpu": "100m", "memory": "512Mi"},
        env={"LEVEL": "3"},
        timeout=120,
    ) as found:
        found.wait_for_workers(1, pool="cpu", timeout=90)
    space.wait(lambda: not space.get("gdc"), "the cluster is gone")


def test_a_pool_is_held_adapted_added_and_removed(space: Space) -> None:
    space.apply(cluster("held", cpu(), gpu()))
    space.wait_ready("held")
    with KubeCluster.from_name("held", namespace=space.kubectl.namespace) as found:
        with found.hold("gpu", 2, timeout=90) as workers:
            assert len(workers) == 2
            with found.hold("gpu", 2, timeout=30) as same:
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

        found.add_pool("more", n_workers=1, resources={"cpu": "100m", "memory": "512Mi"})
        found.wait_for_workers(1, pool="more", timeout=90)
        found.remove_pool("more")
        space.wait_pods("held", "more", 0)


def test_it_suspends_and_resumes(space: Space) -> None:
    space.apply(cluster("rests", cpu()))
    space.wait_ready("rests")
    with KubeCluster.from_name("rests", namespace=space.kubectl.namespace, quiet=True) as found:
        found.suspend()
        space.wait_pods("rests", "", 0)
        found.resume(timeout=90)
        found.wait_for_workers(1, pool="cpu", timeout=90)


async def test_it_is_discovered(space: Space) -> None:
    space.apply(cluster("seen", cpu()))

    assert [name async for name, _ in discover(space.kubectl.namespace)] == ["seen"]


def test_a_killed_port_forward_and_a_restarted_scheduler_leave_a_client_that_works_again(space: Space) -> None:
    space.apply(cluster("breaks", cpu()))
    space.wait_ready("breaks")
    with (
        KubeCluster.from_name("breaks", namespace=space.kubectl.namespace, quiet=True) as found,
        Client(found) as client,
    ):
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        for forward in found._forwards.values():
            found.loop.add_callback(forward.cut)
        works_again(client)

        space.kubectl("delete", "pod", next(iter(space.names("breaks"))), "--grace-period=1")
        works_again(client)


def test_a_cluster_that_nobody_uses_goes_also_when_its_program_is_gone(space: Space) -> None:
    made = cluster("brief", cpu(), idle={"deleteAfter": "10s"})
    where = {"namespace": space.kubectl.namespace, "custom_cluster_spec": made, "shutdown_on_close": False}
    with KubeCluster("brief", quiet=True, timeout=120, **where) as found, Client(found) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    assert space.get("gdc"), "it outlives its program"
    space.wait(lambda: not space.get("gdc"), "the operator deleted it", seconds=30)


def test_without_its_operator_a_client_computes_and_what_waits_for_the_operator_says_so(space: Space) -> None:
    space.apply(cluster("alone", cpu()))
    space.wait_ready("alone")
    namespace = space.kubectl.namespace
    with KubeCluster.from_name("alone", namespace=namespace, quiet=True) as found, Client(found) as client:
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        space.platform.scale_operator(0)
        try:
            assert client.submit(sum, [1, 2], pure=False).result(timeout=30) == 3
            found.scale(2, pool="cpu")
            with pytest.raises(KubeClusterError, match=r"not looked at generation \d+ .*is it running"):
                found.wait_for_workers(2, pool="cpu", timeout=3)
            with pytest.raises(KubeClusterError, match="the operator has reported nothing yet: is it running"):
                KubeCluster("unborn", namespace=namespace, image="any", quiet=True, timeout=3)
        finally:
            space.platform.scale_operator(1)
        found.wait_for_workers(2, pool="cpu", timeout=60)
        assert client.submit(sum, [1, 2], pure=False).result(timeout=30) == 3


def test_an_image_that_cannot_be_pulled_is_named_while_it_waits_and_in_the_error(
    space: Space, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KubeClusterError) as raised:
        KubeCluster("noimage", namespace=space.kubectl.namespace, image="localhost/no/such:image", timeout=30)

    assert "localhost/no/such:image" in str(raised.value)
    told = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("created cluster")]
    assert any("localhost/no/such:image" in line for line in told), told
    space.wait(lambda: not space.get("gdc"), "the cluster that did not come up is gone")
