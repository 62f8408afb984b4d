"""An answer that is not true, once for each kind of write for jobs: it is tried again, though nothing has changed.

No watch event comes that would have it tried again, and the slow resync is too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.job import parse_job
from gpudask.api.resource import API_VERSION, CRON_JOB_KIND, GATE_RECORDED, JOB_KIND, KIND, LABEL_JOB, LABEL_POOL
from gpudask.api.status import iso
from gpudask.clients.errors import ApiError
from gpudask.desired.runner import job_cluster
from tests.api.test_job import OWN, a_job
from tests.clients.fake_api_server import BUSY, UNTRUE, Answer, refusal
from tests.jobs.cron.builders import a_cron_job
from tests.planning.builders import NOW
from tests.reconcile.in_memory import CountedQueue, becomes
from tests.reconcile.jobs_in_memory import CLUSTERS, CRON_JOBS, JOBS, PODS, OperatedJobs, operated_jobs
from tests.virtual_time import VirtualPolicy

SECONDS = 60.0  # the resync, which finds everything, comes after ten times as long
# Until then the API server is busy: all else has been written, so that nothing but the answer can cause another try.
REST_SECONDS = 5.0
TRIED_ONCE = {"deletion of a worker"}  # what else fails there is left to the garbage collector
COMPLETE = {"type": "Complete", "status": "True", "lastTransitionTime": iso(NOW)}
ENDED = {
    "phase": "Complete",
    "reason": "Completed",
    "attempts": 1,
    "completionTime": iso(NOW),
    "conditions": [COMPLETE],
}
OPEN = {"phase": "Pending", "attempts": 1, "startTime": iso(NOW), "runner": {"pod": "sums-runner-1", "uid": "pod-1"}}
Look = Callable[[], Any]


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Back-offs pass at once."""
    return VirtualPolicy()


def owned(kind: str, name: str, uid: str) -> Json:
    """Metadata of what an object controls."""
    reference = {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid, "controller": True}
    return {"namespace": "lab", "ownerReferences": [reference]}


def runner(number: int = 1, *, gated: bool = True, **status: Any) -> Json:
    """A runner's pod."""
    gates = {"schedulingGates": [{"name": GATE_RECORDED}, {"name": "example.org/other"}]} if gated else {}
    metadata = owned(JOB_KIND, "sums", "uid-1") | {"name": f"sums-runner-{number}", "uid": f"pod-{number}"}
    spec = gates | {"containers": [{"name": "runner"}]}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def begin(on: OperatedJobs, status: Json | None = None, **spec: Any) -> None:
    on.begin(JOBS, a_job(**spec) | {"status": status or {}})


def of_status(on: OperatedJobs) -> Look:
    begin(on)
    return lambda: on.there(JOBS, "sums").get("status", {}).get("reason") == "ClusterMissing"


def of_runner(on: OperatedJobs) -> Look:
    begin(on, **OWN)
    return lambda: bool(on.there(PODS, "sums-runner-1"))


def of_cluster(on: OperatedJobs) -> Look:
    begin(on, **OWN)
    return lambda: bool(on.there(CLUSTERS, "sums"))


def of_gate(on: OperatedJobs) -> Look:
    on.put(PODS, runner())
    begin(on, OPEN)
    return lambda: on.there(PODS, "sums-runner-1")["spec"]["schedulingGates"] == [{"name": "example.org/other"}]


def of_stray(on: OperatedJobs) -> Look:
    on.put(PODS, runner(2))
    begin(on, ENDED)
    return lambda: not on.there(PODS, "sums-runner-2")


def of_containers(on: OperatedJobs) -> Look:
    ended = {"name": "runner", "state": {"terminated": {"exitCode": 0}}}
    on.put(PODS, runner(gated=False, phase="Running", containerStatuses=[ended]))
    begin(on, ENDED)
    return lambda: on.there(PODS, "sums-runner-1")["spec"].get("activeDeadlineSeconds") == 1


def own_cluster(on: OperatedJobs) -> None:
    """The job's own cluster with a worker."""
    body = job_cluster(parse_job(a_job(**OWN)), 1)
    on.put(CLUSTERS, body | {"metadata": body["metadata"] | {"uid": "cluster-1"}})
    metadata = owned(KIND, "sums", "cluster-1") | {"name": "sums-cpu-worker-0", "labels": {LABEL_POOL: "cpu"}}
    on.put(PODS, {"kind": "Pod", "metadata": metadata, "spec": {}, "status": {}})


def of_cluster_deletion(on: OperatedJobs) -> Look:
    own_cluster(on)
    begin(on, ENDED, **OWN)
    return lambda: not on.there(CLUSTERS, "sums")


