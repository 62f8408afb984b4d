"""An operator's metrics, read from its port while it works on a real API server."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from http import HTTPStatus

import aiohttp
import pytest

from gpudask.metrics import families
from gpudask.reconcile.operator import Operator
from local.host.commands import run
from local.programs.prometheus import Prometheus
from tests.builders import a_manifest, a_pool
from tests.metrics.reading import Series, names, read, value
from tests.planning.builders import gpu_pool
from tests.reconcile.cron_jobs import CronJobs
from tests.reconcile.jobs import Jobs
from tests.reconcile.stage import Stage, eventually, operating

pytestmark = pytest.mark.api


@pytest.fixture
async def operator(stage: Stage) -> AsyncIterator[Operator]:
    settings = replace(stage.settings, metrics_port=0, attribution=("team", "project"))
    async with operating(settings) as running:
        yield running


async def scrape(operator: Operator) -> str:
    assert operator.metrics_server is not None
    url = f"http://127.0.0.1:{operator.metrics_server.port}/metrics"
    while True:
        async with aiohttp.ClientSession() as session, session.get(url) as got:
            if got.status == HTTPStatus.OK:
                return await got.text()
            assert got.status == HTTPStatus.TOO_MANY_REQUESTS
        await asyncio.sleep(0.2)


async def look(operator: Operator) -> Series:
    return read([(await scrape(operator)).encode()])


async def shows(operator: Operator, name: str, wanted: float | None, **labels: str) -> Series:
    """Wait until a series has this value; what was read then."""
    seen: list[Series] = []

    async def ask() -> float | None:
        seen[:] = [await look(operator)]
        return value(seen[0], name, **labels)

    await eventually(ask, lambda found: found == wanted, f"{name} {labels}: {wanted}")
    return seen[0]


async def label(stage: Stage, **labels: str) -> None:
    kind = "application/merge-patch+json"
    body: Json = {"metadata": {"labels": labels, "annotations": {"project": "p1"}}}
    await stage.api.request("PATCH", f"{stage._clusters}/demo", body=body, content_type=kind)


async def test_a_cluster_is_seen_from_its_first_pod_to_its_end(stage: Stage, operator: Operator):
    await stage.apply(a_pool(replicas=2), gpu_pool(most=3))
    await stage.shows("Ready", "True AllReady")
    scheduler = await stage.scheduler()
    await shows(operator, "gpudask_pool_pods", 2, cluster="demo", pool="cpu", state="ready")
    where = {"namespace": stage.namespace, "cluster": "demo"}
    found = await shows(operator, "gpudask_feed_up", 1, **where)
    assert value(found, "gpudask_leader") == 1
    assert value(found, "gpudask_cluster_condition", condition="Ready", reason="AllReady", **where) == 1
    assert value(found, "gpudask_pool_min_pods", pool="cpu", **where) == 2
    assert value(found, "gpudask_pool_max_pods", pool="gpu", **where) == 3
    assert value(found, "gpudask_api_requests_total", verb="POST", code="201")

    await scheduler.want(1, GPU=1)
    await shows(operator, "gpudask_demand_to_worker_seconds_count", 1, kind="gpu")
    found = await shows(operator, "gpudask_pool_gpus_held", 1, pool="gpu", **where)
    assert value(found, "gpudask_demand_to_pod_seconds_count", kind="gpu") == 1
    assert value(found, "gpudask_demand_to_result_seconds_count", kind="gpu") == 0
    assert value(found, "gpudask_pool_gpu_seconds_total", pool="gpu", cause="working", **where) is not None
    (pod,) = [name for name, pool in scheduler.pods.items() if pool == "gpu"]
    scheduler.rows[pod] = {"tasks_done": 1}
    await scheduler.want(0)
    await shows(operator, "gpudask_demand_to_result_seconds_count", 1, kind="gpu")

    await label(stage, team="a")
    await shows(operator, "gpudask_cluster_info", 1, label_team="a", label_project="p1", **where)
    await stage.delete_cluster()
    found = await shows(operator, "gpudask_cluster_info", None, **where)
    assert not [name for name in names(found) if name.startswith(("gpudask_cluster", "gpudask_pool", "gpudask_feed"))]


async def test_a_pool_that_shrinks_leaves_a_drain_behind(stage: Stage, operator: Operator):
    await stage.apply(a_pool(replicas=2))
    await stage.shows("Ready", "True AllReady")
    await stage.scheduler()
    await shows(operator, "gpudask_pool_drains_total", 0, pool="cpu")
    await stage.apply(a_pool(replicas=1))
    await shows(operator, "gpudask_pool_drains_total", 1, pool="cpu")
    found = await shows(operator, "gpudask_drain_duration_seconds_count", 1)
    assert value(found, "gpudask_pool_forced_deletions_total", pool="cpu") == 0


async def test_pods_without_a_node_are_counted_with_their_time(stage: Stage, operator: Operator):
    stage.kubelet.full.add("gpu")
    await stage.apply(a_pool(replicas=1), a_pool("gpu", replicas=2, gpu={"count": 1}))
    found = await shows(operator, "gpudask_pool_pods", 2, pool="gpu", state="unschedulable")
    before = value(found, "gpudask_pool_unschedulable_seconds_total", pool="gpu")
    assert before is not None

    async def later() -> float:
        return value(await look(operator), "gpudask_pool_unschedulable_seconds_total", pool="gpu") or 0.0

    await eventually(later, lambda seconds: seconds > before, "the time goes on")


async def test_a_job_is_counted_until_it_is_deleted_and_how_soon_it_gave_its_gpus_back(
    stage: Stage, operator: Operator
):
    jobs = Jobs(stage)
    pools = a_pool(replicas=1), a_pool("gpu", replicas=2, gpu={"count": 1})
    await jobs.apply(cluster={"spec": a_manifest(*pools)["spec"]}, retries=1)
    where = {"namespace": stage.namespace}
    await shows(operator, "gpudask_jobs", 1, phase="Running", **where)
    await shows(operator, "gpudask_pool_gpus_held", 2, pool="gpu", **where)
    stage.kubelet.exits |= {"sums-runner-1": 3, "sums-runner-2": 0}
    stage.kubelet.look_again()
    found = await shows(operator, "gpudask_jobs", 1, phase="Complete", **where)
    assert value(found, "gpudask_job_starts_total", attempt="first") == 1
    assert value(found, "gpudask_job_starts_total", attempt="retry") == 1
    assert value(found, "gpudask_job_attempts_total", outcome="failed") == 1
    assert value(found, "gpudask_job_attempts_total", outcome="succeeded") == 1
    assert value(found, "gpudask_job_ends_total", reason="RunnerSucceeded") == 1
    assert value(found, "gpudask_jobs_longest_wait_seconds", **where) == 0

    async def released() -> float:
        return value(await look(operator), "gpudask_job_gpu_release_seconds_count") or 0.0

    await eventually(released, lambda count: count >= 1, "the GPUs were given back")
    await jobs.delete()
    await shows(operator, "gpudask_jobs", None, phase="Complete", **where)


async def test_a_job_that_waits_says_for_what(stage: Stage, operator: Operator):
    await Jobs(stage).apply(cluster={"name": "nobody"})
    where = {"namespace": stage.namespace}
    await shows(operator, "gpudask_jobs_waiting", 1, reason="ClusterMissing", **where)
    found = await look(operator)
    assert (value(found, "gpudask_jobs_longest_wait_seconds", **where) or 0.0) > 0
    assert value(found, "gpudask_jobs", phase="Pending", **where) == 1


async def test_a_cron_job_is_seen_with_its_times(stage: Stage, operator: Operator):
    crons = CronJobs(stage)
    await crons.apply("0 0 1 1 *")
    await crons.make_due()
    found = await shows(operator, "gpudask_cronjob_active_jobs", 1, cronjob="nightly", namespace=stage.namespace)
    assert value(found, "gpudask_cronjob_last_schedule_time_seconds", cronjob="nightly")
    assert value(found, "gpudask_cronjob_condition", cronjob="nightly", condition="Accepted") == 1
    missed = value(found, "gpudask_cronjob_missed_total", cronjob="nightly")
    assert missed == (await crons.status())["missed"] > 0


async def test_the_kinds_that_it_watches_have_an_age_each(operator: Operator):
    found = await look(operator)
    kinds = {dict(has)["kind"] for name, has in found if name == "gpudask_reflector_age_seconds"}
    assert kinds >= {"Pod", "Service", "ConfigMap"}
    for kind in kinds:
        assert value(found, "gpudask_reflector_relists_total", kind=kind) == 1
        assert (value(found, "gpudask_reflector_age_seconds", kind=kind) or 0.0) < 60


async def test_who_stands_by_says_so_and_nothing_of_clusters(stage: Stage, operator: Operator):
    await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    other = replace(stage.settings, metrics_port=0, identity="another")
    async with operating(other) as standby:
        found = await shows(standby, "gpudask_leader", 0)
        assert not [name for name in names(found) if name in {family.name for family in families.CLUSTER_FAMILIES}]
        assert value(await look(operator), "gpudask_cluster_info", cluster="demo") == 1


async def test_a_refused_pod_is_an_error_by_its_reason(stage: Stage, operator: Operator):
    none = {"hard": {"requests.nvidia.com/gpu": "0"}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": none}
    await stage.create("resourcequotas", quota)
    await stage.patch("resourcequotas", "none/status", {"status": none | {"used": {"requests.nvidia.com/gpu": "0"}}})
    await stage.apply(a_pool("gpu", gpu={}, replicas=1))

    async def errors() -> float:
        return value(await look(operator), "gpudask_pass_errors_total", reason="QuotaExceeded") or 0.0

    await eventually(errors, lambda count: count >= 1, "it is counted, and once more with each try")


@pytest.mark.registry
async def test_promtool_has_nothing_to_say_of_a_real_scrape(stage: Stage, operator: Operator, prometheus: Prometheus):
    await stage.apply(a_pool(replicas=1), gpu_pool())
    await stage.shows("Ready", "True AllReady")
    text = await scrape(operator)
    assert "gpudask_pool_pods" in text
    assert run([str(prometheus.promtool), "check", "metrics"], stdin=text) == ""
