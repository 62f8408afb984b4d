"""What cannot work is refused before the constructor returns, with what to write: arguments, templates, images."""

from __future__ import annotations

from gpudask.api import Json

import logging
from pathlib import Path
from typing import Any

import pytest
from distributed import SpecCluster

from gpudask import KubeCluster, KubeClusterError
from gpudask.api.reasons import Reason
from gpudask.kubecluster.errors import why_not_ready, why_workers_wait
from gpudask.kubecluster.kube import config
from gpudask.kubecluster.timing import Timing
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import add_scheduler, be_inside
from tests.kubecluster.test_creating import an_operator
from tests.planning.builders import cluster, pod, scaled, scheduler_pod, seen
from tests.planning.test_status import status_of

SOON = Timing(accepted_seconds=3.0, refused_pull_seconds=0.4, readiness_poll_seconds=0.05)
TYPO = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.nodeSelektor"'
NOT_FOUND = (
    'Back-off pulling image "gpudask/dask:0.1.0": ErrImagePull: failed to pull and unpack image'
    ' "docker.io/gpudask/dask:0.1.0": failed to resolve reference "docker.io/gpudask/dask:0.1.0":'
    " docker.io/gpudask/dask:0.1.0: not found"
)


def condition(kind: str, status: str, reason: str, message: str) -> Json:
    return {
        "observedGeneration": 1,
        "conditions": [{"type": kind, "status": status, "reason": reason, "message": message}],
    }


@pytest.mark.parametrize(
    ("arguments", "as_python", "said"),
    [
        (
            {"nworkers": 2},
            TypeError,
            "nworkers= given to KubeCluster: there is no argument nworkers. Did you mean n_workers=?",
        ),
        ({"GPUs": 2}, TypeError, "Did you mean gpus=?"),
        ({"zzz": 2}, TypeError, "help(gpudask.KubeCluster) has its arguments"),
        ({"env": "LEVEL=3"}, ValueError, "Write env={'LEVEL': '3'}"),
        ({"env": ["LEVEL=3"]}, ValueError, "env with 'LEVEL=3': it is a value for each name"),
        ({"resources": {"mem": "1Gi"}}, ValueError, "resources with 'mem': Kubernetes knows cpu, memory"),
        ({"resources": {"mem": "1Gi"}}, ValueError, "Did you mean 'memory'?"),
        ({"resources": {"gpu": 1}}, ValueError, "Did you mean gpus=8, beside resources?"),
        ({"pools": [{"name": "cpu", "resources": {"mem": "1Gi"}}]}, RuntimeError, "write memory, not mem"),
        ({"env": 3}, ValueError, "Write env="),
        ({"env": [{"value": "3"}]}, ValueError, "Write env="),
    ],
)
def test_an_argument_that_cannot_be_used_is_the_clients_error_and_pythons(
    server: fake.FakeServer, arguments: dict[str, Any], as_python: type[Exception], said: str
):
    with pytest.raises(KubeClusterError) as raised:
        KubeCluster("mine", quiet=True, **arguments)
    assert isinstance(raised.value, as_python)
    assert said in str(raised.value)
    assert list(server.clusters) == ["demo"]


@pytest.mark.parametrize("is_there", [True, False], ids=["a worker's", "the scheduler's"])
def test_a_misspelt_field_of_a_template_is_refused_before_the_constructor_returns(
    server: fake.FakeServer, dask: SpecCluster, monkeypatch: pytest.MonkeyPatch, is_there: bool
):
    refused = condition("Accepted", "False", Reason.TEMPLATE_REFUSED, f"pool cpu: {TYPO}")
    create = server.clusters.__class__.__setitem__

    class Operated(dict[str, Any]):
        def __setitem__(self, name: str, body: Json) -> None:
            body["status"] = refused
            create(self, name, body)
            if is_there:
                add_scheduler(server, dask, f"{name}-scheduler-00000")

    server.clusters = Operated(server.clusters)
    with pytest.raises(
        KubeClusterError, match=r"'mine' is not accepted: TemplateRefused: pool cpu:.*nodeSelektor"
    ) as raised:
        KubeCluster("mine", quiet=True, timing=SOON, timeout=120)
    assert isinstance(raised.value, ValueError)
    assert str(raised.value).count("nodeSelektor") == 1
    assert list(server.clusters) == ["demo"], "what was created is deleted"


def test_a_cluster_that_is_there_is_connected_to_though_an_edit_was_refused(demo: fake.FakeServer):
    demo.clusters["demo"]["status"] = condition("Accepted", "False", Reason.INVALID, "no")
    with KubeCluster.from_name("demo", quiet=True, timing=SOON) as cluster:
        assert len(cluster.scheduler_info["workers"]) == 2