def of_worker_deletion(on: OperatedJobs) -> Look:
    own_cluster(on)
    begin(on, ENDED, **OWN)
    return lambda: not on.there(PODS, "sums-cpu-worker-0")


def of_overrides(on: OperatedJobs) -> Look:
    own_cluster(on)
    begin(on, ENDED, keepCluster={"onSuccess": "1h"}, **OWN)
    return lambda: [item["replicas"] for item in on.there(CLUSTERS, "sums")["spec"].get("overrides", ())] == [0]


def of_job_deletion(on: OperatedJobs) -> Look:
    begin(on, ENDED, ttlAfterFinished="0s")
    return lambda: not on.there(JOBS, "sums")


def of_cron_status(on: OperatedJobs) -> Look:
    on.begin(CRON_JOBS, a_cron_job("0 0 1 1 *"))
    return lambda: bool(on.there(CRON_JOBS, "nightly").get("status"))


def of_cron_creation(on: OperatedJobs) -> Look:
    on.begin(CRON_JOBS, a_cron_job("0 0 1 1 *") | {"status": {"decidedTime": "2026-06-01T00:00:00Z"}})
    return lambda: any(JOBS in path for path in on.server.objects)


def of_cron_deletion(on: OperatedJobs) -> Look:
    on.begin(CRON_JOBS, a_cron_job("0 0 1 1 *"))
    job = a_job(suspend=True)
    on.begin(
        JOBS, job | {"metadata": owned(CRON_JOB_KIND, "nightly", "cron-1") | {"name": "nightly-1", "uid": "uid-2"}}
    )
    return lambda: not on.there(JOBS, "nightly-1")


# what is there, and becomes; the request that gets the answer: its method, a part of its path, and of the name
WRITES: dict[str, tuple[Callable[[OperatedJobs], Look], tuple[str, str, str]]] = {
    "status": (of_status, ("PATCH", "/status", "")),
    "runner": (of_runner, ("POST", "/pods", "")),
    "cluster": (of_cluster, ("POST", CLUSTERS, "")),
    "gate": (of_gate, ("PATCH", "/pods/", "")),
    "stray runner": (of_stray, ("DELETE", "/pods/", "")),
    "containers": (of_containers, ("PATCH", "/pods/", "")),
    "deletion of the cluster": (of_cluster_deletion, ("DELETE", CLUSTERS, "")),
    "deletion of a worker": (of_worker_deletion, ("DELETE", "/pods/", "worker")),
    "overrides": (of_overrides, ("PATCH", CLUSTERS, "")),
    "deletion of the job": (of_job_deletion, ("DELETE", JOBS, "")),
    "cron status": (of_cron_status, ("PATCH", "/status", "")),
    "cron creation": (of_cron_creation, ("POST", JOBS, "")),
    "cron deletion": (of_cron_deletion, ("DELETE", JOBS, "")),
}


async def test_a_runner_that_is_not_found_once_is_not_lost():
    """Its attempt would be counted as failed, and another one begin beside it."""
    async with operated_jobs() as on:
        on.server.put(f"{PODS}/sums-runner-1", runner(gated=False, phase="Running"))  # of which no event came yet
        untrue = on.server.fail("GET", "/pods/", UNTRUE["not found"], times=1)
        begin(on, OPEN, retries=1)
        await asyncio.sleep(REST_SECONDS)
        assert untrue.met == 1
        assert on.there(JOBS, "sums")["status"].get("failures", 0) == 0
        assert on.server.names("pods") == ["sums-runner-1"]


async def test_what_runs_by_a_status_of_which_no_event_came_goes_on():
    """A loop begins with the cache's copy, which may be of before the last attempt, as where an operator takes over."""
    async with operated_jobs() as on:
        ended = {"name": "runner", "state": {"terminated": {"exitCode": 1}}}
        on.put(PODS, runner(1, gated=False, phase="Failed", containerStatuses=[ended]))
        on.put(PODS, runner(2, gated=False, phase="Running"))
        old = on.put(JOBS, a_job(retries=3) | {"status": OPEN})
        second = OPEN | {"attempts": 2, "failures": 1, "runner": {"pod": "sums-runner-2", "uid": "pod-2"}}
        on.put(JOBS, a_job(retries=3) | {"status": second})
        on.jobs.upsert("lab", old)
        await asyncio.sleep(REST_SECONDS)
        assert on.server.names("pods") == ["sums-runner-1", "sums-runner-2"]
        assert on.there(JOBS, "sums")["status"]["failures"] == 1


