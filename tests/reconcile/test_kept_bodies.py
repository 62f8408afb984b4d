"""Whatever people write into an object, little of it is kept in memory, and they read what they would of the whole."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import kopf
import pytest

from gpudask.api import Json, resource
from gpudask.api.cron_job import parse_cron_job
from gpudask.api.job import parse_job
from gpudask.api.resource import MAX_SPEC_BYTES, InvalidSpecError, Outline, bounded_cluster, parse
from gpudask.history.unfinished import LastStatus
from gpudask.mirror import objects
from gpudask.mirror.state import observe_mirror
from gpudask.reconcile.jobs.reconciler import is_empty
from gpudask.reconcile.jobs.registry import observe_cron_job, observe_job
from gpudask.reconcile.loop import Registry
from gpudask.stock.job import serve_job
from gpudask.stock.served import UnservableError, serve
from tests.builders import a_pool, a_spec

_OBJECTS, _LARGE_BYTES = 3, 700_000


def large(size: int = _LARGE_BYTES) -> Json:
    """A tree of many empty objects, as the API server sends it: each costs 64 bytes of memory, and 3 of a text."""
    return json.loads(b'{"x": [' + b"{}," * (size // 3) + b"{}]}")


def a_body(uid: str, spec: Any, **metadata: Any) -> Json:
    known = {"uid": uid, "name": "demo", "namespace": "lab", "resourceVersion": "1", "generation": 1}
    return {"metadata": known | metadata, "spec": spec, "status": {"phase": "Ready"}}


def of_job(config: Any) -> Json:
    return {"runner": {"template": {}}, "cluster": {"spec": a_spec(config=config)}}


def in_registry() -> Callable[[Json], Json]:
    registry = Registry()

    def keep(body: Json) -> Json:
        registry.cluster_changed(body)
        return registry._bodies[f"lab/{body['metadata']['uid']}"]

    return keep


def in_mirror(kind: str) -> Callable[[], Callable[[Json], Any]]:
    return lambda: observe_mirror(kind)


KINDS: dict[str, tuple[Callable[[], Callable[[Json], Any]], Callable[[Any], Json]]] = {
    "cluster": (in_registry, lambda tree: a_spec(config=tree)),
    "template": (in_registry, lambda tree: a_spec(template={"spec": tree})),
    "job": (lambda: observe_job, of_job),
    "runner": (lambda: observe_job, lambda tree: {"runner": {"template": {"spec": tree}}, "cluster": {"name": "a"}}),
    "cron job": (lambda: observe_cron_job, lambda tree: {"jobTemplate": {"spec": of_job(tree)}}),
    "DaskCluster": (in_mirror(objects.CLUSTER), lambda tree: {"worker": tree}),
    "DaskWorkerGroup": (in_mirror(objects.WORKER_GROUP), lambda tree: {"cluster": "other", "worker": tree}),
    "DaskJob": (in_mirror(objects.JOB), lambda tree: {"job": {}, "cluster": {"spec": {"worker": tree}}}),
    "DaskJob's runner": (in_mirror(objects.JOB), lambda tree: {"job": tree, "cluster": {"spec": {}}}),
    "unknown field": (in_mirror(objects.JOB), lambda tree: {"job": {}, "cluster": {"spec": {}}, "unknown": tree}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_large_objects_take_little_memory(kind: str):
    made, spec = KINDS[kind]
    keep = made()
    keep(a_body("first", spec({})))
    gc.collect()
    tracemalloc.start()
    try:
        kept = [keep(a_body(str(number), spec(large()))) for number in range(_OBJECTS)]
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == _OBJECTS
    assert size < _OBJECTS * MAX_SPEC_BYTES // 4


def test_a_status_is_kept_whatever_its_size():
    """An operator that leads next goes on from its ledger."""
    row = b'{"name": "a", "gpuSecondsHeld": 7, "message": "' + b"m" * 600_000 + b'"}'
    status = json.loads(b'{"pools": [' + row + b"]}")
    assert bounded_cluster(a_body("a", a_spec()) | {"status": status})["status"] == status
    usual = a_body("a", a_spec())
    assert bounded_cluster(usual) is usual


@pytest.mark.parametrize("kind", ["cluster", "job", "cron job"])
def test_an_annotation_has_nothing_measured_anew(kind: str, monkeypatch: pytest.MonkeyPatch):
    made, spec = KINDS[kind]
    keep = made()
    kept = keep(a_body("a", spec({"small": [{}]})))
    measured: list[Any] = []
    monkeypatch.setattr(resource, "_measure", measured.append)
    for version in range(2, 12):
        again = keep(a_body("a", spec({"small": [{}]}), resourceVersion=str(version), annotations={"n": str(version)}))
    assert not measured
    assert again is not kept


def said(parsed: Callable[[], Any]) -> str:
    with pytest.raises((InvalidSpecError, UnservableError)) as caught:
        parsed()
    return str(caught.value)


TREES = {"large": large(), "deep": json.loads('{"x":' * 50 + "1" + "}" * 50)}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
@pytest.mark.parametrize(
    ("kind", "parsed"),
    [("cluster", parse), ("template", parse), ("job", parse_job), ("runner", parse_job), ("cron job", parse_cron_job)],
)
def test_of_what_is_kept_the_same_is_said(kind: str, parsed: Callable[[Json], Any], tree: Any):
    made, spec = KINDS[kind]
    body = a_body("a", spec(tree))
    kept = made()(body)
    kept = kept if kind in ("cluster", "template") else kept.body
    assert kept["spec"] != body["spec"]
    assert said(lambda: parsed(kept)) == said(lambda: parsed(body))
    assert (kept["metadata"], kept["status"]) == (body["metadata"], body["status"])


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
@pytest.mark.parametrize("kind", ["DaskCluster", "DaskJob", "DaskJob's runner"])
def test_of_a_stock_object_that_is_kept_the_same_is_said(kind: str, tree: Any):
    made, spec = KINDS[kind]
    body = a_body("a", spec(tree))
    source = made()(body).source
    served: Callable[[Json], Any] = serve_job if "Job" in kind else lambda found: serve(found, ())
    assert said(lambda: served(source)) == said(lambda: served(source | {"spec": body["spec"]}))


def test_a_worker_group_that_is_kept_is_refused_alone():
    made, spec = KINDS["DaskWorkerGroup"]
    body = a_body("a", spec(large()), name="other-big")
    source = made()(body).source
    container = {"name": "dask", "image": "i", "args": ["dask", "worker"]}
    worker = {"spec": {"containers": [container]}, "replicas": 1}
    scheduler = {"spec": {"containers": [container]}, "service": {"type": "ClusterIP"}}
    cluster = {"kind": "DaskCluster", "metadata": {"name": "other", "namespace": "lab"}}
    cluster |= {"spec": {"worker": worker, "scheduler": scheduler}}
    whole = serve(cluster, [source | {"spec": body["spec"]}])
    assert serve(cluster, [source]).refused == whole.refused != {}


def test_an_object_that_is_mended_is_whole_again():
    keep = in_registry()
    assert isinstance(keep(a_body("a", a_spec(config=large())))["spec"], Outline)
    mended = a_body("a", a_spec(config={"x": 1}), generation=2)
    assert keep(mended) is mended
    assert isinstance(keep(a_body("a", a_spec(config=large()), generation=3))["spec"], Outline)


def test_of_an_outline_that_is_known_which_other_things_need():
    spec = a_spec(a_pool("cpu"), config=large(), history={"keepAfterDeletion": "1h"})
    overrides = [{"pool": "cpu", "replicas": 0, "by": "x"}]
    body = a_body("a", spec | {"overrides": overrides}, managedFields=[{"fieldsV1": large()}])
    kept = bounded_cluster(body)
    assert kept["spec"] == Outline(body["spec"], list(kept["spec"].broken)), "the same twice"
    assert kept["spec"]["overrides"] == overrides
    assert is_empty(kept)
    assert LastStatus.of(kept, None).keep_seconds == LastStatus.of(body, None).keep_seconds
    assert "managedFields" not in kept["metadata"]


def test_outlines_differ_by_what_is_said_of_them():
    one, other = Outline({}, ["spec: too large"]), Outline({}, ["spec: too deep"])
    assert one != other
    assert not one == other  # noqa: SIM201 - the other operator
    assert one == Outline({}, ["spec: too large"])


def test_what_kopf_has_is_taken_as_it_is():
    raw = a_body("a", a_spec())
    assert dict(kopf.Body(raw))["spec"] is raw["spec"], "no copy is made of what may be large"
