"""What the operator reads of the mirror's objects, and which of them are not as they should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.mirror import objects
from gpudask.mirror.objects import render
from gpudask.mirror.state import MirrorObject, made_by_people, observe_mirror, refusal, superfluous
from tests.builders import a_pool
from tests.mirror.builders import FIXED, MIXED, autoscaler, group, stored
from tests.planning.builders import NOW, cluster, gpu_pool


def test_the_editor_is_the_last_program_but_ours_that_set_the_size():
    fields = {"f:spec": {"f:worker": {"f:replicas": {}}}}
    body = render(cluster(*FIXED), {}, {"cpu": 0, "gpu": 0}, NOW)[1]
    body["metadata"]["managedFields"] = [
        {"manager": "python-httpx", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields},
        {"manager": "kubectl", "time": "2026-01-02T00:00:00Z", "fieldsV1": fields},
        {"manager": "gpudask", "time": "2026-01-03T00:00:00Z", "fieldsV1": fields},
        {"manager": "labeller", "time": "2026-01-04T00:00:00Z", "fieldsV1": {"f:metadata": {}}},
    ]
    assert observe_mirror(body["kind"])(stored(body)).editor == "kubectl"


def test_groups_of_removed_pools_go_and_an_autoscaler_whose_limits_hold_no_more():
    of = cluster(*MIXED)
    items = (group("old", 1, was="1"), autoscaler(1, 3, was="1..3"), group("other", 1, controller="somebody"))
    wanted = render(of, {}, {"cpu": 0, "gpu": 0}, NOW)
    assert [item.name for item in superfluous(of, items, wanted)] == ["demo-old", "demo"]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (replace(group("gpu", 1), foreign=True), "DaskWorkerGroup demo-gpu is handled by another operator"),
        (replace(group("gpu", 1), controller="another"), "belongs to an object with uid another"),
        (replace(group("other", 1), controller="another"), ""),
        (group("gpu", 1), ""),
        (autoscaler(1, 2), ""),
        (group("demo", None, kind=objects.JOB, name="demo", controller="", foreign=True), ""),
    ],
)
def test_why_the_mirror_is_left_alone(item: MirrorObject, text: str):
    found = refusal(cluster(*MIXED), (item,))
    assert text in found
    assert bool(text) == bool(found)


@pytest.mark.parametrize("mark", ["annotations", "finalizers"])
def test_the_stock_operator_leaves_marks(mark: str):
    body = stored(objects.dask_cluster(cluster(*MIXED), size=1, ready=0))
    name = "kopf.zalando.org/last-handled-configuration"
    body["metadata"][mark] = {name: "x"} if mark == "annotations" else [name]
    assert observe_mirror(objects.CLUSTER)(body).foreign


@pytest.mark.parametrize(
    ("value", "is_foreign"), [('{"started":"2026-01-01T00:00:00","retries":0}', True), ("x", False)]
)
def test_of_other_annotations_that_begin_so_a_handlers_progress_alone_is_its_mark(value: str, is_foreign: bool):
    body = stored(objects.dask_cluster(cluster(*MIXED), size=1, ready=0))
    body["metadata"]["annotations"]["kopf.zalando.org/daskcluster_create"] = value
    assert observe_mirror(objects.CLUSTER)(body).foreign == is_foreign


def observed(text: str | None, *, size: int | None = None, was: str | None = None, **spec: Any) -> MirrorObject:
    """A worker group that somebody made, with `text` in its annotation."""
    annotations = {"gpudask.dev/autoscale": text, "gpudask.dev/mirrored": was}
    metadata = {
        "name": "demo-gpu",
        "annotations": {key: value for key, value in annotations.items() if value is not None},
    }
    body = {"metadata": {"namespace": "default"} | metadata, "spec": {"cluster": "demo", "worker": {"replicas": size}}}
    body["spec"] |= spec
    return observe_mirror(objects.WORKER_GROUP)(stored(body))


@pytest.mark.parametrize(
    ("text", "size", "was", "value"),
    [
        ("0..8", None, None, "0..8"),
        (" 0..08", 2, "0..8", "2 0..8"),
        (None, 2, "2 0..8", "2"),
        ("many", None, "0..8", "0..8"),  # it is told, and its pool stays as it was
        ("many", 2, "x..y 1..2..3 9..1", "2"),  # somebody wrote there, too
    ],
)
def test_the_limits_of_what_somebody_made(text: str | None, size: int | None, was: str | None, value: str):
    found = observed(text, size=size, was=was)
    assert found.value == value
    assert found.source is not None
    assert found.source["metadata"].get("annotations", {}).get("gpudask.dev/autoscale") == text


def test_what_mirrors_a_pool_has_no_limits_of_its_own():
    assert observed("0..8", mirrors="gpu").limits == ""


def test_what_is_shown_of_a_group_with_limits_is_no_change_when_it_comes_back():
    of = replace(cluster(*FIXED, overrides=[{"pool": "gpu", "min": 0, "max": 8}]), stock_uid="u")
    made = objects.MadeByPeople({"gpu": "demo-gpu"}, {(objects.WORKER_GROUP, "demo-gpu"): "0..8"})
    bodies = {body["metadata"]["name"]: body for body in render(of, {"gpu": 5}, {"cpu": 3, "gpu": 1}, NOW, made)}
    shown = bodies["demo-gpu"]
    assert shown["spec"]["worker"]["replicas"] is None, "so that any size that is set is a change"
    assert shown["status"]["replicas"] == 1
    was = shown["metadata"]["annotations"]["gpudask.dev/mirrored"]
    assert not observed("0..8", was=was).set_by_person
    assert observed("0..8", was=was, size=0).set_by_person
    assert observed(None, was=was).set_by_person


@pytest.mark.parametrize(("gpu", "told"), [(gpu_pool(), "3..9"), (a_pool("gpu", replicas=1, gpu={"count": 1}), "")])
def test_limits_that_were_taken_away_are_written_down_until_the_pool_has_none(gpu: Json, told: str):
    of = replace(cluster(FIXED[0], gpu), stock_uid="u")
    item = replace(observed(None, was="3..9"), owners=(of.owner_key,))
    assert item.limits_removed
    assert made_by_people(of, (item,)).limits[objects.WORKER_GROUP, "demo-gpu"] == told
