"""DaskJobs that people and orchestrators make run to their end: on a real API server with played nodes."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from gpudask.api import Json
from gpudask.api.limits import Limits
from gpudask.clients.errors import ApiError
from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings
from tests.conftest import ROOT
from tests.mirror.stock import Stock
from tests.mirror.test_served import a_cluster, make, tells
from tests.reconcile.jobs import LONG, Jobs
from tests.reconcile.proxy import Proxy
from tests.reconcile.stage import Stage, eventually, operating, stays
from tests.stock.test_job import a_job

pytestmark = pytest.mark.api
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")  # as the stock operator writes it


@pytest.fixture
def jobs(stage: Stage) -> Jobs:
    return Jobs(stage)


def a_manifest(**pod: Any) -> Json:
    body = a_job(**pod)
    return {"apiVersion": "kubernetes.dask.org/v1", **body, "metadata": {"name": "sums"}}


async def status(stock: Stock, name: str = "sums") -> Json:
    return ((await stock.get("daskjob", name)) or {}).get("status") or {}


async def becomes(stock: Stock, word: str, name: str = "sums") -> Json:
    async def found() -> Any:
        return (await status(stock, name)).get("jobStatus")

    await eventually(found, lambda seen: seen == word, f"jobStatus {word}", seconds=LONG)
    return await status(stock, name)


async def test_a_job_runs_to_its_end_and_tells_it_as_the_stock_operator_does(
    stage: Stage, mirroring: Operator, stock: Stock, jobs: Jobs
):
    made = await make(stock, a_manifest())
    before = await becomes(stock, "Running")
    assert before.keys() == {"jobStatus", "clusterName", "jobRunnerPodName", "startTime"}
    assert (before["clusterName"], before["jobRunnerPodName"]) == ("sums", "sums-runner")
    pod = await stage.get("pods", "sums-runner")
    assert pod is not None
    labels = pod["metadata"]["labels"]
    assert (labels["dask.org/cluster-name"], labels["dask.org/component"]) == ("sums", "job-runner")
    container = pod["spec"]["containers"][0]
    assert (container["name"], container["args"]) == ("job", ["python", "sums.py"])
    assert "DASK_SCHEDULER_ADDRESS" in {item["name"] for item in container["env"]}
    assert [item["metadata"]["name"] for item in await stock.list("daskcluster")] == ["sums"]
    stage.kubelet.exits["sums-runner"] = 0
    stage.kubelet.look_again()
    after = await becomes(stock, "Successful")
    assert after.keys() == {"jobStatus", "clusterName", "jobRunnerPodName", "startTime", "endTime"}
    assert TIME.fullmatch(after["startTime"])
    assert TIME.fullmatch(after["endTime"])
    await stage.becomes(jobs.clusters, [], "its cluster is deleted")
    found, served = await stock.get("daskjob", "sums"), await jobs.get()
    assert found is not None
    assert served is not None
    assert found["spec"] == made["spec"]
    (owner,), (controller,) = found["metadata"]["ownerReferences"], served["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("GpuDaskJob", served["metadata"]["uid"])
    assert (controller["kind"], controller["uid"]) == ("DaskJob", found["metadata"]["uid"])
    assert [name for name, _ in stage.kubelet.runs] == ["sums-runner"]


async def test_a_program_that_fails_is_told(stage: Stage, mirroring: Operator, stock: Stock, jobs: Jobs):
    stage.kubelet.exits["sums-runner"] = 1
    await make(stock, a_manifest(restartPolicy="OnFailure"))
    after = await becomes(stock, "Failed")
    assert after["endTime"]
    await tells(stock, "CarriedOver", "False NotCarriedOver: spec.job.spec.restartPolicy", "sums", "daskjob")
    await stage.becomes(jobs.clusters, [], "its cluster is deleted")
    assert len(stage.kubelet.runs) == 1


ORCHESTRATORS = {"flyte": "f3d1b8c0a5-n0-0", "polyaxon": "plx-operation-7c1e2d"}


@pytest.mark.parametrize(("orchestrator", "code"), [("flyte", 0), ("flyte", 1), ("polyaxon", 0)])
async def test_what_an_orchestrator_sends_runs_to_the_end_that_it_reads(
    orchestrator: str, code: int, stage: Stage, mirroring: Operator, stock: Stock
):
    jobs, name = Jobs(stage), ORCHESTRATORS[orchestrator]
    body = yaml.safe_load((ROOT / "tests" / "mirror" / "orchestrators" / f"{orchestrator}.yaml").read_text())
    owners = body["metadata"]["ownerReferences"]
    await make(stock, body)
    before = await becomes(stock, "Running", name)
    assert await stage.get("pods", before["jobRunnerPodName"]), "whose log and events it reads"
    (scheduler,) = [
        pod["metadata"]["name"]
        for pod in await stage.list("pods")
        if pod["metadata"]["name"].startswith(name) and "scheduler" in pod["metadata"]["name"]
    ]
    assert scheduler, "whose readiness it reads"
    stage.kubelet.exits[before["jobRunnerPodName"]] = code
    stage.kubelet.look_again()
    after = await becomes(stock, "Failed" if code else "Successful", name)
    assert after["endTime"]
    await stage.becomes(jobs.clusters, [], "its cluster is deleted")
    found = await stock.get("daskjob", name)
    assert found is not None
    assert found["metadata"]["ownerReferences"] == owners, "it goes with its owner alone"


async def test_flyte_s_job_runs_where_no_node_port_is_allowed_and_says_so(
    stage: Stage, stock: Stock, jobs: Jobs, definitions: None
):
    body = yaml.safe_load((ROOT / "tests" / "mirror" / "orchestrators" / "flyte.yaml").read_text())
    name = ORCHESTRATORS["flyte"]
    settings = replace(stage.settings, mirror=True, limits=Limits(service_types=("ClusterIP",)))
    async with operating(settings):
        await make(stock, body)
        before = await becomes(stock, "Running", name)
        said = "False NotCarriedOver: spec.cluster.spec.scheduler.service.type: NodePort is not allowed here"
        await tells(stock, "CarriedOver", said, name, "daskjob")
        service = await stage.get("services", f"{name}-scheduler")
        assert service is not None
        assert service["spec"]["type"] == "ClusterIP"
        stage.kubelet.exits[before["jobRunnerPodName"]] = 0
        stage.kubelet.look_again()
        await becomes(stock, "Successful", name)


async def test_with_its_gpudaskjob_a_daskjob_that_others_own_is_deleted_and_runs_no_second_time(
    stage: Stage, stock: Stock, jobs: Jobs, definitions: None
):
    body = a_manifest()
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "flow", "uid": "1", "controller": True}
    body["metadata"]["ownerReferences"] = [other]
    stage.kubelet.exits["sums-runner"] = 0
    settings = replace(stage.settings, mirror=True)
    async with operating(settings):
        await make(stock, body)
        await becomes(stock, "Successful")
    job = await jobs.get()
    assert job is not None
    await stage.api.delete_job(
        stage.namespace, "sums", uid=job["metadata"]["uid"], version=job["metadata"]["resourceVersion"]
    )
    async with operating(settings):
        await stage.becomes(lambda: stock.names("daskjob"), [])
        await stays(jobs.get, None, 1.0)
    assert len(stage.kubelet.runs) == 1


async def test_what_cannot_be_served_fails_by_its_field_and_runs_once_it_is_mended(
    stage: Stage, mirroring: Operator, stock: Stock, jobs: Jobs
):
    body = a_manifest()
    image = body["spec"]["cluster"]["spec"]["worker"]["spec"]["containers"][0].pop("image")
    await make(stock, body)
    await becomes(stock, "Failed")
    await tells(stock, "Served", "False Invalid: spec.cluster.spec.worker.spec.containers", "sums", "daskjob")
    assert await jobs.get() is None
    body["spec"]["cluster"]["spec"]["worker"]["spec"]["containers"][0]["image"] = image
    await stock.patch("daskjob", "sums", {"spec": body["spec"]})
    assert "conditions" not in await becomes(stock, "Running")


async def test_a_job_that_another_operator_ran_to_its_end_is_not_run_again(
    stage: Stage, mirroring: Operator, stock: Stock, jobs: Jobs
):
    await make(stock, a_manifest() | {"status": {"jobStatus": "Successful", "endTime": "2026-01-01T00:00:00Z"}})
    await make(stock, a_manifest() | {"metadata": {"name": "next"}})
    await becomes(stock, "Running", "next")
    assert await jobs.get() is None


HANDLED = {"kopf.zalando.org/last-handled-configuration": "{}"}


async def test_a_job_of_the_stock_operator_keeps_its_status_and_is_not_run_again_once_its_cluster_is_taken_over(
    stage: Stage, mirroring: Operator, stock: Stock, jobs: Jobs
):
    before = {"jobStatus": "Running", "jobRunnerPodName": "sums-runner", "startTime": "2026-01-01T00:00:00Z"}
    made = await make(
        stock, a_manifest() | {"metadata": {"name": "sums", "annotations": HANDLED}, "status": {**before}}
    )
    owner = {key: made[key] for key in ("apiVersion", "kind")} | {"name": "sums", "uid": made["metadata"]["uid"]}
    cluster = a_cluster("sums")
    cluster["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    cluster["metadata"]["annotations"] = HANDLED | {"gpudask.dev/take-over": "now"}
    await make(stock, cluster)
    await tells(stock, "Served", "False MirrorRefused", "sums", "daskjob")

    async def marks() -> list[str]:
        found = await stock.get("daskcluster", "sums")
        return list((found or {})["metadata"].get("annotations", {}).keys() & HANDLED.keys())

    await stage.becomes(marks, [], "its cluster is taken over", seconds=LONG)
    await stays(jobs.get, None, 2.0)
    assert before.items() <= (await status(stock)).items()
    unmarked: Json = {"annotations": dict.fromkeys(HANDLED)}
    await stock.patch("daskjob", "sums", {"metadata": unmarked, "status": {"jobStatus": "Successful"}})
    await stays(jobs.get, None, 2.0)
    assert stage.kubelet.runs == []


async def a_stock_job(stage: Stage, stock: Stock, **annotations: str) -> None:
    """A DaskJob of the stock operator, its runner's pod, its DaskCluster, and of that the Service."""
    made = await make(
        stock, a_manifest() | {"metadata": {"name": "sums", "annotations": HANDLED}, "status": {"jobStatus": "Running"}}
    )
    owner = {key: made[key] for key in ("apiVersion", "kind")} | {"name": "sums", "uid": made["metadata"]["uid"]}
    owner["controller"] = True
    labels = {"dask.org/cluster-name": "sums", "dask.org/component": "job-runner"}
    runner = {
        "metadata": {"name": "sums-runner", "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "job", "image": "x"}], "nodeName": "node-1"},
    }
    await stage.create("pods", runner)
    await stage.patch("pods", "sums-runner/status", {"status": {"phase": "Running"}})
    cluster = a_cluster("sums")
    cluster["metadata"] |= {"annotations": HANDLED | annotations, "ownerReferences": [owner]}
    uid = (await make(stock, cluster))["metadata"]["uid"]
    scheduler = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster", "name": "sums", "uid": uid}
    await stage.create(
        "services",
        {
            "metadata": {
                "name": "sums-scheduler",
                "labels": {"dask.org/cluster-name": "sums"},
                "ownerReferences": [scheduler | {"controller": True}],
            },
            "spec": {"ports": [{"port": 8786}]},
        },
    )


@pytest.mark.parametrize(("phase", "word"), [("Succeeded", "Successful"), ("Failed", "Failed")])
async def test_the_cluster_of_a_job_of_the_stock_operator_ends_with_its_program_and_is_not_replaced(
    phase: str, word: str, stage: Stage, mirroring: Operator, stock: Stock
):
    await a_stock_job(stage, stock)
    await tells(stock, "TakenOver", "False WorkInProgress: the program of its DaskJob", "sums")
    await stage.patch("pods", "sums-runner/status", {"status": {"phase": phase}})
    assert (await becomes(stock, word))["endTime"]
    await stage.becomes(lambda: stock.names("daskcluster"), [], "it goes, as the stock operator has it", seconds=LONG)
    assert await stage.list("services") == []
    assert await Jobs(stage).clusters() == []


async def test_the_cluster_of_a_job_that_somebody_had_taken_over_ends_with_its_program_too(
    stage: Stage, mirroring: Operator, stock: Stock, jobs: Jobs
):
    await a_stock_job(stage, stock, **{"gpudask.dev/take-over": "now"})
    await stage.becomes(jobs.clusters, ["sums"], "it is taken over", seconds=LONG)
    await tells(stock, "Served", "True Served", "sums")
    assert (await status(stock))["jobStatus"] == "Running", "its program has not ended"
    await stage.patch("pods", "sums-runner/status", {"status": {"phase": "Succeeded"}})
    assert (await becomes(stock, "Successful"))["endTime"]
    await stage.becomes(lambda: stock.names("daskcluster"), [], seconds=LONG)
    await stage.becomes(jobs.clusters, [], seconds=LONG)


async def test_a_name_that_is_taken_is_told_and_never_adopted(
    stage: Stage, mirroring: Operator, stock: Stock, jobs: Jobs
):
    await jobs.apply(suspend=True)
    await jobs.becomes("Suspended")
    await make(stock, a_manifest())
    await tells(stock, "Served", "False NameTaken: metadata.name", "sums", "daskjob")
    assert (await status(stock))["jobStatus"] == "JobCreated"
    found = await jobs.get()
    assert found is not None
    assert "ownerReferences" not in found["metadata"]


async def test_a_job_that_is_made_again_waits_for_the_end_of_the_earlier_one_and_goes_on_by_itself(
    stage: Stage, mirroring: Operator, stock: Stock, jobs: Jobs
):
    await make(stock, a_manifest())
    await becomes(stock, "Running")
    await stock.delete("daskjob", "sums")
    again = await make(stock, a_manifest())
    assert "conditions" not in await becomes(stock, "JobCreated")

    async def told() -> Any:
        return (await status(stock)).get("conditions")

    await stays(told, None, 2.0)
    await collect_job(stage, jobs)
    await stage.becomes(lambda: of_uid(jobs), again["metadata"]["uid"], "it has a job of its own")
    await stays(told, None, 3.0)
    assert len(stage.kubelet.runs) == 1, "what the earlier one made is there yet"
    await collect_rest(stage)
    assert "conditions" not in await becomes(stock, "Running")
    served = await jobs.get()
    assert served is not None
    assert served["metadata"]["ownerReferences"][0]["uid"] == again["metadata"]["uid"]
    assert len(stage.kubelet.runs) == 2


async def of_uid(jobs: Jobs) -> Any:
    """The uid of the DaskJob that the GpuDaskJob serves."""
    return ((await jobs.get()) or {"metadata": {"ownerReferences": [{}]}})["metadata"]["ownerReferences"][0].get("uid")


async def collect_job(stage: Stage, jobs: Jobs) -> None:
    """What Kubernetes' collector does first once a DaskJob `sums` is gone."""
    assert await jobs.get() is not None
    await jobs.delete()


async def collect_rest(stage: Stage) -> None:
    """What it does then, where the operator, which gives back what a deleted job holds, was not quicker."""
    with contextlib.suppress(ApiError):
        cluster = await stage.cluster("sums")
        await stage.api.delete_cluster(stage.namespace, "sums", uid=cluster["metadata"]["uid"])
    for kind, options in (("pods", {"gracePeriodSeconds": 0}), ("services", {}), ("configmaps", {})):
        for item in await stage.list(kind):
            try:
                await stage.delete(kind, item["metadata"]["name"], **options)
            except ApiError as error:
                if not error.not_found:
                    raise


async def test_an_owner_that_comes_later_takes_the_job_along_and_not_the_other_way_round(
    stage: Stage, mirroring: Operator, stock: Stock, jobs: Jobs
):
    await make(stock, a_manifest())
    await becomes(stock, "Running")
    found = await stock.get("daskjob", "sums")
    assert found is not None
    flow = {"apiVersion": "v1", "kind": "ConfigMap", "name": "flow", "uid": "1"}
    both = [*found["metadata"]["ownerReferences"], flow]
    await stock.patch("daskjob", "sums", {"metadata": {"ownerReferences": both}})

    async def owners() -> list[Json]:
        body = await stock.get("daskjob", "sums")
        return list((body or {"metadata": {}})["metadata"].get("ownerReferences", []))

    await stage.becomes(owners, [flow], "Kubernetes deletes it with its other owner alone")
    job = await jobs.get()
    assert job is not None
    noted = (await stock.get("daskjob", "sums") or {})["metadata"]["annotations"]["gpudask.dev/served-by"]
    assert noted == f"{found['metadata']['uid']}/{job['metadata']['uid']}"
    assert await jobs.get() is not None, "it stays"
    await stays(lambda: stock.names("daskjob"), ["sums"], 1.0)
    await jobs.delete()
    await stage.becomes(lambda: stock.names("daskjob"), [], "its GpuDaskJob was deleted")
    assert len(stage.kubelet.runs) == 1


@pytest.mark.parametrize("write", [("POST", "/gpudaskjobs"), ("PATCH", "/daskjobs/sums")], ids="-".join)
async def test_an_operator_that_ended_before_a_write_is_gone_on_with_and_nothing_runs_twice(
    write: tuple[str, str], stage: Stage, stock: Stock, proxy: Proxy, through: Settings
):
    jobs = Jobs(stage)
    stage.kubelet.exits["sums-runner"] = 0
    proxy.faults = [(*write, 503)] * 1000
    await make(stock, a_manifest())
    async with operating(replace(through, mirror=True)):

        async def tried() -> str:
            return "yes" if len(proxy.faults) < 1000 else "not yet"

        await stage.becomes(tried, "yes", f"{write} was tried")
    proxy.faults = []
    async with operating(replace(through, mirror=True)):
        await becomes(stock, "Successful")
        await stage.becomes(jobs.clusters, [], "its cluster is deleted")
    assert len(stage.kubelet.runs) == 1


async def test_what_was_not_carried_over_is_told_though_the_write_after_the_creation_failed(
    stage: Stage, stock: Stock, proxy: Proxy, through: Settings
):
    proxy.faults = [("PATCH", "/daskjobs/sums", 409)]
    async with operating(replace(through, mirror=True)):
        await make(stock, a_manifest(restartPolicy="OnFailure"))
        await becomes(stock, "Running")
        assert proxy.faults == []
        await tells(stock, "CarriedOver", "False NotCarriedOver: spec.job.spec.restartPolicy", "sums", "daskjob")
