"""A cluster that a program creates, finds, suspends and deletes."""

import asyncio
import copy
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed import Client, SpecCluster

from gpudask import CreateMode, KubeCluster, KubeClusterError
from gpudask.api import Json
from gpudask.kubecluster.deletion import at_exit
from gpudask.kubecluster.forward import route as routes
from gpudask.kubecluster.kube import config
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import add_scheduler, be_inside
from tests.kubecluster.test_connecting import wait_until


@contextmanager
def an_operator(server: fake.FakeServer, dask: SpecCluster) -> Iterator[None]:
    """Looks at each new cluster, and gives it its scheduler pod."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.05):
            for name, body in dict(server.clusters).items():  # one may be deleted while it is looked at
                if name == "demo":
                    continue
                body.setdefault("status", {"observedGeneration": 1})
                if not any(pod["metadata"]["name"].startswith(name) for pod in server.pods):
                    add_scheduler(server, dask, f"{name}-scheduler-00000")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture
def operated(server: fake.FakeServer, dask: SpecCluster) -> Iterator[fake.FakeServer]:
    with an_operator(server, dask):
        yield server


@pytest.fixture
def pod(
    operated: fake.FakeServer, dask: SpecCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> fake.FakeServer:
    """This program is in a pod of the namespace `notebooks`; its kubeconfig says `lab`."""
    be_inside(operated, monkeypatch)
    (tmp_path / "namespace").write_text("notebooks")
    monkeypatch.setattr(config, "NAMESPACE_FILE", tmp_path / "namespace")
    monkeypatch.setattr(routes, "inside", lambda _: routes.Route(dask.scheduler_address, ""))
    return operated


def test_a_program_in_a_pod_lets_the_pods_of_its_namespace_in(pod: fake.FakeServer, tmp_path: Path):
    notebooks = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "notebooks"}}}
    with KubeCluster("mine", n_workers=2, quiet=True):
        assert pod.clusters["mine"]["spec"]["network"] == {"allowFrom": [{"podSelector": {}} | notebooks]}

    (tmp_path / "namespace").write_text("lab")
    with KubeCluster("mine", n_workers=2, quiet=True):
        assert pod.clusters["mine"]["spec"]["network"] == {"allowFrom": [{"podSelector": {}}]}


def test_a_pod_whose_namespace_nobody_tells_lets_nobody_in(pod: fake.FakeServer, tmp_path: Path):
    (tmp_path / "namespace").unlink()
    with KubeCluster("mine", n_workers=2, quiet=True):
        assert "network" not in pod.clusters["mine"]["spec"]


def test_a_manifest_in_full_says_itself_who_gets_in(pod: fake.FakeServer):
    spec = {"image": "me/dask:1", "pools": [{"name": "cpu", "replicas": 2}]}
    with KubeCluster("mine", custom_cluster_spec=spec, quiet=True):
        assert "network" not in pod.clusters["mine"]["spec"]


def test_it_creates_says_what_it_chose_computes_and_deletes(
    operated: fake.FakeServer, capsys: pytest.CaptureFixture[str]
):
    with KubeCluster("mine", image="me/dask:1", n_workers=2, gpus=8) as cluster, Client(cluster) as client:
        assert "network" not in operated.clusters["mine"]["spec"], "a forwarded port needs no way in"
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        assert [pool["name"] for pool in operated.clusters["mine"]["spec"]["pools"]] == ["cpu", "gpu"]

    assert "mine" not in operated.clusters
    assert (
        "created cluster 'mine' in namespace 'lab': image me/dask:1, pools cpu (2 pods), gpu (0 to 8 pods of 1 GPU)"
        in capsys.readouterr().out
    )


def test_a_bare_one_works(operated: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOGNAME", "alice")

    with KubeCluster(quiet=True) as cluster:
        assert cluster.name.startswith("alice-")
        assert cluster.name in operated.clusters


def test_quiet_prints_nothing(operated: fake.FakeServer, capsys: pytest.CaptureFixture[str]):
    KubeCluster("mine", quiet=True).close()

    assert capsys.readouterr().out == ""


def test_one_that_is_to_stay_stays(operated: fake.FakeServer):
    KubeCluster("mine", shutdown_on_close=False).close()

    assert "mine" in operated.clusters


def test_what_was_found_goes_where_that_is_set_later(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        assert cluster.shutdown_on_close is False
        cluster.shutdown_on_close = True

    assert demo.clusters == {}


def test_one_that_exists_is_connected_to_and_stays(demo: fake.FakeServer, capsys: pytest.CaptureFixture[str]):
    with KubeCluster("demo", n_workers=7) as cluster:
        assert len(cluster.scheduler_info["workers"]) == 2

    assert demo.clusters["demo"]["spec"]["pools"] == [{"name": "cpu"}, {"name": "gpu"}]
    assert "cluster 'demo' exists already: it keeps its own n_workers" in capsys.readouterr().out


def test_one_that_exists_is_refused_where_it_is_to_be_new(demo: fake.FakeServer):
    with pytest.raises(KubeClusterError, match=r"exists already.*from_name\('demo'\)"):
        KubeCluster("demo", create_mode=CreateMode.CREATE_ONLY)


def test_none_is_created_where_one_is_to_exist(server: fake.FakeServer):
    with pytest.raises(KubeClusterError, match=r"no cluster 'mine'.*there are: demo"):
        KubeCluster("mine", create_mode="CONNECT_ONLY")
    assert list(server.clusters) == ["demo"]


def test_one_that_does_not_come_up_is_deleted_and_says_why(server: fake.FakeServer):
    with pytest.raises(KubeClusterError, match="not ready within 0 s: the operator has reported nothing yet"):
        KubeCluster("mine", timeout=0)

    assert list(server.clusters) == ["demo"]


def test_a_word_that_is_refused_creates_nothing(server: fake.FakeServer):
    with pytest.raises(KubeClusterError, match="pools beside n_workers"):
        KubeCluster("mine", n_workers=2, pools=[{"name": "cpu"}])
    assert list(server.clusters) == ["demo"]


def test_without_permission_to_create_the_rule_is_named(server: fake.FakeServer):
    server.forbidden.add("POST gpudaskclusters")

    with pytest.raises(KubeClusterError, match=r'resources: \["gpudaskclusters"\], verbs: \["create"\]'):
        KubeCluster("mine")


def test_a_deletion_that_is_refused_is_said_and_tried_again_when_the_interpreter_ends(
    operated: fake.FakeServer, caplog: pytest.LogCaptureFixture
):
    cluster = KubeCluster("mine")
    operated.forbidden.add("DELETE mine")

    cluster.close()

    assert "tried again when this program ends" in caplog.text
    (left,) = at_exit.clusters
    at_exit.discard(left)


def test_another_cluster_of_the_same_name_is_not_deleted(operated: fake.FakeServer):
    cluster = KubeCluster("mine")
    operated.clusters["mine"]["metadata"]["uid"] = "made-anew-by-somebody"
    cluster.close()

    assert "mine" in operated.clusters


PROGRAM = """
from gpudask import KubeCluster
cluster = KubeCluster("mine", shutdown_on_close={shutdown})
print("created")
"""
CHANGED = PROGRAM + "cluster.shutdown_on_close = not cluster.shutdown_on_close"


@pytest.mark.parametrize(
    ("program", "shutdown", "left"),
    [
        (PROGRAM, "True", ["demo"]),
        (PROGRAM, "False", ["demo", "mine"]),
        (CHANGED, "True", ["demo", "mine"]),
        (CHANGED, "False", ["demo"]),
    ],
    ids=["goes", "stays", "is to stay after all", "is to go after all"],
)
def test_the_end_of_the_interpreter_deletes_what_it_created(
    operated: fake.FakeServer, program: str, shutdown: str, left: list[str]
):
    program = program.format(shutdown=shutdown)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert "created" in done.stdout, done.stderr
    assert sorted(operated.clusters) == left


def test_it_is_created_asynchronously_too(operated: fake.FakeServer):
    async def program() -> int:
        async with KubeCluster("mine", n_workers=2, asynchronous=True) as cluster:
            assert "mine" in operated.clusters
            return len(cluster.scheduler_info["workers"])

    assert asyncio.run(program()) == 2
    assert "mine" not in operated.clusters


def test_suspending_and_resuming(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.suspend()
        assert demo.clusters["demo"]["spec"]["suspend"] is True
        cluster.resume(timeout=120)
        assert demo.clusters["demo"]["spec"]["suspend"] is False


def test_a_suspended_cluster_is_refused_with_how_to_resume_it(server: fake.FakeServer):
    server.clusters["demo"]["spec"]["suspend"] = True

    with pytest.raises(KubeClusterError, match=r"is suspended: .*gpudask resume demo -n lab"):
        KubeCluster.from_name("demo")


def test_a_pool_is_added_and_removed(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.add_pool("himem", n_workers=(0, 2), resources={"memory": "64Gi"})
        assert demo.clusters["demo"]["spec"]["pools"][-1] == {
            "name": "himem",
            "autoscale": {"min": 0, "max": 2},
            "resources": {"memory": "64Gi"},
        }
        cluster.scale(1, pool="himem")
        cluster.remove_pool("himem")

    assert [pool["name"] for pool in demo.clusters["demo"]["spec"]["pools"]] == ["cpu", "gpu"]
    assert "overrides" not in demo.clusters["demo"]["spec"]


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (lambda cluster: cluster.add_pool("gpu", gpus=2), "has a pool 'gpu' already"),
        (lambda cluster: cluster.add_pool("gpu-2", gpus=2), r"spec.pools\[2\].name: .*write gpu2"),
        (lambda cluster: cluster.add_pool("big", gpus=2, n_workers=2), "with n_workers and gpus"),
        (lambda cluster: cluster.remove_pool("gpus"), "no pool 'gpus'"),
    ],
    ids=["exists", "not valid", "both", "not there"],
)
def test_a_pool_that_cannot_be_is_refused(demo: fake.FakeServer, do: Callable, said: str):
    with KubeCluster.from_name("demo") as cluster, pytest.raises(KubeClusterError, match=said):
        do(cluster)
    assert len(demo.clusters["demo"]["spec"]["pools"]) == 2


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ([{"name": "cpu"}], "is the last one"),
        ([{"name": "cpu"}, {"name": "gpu", "fallback": {"to": "cpu"}}], r"fallback"),
    ],
    ids=["the last", "another falls back to it"],
)
def test_a_pool_whose_removal_is_refused_stays_as_it_is(demo: fake.FakeServer, pools: list[Json], said: str):
    demo.clusters["demo"]["spec"]["pools"] = pools

    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(4, pool="cpu")
        before = copy.deepcopy(demo.clusters["demo"])
        with pytest.raises(KubeClusterError, match=said):
            cluster.remove_pool("cpu")
    assert [entry["replicas"] for entry in before["spec"]["overrides"]] == [4]
    assert demo.clusters["demo"] == before


def test_a_pool_and_its_size_go_in_one_write(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        cluster.scale(1, pool="cpu")
        cluster.scale(4, pool="gpu")
        before = int(demo.clusters["demo"]["metadata"]["resourceVersion"])
        cluster.remove_pool("cpu")
    assert int(demo.clusters["demo"]["metadata"]["resourceVersion"]) == before + 1, "what is refused changes nothing"
    assert [entry["pool"] for entry in demo.clusters["demo"]["spec"]["overrides"]] == ["gpu"]


def test_logs_are_those_of_the_pods(demo: fake.FakeServer):
    demo.logs["demo-scheduler-00000"] = ["Scheduler at", "ready"]
    demo.pods.append(fake.pod("demo-gpu-worker-0", "worker", ready=False, **{"gpudask.dev/pool": "gpu"}))

    with KubeCluster.from_name("demo") as cluster:
        logs = cluster.get_logs()
        assert logs["demo-scheduler-00000"] == "Scheduler at\nready"
        assert logs["demo-gpu-worker-0"].startswith("no log yet")
        assert list(cluster.get_logs(pool="gpu")) == ["demo-gpu-worker-0"]


def test_logs_that_cannot_be_read_say_so_beside_those_that_can(demo: fake.FakeServer):
    demo.logs["demo-scheduler-00000"] = ["ready"]
    demo.pods += [fake.pod(f"demo-gpu-worker-{number}", "worker") for number in (0, 1)]
    demo.unread_logs = {"demo-gpu-worker-0": 404, "demo-gpu-worker-1": 500}

    with KubeCluster.from_name("demo") as cluster:
        logs = cluster.get_logs(cluster=False)

    assert logs.pop("demo-gpu-worker-1").startswith("not read: ")
    assert logs == {"demo-scheduler-00000": "ready", "demo-gpu-worker-0": "no log: the pod has gone meanwhile"}


def test_only_logs_that_are_asked_for_are_given(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        assert list(cluster.get_logs(scheduler=False, workers=False)) == ["Cluster"]


@pytest.mark.parametrize("status", [0, 503])
def test_without_an_api_server_that_answers_logs_come_from_dask(demo: fake.FakeServer, status: int):
    with KubeCluster.from_name("demo") as cluster:
        demo.broken = status
        assert "Scheduler" in cluster.get_logs()
        demo.broken = None


def test_without_rights_on_pods_logs_come_from_dask(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        demo.forbidden.add("GET pods")
        assert "Scheduler" in cluster.get_logs()


def test_it_shows_its_pools(demo: fake.FakeServer):
    with KubeCluster.from_name("demo") as cluster:
        assert repr(cluster) == f"KubeCluster(demo, '{cluster.scheduler_address}', cpu=1, gpu=1)"
        assert "<strong>gpu</strong>" in cluster._repr_html_()
        assert "<strong>gpu</strong>" in cluster._scaling_status(), (
            "the widget of a notebook with ipywidgets says the pools too"
        )


def test_a_dashboard_port_of_ones_own(demo: fake.FakeServer, dask: SpecCluster, unused_tcp_port: int):
    with KubeCluster.from_name("demo", scheduler_forward_port=unused_tcp_port) as cluster:
        assert cluster.dashboard_link == f"http://127.0.0.1:{unused_tcp_port}/status"
        with pytest.raises(KubeClusterError, match=f"cannot listen on port {unused_tcp_port}.*scheduler_forward_port"):
            KubeCluster.from_name("demo", scheduler_forward_port=unused_tcp_port)


def test_a_replaced_session_reattaches_by_name(operated: fake.FakeServer, tmp_path: Path):
    program = PROGRAM.format(shutdown="False")
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True)

    with KubeCluster.from_name("mine", shutdown_on_close=True) as cluster:
        assert len(cluster.scheduler_info["workers"]) == 2
    wait_until(lambda: "mine" not in operated.clusters, "its deletion")
