"""Limits, and a pool held at a fixed set of workers."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from gpudask import KubeCluster, KubeClusterError
from gpudask.api.resource import MIRROR_MANAGER
from gpudask.kubecluster import holds
from gpudask.kubecluster.holds import Holds
from gpudask.kubecluster.timing import Clock, Timing
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import PATIENT
from tests.kubecluster.test_interruptions import until_said


def overrides(server: fake.FakeServer) -> dict[str, fake.Json]:
    listed = server.clusters["demo"]["spec"].get("overrides", [])
    return {entry["pool"]: {key: entry[key] for key in entry if key not in {"pool", "by", "until"}} for entry in listed}


def test_adapt_sets_limits(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.adapt(1, 8, pool="gpu")
        assert overrides(demo) == {"gpu": {"min": 1, "max": 8}}
        cluster.unscale("gpu")

    assert overrides(demo) == {}


def test_a_limit_that_is_left_out_is_the_manifests(demo: fake.FakeServer):
    demo.clusters["demo"]["spec"]["pools"][1]["autoscale"] = {"min": 2, "max": 5}

    with KubeCluster.from_name("demo") as cluster:
        cluster.adapt(pool="gpu", maximum=9)
        assert overrides(demo) == {"gpu": {"min": 2, "max": 9}}
        cluster.adapt(0, pool="gpu")

    assert overrides(demo) == {"gpu": {"min": 0, "max": 5}}


def test_a_fixed_pool_without_a_maximum_may_have_as_many_as_a_pool_can(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        limits = cluster.adapt(1, pool="gpu")

    assert (limits.minimum, limits.maximum) == (1, 5000)
    assert overrides(demo) == {"gpu": {"min": 1, "max": 5000}}


def test_holding_sets_the_size_gives_the_workers_and_the_size_back(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        with cluster.hold("gpu", 1) as workers:
            assert overrides(demo) == {"gpu": {"replicas": 1}}
            assert [cluster.scheduler_info["workers"][address]["name"] for address in workers] == [
                "demo-gpu-worker-0-bbbbb-0"
            ]
        assert overrides(demo) == {}


def test_the_table_shows_a_hold_as_long_as_it_lasts(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(2, pool="gpu")
        with cluster.hold("gpu", 1):
            assert "1 pod (set by hold:" in cluster._repr_html_()
        assert "2 pods (set by " in cluster._repr_html_()
        assert "hold:" not in cluster._repr_html_()


def test_holding_gives_back_what_was_set_before(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.adapt(0, 3, pool="gpu")
        cluster.scale(2, pool="cpu")
        with cluster.hold("gpu", 1):
            assert overrides(demo) == {"gpu": {"replicas": 1}, "cpu": {"replicas": 2}}
        assert overrides(demo) == {"gpu": {"min": 0, "max": 3}, "cpu": {"replicas": 2}}


def test_holding_gives_back_what_a_user_of_the_stock_client_set(demo: fake.FakeServer):
    theirs = {"pool": "gpu", "replicas": 2, "by": "kr8s on DaskWorkerGroup demo-gpu"}
    demo.clusters["demo"]["spec"]["overrides"] = [theirs]
    demo.clusters["demo"]["metadata"]["managedFields"] = [fake.managed_fields(MIRROR_MANAGER, "gpu")]

    with KubeCluster.from_name("demo") as cluster:
        with cluster.hold("gpu", 1):
            assert overrides(demo) == {"gpu": {"replicas": 1}}
        assert demo.clusters["demo"]["spec"]["overrides"] == [theirs]


def test_what_ended_while_a_pool_was_held_does_not_come_back(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(2, pool="gpu")
        demo.clusters["demo"]["spec"]["overrides"][0]["until"] = "2026-01-01T00:00:00Z"
        with cluster.hold("gpu", 1):
            pass
    assert overrides(demo) == {}


@pytest.mark.parametrize("status", [0, 503])
def test_a_size_is_given_back_once_the_api_server_answers_again(demo: fake.FakeServer, status: int):
    timing = Timing(hold_release_seconds=120.0)
    with KubeCluster.from_name("demo", timing=timing) as cluster, cluster.hold("gpu", 1):
        demo.broken = status
        threading.Thread(target=repair, args=[demo]).start()
    assert overrides(demo) == {}


def repair(server: fake.FakeServer) -> None:
    """Once it was asked in vain."""
    asked = len(server.requests)
    eventually(lambda: len(server.requests) > asked, "a question")
    server.broken = None


def test_a_hold_that_was_refused_has_nothing_to_give_back(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    with KubeCluster.from_name("demo") as cluster:
        demo.forbidden.add("GET demo")
        with pytest.raises(KubeClusterError, match="cannot get gpudaskclusters/demo"):
            cluster.hold("gpu", 1).__enter__()
    assert "given back" not in caplog.text


def test_holding_gives_the_size_back_after_an_error(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        with pytest.raises(ZeroDivisionError), cluster.hold("gpu", 1):
            _ = 1 / 0
        assert overrides(demo) == {}


def test_an_error_leaves_a_hold_whose_cluster_was_closed_in_it(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    def closed_within() -> None:
        with KubeCluster.from_name("demo") as cluster, cluster.hold("gpu", 1):
            cluster.close()
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        closed_within()
    assert "the size of pool gpu was not given back" in caplog.text


@pytest.mark.parametrize("n", [0, 2], ids=["more than asked", "fewer than asked"])
def test_holding_waits_for_exactly_so_many(demo: fake.FakeServer, n: int):
    with KubeCluster.from_name("demo", quiet=True, timing=PATIENT) as cluster:
        with pytest.raises(KubeClusterError, match=f"1 of {n} workers of pool 'gpu' came within 0"):
            cluster.hold("gpu", n, timeout=0.5).__enter__()
        assert overrides(demo) == {}


def test_holding_a_pool_of_several_gpus_counts_its_pods(demo: fake.FakeServer):
    demo.clusters["demo"]["spec"]["pools"][1]["gpu"] = {"count": 4}

    with (
        KubeCluster.from_name("demo", quiet=True, timing=PATIENT) as cluster,
        pytest.raises(KubeClusterError, match="1 of 8 workers of pool 'gpu'"),
    ):
        cluster.hold("gpu", 2, timeout=0.5).__enter__()


def test_a_pool_that_somebody_else_sizes_is_not_held(demo: fake.FakeServer):
    demo.clusters["demo"]["spec"]["overrides"] = [{"pool": "gpu", "replicas": 7, "by": "git"}]
    demo.clusters["demo"]["metadata"]["managedFields"] = [fake.managed_fields("argocd", "gpu")]

    with KubeCluster.from_name("demo") as cluster, pytest.raises(KubeClusterError, match="argocd set it as well"):
        cluster.hold("gpu", 1).__enter__()
    assert overrides(demo) == {"gpu": {"replicas": 7}}


def test_holding_works_asynchronously(demo: fake.FakeServer):
    async def program() -> int:
        async with KubeCluster.from_name("demo", asynchronous=True) as cluster:
            async with cluster.hold("gpu", 1) as workers:
                assert overrides(demo) == {"gpu": {"replicas": 1}}
            return len(workers)

    assert asyncio.run(program()) == 1
    assert overrides(demo) == {}


def test_waiting_says_what_it_waits_for(demo: fake.FakeServer, shown: list[str], capsys: pytest.CaptureFixture[str]):
    demo.clusters["demo"]["status"] = {
        "pools": [{"name": "gpu", "desired": 2, "ready": 1, "message": "0/3 nodes: Insufficient nvidia.com/gpu"}]
    }
    timing = until_said(shown, "1 of 2 workers", timeout_seconds=4)
    with KubeCluster.from_name("demo", timing=timing) as cluster, pytest.raises(KubeClusterError):
        cluster.wait_for_workers(2, pool="gpu", timeout=4)

    assert (
        "cluster demo: 1 of 2 workers of pool 'gpu' run: 1 of 2 desired pods are ready, 0/3 nodes: Insufficient"
        in capsys.readouterr().out
    )


def test_it_says_while_it_connects_what_the_scheduler_waits_for(
    server: fake.FakeServer, shown: list[str], capsys: pytest.CaptureFixture[str]
):
    pod = fake.scheduler_pod("demo-scheduler-00000", ready=False)
    pod["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes have cpu"}],
    }
    server.pods.append(pod)

    with pytest.raises(KubeClusterError):
        KubeCluster.from_name("demo", timeout=2, timing=until_said(shown, "no node can take it", timeout_seconds=2))

    assert "cluster demo: scheduler: no node can take it: 0/3 nodes have cpu" in capsys.readouterr().out


def test_a_cluster_that_is_deleted_while_it_is_waited_for_ends_the_wait(server: fake.FakeServer):
    def delete() -> None:
        eventually(lambda: f"GET {fake.PODS}" in server.requests, "it looks for the scheduler's pod")
        del server.clusters["demo"]

    thread = threading.Thread(target=delete)
    thread.start()
    with pytest.raises(KubeClusterError, match="no cluster 'demo'"):
        KubeCluster.from_name("demo", timeout=120, quiet=True)
    thread.join()


def until(server: fake.FakeServer) -> str:
    (entry,) = server.clusters["demo"]["spec"]["overrides"]
    return str(entry["until"])


def test_a_hold_ends_by_itself_unless_its_program_renews_it(demo: fake.FakeServer):
    passed = [timedelta(0)]
    timing = Timing(hold_renew_seconds=0.1, clock=Clock(now=lambda: datetime.now(UTC) + passed[-1]))
    with KubeCluster.from_name("demo", timing=timing) as cluster, cluster.hold("gpu", 1):
        left = datetime.fromisoformat(until(demo)) - datetime.now(UTC)
        assert timedelta(minutes=14) < left < timedelta(minutes=16)
        passed.append(timedelta(hours=1))
        eventually(lambda: datetime.fromisoformat(until(demo)) - datetime.now(UTC) > left * 2, "it is renewed")


@pytest.mark.parametrize(
    ("seconds", "expected"), [((), 240), ((900,), 240), ((900, 30), 31), ((30, 900), 240), ((-5,), 1)]
)
def test_a_hold_is_renewed_when_one_above_it_ends_before(seconds: tuple[float, ...], expected: float):
    now = datetime.now(UTC)
    timing = Timing(clock=Clock(now=lambda: now))
    entries = tuple(
        {"by": str(number), "until": (now + timedelta(seconds=end)).isoformat()} for number, end in enumerate(seconds)
    )
    assert holds._until_renewal(Holds(entries=entries), timing) == pytest.approx(expected, abs=1)


def test_a_hold_that_somebody_changed_is_neither_renewed_nor_given_back(
    demo: fake.FakeServer, caplog: pytest.LogCaptureFixture
):
    timing = Timing(hold_renew_seconds=0.1)
    with KubeCluster.from_name("demo", timing=timing) as cluster, cluster.hold("gpu", 1):
        cluster.scale(3, pool="gpu")
        eventually(lambda: "somebody changed the size of pool gpu" in caplog.text, "it is said")
        assert overrides(demo) == {"gpu": {"replicas": 3}}
    assert overrides(demo) == {"gpu": {"replicas": 3}}, "the other's size stays after the hold"
