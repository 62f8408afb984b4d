"""The stage of the swap: an API server with the controllers of Deployments, a node of processes, and our operator.

The operator is a process of its own with the rights that the chart gives it, held by the chart's admission policy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import yaml

from benchmarks.startup.peer import PeerEnvironment
from gpudask.api import Json
from gpudask.clients.kubernetes import Kubernetes
from local.clusters.api_server import ApiServer
from local.operator.process import OperatorProcess, leading
from tests.chart.conftest import Helm
from tests.conftest import CRD, CRON_JOB_CRD, JOB_CRD, RECORD_CRD
from tests.hostile.platform import controllers, kubeconfig_with
from tests.kubectl import Kubectl
from tests.mirror.swap.node import ProcessNode
from tests.reconcile.stage import Stage

HOME = "gpudask-system"
_DEPLOYMENTS = ("deployment-controller", "replicaset-controller")
_LOG_SHOWN = 10_000  # characters
_GRANTED = ("rbac.", "admissionregistration.")


@contextlib.contextmanager
def api_server() -> Iterator[Kubectl]:
    """An administrator's kubectl on an API server that the stock operator is installed on."""
    server = ApiServer.start(f"tests-swap-{os.getpid()}")
    try:
        kubectl = Kubectl(str(server.kubectl), server.kubeconfig)
        for definition in (CRD, RECORD_CRD, JOB_CRD, CRON_JOB_CRD, *PeerEnvironment.ensure().crds):
            kubectl.define(definition)
        server.processes.ensure(controllers(server, *_DEPLOYMENTS))
        yield kubectl
    finally:
        server.processes.stop(["kube-controller-manager"], patience_seconds=0.5)
        server.stop()


@contextlib.asynccontextmanager
async def staged(kubectl: Kubectl, directory: Path) -> AsyncIterator[tuple[Stage, ProcessNode]]:
    """An administrator's view of the namespace `default`, and its node."""
    assert kubectl.kubeconfig is not None
    api = await Kubernetes.connect(str(kubectl.kubeconfig))
    stage, node = Stage(api, "default", kubectl.kubeconfig), ProcessNode(api, "default", directory)
    stage.kubelet = node
    node.start()
    try:
        yield stage, node
    except AssertionError as error:
        error.add_note(f"{await _seen(stage)}\nDied: {node.died}\nThe processes' logs:\n{node.logs()}")
        raise
    finally:
        await node.stop()
        await api.close()


@contextlib.asynccontextmanager
async def installed(kubectl: Kubectl, helm: Helm, directory: Path) -> AsyncIterator[OperatorProcess]:
    """Our operator with compatibility, as the chart installs it, until the block ends."""
    rendered = helm.manifests("--set", "mirror.enabled=true,mirror.definitions=false,userRoles=false")
    rights = [body for body in rendered if body["apiVersion"].startswith(_GRANTED) or body["kind"] == "ServiceAccount"]
    kubeconfig = await asyncio.to_thread(_account, kubectl.inside(""), rights, directory / "kubeconfig")
    log = directory / "operator.log"
    try:
        async with leading(kubeconfig, log, {"GPUDASK_NAMESPACE": HOME, "GPUDASK_MIRROR": "true"}) as process:
            yield process
    except AssertionError as error:
        error.add_note(f"The end of our operator's log:\n{log.read_text(errors='replace')[-_LOG_SHOWN:]}")
        raise


def _account(kubectl: Kubectl, rights: list[Json], path: Path) -> Path:
    """The kubeconfig, at `path`, of the operator's account with these rights."""
    kubectl("create", "namespace", HOME)
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
    token = kubectl("create", "token", "gpudask", f"--namespace={HOME}", "--duration=24h").stdout.strip()
    return kubeconfig_with(kubectl.kubeconfig, token, path)


async def _seen(stage: Stage) -> str:
    """What there is, for a person who looks into a failure."""
    clusters = await stage.list("daskclusters", "kubernetes.dask.org/v1")
    ours = await stage.list("gpudaskclusters", "gpudask.dev/v1alpha1")
    pods = [f"{body['metadata']['name']}: {body['status'].get('phase')}" for body in await stage.list("pods")]
    return "\n".join([*map(_summary, [*clusters, *ours]), *pods])


def _summary(body: Json) -> str:
    meta = body["metadata"]
    return f"{body.get('kind', '')} {meta['name']}: finalizers {meta.get('finalizers')}, status {body.get('status')}"
