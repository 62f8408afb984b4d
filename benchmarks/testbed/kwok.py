"""Kwok plays the nodes: a pod that names one of them is Running at once, and gone at once when it is deleted.

https://kwok.sigs.k8s.io/docs/user/stages-configuration/
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.testbed.manifests import ADDRESS, NAMESPACE, NODES, node_name
from benchmarks.testbed.watch import until
from gpudask.clients.kubernetes import Kubernetes
from local.binaries import KWOK, ensure_binary
from local.progress import Steps

Json = dict[str, Any]
_PARALLEL = 16  # pods played at the same time; with kwok's 4 it would set the pace
_ANNOTATION = "kwok.x-k8s.io/node"
# One write for each pod: assigned, started and ready are told together.
_RUNNING = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
hostIP: 127.0.0.1
podIP: {{ or (index .metadata.annotations "ADDRESS") "127.0.0.1" | Quote }}
conditions:
- {type: PodScheduled, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
- name: dask
  image: played
  imageID: played
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
"""


@contextlib.asynccontextmanager
async def fake_nodes(api: Kubernetes, kubeconfig: Path, scratch: Path) -> AsyncIterator[None]:
    """Fake nodes until the block ends; kwok's log and settings lie in `scratch`."""
    binary = ensure_binary(KWOK, Steps())
    for number in range(NODES):
        metadata = {"name": node_name(number), "annotations": {_ANNOTATION: "fake"}}
        await api.request("POST", "/api/v1/nodes", body={"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    settings = scratch / "kwok.yaml"
    settings.write_text(yaml.safe_dump_all(_settings()))
    with (scratch / "kwok.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            str(binary),
            f"--kubeconfig={kubeconfig}",
            f"--config={settings}",
            f"--manage-nodes-with-annotation-selector={_ANNOTATION}=fake",
            stdout=log,
            stderr=log,
        )
    try:
        await _warmed_up(api)
        yield
    finally:
        process.kill()
        await process.wait()


async def _warmed_up(api: Kubernetes) -> None:
    """Wait until a first pod was played: kwok's watches take a second to begin."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    metadata = {"name": "warm-up", "namespace": NAMESPACE, "annotations": {ADDRESS: "127.0.0.1"}}
    spec = {"nodeName": node_name(0), "containers": [{"name": "dask", "image": "played"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    await api.request("POST", path, body=body)

    async def runs() -> bool:
        pod = await api.request("GET", f"{path}/warm-up")
        return bool(pod["status"].get("phase") == "Running")

    await until(runs, "kwok plays a pod; its log says why not", seconds=30)
    await api.request("DELETE", f"{path}/warm-up", body={"gracePeriodSeconds": 0})


def _settings() -> list[Json]:
    options = {"podPlayStageParallelism": _PARALLEL}
    absent = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
    return [
        {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options},
        _stage("pod-runs", "Pod", [absent, {"key": ".status.podIP", "operator": "DoesNotExist"}], _runs()),
        _stage("pod-ends", "Pod", [{**absent, "operator": "Exists"}], {"delete": True}),
        _stage(
            "node-is-ready",
            "Node",
            [{"key": ".status.phase", "operator": "DoesNotExist"}],
            {"statusTemplate": "phase: Running"},
        ),
    ]


def _runs() -> Json:
    return {"statusTemplate": _RUNNING.replace("ADDRESS", ADDRESS)}


def _stage(name: str, kind: str, expressions: list[Json], following: Json) -> Json:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            "next": following,
        },
    }