def test_an_operator_that_does_not_look_is_not_waited_for(server: fake.FakeServer, dask: SpecCluster):
    with an_operator(server, dask):
        KubeCluster("mine", quiet=True, timing=Timing(accepted_seconds=0.2)).close()


def unpulled(reason: str, message: str) -> Json:
    state = {"waiting": {"reason": reason, "message": message}}
    made = fake.scheduler_pod("demo-scheduler-00000", ready=False)
    made["status"] = {"phase": "Pending", "containerStatuses": [{"image": "gpudask/dask:0.1.0", "state": state}]}
    return made


@pytest.mark.parametrize("is_inside", [False, True], ids=["by its pod", "by the status, without a right on pods"])
def test_an_image_that_no_try_can_pull_ends_the_wait_early_in_few_words(
    server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_inside: bool
):
    server.pods.append(unpulled("ImagePullBackOff", NOT_FOUND))
    status = "ImagePullBackOff: image gpudask/dask:0.1.0: not found"
    server.clusters["demo"]["status"] = condition(
        "Degraded", "True", Reason.IMAGE, f"scheduler: demo-scheduler: {status}"
    )
    if is_inside:
        be_inside(server, monkeypatch)
        (tmp_path / "namespace").write_text("lab")
        monkeypatch.setattr(config, "NAMESPACE_FILE", tmp_path / "namespace")
        server.forbidden.add("GET pods")
    with pytest.raises(KubeClusterError, match=r"ImagePullBackOff: image gpudask/dask:0\.1\.0: not found\.") as raised:
        KubeCluster.from_name("demo", quiet=True, timing=SOON, timeout=3600)  # at whose end is another error
    assert "cannot start" in str(raised.value)
    assert "Write image= with one that the nodes can pull, or set DASK_GPUDASK__IMAGE" in raised.value.next_step
    assert "longer" not in raised.value.next_step
    assert len(raised.value.reason) < 80


def test_one_that_may_be_pulled_yet_is_waited_for(server: fake.FakeServer):
    server.pods.append(unpulled("ErrImagePull", f"{NOT_FOUND.removesuffix('not found')}dial tcp: i/o timeout"))
    with pytest.raises(KubeClusterError, match="was not ready within 1 s") as raised:
        KubeCluster.from_name("demo", quiet=True, timing=SOON, timeout=1)
    assert "longer" in raised.value.next_step or "image=" in raised.value.next_step


def test_the_operator_reports_a_schedulers_image_as_it_does_a_workers():
    of = cluster(scaled(least=1))
    head = scheduler_pod(of, running=False, waiting="ErrImagePull: image x:1: not found")
    status = status_of(seen(of, head, pod(of, "cpu")))
    (degraded,) = [item for item in status.conditions if item.type == "Degraded"]
    assert (degraded.status, degraded.reason) == ("True", Reason.IMAGE)
    assert degraded.message.startswith("scheduler: ")


def test_logs_of_a_pool_that_there_is_not_are_refused_with_those_that_there_are(demo: fake.FakeServer):
    with (
        KubeCluster.from_name("demo", quiet=True) as cluster,
        pytest.raises(KubeClusterError, match="has no pool 'gpus': its pools are cpu, gpu"),
    ):
        cluster.get_logs(pool="gpus")


def test_a_size_above_what_can_be_gets_a_hint(demo: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "gpudask")
    row = {"name": "gpu", "ready": 1, "desired": 2, "message": "exceeded quota: gpus"}
    demo.clusters["demo"]["status"] = {"observedGeneration": 1, "pools": [row]}
    with KubeCluster.from_name("demo", quiet=True) as cluster:
        cluster.scale(9, pool="gpu")
    assert "pool gpu already waits, 1 of 2 pods are ready: exceeded quota: gpus" in caplog.text


def test_no_text_is_said_twice():
    message = f"pool cpu: {TYPO}"
    body = fake.cluster(
        "demo",
        "cpu",
        observedGeneration=1,
        conditions=[
            {"type": kind, "status": "False", "reason": Reason.TEMPLATE_REFUSED, "message": message}
            for kind in ("Accepted", "SchedulerReady", "Ready")
        ],
        pools=[{"name": "cpu", "desired": 1, "message": f"{TYPO}; since 2026-12-01T18:00:00Z"}],
    )
    assert why_workers_wait(body, None).count("nodeSelektor") == 1
    assert why_not_ready(body).count("nodeSelektor") == 1
    assert "nodeSelektor" in why_workers_wait(body, "cpu")
