"""The operator does all that a cluster's life takes with the chart's rights, and asks for nothing beyond them.

By the API server's audit log: a request that is refused for lack of rights is in none of its metrics, and whoever made
it may not say a word.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpudask.clients.kubernetes import Kubernetes
from gpudask.settings import Settings
from local.api_server import ApiServer
from tests.builders import a_pool
from tests.chart.conftest import Cluster
from tests.conftest import CRD
from tests.planning.builders import gpu_pool
from tests.reconcile.stage import Stage, operating

if TYPE_CHECKING:
    from tests.chart.conftest import Helm

pytestmark = pytest.mark.api

HOME = "gpudask-system"
# No garbage collector runs: what one run leaves is in nobody else's way.
TEAMS = {"everywhere": "team-a", "one-namespace": "team-b"}
ACCOUNT = f"system:serviceaccount:{HOME}:gpudask"


@pytest.fixture(scope="module")
def audited() -> Iterator[ApiServer]:
    """An API server that keeps a log of every request, with the resource and two namespaces."""
    server = ApiServer.start(f"rights-{os.getpid()}", audit=True)
    try:
        administrator = _administrator(server)
        administrator.define(CRD)
        for name in (HOME, *TEAMS.values()):
            administrator("create", "namespace", name)
        yield server
    finally:
        server.stop()


@pytest.fixture(params=TEAMS)
def mode(request: pytest.FixtureRequest) -> str:
    """Where the operator's rights are."""
    return str(request.param)


@pytest.fixture
def settings(
    mode: str, audited: ApiServer, helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settings]:
    """The operator's, with the service account and the rights that the chart gives it, and no others."""
    watched = () if mode == "everywhere" else (TEAMS[mode],)
    rendered = helm.manifests("--set", "userRoles=false", "--set-json", f"watchNamespaces={json.dumps(watched)}")
    rights = [
        found for found in rendered if found["apiVersion"].startswith("rbac.") or found["kind"] == "ServiceAccount"
    ]
    administrator = _administrator(audited)
    administrator("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
    token = administrator("create", "token", "gpudask", "--namespace", HOME).stdout.strip()
    config = yaml.safe_load(audited.kubeconfig.read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    yield Settings(namespace=HOME, watch_namespaces=watched, kubeconfig=str(kubeconfig), health_port=0)
    administrator("delete", "-f", "-", stdin=yaml.safe_dump_all(rights))


@pytest.fixture
async def stage(mode: str, audited: ApiServer) -> AsyncIterator[Stage]:
    """The administrator's view, and a fake node."""
    api = await Kubernetes.connect(str(audited.kubeconfig))
    stage = Stage(api, TEAMS[mode], audited.kubeconfig)
    stage.kubelet.start()
    try:
        yield stage
    finally:
        await stage.kubelet.stop()
        await api.close()


async def test_nothing_that_the_operator_asks_for_is_refused(settings: Settings, stage: Stage, audited: ApiServer):
    before = len(_events(audited))
    async with operating(settings):
        await stage.apply(a_pool(replicas=2), gpu_pool(idle="1s"))
        scheduler = await stage.scheduler()
        await scheduler.want(1, GPU=1)
        await stage.becomes(lambda: stage.names(pool="gpu"), ["demo-gpu-worker-0"])
        await scheduler.want(0)
        await stage.becomes(lambda: stage.names(pool="gpu"), [])
        await stage.apply(a_pool(replicas=1))
        await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0"])
        await stage.delete_cluster()
    ours = [event for event in _events(audited)[before:] if event["user"]["username"] == ACCOUNT]
    done = {(event["verb"], event.get("objectRef", {}).get("resource")) for event in ours}
    assert {("create", "pods"), ("delete", "pods"), ("patch", "services"), ("patch", "gpudaskclusters")} <= done
    assert [_words(event) for event in ours if event["responseStatus"]["code"] == 403] == []


def _administrator(server: ApiServer) -> Cluster:
    return Cluster(str(server.kubectl), server.kubeconfig, namespace="")


def _events(server: ApiServer) -> list[dict[str, Any]]:
    """Every request that was answered so far."""
    events = [json.loads(line) for line in server.audit_log.read_text().splitlines()]
    return [event for event in events if "responseStatus" in event]


def _words(event: dict[str, Any]) -> str:
    return f"{event['verb']} {event['requestURI']}: {event['responseStatus'].get('message', '')}"
