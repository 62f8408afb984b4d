"""What a spec costs that does not change: one parse, though all else of its object changes five times a second."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.api import Json, cron_job, job
from gpudask.api.job import parse_job, parse_job_again
from gpudask.api.resource import InvalidSpecError
from gpudask.reconcile.resource_copy import ParsedOnce
from tests.api.test_job import OWN, a_job
from tests.clients.fake_api_server import BUSY
from tests.jobs.cron.builders import a_cron_job
from tests.reconcile.jobs_in_memory import CLUSTERS, CRON_JOBS, JOBS, OperatedJobs, operated_jobs
from tests.virtual_time import VirtualPolicy

SETTLED_SECONDS = 5.0
VALID = {JOBS: a_job(suspend=True, **OWN), CRON_JOBS: a_cron_job(suspend=True)}
INVALID = {JOBS: a_job(backoff="soon", **OWN), CRON_JOBS: a_cron_job("0 0 1 1 *", startingDeadline="soon")}
MENDED = {"backoff": "1s", "startingDeadline": "1h", "suspend": True}
# What they make at once, and where.
DUE = {
    JOBS: (a_job(**OWN), CLUSTERS),
    CRON_JOBS: (a_cron_job("0 0 1 1 *") | {"status": {"decidedTime": "2026-06-01T00:00:00Z"}}, JOBS),
}
OWNER = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskJob", "name": "sums", "uid": "x", "controller": True}
PARSED_ONCE = {JOBS: Counter(measured=1, validated=1, hashed=2), CRON_JOBS: Counter(measured=1, validated=1)}
of_each_kind = pytest.mark.parametrize("kind", [JOBS, CRON_JOBS], ids=["job", "cron job"])


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Passes wait for nothing."""
    return VirtualPolicy()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a spec was measured, validated, and hashed, be it as that of a cluster or of a runner."""
    counted: Counter[str] = Counter()

    def counting(real: Any, called: str) -> Any:
        def count(*args: Any, **rest: Any) -> Any:
            counted[called] += 1
            return real(*args, **rest)

        return count

    measuring = counting(job.broken_limits_of_job, "measured")
    for module in (job, cron_job):
        monkeypatch.setattr(module, "broken_limits_of_job", measuring)
    for model in (job.JobSpec, cron_job.CronJobSpec):
        monkeypatch.setattr(model, "model_validate", counting(model.model_validate, "validated"))
    hashing = SimpleNamespace(dumps=counting(json.dumps, "hashed"))
    monkeypatch.setattr("gpudask.desired.runner.json", hashing)
    return counted


async def begin(on: OperatedJobs, kind: str, body: Json) -> str:
    """It is there, and a pass was made; its name."""
    on.begin(kind, body | {"metadata": body["metadata"] | {"generation": 1}})
    await asyncio.sleep(SETTLED_SECONDS)
    return str(body["metadata"]["name"])


async def change(on: OperatedJobs, kind: str, name: str, *, spec: Json | None = None, **metadata: Any) -> None:
    """A watch tells of a change, and a pass is made. As any copy that comes, it shares no object with another one."""
    there = json.loads(json.dumps(on.there(kind, name)))
    changed = {"metadata": there["metadata"] | metadata, "spec": there["spec"] | (spec or {})}
    on.begin(kind, there | changed)
    await asyncio.sleep(SETTLED_SECONDS)


async def annotate_ten_times(on: OperatedJobs, kind: str, name: str) -> None:
    for number in range(10):
        await change(on, kind, name, annotations={"example.org/n": f"{number}"}, labels={"n": f"{number}"})


@of_each_kind
async def test_a_spec_is_parsed_and_hashed_once_whatever_else_changes(kind: str, calls: Counter[str]):
    async with operated_jobs() as on:
        name = await begin(on, kind, VALID[kind])
        await annotate_ten_times(on, kind, name)
        assert calls == PARSED_ONCE[kind]


@of_each_kind
async def test_an_edited_spec_is_parsed_and_hashed_once_more(kind: str, calls: Counter[str]):
    async with operated_jobs() as on:
        name = await begin(on, kind, VALID[kind])
        calls.clear()
        await change(on, kind, name, generation=2, spec=MENDED)
        await annotate_ten_times(on, kind, name)
        assert on.there(kind, name)["status"]["observedGeneration"] == 2
        assert calls == PARSED_ONCE[kind]


@of_each_kind
async def test_an_owner_that_comes_and_goes_costs_no_parse(kind: str, calls: Counter[str]):
    """A job's parse takes that of a DaskJob from its metadata."""
    async with operated_jobs() as on:
        name = await begin(on, kind, VALID[kind])
        for number in range(10):
            await change(on, kind, name, ownerReferences=[OWNER][number % 2 :])
        assert calls == PARSED_ONCE[kind]


@of_each_kind
async def test_an_invalid_spec_is_remembered_until_it_is_edited(kind: str, calls: Counter[str]):
    async with operated_jobs() as on:
        name = await begin(on, kind, INVALID[kind])
        await annotate_ten_times(on, kind, name)
        assert "soon" in str(on.there(kind, name)["status"])
        assert calls == Counter(measured=1, validated=1)
        await change(on, kind, name, generation=2, spec=MENDED)
        assert "soon" not in str(on.there(kind, name)["status"])


@of_each_kind
async def test_a_deletion_is_seen_that_comes_after_the_parse(kind: str):
    body, made = DUE[kind]
    async with operated_jobs() as on:
        busy = on.server.fail("POST", made, BUSY)
        name = await begin(on, kind, body)
        assert busy.met
        await change(on, kind, name, deletionTimestamp="2026-12-01T18:00:00Z", finalizers=["example.org/wait"])
        on.server.mend(busy)
        await asyncio.sleep(120.0)  # the longest back-off, twice
        assert [path for path in on.server.objects if path.startswith(f"{made}/")] == []


def test_what_a_parse_takes_of_metadata_is_that_of_each_copy():
    body = a_job(**OWN)
    parsed = ParsedOnce(parse_job, parse_job_again)
    first = parsed.get(body)
    later = parsed.get(body | {"metadata": body["metadata"] | {"deletionTimestamp": "t", "ownerReferences": [OWNER]}})
    assert (first.deleting, first.stock_uid, later.deleting, later.stock_uid) == (False, "", True, "x")
    assert later.spec is first.spec
    again = parsed.get(a_job(**OWN))
    assert (again.deleting, again.stock_uid, again.spec is first.spec) == (False, "", True)


def test_another_spec_of_the_same_generation_is_parsed():
    """As after a restored backup."""
    parsed = ParsedOnce(parse_job, parse_job_again)
    assert [parsed.get(a_job(retries=number)).spec.retries for number in (1, 2)] == [1, 2]


def test_specs_too_deep_to_compare_are_invalid_as_ever():
    def deep() -> Json:
        value: Json = {}
        for _ in range(5000):  # more than Python compares
            value = {"x": value}
        return a_job(runner=value)

    parsed = ParsedOnce(parse_job, parse_job_again)
    for _ in range(2):
        with pytest.raises(InvalidSpecError, match="nested more than 32 levels"):
            parsed.get(deep())
