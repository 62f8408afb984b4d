"""Jobs on an API server: they run to their end whatever happens to the operator, and leave nothing behind."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gpudask.api.limits import Limits
from gpudask.api.resource import API_VERSION, JOB_PLURAL, LABEL_CLUSTER, LABEL_JOB
from gpudask.clients.errors import ApiError
from gpudask.reconcile.jobs import executor
from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings
from tests.builders import a_manifest, a_pool
from tests.reconcile.jobs import LONG, Jobs
from tests.reconcile.proxy import Proxy
from tests.reconcile.stage import OperatorProcess, Stage, eventually, operating, stays

pytestmark = pytest.mark.api


@pytest.fixture
def jobs(stage: Stage) -> Jobs:
    """The stage's jobs."""
    return Jobs(stage)


async def test_a_job_runs_to_its_end_and_gives_everything_back_at_once(stage: Stage, jobs: Jobs, operator: Operator):
    await jobs.apply()
    await jobs.becomes("Running")
    await stage.becomes(lambda: stage.names("sums"), ["sums-cpu-worker-0"])
    began = time.monotonic()
    stage.kubelet.exits["sums-runner-1"] = 0
    stage.kubelet.look_again()
    status = await jobs.becomes("Complete RunnerSucceeded")
    await stage.becomes(jobs.left, [], "nothing is left")
    print(f"everything was given back {time.monotonic() - began:.2f} s after the runner's end")
    assert (status["attempts"], status["runner"]["exitCode"]) == (1, 0)
    assert "the last line of sums-runner-1" in status["runner"]["lastLines"]
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("Complete", "True")
    assert operator.unreadable == 0


async def test_the_runner_has_the_clusters_environment_and_its_scheduler(stage: Stage, jobs: Jobs, operator: Operator):
    await stage.apply(a_pool(replicas=0), env=[{"name": "TEAM", "value": "a"}])
    await jobs.apply(cluster={"name": "demo"})
    await jobs.becomes("Running")
    assert operator.leads
    pod = await stage.get("pods", "sums-runner-1")
    assert pod is not None
    (container,) = pod["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["DASK_SCHEDULER_ADDRESS"] == f"tcp://demo-scheduler.{stage.namespace}.svc:8786"
    assert env["TEAM"] == "a"
    assert (pod["spec"]["restartPolicy"], container["image"]) == ("Never", a_manifest()["spec"]["image"])
    assert pod["metadata"]["labels"]["gpudask.dev/cluster"] == "demo"
    stage.kubelet.exits["sums-runner-1"] = 0
    stage.kubelet.look_again()
    await jobs.becomes("Complete")
    await stays(jobs.clusters, ["demo"], 0.5)


async def test_failures_are_tried_again_as_often_as_asked(stage: Stage, jobs: Jobs, operator: Operator):
    stage.kubelet.exits |= {"sums-runner-1": 1, "sums-runner-2": 1, "sums-runner-3": 7}
    await jobs.apply(retries=2)
    status = await jobs.becomes("Failed RetriesSpent")
    assert (status["attempts"], status["failures"], status["runner"]["exitCode"]) == (3, 3, 7)
    assert [name for name, _ in stage.kubelet.runs] == [f"sums-runner-{n}" for n in (1, 2, 3)]
    await stage.becomes(jobs.left, [], "nothing is left")
    assert operator.leads


async def test_suspended_it_holds_nothing_and_goes_on_afterwards(stage: Stage, jobs: Jobs, operator: Operator):
    await jobs.apply(suspend=True)
    await jobs.becomes("Suspended")
    await stays(jobs.left, [], 0.5)
    await jobs.patch(suspend=False)
    await jobs.becomes("Running")
    await jobs.patch(suspend=True)
    await jobs.becomes("Suspended")
    await stage.becomes(jobs.left, [], "nothing is left")
    stage.kubelet.exits["sums-runner-2"] = 0
    await jobs.patch(suspend=False)
    status = await jobs.becomes("Complete")
    assert status.get("failures", 0) == 0
    assert operator.leads


async def test_kept_after_a_failure_a_cluster_has_a_scheduler_and_no_workers(
    stage: Stage, jobs: Jobs, operator: Operator
):
    stage.kubelet.exits["sums-runner-1"] = 1
    await jobs.apply(keepCluster={"onFailure": "1h"})
    await jobs.becomes("Failed")
    await stage.becomes(lambda: stage.names("sums"), [], "no workers")
    await stays(jobs.left, ["sums"], 1.0)
    assert operator.leads


async def test_after_its_time_the_job_is_deleted(stage: Stage, jobs: Jobs, operator: Operator):
    stage.kubelet.exits["sums-runner-1"] = 0
    await jobs.apply(ttlAfterFinished="1s")
    await eventually(jobs.get, lambda body: body is None, "the job is gone", seconds=LONG)
    assert operator.leads


async def test_a_template_that_is_no_pod_ends_the_job_with_words(stage: Stage, jobs: Jobs, operator: Operator):
    container = {"name": "runner", "image": "x", "command": ["python"], "resorces": {}}
    await stage.apply(a_pool(replicas=0))
    await jobs.apply(cluster={"name": "demo"}, runner={"template": {"spec": {"containers": [container]}}})
    status = await jobs.becomes("Failed TemplateRefused")
    assert "resorces" in status["message"]
    assert operator.leads


async def test_a_clusters_template_beyond_the_limits_reaches_no_runner(stage: Stage, jobs: Jobs):
    """It was within them when its scheduler started, and was edited since."""
    async with operating(replace(stage.settings, limits=Limits(template_fields=()))):
        await stage.apply(a_pool(replicas=0))
        await stage.shows("SchedulerReady", "True")
        host = {"spec": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}}
        await stage.apply(a_pool(replicas=0), template=host)
        await stage.shows("Accepted", "False LimitExceeded")
        await jobs.apply(cluster={"name": "demo"})
        status = await jobs.becomes("Pending LimitExceeded")
        assert "the cluster demo: spec.template.spec: hostPath is not allowed here" in status["message"]
        assert await stage.get("pods", "sums-runner-1") is None


