"""Nobody but the operator sets the labels and annotations by which it knows its pods and Services."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

import pytest

from gpudask.api import resource
from gpudask.api.pod_template import RESERVED_PREFIXES
from gpudask.desired import scheduler
from gpudask.desired.disruption import EVICTION_ANNOTATIONS
from gpudask.desired.scheduler import scheduler_pod
from gpudask.desired.workers import worker_pod
from gpudask.planning.observed.parser import parse_pod
from tests.builders import a_cluster, a_pool

OURS = {
    value for name, value in vars(resource).items() if name.startswith(("LABEL_", "ANNOTATION_")) and "/" in str(value)
}
FORGED = dict.fromkeys(sorted(OURS), "forged") | {f"{resource.GROUP}/later": "forged"}
TEMPLATE = {"metadata": {"labels": FORGED | {"team": "a"}, "annotations": FORGED | {"team": "a"}}}


def made(**spec: Any) -> list[Json]:
    """A scheduler pod, a worker pod and the Services of a cluster."""
    cluster = a_cluster(*spec.pop("pools", ()), **spec)
    worker = worker_pod(cluster, cluster.spec.pools[0], 0, "abcde")
    return [scheduler_pod(cluster, "demo-scheduler-12345", "preload"), worker, *scheduler.services(cluster)]


def reserved_keys(body: Json) -> Json:
    metadata = body["metadata"]
    return {
        part: {key: value for key, value in metadata.get(part, {}).items() if key.startswith(RESERVED_PREFIXES)}
        for part in ("labels", "annotations")
    }


def test_every_label_and_annotation_of_ours_is_reserved():
    assert len(OURS) > 10
    assert {key for key in OURS if not key.startswith(RESERVED_PREFIXES)} == set()
    assert not any(name.startswith(RESERVED_PREFIXES) for name in EVICTION_ANNOTATIONS), "those a template may set"


@pytest.mark.parametrize(
    "spec",
    [
        {"template": TEMPLATE},
        {"scheduler": {"template": TEMPLATE, "service": {"annotations": FORGED}}},
        {"pools": [a_pool(template=TEMPLATE)]},
    ],
    ids=["cluster", "scheduler", "pool"],
)
def test_a_template_neither_sets_nor_adds_a_reserved_key(spec: Json):
    for body, plain in zip(made(**spec), made(), strict=True):
        found, expected = reserved_keys(body), reserved_keys(plain)
        for of in (found, expected):
            of["annotations"].pop(resource.ANNOTATION_SPEC_HASH, None)  # of what was written, and that differs
        assert found == expected


def test_other_keys_stay():
    scheduler, worker, *_ = made(template=TEMPLATE)
    for body in (scheduler, worker):
        assert body["metadata"]["labels"]["team"] == body["metadata"]["annotations"]["team"] == "a"


def test_the_scheduler_is_seen_as_the_scheduler_whatever_its_template_says():
    scheduler, *_ = made(scheduler={"template": {"metadata": {"labels": {resource.LABEL_POOL: "zz"}}}})
    server_side = {"uid": "1", "resourceVersion": "1"}
    assert parse_pod(scheduler | {"metadata": scheduler["metadata"] | server_side}).pool == ""


def test_a_pod_is_not_born_retiring_whatever_its_template_says():
    _, worker, *_ = made(pools=[a_pool(template={"metadata": {"annotations": {resource.ANNOTATION_RETIRE: "x"}}})])
    server_side = {"uid": "1", "resourceVersion": "1"}
    assert parse_pod(worker | {"metadata": worker["metadata"] | server_side}).retirement is None


@pytest.mark.parametrize("part", [{"name": "x"}, {"finalizers": ["x/y"]}, {"ownerReferences": [{"uid": "1"}]}])
def test_names_finalizers_and_owners_of_a_template_are_left_out(part: Json):
    for body, plain in zip(made(template={"metadata": part}), made(), strict=True):
        assert body == plain
