"""The lease of clusters that programs make: who has one, how it is renewed, and what is said once it has ended."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask as dask_package
import pytest
from distributed import Client, SpecCluster

from gpudask import KubeCluster, KubeClusterError
from gpudask.api.spec import Spec
from gpudask.kubecluster.manifest import Shutdown
from gpudask.kubecluster.forward import route as routes
from gpudask.kubecluster.timing import Timing
from gpudask.preload import clients
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import add_scheduler, be_inside
from tests.kubecluster.test_creating import an_operator


@pytest.fixture
def operated(server: fake.FakeServer, dask: SpecCluster) -> Iterator[fake.FakeServer]:
    with an_operator(server, dask):
        yield server


def idle(server: fake.FakeServer, name: str = "mine") -> dict[str, Any]:
    found: dict[str, Any] = server.clusters[name]["spec"].get("idle", {})
    return found


def patches(server: fake.FakeServer) -> int:
    return sum(request.startswith("PATCH") for request in server.requests)


# ---------------------------------------------------------------------- who has one

SPEC = {"image": "me/dask:1", "pools": [{"name": "cpu"}]}
ITS_OWN = SPEC | {"idle": {"shutdownAfterDisconnect": "3h", "deleteAfter": "1h"}}
SHUTDOWN = "shutdownAfterDisconnect"


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ({}, {SHUTDOWN: "10m"}),
        ({"shutdown_after_disconnect": "1h"}, {SHUTDOWN: "1h"}),
        ({"shutdown_after_disconnect": 3600}, {SHUTDOWN: "3600s"}),
        ({"shutdown_after_disconnect": None}, {}),
        ({"shutdown_after_disconnect": 0}, {}),
        ({"idle_timeout": "1h"}, {"deleteAfter": "1h", SHUTDOWN: "10m"}),
        ({"shutdown_on_close": False}, {}),
        ({"shutdown_on_close": False, "shutdown_after_disconnect": "1h"}, {SHUTDOWN: "1h"}),
        ({"custom_cluster_spec": SPEC}, {SHUTDOWN: "10m"}),
        ({"custom_cluster_spec": ITS_OWN}, {SHUTDOWN: "3h", "deleteAfter": "1h"}),
        ({"custom_cluster_spec": {"spec": ITS_OWN}}, {SHUTDOWN: "3h", "deleteAfter": "1h"}),
        (
            {"custom_cluster_spec": ITS_OWN, "shutdown_after_disconnect": "1h"},
            {SHUTDOWN: "1h", "deleteAfter": "1h"},
        ),
        ({"custom_cluster_spec": SPEC, "shutdown_after_disconnect": None}, {}),
    ],
)
def test_what_a_program_makes_and_closes_ends_without_it_unless_it_says_otherwise(
    operated: fake.FakeServer, words: dict[str, Any], written: dict[str, Any]
):
    with KubeCluster("mine", quiet=True, **words):
        assert idle(operated) == written


@pytest.mark.parametrize(("configured", "written"), [("2h", {SHUTDOWN: "2h"}), (None, {})])
def test_an_administrator_sets_it_for_everybody(
    operated: fake.FakeServer, configured: str | None, written: dict[str, Any]
):
    with dask_package.config.set({"gpudask.shutdown-after-disconnect": configured}):
        with KubeCluster("mine", quiet=True):
            assert idle(operated) == written
        with KubeCluster("mine", quiet=True, shutdown_after_disconnect="1h"):
            assert idle(operated) == {SHUTDOWN: "1h"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("soon", "shutdown_after_disconnect"),
        ("1m", r"spec.idle.shutdownAfterDisconnect: .*write at least 2m"),
        (-3, "shutdown_after_disconnect|shutdownAfterDisconnect"),
    ],
)
def test_what_is_no_time_is_refused_with_what_to_write(server: fake.FakeServer, value: Any, said: str):
    with pytest.raises(KubeClusterError, match=said):
        KubeCluster("mine", shutdown_after_disconnect=value)
    assert "mine" not in server.clusters


def test_one_that_exists_is_left_as_it_is(demo: fake.FakeServer):
    with KubeCluster("demo", quiet=True, shutdown_on_close=False) as cluster:
        cluster.shutdown_on_close = True
        cluster.shutdown_on_close = False
        assert idle(demo, "demo") == {}
    assert patches(demo) == 0


def test_a_pod_that_may_not_read_its_cluster_holds_it_all_the_same(
    demo: fake.FakeServer, dask: SpecCluster, monkeypatch: pytest.MonkeyPatch
):
    be_inside(demo, monkeypatch)
    monkeypatch.setattr(routes, "inside", lambda _: routes.Route(dask.scheduler_address, ""))
    demo.forbidden = {"GET demo"}

    found = KubeCluster.from_name("demo", namespace="lab", quiet=True, scheduler_sync_interval=0.1)
    with found, watched(dask) as absent:
        eventually(lambda: absent() == 0, "it is seen")


def test_one_that_is_to_stay_after_all_loses_it_at_once(operated: fake.FakeServer):
    with KubeCluster("mine", quiet=True) as cluster:
        cluster.shutdown_on_close = False
        assert idle(operated) == {}
        cluster.shutdown_on_close = True
        assert idle(operated) == {SHUTDOWN: "10m"}
        cluster.shutdown_on_close = False
    assert idle(operated) == {}


async def test_an_asynchronous_one_too(operated: fake.FakeServer):
    async with KubeCluster("mine", quiet=True, asynchronous=True) as cluster:
        cluster.shutdown_on_close = False
    assert idle(operated) == {}


def test_what_the_program_asked_for_stays_whoever_keeps_the_cluster(operated: fake.FakeServer):
    with KubeCluster("mine", quiet=True, shutdown_after_disconnect="1h") as cluster:
        cluster.shutdown_on_close = False
    assert idle(operated) == {SHUTDOWN: "1h"}


def test_another_cluster_of_the_name_is_not_written(operated: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    with KubeCluster("mine", quiet=True) as cluster:
        operated.clusters["mine"] = fake.cluster("mine", "cpu")
        operated.clusters["mine"]["metadata"]["uid"] = "another"
        cluster.shutdown_on_close = False
    assert idle(operated) == {}
    assert "cluster mine goes 10m after this program" in caplog.text


# ---------------------------------------------------------------------- renewals


@contextmanager
def watched(dask: SpecCluster) -> Iterator[Any]:
    """The seconds without a client, as the preload in that scheduler counts them."""
    part = clients.Clients(dask.scheduler)
    yield lambda: part.answer(time.monotonic())["absent_seconds"]


def test_one_without_a_client_is_seen_and_asks_the_api_server_nothing(demo: fake.FakeServer, dask: SpecCluster):
    # Some seconds after the start the forwarded port begins a watch over its pods, which is not of this.
    timing = Timing(forward_look_seconds=3600.0)
    found = KubeCluster.from_name("demo", quiet=True, scheduler_sync_interval=0.5, timing=timing)
    with found, watched(dask) as absent:
        eventually(lambda: bool(demo.watchers), "the program watches its cluster")
        eventually(lambda: absent() == 0, "it is seen")
        asked = len(demo.requests)
        for _ in range(3):
            eventually(lambda: absent() > 0, "the time counts")
            eventually(lambda: absent() == 0, "it is seen again")
        assert len(demo.requests) == asked
    eventually(lambda: absent() > 0.8, "nobody holds it any more")


def test_it_is_seen_again_after_its_scheduler_was_away(demo: fake.FakeServer, dask: SpecCluster):
    with KubeCluster.from_name("demo", quiet=True, scheduler_sync_interval=0.1), watched(dask) as absent:
        demo.pods.clear()
        demo.cut_connections()
        eventually(lambda: absent() > 0.5, "it is not seen")
        add_scheduler(demo, dask, "demo-scheduler-22222")
        eventually(lambda: absent() < 0.2, "it is seen again")


# ---------------------------------------------------------------------- once it has ended

WHY = "no client has been connected for 600 s, and spec.idle.shutdownAfterDisconnect is 10m"


def event(reason: str, message: str, uid: str = "uid-of-demo", created: str = "2026-01-01T00:00:00Z") -> fake.Json:
    return {
        "metadata": {"creationTimestamp": created},
        "involvedObject": {"kind": "GpuDaskCluster", "name": "demo", "uid": uid},
        "reason": reason,
        "message": message,
    }


def deleted(server: fake.FakeServer, uid: str = "uid-of-demo") -> None:
    """As the operator deletes it."""
    server.events = [
        event("DisconnectedTooLong", f"it is to be deleted: {WHY}", uid, created="2026-01-02T00:00:00Z"),
        event("IdleTooLong", "it is to be deleted: that was the one before"),
        event("NoClient", "somebody else's words", created="2026-01-03T00:00:00Z"),
    ]
    server.clusters.clear()
    server.pods.clear()
    server.cut_connections()


def test_a_program_that_comes_back_is_told_why_its_cluster_is_gone(demo: fake.FakeServer):
    with KubeCluster.from_name("demo", quiet=True) as cluster:
        deleted(demo)
        gone = f"no such cluster any more .*: the operator deleted it: {WHY}"
        with (
            dask_package.config.set({"distributed.comm.timeouts.connect": "2s"}),
            pytest.raises(KubeClusterError, match=gone),
        ):
            Client(cluster)


def test_so_is_one_that_asks_for_it_by_its_name(demo: fake.FakeServer):
    deleted(demo)

    with pytest.raises(KubeClusterError, match=f"no cluster 'demo' .*: the operator deleted it: {WHY}; there is none"):
        KubeCluster.from_name("demo", quiet=True)


def test_the_end_of_another_cluster_of_the_name_is_not_told(demo: fake.FakeServer):
    with KubeCluster.from_name("demo", quiet=True) as cluster:
        deleted(demo, uid="another")
        demo.events = demo.events[:1]
        cause = cluster.sync(cluster._reconnector.find_cause)
    assert cause.reason == "there is no such cluster any more in namespace 'lab'"


def test_without_the_right_to_read_events_it_is_gone_without_a_reason(demo: fake.FakeServer):
    deleted(demo)
    demo.forbidden = {"GET events"}

    with pytest.raises(KubeClusterError, match="no cluster 'demo' in namespace 'lab': there is none"):
        KubeCluster.from_name("demo", quiet=True)


@pytest.mark.parametrize("after", ["12h", None])
def test_what_a_model_says_is_left_to_it(after: str | None):
    said = Spec.model_validate({"pools": [{"name": "cpu"}], "idle": {"shutdownAfterDisconnect": after}})
    assert Shutdown("10m").is_left_to(said)
    assert not Shutdown("10m").is_left_to(Spec.model_validate({"pools": [{"name": "cpu"}]}))
