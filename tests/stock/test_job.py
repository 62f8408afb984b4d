"""DaskJobs as specs of GpuDaskJobs: what orchestrators send, and what is told by its field."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
import yaml
from dask_kubernetes.operator.kubecluster.kubecluster import make_cluster_spec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudask.api import Json
from gpudask.stock.job import ServedJob, serve_job
from gpudask.stock.notes import Kind
from gpudask.stock.served import UnservableError
from tests.conftest import ROOT

ORCHESTRATORS = ROOT / "tests" / "mirror" / "orchestrators"
RUNNER = {"name": "job", "image": "x", "args": ["python", "sums.py"]}


def a_job(**pod: Any) -> Json:
    spec = copy.deepcopy(make_cluster_spec("sums", image="x", n_workers=2)["spec"])
    runner = {"containers": [copy.deepcopy(RUNNER)], "restartPolicy": "Never", **pod}
    metadata = {"name": "sums", "namespace": "default"}
    return {"kind": "DaskJob", "metadata": metadata, "spec": {"job": {"spec": runner}, "cluster": {"spec": spec}}}


@pytest.mark.parametrize("name", ["flyte", "polyaxon"])
def test_what_orchestrators_send_is_served_with_the_runner_as_it_is(name: str) -> None:
    body = yaml.safe_load((ORCHESTRATORS / f"{name}.yaml").read_text())
    served = serve_job({"kind": "DaskJob", "metadata": body["metadata"] | {"namespace": "a"}, "spec": body["spec"]})
    written, pod = body["spec"]["job"]["spec"], served.spec["runner"]["template"]["spec"]
    assert [item["name"] for item in pod["containers"]] == [item["name"] for item in written["containers"]]
    assert {key: pod["containers"][0][key] for key in ("image", "env")} == {
        key: written["containers"][0][key] for key in ("image", "env")
    }
    assert pod.get("initContainers") == written.get("initContainers")
    (pool,) = served.spec["cluster"]["spec"]["pools"]
    assert pool["replicas"] == body["spec"]["cluster"]["spec"]["worker"]["replicas"]
    assert served.metadata["labels"] == body["metadata"]["labels"]
    assert served.spec["runner"]["template"]["metadata"]["labels"] == body["metadata"]["labels"]


def test_a_service_that_the_limits_do_not_allow_is_a_cluster_ip_and_told() -> None:
    body = yaml.safe_load((ORCHESTRATORS / "flyte.yaml").read_text())
    flyte = {"kind": "DaskJob", "metadata": body["metadata"] | {"namespace": "a"}, "spec": body["spec"]}

    def told(served: ServedJob) -> list[str]:
        return [note.text for note in served.notes if note.path == "spec.cluster.spec.scheduler.service.type"]

    free = serve_job(flyte)
    assert free.spec["cluster"]["spec"]["scheduler"]["service"] == {"type": "NodePort"}
    assert told(free) == []
    limited = serve_job(flyte, ("ClusterIP",))
    assert limited.spec["cluster"]["spec"]["scheduler"]["service"] == {}
    (text,) = told(limited)
    assert text.startswith("NodePort is not allowed here: it is a ClusterIP")
    assert Kind.LOST in {note.kind for note in limited.notes}


def test_a_runner_keeps_root_and_has_no_limits_where_it_says_nothing() -> None:
    pod = serve_job(a_job()).spec["runner"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": False}
    assert "limits" not in pod["containers"][0]["resources"]


def test_a_restart_policy_that_is_not_carried_over_is_told() -> None:
    def kinds(**pod: Any) -> list[Kind]:
        notes = serve_job(a_job(**pod)).notes
        return [note.kind for note in notes if note.path == "spec.job.spec.restartPolicy"]

    assert (kinds(), kinds(restartPolicy="OnFailure"), kinds(restartPolicy=None)) == ([], [Kind.LOST], [Kind.ASSUMED])


def without(*path: Any) -> Any:
    def spoil(body: Json) -> None:
        for key in path[:-1]:
            body = body[key]
        del body[path[-1]]

    return spoil


def with_(value: Any, *path: Any) -> Any:
    def spoil(body: Json) -> None:
        for key in path[:-1]:
            body = body[key]
        body[path[-1]] = value

    return spoil


_WORKER = ("spec", "cluster", "spec", "worker")
BAD = [
    (without("spec", "job"), "spec.job"),
    (without("spec", "job", "spec", "containers"), "spec.job.spec.containers"),
    (with_([], "spec", "job", "spec", "containers"), "spec.job.spec.containers"),
    (without("spec", "job", "spec", "containers", 0, "name"), "spec.job.spec.containers"),
    (with_("x", "spec", "job", "metadata"), "spec.job.metadata"),
    (with_({"labels": {"a": 1}}, "spec", "job", "metadata"), "spec.job.metadata.labels"),
    (without("spec", "cluster"), "spec.cluster.spec"),
    (with_(3, "spec", "cluster", "spec"), "spec.cluster.spec"),
    (without("spec", "cluster", "spec", "scheduler"), "spec.cluster.spec.scheduler"),
    (with_("two", *_WORKER, "replicas"), "spec.cluster.spec.worker.replicas"),
    (without(*_WORKER, "spec", "containers", 0, "image"), "spec.cluster.spec.worker.spec.containers"),
    (with_("a" * 40, "metadata", "name"), "metadata.name"),
    (with_("A_b", "metadata", "name"), "metadata.name"),
    (with_("y" * 2**20, "spec", "job", "spec", "hostname"), "spec.job"),
]


@pytest.mark.parametrize(("spoil", "field"), BAD, ids=[f"{n}-{field}" for n, (_, field) in enumerate(BAD)])
def test_what_cannot_be_served_is_told_by_its_field(spoil: Any, field: str) -> None:
    body = a_job()
    spoil(body)
    with pytest.raises(UnservableError) as refused:
        serve_job(body)
    assert str(refused.value).startswith(field), str(refused.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["spec", "job", "a"]), inner),
)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([("spec",), ("spec", "job"), ("spec", "job", "spec"), ("spec", "cluster"), _WORKER]), _JSON)
def test_any_document_has_an_answer(path: tuple[str, ...], value: Any) -> None:
    body = a_job()
    with_(value, *path)(body)
    with suppress(UnservableError):
        assert serve_job(body).spec["cluster"]
