import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import Client, SpecCluster
from distributed.client import FutureCancelledError

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.errors import KubeClusterTimeoutError
from gpudask.kubecluster.timing import Timing
from gpudask.kubecluster.workers import Workers
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import be_inside, until

_SECONDS = 60


def test_a_client_computes_through_the_forwarded_port(demo: fake.FakeServer):
    with KubeCluster.from_name("demo", namespace="lab") as cluster, Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
        assert len(cluster.scheduler_info["workers"]) == 2
        assert cluster.dashboard_link.startswith("http://127.0.0.1:")
    assert set(demo.forwards) == {"demo-scheduler-00000"}


def test_a_large_result_passes_whole(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster, Client(cluster) as client:
        assert len(client.submit(bytes, 20_000_000, resources={"GPU": 1}).result(timeout=60)) == 20_000_000


async def test_it_works_asynchronously(demo: fake.FakeServer):
    async with (
        KubeCluster.from_name("demo", asynchronous=True) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        assert await client.submit(sum, [1, 2]) == 3
        await cluster.wait_for_workers(1, pool="gpu", timeout=60)
        await cluster.scale(2, pool="gpu")
    assert demo.clusters["demo"]["spec"]["overrides"][0]["replicas"] == 2


async def test_awaiting_it_starts_it_once(demo: fake.FakeServer):
    cluster = await KubeCluster.from_name("demo", asynchronous=True)
    address = cluster.scheduler_address

    assert (await cluster).scheduler_address == address
    await cluster.close()


def test_closing_it_leaves_the_cluster_as_it_is(demo: fake.FakeServer):
    before = dict(demo.clusters["demo"]["spec"])

    KubeCluster.from_name("demo").close()

    assert demo.clusters["demo"]["spec"] == before
    assert demo.applied == []


@pytest.mark.parametrize("error", [ValueError("the program's own"), SystemExit(0)], ids=["an error", "sys.exit"])
def test_an_error_after_closing_it_in_its_block_leaves_the_block(demo: fake.FakeServer, error: BaseException):
    def closed_within() -> None:
        with KubeCluster.from_name("demo") as cluster:
            cluster.close()
            raise error

    with pytest.raises(type(error)) as raised:
        closed_within()
    assert raised.value is error


def test_a_close_that_waits_in_vain_says_so_beyond_its_block(demo: fake.FakeServer):
    with (
        pytest.raises(KubeClusterTimeoutError, match=r"is not gone within 0\.1 s"),
        KubeCluster.from_name("demo", shutdown_on_close=True) as cluster,
    ):
        cluster.close(timeout=0.1)


def test_an_interrupted_close_may_be_called_again(demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    cluster = KubeCluster.from_name("demo")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(KubeCluster, "sync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cluster.close()
    cluster.close()


def test_a_cut_connection_comes_back_by_itself(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster, Client(cluster) as client:
        before = len(demo.forwards)
        demo.cut_connections()
        wait_until(lambda: len(demo.forwards) > before, "a new connection")
        assert result_of_sum(client) == 3
        cluster.wait_for_workers(2, timeout=60)


def test_a_replaced_scheduler_pod_is_found_again(demo: fake.FakeServer, dask: SpecCluster):
    with KubeCluster.from_name("demo") as cluster, Client(cluster) as client:
        demo.pods.clear()
        demo.pods.append(fake.scheduler_pod("demo-scheduler-11111"))
        demo.targets["demo-scheduler-11111"] = demo.targets["demo-scheduler-00000"]
        demo.cut_connections()
        wait_until(lambda: "demo-scheduler-11111" in demo.forwards, "a connection to the new pod")
        assert result_of_sum(client) == 3
        assert cluster.status.name == "running"


def test_a_connection_that_a_pod_left_silent_is_cut_when_another_pod_bears_its_name(demo: fake.FakeServer):
    timing = Timing(forward_look_seconds=0.1)
    with KubeCluster.from_name("demo", timing=timing) as cluster, Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        demo.silence_connections()
        demo.pods[:] = [fake.scheduler_pod("demo-scheduler-00000", uid="another")]
        assert result_of_sum(client) == 3
        cluster.wait_for_workers(2, timeout=60)


def test_a_silent_scheduler_is_asked_again(demo: fake.FakeServer):
    with KubeCluster.from_name("demo", quiet=True, timing=Timing(scheduler_seconds=0.5)) as cluster:
        demo.silence_connections()
        cluster.wait_for_workers(2, timeout=60)


def test_a_scheduler_that_is_busy_at_first_is_greeted_again(demo: fake.FakeServer):
    timing = Timing(forward_scheduler_seconds=1.5)  # which the real one has to be in time for
    real = demo.targets["demo-scheduler-00000"]
    with socket.create_server(("127.0.0.1", 0)) as busy:
        demo.targets["demo-scheduler-00000"] = busy.getsockname()

        def end_what_it_did() -> None:
            wait_until(lambda: len(demo.forwards) > 4, "it is greeted again")
            demo.targets["demo-scheduler-00000"] = real

        busying = threading.Thread(target=end_what_it_did)
        busying.start()
        with KubeCluster.from_name("demo", quiet=True, timing=timing) as cluster, Client(cluster) as client:
            assert result_of_sum(client) == 3
        busying.join()


def test_a_busy_scheduler_that_is_not_ready_keeps_its_connections(demo: fake.FakeServer):
    timing = Timing(forward_look_seconds=0.05)
    with KubeCluster.from_name("demo", timing=timing) as cluster, Client(cluster) as client:
        wait_until(lambda: f"WATCH {fake.PODS}" in demo.requests, "it watches over the pod")
        demo.pods[:] = [fake.scheduler_pod("demo-scheduler-00000", ready=False)]
        wait_until(lambda: demo.told_pods > 0, "it is told of the change")
        before = len(demo.forwards)
        assert client.submit(sum, [1, 2], pure=False).result(timeout=60) == 3
        assert len(demo.forwards) == before
        demo.cut_connections()
        assert result_of_sum(client) == 3


def test_closing_does_not_wait_for_a_connection_that_is_being_made_again(
    demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
):
    subscribe, begun = Workers.subscribe, threading.Event()

    async def late(self: Workers) -> object:
        begun.set()
        await asyncio.sleep(0.3)
        return await subscribe(self)

    monkeypatch.setattr(Workers, "subscribe", late)
    cluster = KubeCluster.from_name("demo")
    demo.cut_connections()
    assert begun.wait(120)
    cluster.close(timeout=120)
    assert cluster.status.name == "closed"


def test_the_list_of_workers_is_followed_over_a_new_connection(demo: fake.FakeServer, dask: SpecCluster):
    with KubeCluster.from_name("demo") as cluster:
        cluster.scheduler_info["workers"].clear()
        demo.cut_connections()
        wait_until(lambda: len(cluster.scheduler_info["workers"]) == 2, "the workers")


def test_of_two_ready_schedulers_the_younger_one_is_taken(demo: fake.FakeServer, dask: SpecCluster):
    demo.pods.append(fake.scheduler_pod("demo-scheduler-22222", created="2026-02-02T00:00:00Z"))
    demo.targets["demo-scheduler-22222"] = demo.targets["demo-scheduler-00000"]

    KubeCluster.from_name("demo").close()

    assert set(demo.forwards) == {"demo-scheduler-22222"}


def test_workers_that_come_and_go_do_not_disturb_who_reads_them_meanwhile(demo: fake.FakeServer):
    with KubeCluster.from_name("demo", timeout=60) as cluster:
        first, second = cluster.scheduler_info["workers"]
        reading = iter(cluster.scheduler_info["workers"].items())
        next(reading)
        worker = {**cluster.scheduler_info["workers"][first], "name": "another"}
        cluster._update_worker_status("add", {"workers": {"tcp://another": worker}, "id": "the scheduler"})
        cluster._update_worker_status("remove", first)
        assert [address for address, _ in reading] == [second], "as it was when it began"
        assert set(cluster.scheduler_info["workers"]) == {second, "tcp://another"}
        assert cluster.scheduler_info["id"] == "the scheduler"
        cluster._update_worker_status("remove", "tcp://unknown")


def test_it_waits_for_a_scheduler_that_is_still_starting(demo: fake.FakeServer):
    late = demo.pods.pop()

    async def connect() -> int:
        async def start_later() -> None:
            await until(lambda: demo.requests.count(f"GET {fake.PODS}") > 1, "it has looked, and looked again")
            demo.pods.append(late)

        later = asyncio.create_task(start_later())
        async with KubeCluster.from_name("demo", asynchronous=True, timeout=120) as cluster:
            await later
            return len(cluster.scheduler_info["workers"])

    assert asyncio.run(connect()) == 2


def test_no_scheduler_in_time_gives_the_operators_reason(server: fake.FakeServer):
    server.clusters["demo"]["status"] = {
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "PodsMissing", "message": ""},
            {"type": "SchedulerReady", "status": "False", "reason": "ImageNotPulled", "message": "no such image: x"},
        ]
    }

    with pytest.raises(
        KubeClusterError, match="not ready within 0 s: SchedulerReady is False, ImageNotPulled: no such"
    ):
        KubeCluster.from_name("demo", timeout=0)


def test_a_status_that_was_never_written_asks_for_the_operator(server: fake.FakeServer):
    server.clusters["demo"]["status"] = {}

    with pytest.raises(KubeClusterError, match="reported nothing yet: is it running"):
        KubeCluster.from_name("demo", timeout=0)


def test_an_unknown_name_is_answered_with_those_that_exist(server: fake.FakeServer):
    server.clusters["other"] = fake.cluster("other", "cpu")

    with pytest.raises(KubeClusterError, match="no cluster 'dmeo' in namespace 'lab': there are: demo, other"):
        KubeCluster.from_name("dmeo")


@pytest.mark.parametrize(
    ("forbidden", "rule"),
    [
        ("GET demo", 'apiGroups: ["gpudask.dev"], resources: ["gpudaskclusters"], verbs: ["get"]'),
        ("GET pods", 'apiGroups: [""], resources: ["pods"], verbs: ["list"]'),
        ("GET portforward", 'apiGroups: [""], resources: ["pods/portforward"], verbs: ["get", "create"]'),
    ],
)
def test_a_refusal_names_the_rule_that_is_missing(demo: fake.FakeServer, forbidden: str, rule: str):
    demo.forbidden.add(forbidden)

    with pytest.raises(KubeClusterError) as raised:
        KubeCluster.from_name("demo")

    assert rule in str(raised.value)
    assert raised.value.status == 403


def test_a_server_that_is_not_there_names_what_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    with pytest.raises(KubeClusterError, match=r"KUBECONFIG=.*/none: no such file. Correct it, or unset it"):
        KubeCluster.from_name("demo")


def test_ucxx_cannot_be_forwarded(demo: fake.FakeServer):
    demo.clusters["demo"]["spec"]["protocol"] = "ucxx"

    with pytest.raises(KubeClusterError, match="Run the program inside the cluster"):
        KubeCluster.from_name("demo")


def test_inside_kubernetes_it_dials_the_address_of_the_status(
    demo: fake.FakeServer, dask: SpecCluster, monkeypatch: pytest.MonkeyPatch
):
    be_inside(demo, monkeypatch)
    demo.clusters["demo"]["status"] = {"scheduler": {"ready": True, "address": dask.scheduler_address}}

    with KubeCluster.from_name("demo") as cluster, Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    assert demo.forwards == []


def test_inside_kubernetes_a_scheduler_that_refuses_may_stand_behind_a_network_policy(
    demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
):
    be_inside(demo, monkeypatch)
    demo.clusters["demo"]["status"] = {"scheduler": {"ready": True, "address": "tcp://127.0.0.1:1"}}

    with pytest.raises(KubeClusterError, match=r"tcp://127\.0\.0\.1:1.*name the pod in the cluster's spec\.network\."):
        KubeCluster.from_name("demo", timing=Timing(handshake_seconds=0.2))


def result_of_sum(client: Client) -> int:
    """Futures that are pending when a connection breaks are cancelled by Dask's client: ask again."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(FutureCancelledError, TimeoutError, OSError):
            return client.submit(sum, [1, 2], pure=False).result(timeout=5)
    pytest.fail(f"no result within {_SECONDS} s of the reconnect")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {_SECONDS} s"
        time.sleep(0.05)