async def test_what_runs_goes_on_though_the_copy_says_that_it_is_suspended():
    async with operated_jobs() as on:
        on.put(PODS, runner(gated=False, phase="Running"))
        old = on.put(JOBS, a_job(suspend=True) | {"status": {"phase": "Suspended"}})
        on.put(JOBS, a_job() | {"status": OPEN})
        on.jobs.upsert("lab", old)
        await asyncio.sleep(REST_SECONDS)
        assert on.server.names("pods") == ["sums-runner-1"]


async def test_a_job_that_is_recorded_stays_though_the_copy_of_its_cron_job_is_older():
    async with operated_jobs() as on:
        old = on.put(CRON_JOBS, a_cron_job("0 0 1 1 *"))
        metadata = owned(CRON_JOB_KIND, "nightly", old["metadata"]["uid"]) | {
            "name": "nightly-29000000",
            "uid": "job-1",
        }
        made = a_job(cluster={"name": "demo"}) | {"metadata": metadata}
        on.begin(JOBS, made)
        active = {"name": "nightly-29000000", "uid": "job-1", "scheduledTime": "2025-02-19T21:20:00Z"}
        on.put(
            CRON_JOBS, a_cron_job("0 0 1 1 *") | {"status": {"active": [active], "decidedTime": "2025-02-19T21:20:00Z"}}
        )
        on.crons.cron_jobs.upsert("lab", old)
        await asyncio.sleep(REST_SECONDS)
        assert not [request for request in on.server.log if request.startswith("DELETE")]


async def test_a_runner_that_loses_its_label_is_not_lost_and_gets_it_again():
    """The watch says that it is gone, and would never tell of it again: another attempt would begin beside it."""
    async with operated_jobs() as on:
        on.runners.reflectors[0]._label = LABEL_JOB
        on.server.put(f"{PODS}/sums-runner-1", runner(gated=False, phase="Running"))
        begin(on, OPEN, retries=1)
        await asyncio.sleep(REST_SECONDS)
        assert on.there(JOBS, "sums")["status"].get("failures", 0) == 0
        assert on.server.names("pods") == ["sums-runner-1"]
        assert LABEL_JOB in on.there(PODS, "sums-runner-1")["metadata"]["labels"]


async def test_a_runner_that_loses_its_label_at_its_gate_is_gone_on_with():
    async with operated_jobs() as on:
        on.runners.reflectors[0]._label = LABEL_JOB
        on.server.put(f"{PODS}/sums-runner-1", runner())
        begin(on, **OWN)
        await becomes(
            lambda: on.there(PODS, "sums-runner-1")["metadata"].get("labels", {}),
            lambda labels: LABEL_JOB in labels,
            seconds=SECONDS,
        )


async def test_an_api_server_whose_clock_is_set_ends_no_job():
    async with operated_jobs() as on:
        on.put(PODS, runner(gated=False, phase="Running"))
        begin(on, OPEN | {"startTime": iso(on.operated.context.clock())}, activeDeadline="30m")
        await asyncio.sleep(REST_SECONDS)
        on.operated.context.server_ahead = lambda: 3600.0
        on.put(PODS, runner(gated=False, phase="Running") | {"spec": {"containers": [], "nodeName": "n"}})
        await asyncio.sleep(REST_SECONDS)
        assert on.there(JOBS, "sums")["status"]["phase"] == "Pending"
        assert on.server.names("pods") == ["sums-runner-1"]


async def test_a_status_that_comes_during_a_pass_is_not_written_over(monkeypatch: pytest.MonkeyPatch):
    """As the last write of an operator that led before, on its way for long: its attempt's number is not used again."""
    async with operated_jobs() as on:
        create, late = on.server.create, {"phase": "Pending", "attempts": 7, "startTime": iso(NOW)}

        async def meanwhile(body: Json) -> Json:
            if body["kind"] == "Pod" and not on.there(JOBS, "sums").get("status"):
                on.begin(JOBS, on.there(JOBS, "sums") | {"status": late})
            return await create(body)

        monkeypatch.setattr(on.server, "create", meanwhile)
        begin(on, **OWN)
        await becomes(lambda: on.server.names("pods"), lambda names: "sums-runner-8" in names, seconds=SECONDS)
        assert on.there(JOBS, "sums")["status"]["attempts"] == 7


@pytest.mark.parametrize("kind", [JOBS, CRON_JOBS], ids=["job", "cron job"])
async def test_an_edit_whose_event_overtakes_the_answer_to_a_status_write_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, kind: str
):
    """As a submission's: it creates the job suspended, and lets it run as soon as its script is there."""
    async with operated_jobs() as on:
        write, body = on.server.write_status, a_job(suspend=True) if kind == JOBS else a_cron_job("0 0 1 1 *")
        name = body["metadata"]["name"]

        async def overtaken(*of: Any, **rest: Any) -> Json:
            answer = await write(*of, **rest)
            monkeypatch.setattr(on.server, "write_status", write)
            there = on.there(kind, name)
            metadata, spec = there["metadata"] | {"generation": 20}, there["spec"] | {"suspend": kind == CRON_JOBS}
            on.begin(kind, there | {"metadata": metadata, "spec": spec})
            return answer

        monkeypatch.setattr(on.server, "write_status", overtaken)
        on.begin(kind, body)
        await becomes(lambda: on.there(kind, name).get("status", {}).get("observedGeneration"), 20, SECONDS)