async def test_runners_share_the_room_of_their_namespace(stage: Stage, jobs: Jobs):
    async with operating(replace(stage.settings, limits=Limits(pods_per_namespace=2))):
        await stage.apply(a_pool(replicas=0))
        await jobs.apply("first", cluster={"name": "demo"})
        await jobs.becomes("Running", "first")
        await jobs.apply("next", cluster={"name": "demo"})
        status = await jobs.becomes("Pending LimitExceeded", "next")
        assert "may have 2 pods together" in status["message"]
        stage.kubelet.exits["first-runner-1"] = 0
        stage.kubelet.look_again()
        await jobs.becomes("Running", "next")


async def test_the_workers_of_a_job_do_not_take_the_room_of_its_runner(stage: Stage, jobs: Jobs):
    async with operating(replace(stage.settings, limits=Limits(pods_per_namespace=3))):
        await jobs.apply(cluster={"spec": a_manifest(a_pool(replicas=5))["spec"]})
        await jobs.becomes("Running")
        assert len(await stage.names("sums")) <= 1
        stage.kubelet.exits["sums-runner-1"] = 0
        stage.kubelet.look_again()
        await jobs.becomes("Complete")
        await stage.becomes(jobs.left, [], "nothing is left", seconds=LONG)


async def test_an_image_that_is_mended_while_the_job_waits_is_its_runners_too(
    stage: Stage, jobs: Jobs, operator: Operator
):
    stage.kubelet.idle.add("")  # the scheduler's image cannot be pulled
    spec = a_manifest(a_pool(replicas=1))["spec"]
    await jobs.apply(cluster={"spec": spec | {"image": "example.org/dask:broken"}})
    await jobs.becomes("Pending ClusterPending")
    # Its deletion takes a while.
    await jobs.hold_cluster(["example.org/slow"])
    broken = await stage.get("pods", "sums-runner-1")
    assert broken is not None
    await jobs.patch(cluster={"spec": spec | {"image": "example.org/dask:mended"}})

    async def is_made_anew() -> bool:
        pod = await stage.get("pods", "sums-runner-1")
        return pod is not None and pod["metadata"]["uid"] != broken["metadata"]["uid"]

    await eventually(is_made_anew, bool, "the runner is made anew", seconds=LONG)
    stage.kubelet.idle.clear()  # before the next scheduler comes, which the kubelet looks at once
    await jobs.hold_cluster([])
    await jobs.becomes("Running")
    pod = await stage.get("pods", "sums-runner-1")
    assert pod is not None
    assert pod["spec"]["containers"][0]["image"] == "example.org/dask:mended"
    assert operator.leads


@pytest.mark.parametrize("fault", ["failing", "losing"])
async def test_pods_whose_creation_is_answered_with_5xx_run_once(
    fault: str, stage: Stage, jobs: Jobs, proxy: Proxy, through: Settings
):
    stage.kubelet.exits |= {"sums-runner-1": 1, "sums-runner-2": 0}
    setattr(proxy, fault, 4)
    async with operating(through):
        await jobs.apply(retries=1)
        status = await jobs.becomes("Complete")
        assert status["attempts"] == 2
        await stage.becomes(jobs.left, [], "nothing is left")
    assert jobs.twice() == {}


