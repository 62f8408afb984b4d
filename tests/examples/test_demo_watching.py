"""The demonstration's watches, on a real API server whose operator is this test."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from local.demo.model import View
from local.demo.overlay import localize
from local.demo.recording import Recording
from local.demo.watching import Watcher
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api
MIXED = Path(__file__).parents[2] / "examples" / "mixed.yaml"


async def test_cluster_pods_and_events_are_recorded_as_they_come_and_go(in_namespace: Kubectl):
    watcher = await Watcher.connect(str(in_namespace.kubeconfig), in_namespace.namespace)
    recording = Recording()
    following = asyncio.create_task(watcher.follow("demo", recording))

    async def kubectl(*arguments: str, stdin: str | None = None) -> None:
        await asyncio.to_thread(in_namespace, *arguments, stdin=stdin)

    async def until(condition: Callable[[View], bool], what: str) -> None:
        await recording.until(condition, 10, what)

    try:
        await watcher.apply(localize(yaml.safe_load(MIXED.read_text())))
        status = {"status": {"phase": "Running", "pools": [{"name": "gpu", "desired": 1}]}}
        await kubectl("patch", "gdc", "demo", "--subresource=status", "--type=merge", "-p", json.dumps(status))
        await until(lambda view: view.pool("gpu").desired == 1, "the status")
        await kubectl("create", "-f", "-", stdin=yaml.safe_dump(POD))
        await until(lambda view: view.pool("gpu").pending == 1, "the pod")
        await kubectl("create", "-f", "-", stdin=yaml.safe_dump(event(in_namespace.namespace)))
        await until(lambda view: [event.reason for event in view.events] == ["ScaledUp"], "the event")
        await kubectl("delete", "pod", "demo-gpu-worker-0", "--force", "--grace-period=0")
        await until(lambda view: view.pool("gpu").pending == 0, "the pod's end")
    finally:
        following.cancel()


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "demo-gpu-worker-0",
        "labels": {"gpudask.dev/cluster": "demo", "gpudask.dev/pool": "gpu"},
    },
    # No controller fills in a service account here.
    "spec": {"containers": [{"name": "dask", "image": "none"}], "automountServiceAccountToken": False},
}


def event(namespace: str) -> dict[str, object]:
    regarding = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCluster", "name": "demo"}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "demo.1", "namespace": namespace},
        "type": "Normal",
        "reason": "ScaledUp",
        "action": "Scale",
        "note": "pool gpu 0 -> 1",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "gpudask.dev/operator",
        "reportingInstance": "test",
        "regarding": regarding | {"namespace": namespace},
    }
