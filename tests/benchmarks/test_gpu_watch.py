"""The GPU benchmark's watch, on what a real kubectl writes of a real API server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import runner as benchmark
from benchmarks.gpu.runner import WATCH, PodWatch
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api
PATIENCE_SECONDS = 120.0


def pod(name: str) -> dict[str, Any]:
    container = {"name": "dask", "image": "any"}
    meta = {"name": name, "labels": {"gpudask.dev/pool": "gpu"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}


def test_a_watch_sees_pods_come_and_go(in_namespace: Kubectl, tmp_path: Path):
    namespace = in_namespace.namespace
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
    in_namespace("apply", "-f", "-", stdin=json.dumps(account))
    mine = benchmark.Kubectl(
        in_namespace.path, namespace, {**os.environ, "KUBECONFIG": str(in_namespace.kubeconfig), "HOME": str(tmp_path)}
    )
    mine.apply(pod("early"))
    with mine.started(*WATCH) as process:
        assert process.stdout is not None
        watch = PodWatch(process.stdout)
        watch.start()
        early = watch.until(lambda pods: pods, "the one that was there is seen", "gpu", PATIENCE_SECONDS)
        mine.apply(pod("late"))
        late = watch.until(lambda pods: pods[1:], "another is seen", "gpu", PATIENCE_SECONDS)
        assert (early.name, late.name) == ("early", "late")
        mine("delete", "pods", "--all", "--force", "--grace-period=0")
        last = watch.until_all_gone("gpu", PATIENCE_SECONDS)
        assert last.gone >= late.created >= early.created


def test_a_watch_that_has_ended_is_not_waited_for():
    watch = PodWatch([])
    watch.start()
    watch.join()
    with pytest.raises(benchmark.BenchmarkError, match="a pod comes: the watch on pods has ended"):
        watch.until(lambda pods: pods, "a pod comes", "gpu", PATIENCE_SECONDS)
