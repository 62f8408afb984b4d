"""Whatever JSON the API server shows: an object of ours, small and fit to be told of, or a refusal; nothing else."""

from __future__ import annotations

from gpudask.api import Json

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudask.mirror.objects import KINDS
from gpudask.planning.observed.fields import UnreadableError
from gpudask.mirror.state import observe_mirror
from gpudask.planning.observed.pods import Pod
from gpudask.planning.observed.parser import parse_pod
from gpudask.api.status import iso
from gpudask.reconcile.drift_repair import observe_owned
from gpudask.reconcile.preload_configmaps import observe_shared

pytestmark = pytest.mark.simulation

REDUCERS: list[Callable[[Any], Any]] = [
    parse_pod,
    observe_owned("Service"),
    observe_shared,
    *(observe_mirror(kind) for kind in KINDS),
]
OWNER = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCluster", "uid": "c", "controller": True}
RUNS = {"name": "dask", "restartCount": 1, "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}}
WAITS = {"name": "dask", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}}
ENDED = {"terminated": {"reason": "Error", "exitCode": 1, "message": "m", "finishedAt": "2026-01-01T00:00:09Z"}}
RETIRE = json.dumps({"why": "idle", "ifIdle": True, "release": False, "at": 1.5})
MADE_WITH = json.dumps({"image": "i", "schedulerImage": "i", "protocol": "tcp"})
# One that has every field which any reducer reads.
WHOLE: Json = {
    "metadata": {
        "uid": "u",
        "name": "demo",
        "namespace": "default",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["kueue.x-k8s.io/managed"],
        "labels": {"gpudask.dev/pool": "gpu", "gpudask.dev/serves": "u"},
        "annotations": {
            "gpudask.dev/retire": RETIRE,
            "gpudask.dev/gpus": "4",
            "gpudask.dev/made-with": MADE_WITH,
            "gpudask.dev/dask-name": "demo-1",
            "gpudask.dev/spec-hash": "abc",
            "gpudask.dev/mirrored": "3",
            "karpenter.sh/do-not-disrupt": "true",
        },
        "ownerReferences": [OWNER],
        "managedFields": [
            {"manager": "kubectl", "time": "t", "fieldsV1": {"f:spec": {"f:minimum": {}, "f:worker": {}}}},
            {"manager": "python", "time": "u", "fieldsV1": {"f:spec": {"f:worker": {"f:replicas": {}}}}},
        ],
    },
    "spec": {
        "nodeName": "n",
        "volumes": [{"name": "gpudask-preload", "configMap": {"name": "c"}}],
        "cluster": "demo",
        "worker": {"replicas": 3},
        "minimum": 1,
        "maximum": 5,
    },
    "data": {"a": "b"},
    "binaryData": {"c": "d"},
    "immutable": True,
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "m",
        "podIP": "10.0.0.1",
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"},
        ],
        "containerStatuses": [RUNS | {"lastState": ENDED}, WAITS],
    },
}

TIMES = st.sampled_from(
    ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "10000-01-01T00:00:00Z", "2026-01-01"]
)
TEXTS = st.one_of(
    st.text(st.characters(codec=None), max_size=30),  # halves of surrogate pairs too: JSON can say them
    TIMES,
    st.sampled_from(["9" * 5000, "[" * 3000, "x" * 20_000, "-1", "NaN", "\\u0665", RETIRE, MADE_WITH]),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**60), 10**60),
    st.floats(),
    TEXTS,
)
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in `value`."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, part in parts for path in paths(part, (*at, key)))]


PATHS = paths(WHOLE)[1:]


@st.composite
def spoiled(draw: st.DrawFn) -> Json:
    """An object in which one to four things are something else."""
    body = copy.deepcopy(WHOLE)
    for path in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=4)):
        of: Any = body
        with contextlib.suppress(LookupError, TypeError):  # what stood there is spoiled already
            for key in path[:-1]:
                of = of[key]
            of[path[-1]] = draw(ANYTHING)
    return body


def read(reduce: Callable[[Any], Any], body: Any) -> Any:
    """What `reduce` makes of it, None where it refuses, in few and plain words."""
    try:
        return reduce(body)
    except UnreadableError as error:
        said = str(error)
    assert len(said.encode()) < 1000
    return None


def test_the_whole_object_is_read_by_all():
    for reduce in REDUCERS:
        assert read(reduce, WHOLE) is not None


@settings(max_examples=150)
@given(body=spoiled())
@pytest.mark.parametrize("reduce", REDUCERS, ids=["pod", "service", "preload", *KINDS])
def test_a_spoiled_object_is_read_or_refused(reduce: Callable[[Any], Any], body: Json):
    item = read(reduce, body)
    if item is not None:
        assert 0 <= int(item.version) < 10**20
        # Which also says that all of it can be sent. What is to be served is kept whole.
        assert len(repr(item).encode()) - len(repr(getattr(item, "source", None)).encode()) < 40_000
    if isinstance(item, Pod):
        moments = [item.created, item.delete_by, item.started, item.placed]
        moments += [item.retirement.at] if item.retirement else []
        moments += [item.ended.at] if item.ended else []
        for moment in moments:
            assert iso(moment)


@settings(max_examples=40)
@given(body=st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), ANYTHING))
@pytest.mark.parametrize("reduce", REDUCERS, ids=["pod", "service", "preload", *KINDS])
def test_any_json_object_is_read_or_refused(reduce: Callable[[Any], Any], body: Json):
    read(reduce, body)