async def test_refused_status_writes_and_gates_delay_and_no_more(
    stage: Stage, jobs: Jobs, proxy: Proxy, through: Settings
):
    stage.kubelet.exits |= {"sums-runner-1": 1, "sums-runner-2": 0}
    path = f"/namespaces/{stage.namespace}"
    for status in (409, 429, 500, 503):
        proxy.faults.append(("PATCH", f"{path}/{JOB_PLURAL}/sums/status", status))
        proxy.faults.append(("PATCH", f"{path}/pods/sums-runner-1", status))
        proxy.faults.append(("DELETE", f"{path}/gpudaskclusters/sums", status))
        proxy.faults.append(("POST", f"{path}/gpudaskclusters", status))
    async with operating(through):
        await jobs.apply(retries=1)
        await jobs.becomes("Complete")
        await stage.becomes(jobs.left, [], "nothing is left", seconds=LONG)
    assert jobs.twice() == {}


async def test_an_operator_that_is_killed_again_and_again_runs_nothing_twice(stage: Stage, jobs: Jobs, tmp_path: Path):
    stage.kubelet.exits |= {"sums-runner-1": 1, "sums-runner-2": 0}
    await jobs.apply(retries=1)
    for number, alive_seconds in enumerate((1.5, 1.6, 1.7, 1.8, 2.0)):
        with OperatorProcess(stage.settings, tmp_path / f"{number}.log"):
            await asyncio.sleep(alive_seconds)  # whenever that is: each time at another step
    async with operating(stage.settings):
        status = await jobs.becomes("Complete")
        await stage.becomes(jobs.left, [], "nothing is left", seconds=LONG)
    assert jobs.twice() == {}
    assert status["attempts"] == 2


async def test_an_operator_that_ends_between_any_two_writes_is_gone_on_from(
    stage: Stage, jobs: Jobs, proxy: Proxy, through: Settings
):
    for writes in range(1, 13):
        name = f"after{writes}"
        stage.kubelet.exits |= {f"{name}-runner-1": 1, f"{name}-runner-2": 0}
        proxy.job_writes_left = writes
        async with operating(through):
            await jobs.apply(name, retries=1)
            await eventually(lambda: _left(proxy), lambda left: left == 0, f"{writes} writes", seconds=LONG)
        proxy.job_writes_left = None
        async with operating(through):
            status = await jobs.becomes("Complete", name)
            await stage.becomes(jobs.clusters, [], "no cluster is left", seconds=LONG)
        assert (status["attempts"], status["failures"]) == (2, 1), f"after {writes} writes"
    assert jobs.twice() == {}


async def _left(proxy: Proxy) -> int | None:
    return proxy.job_writes_left


async def test_jobs_whose_runners_fill_the_quota_make_room_for_each_other_and_all_end(
    stage: Stage, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
):
    """Two runners at their gates leave no room for either's scheduler, and then no worker may take its place."""
    monkeypatch.setattr(executor, "GIVE_WAY_SECONDS", 2.0)
    monkeypatch.setattr(executor, "GIVE_WAY_SPREAD_SECONDS", 8.0)
    monkeypatch.setattr(executor, "_FIRST_PAUSE_SECONDS", 10.0)
    names = ("sums", "products")
    for name in names:
        stage.kubelet.exits[f"{name}-runner-1"] = 0
        await jobs.apply(name)  # before an operator runs: it begins with both, and neither has all it needs first
    said: set[str] = set()
    watching = asyncio.create_task(_watch(stage, said))
    async with operating(replace(stage.settings, limits=Limits(pods_per_namespace=2))):

        async def ended() -> set[str]:
            pods = [item["metadata"] for item in await stage.list("pods")]
            there = await jobs.clusters()  # after the pods: these are of no cluster that came since
            for metadata in pods:
                labels = metadata.get("labels", {})
                is_runner = LABEL_JOB in labels
                if not is_runner and labels.get(LABEL_CLUSTER) not in there:  # as Kubernetes' garbage collector does
                    with suppress(ApiError):
                        await stage.delete("pods", metadata["name"], gracePeriodSeconds=0)
            told = {name: await jobs.said(name) for name in names}
            return {name for name, words in told.items() if words.startswith("Complete")}

        await eventually(ended, lambda found: found == set(names), "both have ended", seconds=2 * LONG)
    watching.cancel()
    assert "Pending QuotaExceeded" in said, said
    assert "Pending GaveWay" in said, said
    assert jobs.twice() == {}


async def _watch(stage: Stage, said: set[str]) -> None:
    """Add each phase of the jobs with its reason, however short it lasts."""
    path = f"/apis/{API_VERSION}/namespaces/{stage.namespace}/{JOB_PLURAL}"
    async with aclosing(stage.api.stream(path, query={"watch": "true", "resourceVersion": "0"})) as events:
        async for event in events:
            status = event["object"].get("status", {})
            said.add(f"{status.get('phase')} {status.get('reason')}")