@pytest.mark.parametrize("kind", [JOBS, CRON_JOBS], ids=["job", "cron job"])
async def test_a_refusal_that_comes_after_the_edit_that_is_its_cure_is_that_of_the_older_spec(
    monkeypatch: pytest.MonkeyPatch, kind: str
):
    """A job would fail for good, and a cron job would say until its next time that it cannot make any."""
    async with operated_jobs() as on:
        create, name = on.server.create, "sums" if kind == JOBS else "nightly"

        async def edited(body: Json) -> Json:
            monkeypatch.setattr(on.server, "create", create)
            there = on.there(kind, name)
            spec = there["spec"] | ({"retries": 1} if kind == JOBS else {"suspend": True})
            on.begin(kind, there | {"metadata": there["metadata"] | {"generation": 20}, "spec": spec})
            raise ApiError(422, "Invalid", "spec.containers: they are not as they should be", "POST")

        monkeypatch.setattr(on.server, "create", edited)
        if kind == JOBS:
            begin(on, **OWN)
            await becomes(lambda: on.server.names("pods"), ["sums-runner-1"], SECONDS)
        else:
            on.begin(CRON_JOBS, a_cron_job("0 0 1 1 *") | {"status": {"decidedTime": "2026-06-01T00:00:00Z"}})
            await becomes(lambda: on.there(kind, name)["status"].get("observedGeneration"), 20, SECONDS)
        await asyncio.sleep(REST_SECONDS)
        conditions = {item["type"]: item["status"] for item in on.there(kind, name)["status"].get("conditions", ())}
        assert (conditions.get("Failed"), conditions.get("Accepted")) in ((None, None), (None, "True"))


QUOTA = refusal(403, "exceeded quota: team", "Forbidden")
WAS_TRIED = {
    "phase": "Retrying",
    "attempts": 1,
    "failures": 1,
    "startTime": iso(NOW),
    "runner": {"pod": "sums-runner-1", "uid": "pod-1", "startedAt": iso(NOW), "endedAt": iso(NOW)},
}


@pytest.mark.parametrize(
    ("answer", "status", "spec", "reason"),
    [
        (refusal(422, "Pod is invalid", "Invalid"), {}, {}, "TemplateRefused"),
        (QUOTA, WAS_TRIED, {"activeDeadline": "2m"}, "DeadlineExceeded"),
        (QUOTA, {}, {"suspend": True}, "Suspended"),
    ],
    ids=["for good", "past its deadline", "suspended"],
)
async def test_a_job_that_was_refused_and_does_something_else_costs_nothing(
    answer: Answer, status: Json, spec: Json, reason: str
):
    async with operated_jobs() as on:
        queue = on.operated.context.pass_queue = CountedQueue()  # type: ignore[assignment]
        on.server.fail("POST", "/pods", answer)
        begin(on, status, **OWN | spec | {"suspend": False})
        await asyncio.sleep(20.0)
        if "suspend" in spec:
            there = on.there(JOBS, "sums")
            metadata = there["metadata"] | {"generation": 20}
            on.begin(JOBS, there | {"metadata": metadata, "spec": there["spec"] | spec})
        await becomes(lambda: on.there(JOBS, "sums")["status"].get("reason"), reason, seconds=300.0)
        await asyncio.sleep(120.0)
        passes, requests = queue.passes, len(on.server.log)
        await asyncio.sleep(550.0)
        assert queue.passes - passes <= 2
        assert on.server.log[requests:] == []


@pytest.mark.parametrize("answer", UNTRUE.values(), ids=UNTRUE)
@pytest.mark.parametrize("write", WRITES)
async def test_a_write_that_got_an_untrue_answer_is_tried_again(write: str, answer: Answer):
    arrange, (method, path, name) = WRITES[write]
    async with operated_jobs() as on:
        busy = on.server.fail(method, path, BUSY, name=name, times=0 if write in TRIED_ONCE else float("inf"))
        untrue = on.server.fail(method, path, answer, name=name, times=1)
        look = arrange(on)
        if write not in TRIED_ONCE:
            await asyncio.sleep(REST_SECONDS)
            assert not look()
        on.server.mend(busy)
        await becomes(look, bool, seconds=SECONDS)
        assert untrue.met == 1
