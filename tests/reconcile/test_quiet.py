"""An idle cluster costs the API server nothing, a busy one little; counted in its audit log."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gpudask.desired.disruption import SAFE_TO_EVICT
from gpudask.reconcile.operator import Operator
from gpudask.reconcile.served_schema import ResourceMissingError
from gpudask.settings import Settings
from local.clusters.api_server import ApiServer
from tests.builders import a_pool
from tests.conftest import CRD, CRON_JOB_CRD, JOB_CRD
from tests.kubectl import Kubectl
from tests.planning.builders import gpu_pool
from tests.reconcile.stage import Stage, eventually, operating, staged

pytestmark = pytest.mark.api
IDLE_SECONDS = float(os.environ.get("GPUDASK_IDLE_SECONDS", "60"))
CLUSTERS = 50


@pytest.fixture(scope="module")
def audited() -> Iterator[ApiServer]:
    """An API server of this module's own, with an audit log; the CRD is not there yet."""
    server = ApiServer.start(f"tests-audit-{os.getpid()}", audit=True)
    yield server
    server.stop()


@pytest.fixture
async def stage(audited: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setenv("KUBECONFIG", str(audited.kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with staged(audited.kubeconfig, "default") as stage:
        yield stage


@pytest.fixture
def crd(audited: ApiServer) -> None:
    kubectl = Kubectl(str(audited.kubectl), audited.kubeconfig)
    kubectl.define(CRD, JOB_CRD, CRON_JOB_CRD, CRD.with_name("mirror.yaml"))


def requests(server: ApiServer, since: float, until: float) -> list[dict[str, Any]]:
    """What clients asked for in that time: a line of the log each, watches and the Lease left out."""
    found = []
    for line in server.audit_log.read_text().splitlines():
        event = json.loads(line)
        at = datetime.fromisoformat(event["requestReceivedTimestamp"]).replace(tzinfo=UTC).timestamp()
        ours = not event["user"]["username"].startswith("system:")
        ours = ours and event.get("objectRef", {}).get("resource") != "leases"  # renewed every two seconds
        if ours and since <= at <= until and event["verb"] != "watch":
            found.append(event)
    return found


async def ask_for(stage: Stage, name: str) -> None:
    """Ask for a ConfigMap that is not there: the log has to show that."""
    assert await stage.get("configmaps", name) is None


async def test_without_the_crd_the_operator_says_what_to_install(stage: Stage):
    operator = Operator(Settings(kubeconfig=str(stage.kubeconfig)))
    with pytest.raises(
        ResourceMissingError, match="kubectl apply --server-side --force-conflicts -f crds/gpudaskclusters"
    ):
        await operator.start()


@pytest.mark.idle  # an operator that cannot renew its lease in time has to look at everything anew
@pytest.mark.timeout(300 + IDLE_SECONDS)
async def test_idle_clusters_cause_no_requests(stage: Stage, audited: ApiServer, crd: None):
    settings = Settings(kubeconfig=str(stage.kubeconfig), mirror=True)
    names = [f"c{number}" for number in range(CLUSTERS)]
    async with operating(settings):
        await asyncio.gather(*(stage.apply(a_pool(), gpu_pool(), name=name) for name in names))

        async def ready() -> int:
            bodies = (await stage.api.request("GET", stage._clusters))["items"]
            phases = [body.get("status", {}) for body in bodies]
            return sum(
                1
                for status in phases
                if status.get("phase") == "Running"
                and {"DemandServable": "True"}.items()
                <= {item["type"]: item["status"] for item in status["conditions"]}.items()
                and status["pools"][0]["workers"] == 1
            )

        await eventually(
            ready, lambda count: count == CLUSTERS, f"{CLUSTERS} clusters run, each with a worker", seconds=90
        )

        async def told_that_they_rest() -> int:
            pods = await stage.list("pods")
            return sum(1 for pod in pods if pod["metadata"]["annotations"].get(SAFE_TO_EVICT) == "true")

        # Once for each pod, some time after it came to rest: the scheduler's and the worker's.
        await eventually(told_that_they_rest, lambda n: n == 2 * CLUSTERS, "all pods may be evicted", seconds=90)
        await asyncio.sleep(6)  # live figures are written up to five seconds late
        since = time.time()
        await ask_for(stage, "a-control-at-the-beginning")
        await asyncio.sleep(IDLE_SECONDS)
        await ask_for(stage, "a-control-at-the-end")
        until = time.time()
        polls = sum(scheduler.polls for scheduler in stage.kubelet.schedulers.values())
    asked = Counter(f"{event['verb']} {event['requestURI'].split('?')[0]}" for event in requests(audited, since, until))
    configmaps = "get /api/v1/namespaces/default/configmaps"
    controls = Counter([f"{configmaps}/a-control-at-the-beginning", f"{configmaps}/a-control-at-the-end"])
    assert controls <= asked, "the log does not show what was asked for"
    asked -= controls
    print(f"{CLUSTERS} idle clusters, {IDLE_SECONDS:g} s: {sum(asked.values())} requests but watches, {polls} polls")
    assert not asked
    for name in names:
        await stage.delete_cluster(name)


@pytest.mark.parametrize("resources", [{"GPU": 1}, {"GPU": 9}], ids=["served", "unserved"])
async def test_a_thousand_changes_a_second_are_written_every_five_seconds_at_most(
    stage: Stage, audited: ApiServer, crd: None, resources: dict[str, int]
):
    settings = Settings(kubeconfig=str(stage.kubeconfig))
    async with operating(settings):
        await stage.apply(a_pool("gpu", gpu={}, replicas=1), name="busy")
        scheduler = await stage.scheduler("busy")
        await scheduler.want(1, **resources)
        await stage.shows("DemandServable", "True" if resources["GPU"] == 1 else "False", name="busy")
        await asyncio.sleep(1)
        since, changes = time.time(), 0

        def writes() -> list[dict[str, Any]]:
            return [
                event
                for event in requests(audited, since, time.time())
                if event["verb"] == "patch"
                and event["objectRef"].get("subresource") == "status"
                and event["objectRef"]["name"] == "busy"
            ]

        while time.time() < since + 10 or (not writes() and time.time() < since + 120):
            for _ in range(10):
                changes += 1
                await scheduler.want(1 + changes % 97, **resources)
            await asyncio.sleep(max(0.0, since + changes / 1000 - time.time()))
        took, written = time.time() - since, len(writes())
    print(f"{changes} changes in {took:.1f} s, {scheduler.polls} polls, {written} status writes")
    assert written, "nothing is written, or the log does not show it"
    assert written <= 1 + took / 5
    await stage.delete_cluster("busy")
    await stage.kubelet.schedulers.pop("busy").stop()
    for pod in await stage.list("pods"):
        await stage.delete("pods", pod["metadata"]["name"], gracePeriodSeconds=0)
