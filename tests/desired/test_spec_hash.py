"""What restarts a pod, and what must not."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

import pytest
import yaml

from gpudask.api import addresses
from gpudask.api.crd import render
from gpudask.api.spec import Spec
from gpudask.desired.spec_hash import of_scheduler, of_worker
from tests.builders import a_pool, a_spec, parsed_spec


def hashes(spec: Spec) -> Json:
    return {"": of_scheduler(spec), **{pool.name: of_worker(spec, pool) for pool in spec.pools}}


BASE = a_spec(a_pool("cpu"), a_pool("gpu", gpu={"count": 1}))
ENV = [{"name": "A", "value": "1"}]


def edited(path: str, value: Any) -> Json:
    spec = yaml.safe_load(yaml.safe_dump(BASE))
    node: Any = spec
    *parents, last = path.split(".")
    for part in parents:
        node = node[int(part)] if part.isdigit() else node.setdefault(part, {})
    node[last] = value
    return spec


@pytest.mark.parametrize(
    ("path", "value", "restarts"),
    [
        ("image", "other", {"", "cpu", "gpu"}),
        ("imagePullPolicy", "Always", {"", "cpu", "gpu"}),
        ("imagePullSecrets", [{"name": "s"}], {"", "cpu", "gpu"}),
        ("env", ENV, {"", "cpu", "gpu"}),
        ("config", {"distributed": {"x": 1}}, {"", "cpu", "gpu"}),
        ("template", {"spec": {"priorityClassName": "p"}}, {"", "cpu", "gpu"}),
        ("protocol", "tls", {"", "cpu", "gpu"}),
        ("scheduler.image", "other", {""}),
        ("scheduler.resources", {"cpu": 2}, {""}),
        ("scheduler.extraArgs", ["--idle-timeout", "1h"], {""}),
        ("pools.0.image", "other", {"cpu"}),
        ("pools.0.env", ENV, {"cpu"}),
        ("pools.0.resources", {"cpu": 2}, {"cpu"}),
        ("pools.0.nthreads", 2, {"cpu"}),
        ("pools.0.offers", {"X": 1}, {"cpu"}),
        ("pools.0.shmSize", "1Gi", {"cpu"}),
        ("pools.0.template", {"metadata": {"labels": {"a": "b"}}}, {"cpu"}),
        ("pools.0.protocol", "ucxx", {"cpu"}),
        ("pools.0.gpu", {}, {"cpu"}),
        ("pools.1.gpu.count", 2, {"gpu"}),
        ("pools.1.gpu.launcher", "dask", {"gpu"}),
        ("pools.1.gpu.launcher", "dask-cuda-nanny", {"gpu"}),
        ("pools.1.gpu.deviceMemoryLimit", "0.5", {"gpu"}),
        ("pools.1.gpu.rmmPoolSize", "4Gi", {"gpu"}),
        ("pools.1.gpu.rmmAllocatorFor", ["cupy"], {"gpu"}),
        ("pools.1.gpu.preImport", ["cupy"], {"gpu"}),
        ("pools.1.gpu.kernelCache", "/var/lib/kernels", {"gpu"}),
        ("pools.1.gpu.nodeSelector", {"a": "b"}, {"gpu"}),
        # sizes and steering change no pod
        ("pools.0.replicas", 7, set()),
        ("pools.0.autoscale", {"max": 3}, set()),
        ("pools.1.accepts", "any", set()),
        ("pools.1.heldData", {"releaseAfter": "1m"}, set()),
        ("pools.1.drainTimeout", "1m", set()),
        ("pools.1.recycle", {"afterTasks": 1000}, set()),
        ("pools.1.fallback", {"to": ["cpu"]}, set()),
        ("idle", {"frozenFor": "1h"}, set()),
        ("scheduler.service", {"type": "NodePort"}, set()),
        ("network", {"allowFrom": [{"podSelector": {}}]}, set()),
        ("rollout", "Drain", set()),
        ("suspend", True, set()),
        ("overrides", [{"pool": "cpu", "replicas": 3}], set()),
    ],
)
def test_an_edit_restarts(path: str, value: Any, restarts: set[str]):
    before, after = hashes(Spec.model_validate(BASE)), hashes(Spec.model_validate(edited(path, value)))
    assert {name for name in before if before[name] != after[name]} == restarts


def with_defaults(schema: Json, value: Any) -> Any:
    """As the API server stores it: the schema's defaults are filled in where an object is there."""
    if isinstance(value, dict) and "properties" in schema:
        filled = {name: child["default"] for name, child in schema["properties"].items() if "default" in child}
        filled |= value
        return {
            name: with_defaults(schema["properties"][name], item) if name in schema["properties"] else item
            for name, item in filled.items()
        }
    if isinstance(value, list) and "items" in schema:
        return [with_defaults(schema["items"], item) for item in value]
    return value


def test_defaults_written_out_by_the_api_server_restart_nothing():
    schema = render()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    stored = with_defaults(schema, edited("scheduler.service", {}))
    assert stored["rollout"] == "WhenIdle", "the schema has defaults"
    assert hashes(Spec.model_validate(stored)) == hashes(Spec.model_validate(BASE))


def test_defaults_written_out_by_a_person_restart_nothing():
    written = Spec.model_validate(BASE).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert hashes(Spec.model_validate(written)) == hashes(Spec.model_validate(BASE))


def test_another_pool_changes_nothing_for_the_first():
    alone, beside = parsed_spec(a_pool("cpu")), parsed_spec(a_pool("gpu", gpu={}), a_pool("cpu"))
    assert hashes(alone)["cpu"] == hashes(beside)["cpu"]
    assert hashes(alone)[""] == hashes(beside)[""]


def test_published_hashes_stay():
    """A new operator version must restart nothing: if this fails, every running pod would be replaced."""
    assert hashes(Spec.model_validate(a_spec(a_pool("cpu"), a_pool("gpu", gpu={})) | {"image": "i"})) == PUBLISHED


def test_workers_of_ucx_that_dial_a_service_are_out_of_date(monkeypatch: pytest.MonkeyPatch):
    """The exception: those that an older version made would never find another scheduler."""
    spec = edited("protocol", "ucxx")
    now = hashes(Spec.model_validate(spec))
    monkeypatch.setattr(addresses, "needs_headless", lambda _: False)
    before = hashes(Spec.model_validate(spec))
    assert before[""] == now[""], "the scheduler stays"
    assert before["cpu"] != now["cpu"]
    assert before["gpu"] != now["gpu"]


PUBLISHED = {"": "b915cc7760", "cpu": "96aa3d92b1", "gpu": "9aec572d0b"}
