"""The GpuDaskCronJob on a real API server: what it accepts, fills in and shows."""

from __future__ import annotations

import json

import pytest

from gpudask.api import Json
from gpudask.api.cron_job import CronJobStatus, parse_cron_job
from tests.jobs.cron.builders import a_cron_job
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api

EVERYTHING = a_cron_job(
    "*/10 6-18/2 1,15 jan-jun mon-fri",
    timeZone="America/St_Johns",
    concurrencyPolicy="Replace",
    startingDeadline="1h30m",
    suspend=True,
    successfulJobsHistoryLimit=0,
    failedJobsHistoryLimit=100,
)


def create(kubectl: Kubectl, body: Json) -> Json:
    """Create what a user wrote, strictly; returns what was stored."""
    written = json.dumps(body | {"metadata": {"name": body["metadata"]["name"]}})
    made = kubectl("create", "--validate=strict", "-o", "json", "-f", "-", stdin=written)
    return dict(json.loads(made.stdout))


def test_every_field_is_stored_as_it_is_written(in_namespace: Kubectl):
    body = create(in_namespace, EVERYTHING)
    assert {key: body["spec"][key] for key in EVERYTHING["spec"] if key != "jobTemplate"} == {
        key: value for key, value in EVERYTHING["spec"].items() if key != "jobTemplate"
    }
    assert parse_cron_job(body).spec == parse_cron_job(EVERYTHING | {"metadata": body["metadata"]}).spec


def test_what_is_left_out_has_the_defaults_of_a_cronjob(in_namespace: Kubectl):
    spec = create(in_namespace, a_cron_job("@daily"))["spec"]
    assert (spec["timeZone"], spec["concurrencyPolicy"], spec["suspend"]) == ("Etc/UTC", "Allow", False)
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 1)
    assert "startingDeadline" not in spec


@pytest.mark.parametrize("schedule", ["@hourly", "0 0 1 JAN ?", "5 4 * * 7", "10/25 0 * * *", "0   0 * * *"])
def test_schedules_of_a_cronjob_are_accepted(in_namespace: Kubectl, schedule: str):
    assert create(in_namespace, a_cron_job(schedule))["spec"]["schedule"] == schedule


def test_kubectl_shows_schedule_last_and_next_time(in_namespace: Kubectl):
    create(in_namespace, a_cron_job("@daily"))
    status = CronJobStatus.model_validate({"nextScheduleTime": "2026-11-28T00:00:00Z", "missed": 3})
    written = {"status": status.model_dump(mode="json", by_alias=True, exclude_defaults=True)}
    in_namespace("patch", "gdcj", "nightly", "--subresource=status", "--type=merge", "-p", json.dumps(written))
    heads, row = in_namespace("get", "gdcj", "-o", "wide").stdout.splitlines()
    assert heads.split() == [
        *("NAME", "SCHEDULE", "ZONE", "SUSPEND", "ACTIVE", "LAST", "AGE", "NEXT", "MISSED", "ACCEPTED")
    ]
    assert row.split()[:4] == ["nightly", "@daily", "Etc/UTC", "false"]
    assert "2026-11-28T00:00:00Z" in row
