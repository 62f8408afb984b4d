"""What a person does with cron jobs on a stage."""

from __future__ import annotations

from typing import Any

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, CRON_JOB_PLURAL, JOB_PLURAL
from tests.jobs.cron.builders import a_cron_job
from tests.reconcile.stage import Stage

EVERY_MINUTE = "* * * * *"


class CronJobs:
    """What a person does with cron jobs on a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._path = f"/apis/{API_VERSION}/namespaces/{stage.namespace}/{CRON_JOB_PLURAL}"

    async def apply(self, schedule: str = EVERY_MINUTE, name: str = "nightly", **spec: Any) -> None:
        body = a_cron_job(schedule, **spec) | {"metadata": {"name": name}}
        query = {"fieldManager": "test", "force": "true"}
        kind = "application/apply-patch+yaml"
        await self._stage.api.request("PATCH", f"{self._path}/{name}", query=query, body=body, content_type=kind)

    async def make_due(self, name: str = "nightly", decided: str = "2020-06-01T00:00:00Z") -> None:
        """As if it had been there for some minutes: a time is due now."""
        body = {"status": {"decidedTime": decided}}
        kind = "application/merge-patch+json"
        await self._stage.api.request("PATCH", f"{self._path}/{name}/status", body=body, content_type=kind)

    async def status(self, name: str = "nightly") -> Json:
        return dict((await self._stage.api.request("GET", f"{self._path}/{name}")).get("status", {}))

    async def accepted(self, name: str = "nightly") -> str:
        conditions = (await self.status(name)).get("conditions", [])
        item = next((item for item in conditions if item["type"] == "Accepted"), {})
        return f"{item.get('status')} {item.get('reason')}: {item.get('message', '')}"

    async def jobs(self) -> list[str]:
        found = await self._stage.list(JOB_PLURAL, API_VERSION)
        return sorted(item["metadata"]["name"] for item in found)
