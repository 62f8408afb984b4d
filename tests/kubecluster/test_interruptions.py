"""An API server that restarts, and a status that is behind: waits go on, say why, and end with their own limit."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from distributed import SpecCluster, Worker

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.forward import route as routes
from gpudask.kubecluster.timing import Timing
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import PATIENT, add_scheduler, clock_until

PASSING = pytest.mark.parametrize("status", [0, 429, 500, 504], ids=["reset", "429", "500", "504"])


def meanwhile(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def until_said(shown: list[str], words: str, *, timeout_seconds: float) -> Timing:
    """What a wait with this time limit takes as its own: that is over only once it had these words to show."""
    clock = clock_until(lambda: any(words in line for line in shown), words, at_most_seconds=timeout_seconds / 2)
    return replace(PATIENT, clock=clock, progress_seconds=0.0, workers_progress_seconds=0.0, busy_seconds=0.01)


def asked(server: fake.FakeServer, times: int = 1) -> None:
    """Wait until so many more requests have come."""
    before = len(server.requests)
    eventually(lambda: len(server.requests) >= before + times, "requests", show=lambda: server.requests[before:])


# ---------------------------------------------------------------------- waiting for a scheduler


@PASSING
def test_connecting_goes_on_when_the_api_server_is_back(server: fake.FakeServer, dask: SpecCluster, status: int):
    def restart() -> None:
        asked(server, 3)
        server.broken = status
        asked(server, 3)
        add_scheduler(server, dask, "demo-scheduler-00000")
        server.broken = None

    restarting = meanwhile(restart)
    with KubeCluster.from_name("demo", timeout=60, quiet=True) as cluster:
        assert len(cluster.scheduler_info["workers"]) == 2
    restarting.join()


def test_connecting_tells_of_a_server_that_stays_away_and_ends_with_its_last_words(
    server: fake.FakeServer, shown: list[str], capsys: pytest.CaptureFixture[str]
):
    timing = until_said(shown, "the API server does not answer", timeout_seconds=3)

    def stop() -> None:
        asked(server, 3)
        server.broken = 503

    stopping = meanwhile(stop)
    with pytest.raises(
        KubeClusterError, match=r"not ready within 3 s: the API server does not answer: .*(503|restarting)"
    ):
        KubeCluster.from_name("demo", timeout=3, timing=timing)
    stopping.join()
    assert "cluster demo: the API server does not answer: " in capsys.readouterr().out


@pytest.mark.parametrize("status", [401, 403])
def test_an_answer_that_is_no_ends_the_wait(server: fake.FakeServer, status: int):
    def refuse() -> None:
        asked(server, 3)
        server.broken = status

    refusing = meanwhile(refuse)
    with pytest.raises(KubeClusterError) as raised:
        KubeCluster.from_name("demo", timeout=600, quiet=True)
    refusing.join()
    assert raised.value.status == status


def test_the_way_is_made_again_where_the_api_server_goes_away_while_it_is_made(
    demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
):
    times: list[None] = []

    async def outside(*_: object, **__: object) -> None:
        times.append(None)
        demo.broken = 503 if len(times) == 1 else None

    monkeypatch.setattr(routes, "outside", outside)

    def restart() -> None:
        eventually(lambda: demo.broken is not None, "the server is away")
        asked(demo, 2)
        demo.broken = None

    restarting = meanwhile(restart)
    with KubeCluster.from_name("demo", timeout=60, quiet=True) as cluster:
        assert len(cluster.scheduler_info["workers"]) == 2
    restarting.join()


# ---------------------------------------------------------------------- a status that is behind

BEHIND = {"observedGeneration": 1, "scheduler": {"ready": True, "pod": "demo-scheduler-99999"}}


def test_a_status_that_speaks_of_a_scheduler_which_is_gone_is_not_believed(server: fake.FakeServer):
    server.clusters["demo"]["status"] = BEHIND

    with pytest.raises(KubeClusterError, match="its status calls the scheduler ready, but none is") as raised:
        KubeCluster.from_name("demo", timeout=0.5, quiet=True, timing=PATIENT)

    assert "kubectl get pods -A -l app.kubernetes.io/name=gpudask" in raised.value.next_step
    assert not [request for request in server.requests if "portforward" in request]


def test_its_successor_is_waited_for(
    server: fake.FakeServer,
    dask: SpecCluster,
    capsys: pytest.CaptureFixture[str],
):
    server.clusters["demo"]["status"] = BEHIND

    def start() -> None:
        eventually(lambda: server.requests.count(f"GET {fake.PODS}") > 1, "it has looked, told of it, and looked again")
        add_scheduler(server, dask, "demo-scheduler-00000")

    starting = meanwhile(start)
    with KubeCluster.from_name("demo", timeout=60, timing=Timing(progress_seconds=0)) as cluster:
        assert len(cluster.scheduler_info["workers"]) == 2
    starting.join()
    assert "scheduler: no pod yet: its status calls the scheduler ready, but none is" in capsys.readouterr().out


# ---------------------------------------------------------------------- waiting for workers


@PASSING
def test_workers_are_waited_for_while_the_api_server_is_away(demo: fake.FakeServer, dask: SpecCluster, status: int):
    def add() -> None:
        asked(demo)
        dask.worker_spec["demo-gpu-worker-1-ccccc"] = {
            "cls": Worker,
            "options": {"nthreads": 1, "dashboard": False},
        }
        dask.sync(dask._correct_state)

    with KubeCluster.from_name("demo", quiet=True) as cluster:
        demo.broken = status
        adding = meanwhile(add)
        cluster.wait_for_workers(2, pool="gpu", timeout=60)
        adding.join()
        demo.broken = None


def test_a_wait_for_workers_ends_with_the_api_servers_last_words(
    demo: fake.FakeServer, shown: list[str], capsys: pytest.CaptureFixture[str]
):
    timing = until_said(shown, "the API server does not answer", timeout_seconds=3)
    with KubeCluster.from_name("demo", timing=timing) as cluster:
        demo.broken = 504
        said = r"1 of 2 workers of pool 'gpu' came within 3 s: the API server does not answer: .*(504|restarting)"
        with pytest.raises(KubeClusterError, match=said):
            cluster.wait_for_workers(2, pool="gpu", timeout=3)
        demo.broken = None
    assert "1 of 2 workers of pool 'gpu' run: the API server does not answer" in capsys.readouterr().out


@pytest.mark.parametrize("status", [401, 403])
def test_who_may_not_read_the_cluster_waits_all_the_same(
    demo: fake.FakeServer,
    dask: SpecCluster,
    monkeypatch: pytest.MonkeyPatch,
    shown: list[str],
    capsys: pytest.CaptureFixture[str],
    *,
    status: int,
):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(demo.port))
    demo.clusters["demo"]["status"] = {"scheduler": {"ready": True, "address": dask.scheduler_address}}
    timing = until_said(shown, "why is not known", timeout_seconds=3)
    with KubeCluster.from_name("demo", timing=timing) as cluster:
        demo.broken = status
        cluster.wait_for_workers(1, pool="gpu", timeout=60)
        with pytest.raises(KubeClusterError, match="1 of 2 workers of pool 'gpu' came within 3 s: why is not known"):
            cluster.wait_for_workers(2, pool="gpu", timeout=3)
        demo.broken = None
    assert "1 of 2 workers of pool 'gpu' run: why is not known, the server is restarting" in capsys.readouterr().out


def test_a_cluster_that_is_deleted_ends_the_wait_for_its_workers(demo: fake.FakeServer):
    with KubeCluster.from_name("demo", quiet=True) as cluster:
        del demo.clusters["demo"]
        with pytest.raises(KubeClusterError, match="no cluster 'demo'"):
            cluster.wait_for_workers(5)


def test_a_pool_that_is_removed_ends_the_wait_for_its_workers(demo: fake.FakeServer):
    def remove() -> None:
        asked(demo)
        demo.clusters["demo"]["spec"]["pools"].pop()

    with KubeCluster.from_name("demo", quiet=True) as cluster:
        removing = meanwhile(remove)
        with pytest.raises(KubeClusterError, match="no pool 'gpu'"):
            cluster.wait_for_workers(5, pool="gpu")
        removing.join()


def test_a_scheduler_that_is_not_reached_is_not_called_one_without_workers(
    demo: fake.FakeServer, shown: list[str], capsys: pytest.CaptureFixture[str]
):
    timing = replace(until_said(shown, "the scheduler is not reached", timeout_seconds=4), scheduler_seconds=0.01)
    with KubeCluster.from_name("demo", timing=timing) as cluster:
        demo.pods.clear()
        demo.cut_connections()
        with pytest.raises(KubeClusterError, match="2 workers did not come within 4 s: the scheduler is not reached"):
            cluster.wait_for_workers(2, timeout=4)
    told = capsys.readouterr().out
    assert "cluster demo: the scheduler is not reached" in told
    assert "0 of 2" not in told
