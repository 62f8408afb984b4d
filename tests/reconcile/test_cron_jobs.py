"""Cron jobs on an API server: their jobs are made once, recorded, run, and kept as long as their history says."""

from __future__ import annotations


import pytest

from gpudask.api.resource import API_VERSION, CRON_JOB_PLURAL
from gpudask.clients.errors import ApiError
from gpudask.reconcile.operator import Operator
from tests.reconcile.cron_jobs import CronJobs
from tests.reconcile.jobs import LONG, Jobs
from tests.reconcile.stage import Stage, eventually, operating, stays

pytestmark = pytest.mark.api


@pytest.fixture
def crons(stage: Stage) -> CronJobs:
    """The stage's cron jobs."""
    return CronJobs(stage)


async def test_a_time_that_is_due_runs_once_and_is_told(stage: Stage, crons: CronJobs, operator: Operator):
    jobs = Jobs(stage)
    # Once a year: nothing comes in between.
    await crons.apply("0 0 1 1 *")
    await crons.make_due()
    (name,) = await eventually(crons.jobs, bool, "a job is made", seconds=LONG)
    await jobs.becomes("Running", name)
    status = await crons.status()
    assert [item["name"] for item in status["active"]] == [name]
    stage.kubelet.exits[f"{name}-runner-1"] = 0
    stage.kubelet.look_again()
    await jobs.becomes("Complete", name)
    status = await eventually(crons.status, lambda found: not found.get("active"), "it has ended", seconds=LONG)
    assert status["lastSuccessfulTime"]
    assert (await crons.accepted()).startswith("True Accepted")
    assert jobs.twice() == {}
    assert operator.unreadable == 0


async def test_a_job_that_the_status_does_not_have_never_begins_and_is_deleted(
    stage: Stage, crons: CronJobs, operator: Operator
):
    await crons.apply("0 0 1 1 *", suspend=True)
    body = await stage.api.request("GET", f"/apis/{API_VERSION}/namespaces/{stage.namespace}/{CRON_JOB_PLURAL}/nightly")
    reference = {"apiVersion": API_VERSION, "kind": "GpuDaskCronJob", "name": "nightly", "controller": True}
    owner = {"ownerReferences": [reference | {"uid": body["metadata"]["uid"]}]}
    metadata = {"name": "nightly-29000000", "namespace": stage.namespace} | owner
    head = {"apiVersion": API_VERSION, "kind": "GpuDaskJob"}
    await stage.api.create(head | {"metadata": metadata, "spec": body["spec"]["jobTemplate"]["spec"]})
    await eventually(crons.jobs, lambda found: not found, "it is deleted", seconds=LONG)
    assert stage.kubelet.runs == []
    assert operator.leads


async def test_begun_once_by_whichever_operator(stage: Stage, crons: CronJobs):
    await crons.apply("0 0 1 1 *")
    await crons.make_due()
    async with operating(stage.settings):
        (name,) = await eventually(crons.jobs, bool, "a job is made", seconds=LONG)
    async with operating(stage.settings):
        await Jobs(stage).becomes("Running", name)
        await stays(crons.jobs, [name], 1.0)
    assert Jobs(stage).twice() == {}


async def test_a_status_that_cannot_be_read_is_told_and_begins_nothing_until_it_is_mended(
    stage: Stage, crons: CronJobs, operator: Operator
):
    await crons.apply("0 0 1 1 *")
    await crons.make_due(decided="no time")

    async def reasons() -> set[str]:
        return {event["reason"] for event in await stage.list("events")}

    await eventually(reasons, lambda found: "StatusUnreadable" in found, "it is told", seconds=LONG)
    assert (await crons.status())["decidedTime"] == "no time"
    assert await crons.jobs() == []
    await crons.make_due()
    (name,) = await eventually(crons.jobs, bool, "a job is made", seconds=LONG)
    await Jobs(stage).becomes("Running", name)
    assert operator.leads


async def test_a_schedule_without_meaning_is_told(crons: CronJobs, operator: Operator):
    await crons.apply("61 * * * *")
    await eventually(
        crons.accepted, lambda told: told.startswith("False InvalidSchedule: spec.schedule"), "told", seconds=LONG
    )
    await crons.apply("0 0 1 1 *", timeZone="Moon")
    await eventually(crons.accepted, lambda told: "False UnknownTimeZone" in told, "told", seconds=LONG)
    assert operator.leads


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"schedule": "TZ=Europe/Vienna 0 0 * * *"}, "spec.timeZone"),
        ({"schedule": "* * * *"}, "five fields"),
        ({"startingDeadline": "0s"}, "at least 1s"),
        ({"concurrencyPolicy": "Never"}, "concurrencyPolicy"),
    ],
)
async def test_what_cannot_be_is_refused_at_once(crons: CronJobs, spec: dict[str, str], words: str):
    with pytest.raises(ApiError, match=words):
        await crons.apply(**spec)


async def test_a_name_that_leaves_its_jobs_no_room_is_refused(crons: CronJobs):
    with pytest.raises(ApiError, match="at most 26 characters"):
        await crons.apply(name="a" * 27)


async def test_replaced_a_job_that_runs_ends_and_the_next_one_begins(stage: Stage, crons: CronJobs, operator: Operator):
    jobs = Jobs(stage)
    await crons.apply("0 0 1 1 *", concurrencyPolicy="Replace")
    await crons.make_due()
    (first,) = await eventually(crons.jobs, bool, "a job is made", seconds=LONG)
    await jobs.becomes("Running", first)
    await crons.apply("0 0 1 2 *", concurrencyPolicy="Replace")  # a newer time is due, at once
    await crons.make_due()
    (second,) = await eventually(crons.jobs, lambda found: found and first not in found, "another one", seconds=LONG)
    await jobs.becomes("Running", second)
    status = await eventually(crons.status, lambda found: bool(found.get("active")), "it is active", seconds=LONG)
    assert [item["name"] for item in status["active"]] == [second]
    assert jobs.twice() == {}
    assert operator.unreadable == 0
