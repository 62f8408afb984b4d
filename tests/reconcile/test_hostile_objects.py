"""One hostile object in one namespace changes nothing for another cluster, on a real API server."""

from __future__ import annotations

from gpudask.api import Json

import json
from typing import Any

import pytest

from gpudask.api.resource import LABEL_CLUSTER
from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.reconcile.stage import Stage, stays

pytestmark = pytest.mark.api
FIRST, SECOND = "demo-cpu-worker-0", "demo-cpu-worker-1"
HOSTILE = {
    "digits": {"gpudask.dev/gpus": "9" * 5000},
    "depth": {"gpudask.dev/retire": "[" * 5000},
    "an endless moment": {"gpudask.dev/retire": json.dumps({"why": "x", "ifIdle": 0, "release": 0, "at": 10**400})},
    "size": {"gpudask.dev/dask-name": "<" * 200_000},
}


def pod(name: str, annotations: dict[str, str] | None = None, **metadata: Any) -> Json:
    known = {"name": name, "labels": {LABEL_CLUSTER: "demo"}, "annotations": annotations or {}}
    spec = {"containers": [{"name": "dask", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": known | metadata, "spec": spec}


@pytest.mark.parametrize("annotations", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_annotation_stops_nobody(stage: Stage, operator: Operator, annotations: dict[str, str]):
    await stage.create("pods", pod("hostile", annotations))
    await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    await stage.patch("pods", "hostile", {"metadata": {"annotations": annotations | {"again": "1"}}})
    await stage.apply(a_pool(replicas=2))
    await stage.becomes(stage.names, ["demo-cpu-worker-0", "demo-cpu-worker-1"])
    assert operator.unreadable == 0, "an annotation with nonsense in it is as good as none"


async def test_a_pod_whose_label_was_off_for_a_while_is_counted_again(stage: Stage, operator: Operator):
    await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    await stage.patch("pods", FIRST, {"metadata": {"labels": {LABEL_CLUSTER: None}}})
    await stage.becomes(lambda: _worker_pods(stage), [FIRST, SECOND], "its name is in use, another is taken")
    await stage.patch("pods", FIRST, {"metadata": {"labels": {LABEL_CLUSTER: "demo"}}})
    await stage.becomes(lambda: _live(stage), 1, "one of two is too many")


async def test_a_pod_that_a_finalizer_keeps_has_a_successor_under_another_name(stage: Stage, operator: Operator):
    await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    held = ["kueue.x-k8s.io/managed"]
    await stage.patch("pods", FIRST, {"metadata": {"finalizers": held}})
    await stage.delete("pods", FIRST, gracePeriodSeconds=0)
    await stage.becomes(stage.names, ["demo-cpu-worker-1"])
    await stays(stage.names, ["demo-cpu-worker-1"], 1.0)
    await stage.patch("pods", FIRST, {"metadata": {"finalizers": None}})
    await stage.becomes(lambda: _worker_pods(stage), [SECOND])


async def _worker_pods(stage: Stage) -> list[str]:
    """Whatever their labels, and those that end too."""
    return sorted(n for item in await stage.list("pods") if "worker" in (n := item["metadata"]["name"]))


async def _live(stage: Stage) -> int:
    return len(await stage.names())
