"""The chart's rights are what the operator needs for a cluster's life: nothing is refused, and nothing is too much.

By the API server's audit log: no metric says of whom or of what it refused a request, and whoever made it may not say
a word.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpudask.api.resource import API_VERSION, PLURAL, RECORD_PLURAL, parse
from gpudask.desired import names, pod, preload
from gpudask.settings import Settings
from local.clusters.api_server import ApiServer
from tests.builders import a_pool
from tests.chart.conftest import Cluster
from tests.conftest import CRD, CRON_JOB_CRD, JOB_CRD, RECORD_CRD
from tests.planning.builders import gpu_pool
from tests.reconcile.jobs import Jobs
from tests.reconcile.stage import Stage, operating, staged

if TYPE_CHECKING:
    from tests.chart.conftest import Helm, Manifest

pytestmark = pytest.mark.api

HOME = "gpudask-system"
# No garbage collector runs: what one run leaves is in nobody else's way.
TEAMS = {"everywhere": "team-a", "one-namespace": "team-b", "mirror": "team-c"}
# What this life of a cluster does not take, of what the chart grants.
UNUSED = {
    ("create", "services"),  # they are applied: `patch`
    ("create", "poddisruptionbudgets"),  # the same
    ("create", "networkpolicies"),  # the same
    ("delete", "networkpolicies"),  # once they are switched off
    *((verb, plural) for verb in ("create", "patch") for plural in ("daskclusters", "daskworkergroups")),
    *(("delete", plural) for plural in ("daskclusters", "daskworkergroups")),
    ("patch", "events"),  # for one that comes again
    ("create", "leases"),  # by the first operator of a namespace
    ("create", "secrets"),  # the same: its key
    ("list", "gpudaskrecords"),  # now and then
    ("delete", "gpudaskrecords"),  # of those that are old
    ("get", "configmaps"),  # for one by whose name there is another
    ("get", "pods"),  # for one whose deletion was refused
    ("get", "gpudaskclusters"),  # for one that seems to be out of date
    ("create", "gpudaskclusters"),  # for DaskClusters that people make, where the mirror is on
    ("patch", "gpudaskclusters"),  # for sizes that are set through the mirror
    ("get", "gpudaskjobs"),  # for one that seems to be out of date
    ("get", "gpudaskcronjobs"),  # the same
    *((verb, "deployments") for verb in ("list", "delete")),  # of the stock operator, whose clusters are taken over
    ("delete", "services"),  # the same
    ("create", "gpudaskjobs"),  # for DaskJobs that people make, where the mirror is on; at the times of a cron job
    *((verb, "daskjobs") for verb in ("patch", "delete")),  # their owner and their status; with their job
    ("patch", "gpudaskcronjobs/status"),  # once a time of its schedule has come
    *((verb, "daskautoscalers") for verb in ("create", "patch", "delete")),  # which the stock client makes
}
ACCOUNT = f"system:serviceaccount:{HOME}:gpudask"


@pytest.fixture(scope="module")
def audited() -> Iterator[ApiServer]:
    """An API server that keeps a log of every request, with the resource and two namespaces."""
    server = ApiServer.start(f"rights-{os.getpid()}", audit=True)
    try:
        administrator = _administrator(server)
        administrator.define(CRD, CRD.with_name("mirror.yaml"), RECORD_CRD, JOB_CRD, CRON_JOB_CRD)
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
def rights(mode: str, helm: Helm) -> list[Manifest]:
    """The service account, the rights that the chart gives it, and the policy that holds it to its own objects."""
    watched = [TEAMS[mode]] if mode == "one-namespace" else []
    options = ("--set", f"userRoles=false,deleteAfter=true,mirror.enabled={str(mode == 'mirror').lower()}")
    rendered = helm.manifests(*options, "--set-json", f"watchNamespaces={json.dumps(watched)}")
    return [found for found in rendered if found["apiVersion"].startswith(("rbac.", "admissionregistration."))] + [
        found for found in rendered if found["kind"] == "ServiceAccount"
    ]


@pytest.fixture
def settings(
    mode: str, rights: list[Manifest], audited: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settings]:
    """The operator's, with that account and no other rights."""
    administrator = _administrator(audited)
    administrator("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
    token = administrator("create", "token", "gpudask", "--namespace", HOME).stdout.strip()
    config = yaml.safe_load(audited.kubeconfig.read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    yield Settings(
        namespace=HOME,
        watch_namespaces=(TEAMS[mode],) if mode == "one-namespace" else (),
        kubeconfig=str(kubeconfig),
        health_port=0,
        mirror=mode == "mirror",
    )
    administrator("delete", "-f", "-", stdin=yaml.safe_dump_all(rights))


@pytest.fixture
async def stage(mode: str, audited: ApiServer) -> AsyncIterator[Stage]:
    """The administrator's view, and a fake node."""
    async with staged(audited.kubeconfig, TEAMS[mode]) as stage:
        yield stage


async def test_nothing_that_the_operator_asks_for_is_refused_and_what_is_granted_is_used(
    settings: Settings, rights: list[Manifest], stage: Stage, audited: ApiServer
):
    before = len(_events(audited))
    async with operating(settings):
        idle = {"idle": {"deleteAfter": "10s"}}
        await stage.apply(a_pool(replicas=2), gpu_pool(idle="1s"), **idle)
        scheduler = await stage.scheduler()
        await scheduler.want(1, GPU=1)
        await stage.becomes(lambda: stage.names(pool="gpu"), ["demo-gpu-worker-0"])
        await scheduler.want(0)
        await stage.becomes(lambda: stage.names(pool="gpu"), [])
        await stage.apply(a_pool(replicas=1), **idle)
        await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0"])
        await _prune_what_versions_before_left(stage)
        await stage.becomes(lambda: _recorded(stage, "pods"), ["demo"], "how its pods ended is written")
        scheduler.unused_seconds = 11.0
        await scheduler.say()
        await stage.becomes(lambda: _clusters(stage), 0, "the operator deletes what nobody uses")
        await stage.becomes(lambda: _recorded(stage, "ended"), ["demo"], "and writes what became of it")
        stage.kubelet.exits["sums-runner-1"] = 0
        jobs = Jobs(stage)
        await jobs.apply(ttlAfterFinished="1s")
        await stage.becomes(jobs.get, None, "a job runs to its end, and is deleted")
        if settings.mirror:
            await _serve_what_people_make(stage)
    ours = [event for event in _events(audited)[before:] if event["user"]["username"] == ACCOUNT]
    assert [_words(event) for event in ours if event["responseStatus"]["code"] == 403] == []
    done = {(event["verb"], _resource(event["objectRef"])) for event in ours if "objectRef" in event}
    granted = {
        (verb, resource)
        for manifest in rights
        for rule in manifest.get("rules", ())
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert granted - done <= UNUSED


async def _prune_what_versions_before_left(stage: Stage) -> None:
    """The preload of one cluster, one that is shared, and one that this cluster shares with another."""
    cluster = parse(await stage.cluster())
    references = [cluster.shared_reference, cluster.shared_reference | {"name": "other", "uid": "of-the-other"}]
    older = [
        preload.preload(cluster.namespace, {"gpudask_entry.py": b"older"}, references[:1]),
        preload.preload(cluster.namespace, {"gpudask_entry.py": b"oldest"}, references),
    ]
    own = f"{names.own_preload(cluster.name)}0123abcd"
    for body in (
        *older,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": pod.metadata(cluster, own, "scheduler")},
    ):
        await stage.create("configmaps", body)

    async def left() -> list[list[str]]:
        found = [await stage.get("configmaps", name) for name in (own, *(body["metadata"]["name"] for body in older))]
        return [[item["name"] for item in body["metadata"]["ownerReferences"]] for body in found if body is not None]

    await stage.becomes(left, [["other"]], "this cluster mounts none of them")


async def _serve_what_people_make(stage: Stage) -> None:
    """A DaskCluster with a group of its own and limits, which goes with the GpuDaskCluster that serves it."""
    path = f"/apis/kubernetes.dask.org/v1/namespaces/{stage.namespace}"
    container = {"name": "x", "image": "x"}
    part = {"replicas": 1, "spec": {"containers": [container]}}
    specs = {
        "DaskCluster": ("stock", {"worker": part, "scheduler": part}),
        "DaskWorkerGroup": ("stock-more", {"cluster": "stock", "worker": part}),
        "DaskAutoscaler": ("stock", {"cluster": "stock", "minimum": 1, "maximum": 2}),
    }
    for kind, (name, spec) in specs.items():
        body = {"apiVersion": "kubernetes.dask.org/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        await stage.api.request("POST", f"{path}/{kind.lower()}s", body=body)
    await stage.becomes(lambda: stage.names("stock", pool="more"), ["stock-more-worker-0"])

    async def phases() -> list[str]:
        found = (await stage.api.request("GET", f"{path}/daskclusters"))["items"]
        return [item.get("status", {}).get("phase", "") for item in found if item["metadata"]["name"] == "stock"]

    await stage.becomes(phases, ["Running"])
    await stage.delete_cluster("stock")
    await stage.becomes(phases, [])


async def _clusters(stage: Stage) -> int:
    path = f"/apis/{API_VERSION}/namespaces/{stage.namespace}/{PLURAL}"
    return len((await stage.api.request("GET", path))["items"])


async def _recorded(stage: Stage, field: str) -> list[str]:
    """The clusters whose record has this field."""
    path = f"/apis/{API_VERSION}/namespaces/{stage.namespace}/{RECORD_PLURAL}"
    found = [item["record"] for item in (await stage.api.request("GET", path))["items"]]
    return [record["cluster"]["name"] for record in found if record.get(field)]


def _administrator(server: ApiServer) -> Cluster:
    return Cluster(str(server.kubectl), server.kubeconfig, namespace="", api=server.api)


def _events(server: ApiServer) -> list[dict[str, Any]]:
    """Every request that was answered so far."""
    events = [json.loads(line) for line in server.audit_log.read_text().splitlines()]
    return [event for event in events if "responseStatus" in event]


def _resource(reference: dict[str, Any]) -> str:
    """As a rule of a role names it."""
    return "/".join(reference[part] for part in ("resource", "subresource") if part in reference)


def _words(event: dict[str, Any]) -> str:
    return f"{event['verb']} {event['requestURI']}: {event['responseStatus'].get('message', '')}"
