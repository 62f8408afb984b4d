"""Played workers register with their played scheduler, whichever of the two runs first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.scale.watching import ADDRESS, Pods
from gpudask.api.resource import ANNOTATION_DASK_NAME, LABEL_CLUSTER, LABEL_POOL

SCHEDULER = {"name": "demo-scheduler", "labels": {LABEL_CLUSTER: "demo"}, "annotations": {ADDRESS: "127.1.0.1"}}
WORKER = {
    "name": "demo-cpu-worker-0",
    "labels": {LABEL_CLUSTER: "demo", LABEL_POOL: "cpu"},
    "annotations": {ANNOTATION_DASK_NAME: "demo-cpu-worker-0-abcde"},
}


@pytest.mark.parametrize("order", [(SCHEDULER, WORKER), (WORKER, SCHEDULER)], ids=["it first", "the worker first"])
def test_a_worker_registers_once(order: tuple[Any, ...]):
    registered: list[tuple[str, str]] = []
    played = SimpleNamespace(register=lambda name, pool: registered.append((name, pool)))
    schedulers: Any = SimpleNamespace(by_address={"127.1.0.1": played})
    pods = Pods(schedulers)
    for metadata in (*order, *order):  # a watch may tell of a pod more than once
        pods.see({"type": "MODIFIED", "object": {"metadata": metadata, "status": {"phase": "Running"}}})
    assert registered == [("demo-cpu-worker-0-abcde", "cpu")]
