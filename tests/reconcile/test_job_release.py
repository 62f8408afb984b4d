"""GPUs of a program that ended are given back at once, whichever request about its job fails or hangs meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.job import parse_job
from gpudask.api.resource import API_VERSION, JOB_PLURAL
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import FairRateLimiter
from gpudask.clients.reflector import Caches, Reflector
from gpudask.desired.runner import job_cluster
from gpudask.jobs.actions import Action, DeleteCluster, EmptyCluster
from gpudask.jobs.observation import SeenCluster
from gpudask.jobs.runner_pods import parse_runner_pod
from gpudask.reconcile.jobs.executor import MANAGER, JobExecutor
from gpudask.reconcile.jobs.registry import JobRegistry, observe_job
from gpudask.reconcile import loop
from gpudask.reconcile.loop import Registry
from tests.api.test_job import OWN, a_job
from tests.clients.fake_api_server import Answer, FakeApiServer, Fault, refusal
from tests.jobs.builders import seen
from tests.reconcile.in_memory import CountedQueue, Operated, becomes
from tests.virtual_time import VirtualPolicy

CLUSTER = f"/apis/{API_VERSION}/namespaces/default/gpudaskclusters/sums"
JOB = f"/apis/{API_VERSION}/namespaces/default/{JOB_PLURAL}/sums"
RUNNER = "/api/v1/namespaces/default/pods/sums-runner-1"
WORKER = "sums-cpu-worker-"
BROKEN = refusal(500, "etcd is away", "InternalError")
COMPLETE = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
LATER = refusal(429, "not now", "TooManyRequests", **{"Retry-After": "3600"})


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Back-offs pass at once, and take exactly as long as they should."""
    return VirtualPolicy()


class Released(Operated):
    """A job whose program runs, and its own cluster with a scheduler and a worker; both have their loops."""

    def __init__(self, server: FakeApiServer) -> None:
        self.registry = Registry()
        super().__init__(server)
        self.jobs = JobRegistry(self.registry)
        path = "/api/v1/namespaces/default/pods"
        self.jobs.runners = self._of_jobs(path, parse_runner_pod, self.jobs.runner_changed)
        self.jobs.jobs = self._of_jobs(JOB.rpartition("/")[0], observe_job, self.jobs.job_changed)
        runner = {"pod": "sums-runner-1", "uid": "runner-1", "startedAt": "2026-01-01T00:00:00Z"}
        body = a_job(**OWN)
        body["metadata"]["namespace"] = "default"
        self.job = parse_job(body)
        body["status"] = {"attempts": 1, "phase": "Running", "runner": runner}
        server.put(JOB, body)
        cluster = job_cluster(self.job, 1)
        cluster["metadata"] |= {"uid": "cluster-1", "generation": 1}
        server.put(CLUSTER, cluster)
        self.put_runner({"running": {}}, "Running")
        self.executor = JobExecutor(self.context, self.jobs.runners, self.registry)

    def _of_jobs(self, path: str, reduce: Any, changed: Any) -> Caches:
        caches = Caches([Reflector(self.server, path, label="", reduce=reduce, on_change=changed)])
        caches.reflectors[0].synced.set()
        return caches

    def put_runner(self, state: Json, phase: str) -> None:
        """The runner's pod is so, and the watch tells."""
        owner = {"apiVersion": API_VERSION, "kind": "GpuDaskJob", "name": "sums", "uid": "uid-1", "controller": True}
        metadata = {"name": "sums-runner-1", "namespace": "default", "uid": "runner-1", "ownerReferences": [owner]}
        status = {"phase": phase, "containerStatuses": [{"name": "runner", "state": state}]}
        spec = {"nodeName": "n", "containers": [{"name": "runner"}]}
        body = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}
        self.jobs.runners.upsert("default", self.server.put(RUNNER, body))

    def lead(self) -> None:
        """Work for the cluster; the job's loop begins by `begin_job`."""
        self.fill_caches()
        self.registry.lead(self.context)
        self.registry.cluster_changed(self.server.objects[CLUSTER])

    def begin_job(self) -> None:
        """Work for the job."""
        self.jobs.jobs.upsert("default", self.server.objects[JOB])
        self.jobs.lead(self.context)

    def is_observed(self) -> bool:
        """Whether the job's loop has made a pass."""
        (running,) = self.jobs._running.values()
        return running.reconciler._job is not None

    def is_seen_to_go(self) -> bool:
        """Whether the job's loop has made a pass that knows that the job is being deleted."""
        (running,) = self.jobs._running.values()
        return running.reconciler._job is not None and running.reconciler._job.deleting

    def is_given_back(self) -> bool:
        """Whether nothing is done for the job any more."""
        return not self.jobs._running and not self.jobs._giving_back

    def edit_job(self, *, status: Json | None = None, **spec: Any) -> None:
        """Somebody edits the job, and the watch tells."""
        body = self.server.objects[JOB]
        metadata = body["metadata"] | {"generation": body["metadata"]["generation"] + 1}
        changes = {"metadata": metadata, "spec": body["spec"] | spec}
        changes |= {} if status is None else {"status": status}
        self.jobs.jobs.upsert("default", self.server.put(JOB, body | changes))

    async def suspend_in_vain(self) -> None:
        """Let the job be suspended, without a runner: its workers end, and its cluster cannot be deleted."""
        fault = self.server.fail("DELETE", "/gpudaskclusters/", BROKEN)
        del self.server.objects[RUNNER]
        self.jobs.runners.forget("default", "runner-1")
        self.edit_job(suspend=True, status={})
        self.begin_job()
        await becomes(lambda: fault.met, bool)
        await self.has_no_workers()

    def keep_without_workers_and_lose_the_answer(self) -> Fault:
        """Let the job's edit of its cluster take effect, which the watch tells, and seem to have failed."""
        fault = self.server.fail("PATCH", "/gpudaskclusters/", BROKEN, name="sums", times=1)

        def edit(said: str) -> None:
            if said == "PATCH gpudaskclusters sums" and not fault.met:
                body = self.server.objects[CLUSTER]
                spec = body["spec"] | {"overrides": [{"pool": "cpu", "replicas": 0, "by": MANAGER}]}
                metadata = body["metadata"] | {"generation": body["metadata"]["generation"] + 1}
                edited = self.server.put(CLUSTER, body | {"metadata": metadata, "spec": spec})
                self.registry.cluster_changed(edited)

        self.server.on_request = edit
        return fault

    def leave_cluster_behind(self) -> Json:
        """Let the cluster be the job's no more: a copy, as what the loops know has its owner yet."""
        body = self.server.objects[CLUSTER]
        metadata = {key: value for key, value in body["metadata"].items() if key != "ownerReferences"}
        return self.server.put(CLUSTER, body | {"metadata": metadata})

    def delete_job(self) -> None:
        """Somebody deletes the job, and the watch tells; nothing collects garbage."""
        del self.server.objects[JOB]
        self.jobs.jobs.forget("default", "uid-1")

    async def do(self, action: Action) -> None:
        """Execute an action of the job's plan."""
        await self.executor.execute(seen(self.job), action, "1")

    async def has_no_workers(self) -> None:
        """See that there are none, and that the cluster's loop makes none."""
        await becomes(self.workers, [])
        for _ in range(3):
            await self.is_passed()
        assert self.workers() == []

    def workers(self) -> list[str]:
        """The workers that the API server has."""
        return [name for name in self.pods() if name.startswith(WORKER)]

    async def is_passed(self) -> None:
        """Wake the cluster's loop, and wait until it has looked, whatever it does then."""
        before = self.context.pass_queue.passes
        self.registry.owned_changed("default/cluster-1")
        await becomes(lambda: self.context.pass_queue.passes, lambda found: found > before)
        await asyncio.sleep(0)

    def _changed(self, owner: str) -> None:
        self.registry.owned_changed(owner)

    def tell(self) -> None:
        """What the watch tells of pods: those that are gone are gone."""
        there = {body["metadata"]["uid"] for body in self.server.objects.values()}
        for pod in self.context.pods.owned("default/cluster-1"):
            if pod.uid not in there:
                self.context.pods.forget("default", pod.uid)

    async def stop(self) -> None:
        await self.jobs.stand_by()
        await self.registry.stand_by()
        await super().stop()


@pytest.fixture
async def job() -> AsyncIterator[Released]:
    """It runs, with a worker."""
    job = Released(FakeApiServer())
    job.context.pass_queue = CountedQueue()  # type: ignore[assignment] - as much of it as passes need
    watching = asyncio.create_task(_watch(job))
    job.lead()
    await becomes(job.workers, [f"{WORKER}0"])
    yield job
    watching.cancel()
    await job.stop()


async def _watch(job: Released) -> None:
    while True:
        job.tell()
        await asyncio.sleep(0.005)


def own(job: Released) -> SeenCluster:
    """The cluster as the job's pass sees it."""
    return SeenCluster("sums", "cluster-1", job.server.objects[CLUSTER]["metadata"]["resourceVersion"], is_own=True)


@pytest.mark.parametrize("action", [DeleteCluster, EmptyCluster])
async def test_workers_end_while_the_answer_about_their_cluster_is_awaited(job: Released, action: Any):
    answer = asyncio.Event()
    job.server.fail("DELETE", "/gpudaskclusters/", until=answer)
    job.server.fail("PATCH", "/gpudaskclusters/sums", until=answer)
    doing = asyncio.create_task(job.do(action(own(job))))
    await becomes(job.workers, [])
    assert not doing.done()
    answer.set()
    await doing


@pytest.mark.parametrize("action", [DeleteCluster, EmptyCluster])
async def test_a_cluster_whose_end_fails_makes_no_workers_in_place_of_those_that_were_ended(job: Released, action: Any):
    job.server.fail("DELETE", "/gpudaskclusters/", BROKEN)
    job.server.fail("PATCH", "/gpudaskclusters/sums", BROKEN)
    with pytest.raises(ApiError):
        await job.do(action(own(job)))
    assert job.workers() == []
    for _ in range(3):
        await job.is_passed()
    assert job.workers() == []
    # The cluster's loop would have: it does once it is let go.
    job.server.mend()
    job.registry.end_hold("default", "cluster-1")
    await becomes(job.workers, [f"{WORKER}0"])


async def test_a_suspended_job_that_runs_on_before_its_cluster_was_deleted_has_workers_again(job: Released):
    await job.suspend_in_vain()
    job.edit_job(suspend=False)
    await becomes(job.workers, [f"{WORKER}0"])
    assert CLUSTER in job.server.objects


async def test_it_has_them_also_where_another_process_of_it_held_its_cluster(job: Released):
    """As where this operator did not lead in between: its holds outlive that, and its jobs' loops do not."""
    job.registry.hold("default", "cluster-1", 400.0)
    job.lose(f"{WORKER}0")
    await job.has_no_workers()
    job.begin_job()
    await becomes(job.workers, [f"{WORKER}0"])


async def test_a_job_that_is_being_deleted_makes_no_workers_in_place_of_those_that_were_ended(job: Released):
    await job.suspend_in_vain()
    body = job.server.objects[JOB]
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
    job.jobs.jobs.upsert("default", job.server.put(JOB, body | {"metadata": body["metadata"] | deleted}))
    await becomes(job.is_seen_to_go, bool)
    await job.has_no_workers()


async def test_a_job_that_ends_makes_none_either(job: Released):
    """Its deadline is over while its cluster cannot be deleted."""
    await job.suspend_in_vain()
    written = asyncio.Event()
    status = job.server.fail("PATCH", f"/{JOB_PLURAL}/sums/status", until=written)
    began = {"attempts": 1, "startTime": "2026-01-01T00:00:00Z"}
    job.edit_job(suspend=False, activeDeadline="1s", status=began)
    await becomes(lambda: status.met, bool)
    await job.has_no_workers()
    written.set()
    await becomes(lambda: job.server.objects[JOB]["status"].get("phase"), "Failed")


async def test_a_cluster_that_keeps_no_workers_goes_on_with_its_scheduler(job: Released):
    await job.do(EmptyCluster(own(job)))
    (scheduler,) = (name for name in job.pods() if "-scheduler-" in name)
    job.lose(scheduler)
    await becomes(job.pods, lambda found: [name for name in found if "-scheduler-" in name])
    assert job.workers() == []


async def test_a_cluster_that_is_kept_after_the_end_is_worked_for_though_the_answer_to_its_edit_was_lost(job: Released):
    """Its spec says by then that it has no workers: an event told, and there is nothing to be tried again."""
    job.edit_job(keepCluster={"onSuccess": "1h"})
    fault = job.keep_without_workers_and_lose_the_answer()
    job.put_runner({"terminated": {"exitCode": 0, "reason": "Completed"}}, "Succeeded")
    job.begin_job()
    await becomes(lambda: fault.met, 1)
    await becomes(lambda: job.server.objects[CLUSTER].get("status", {}).get("observedGeneration"), 2)
    assert job.workers() == []


@pytest.mark.parametrize("failures", [1, 3])
async def test_a_worker_whose_deletion_fails_is_tried_again_soon(job: Released, failures: int):
    fault = job.server.fail("DELETE", "/pods/", BROKEN, name=WORKER, times=failures)
    clock = asyncio.get_running_loop().time
    began = clock()
    await job.do(DeleteCluster(own(job)))
    assert (job.workers(), fault.met) == ([], failures)
    print(f"deleted after {clock() - began:.2f} s")


@pytest.mark.parametrize("answer", [BROKEN, LATER, refusal(403, "no rights", "Forbidden")])
async def test_a_worker_that_cannot_be_deleted_is_told_and_holds_nobody_for_long(job: Released, answer: Any):
    job.server.fail("DELETE", "/pods/", answer, name=WORKER)
    with pytest.raises(ApiError, match=WORKER):
        await asyncio.wait_for(job.do(DeleteCluster(own(job))), 30)
    assert CLUSTER not in job.server.objects


async def test_a_program_that_ends_while_its_job_backs_off_gives_its_gpus_back_at_once(job: Released):
    fault = job.server.fail("PATCH", f"/{JOB_PLURAL}/sums/status", LATER)
    job.begin_job()
    await becomes(lambda: fault.met, 1)
    assert job.workers() == [f"{WORKER}0"]
    job.put_runner({"terminated": {"exitCode": 0, "reason": "Completed"}}, "Succeeded")
    await becomes(job.workers, [])
    assert CLUSTER not in job.server.objects
    # Its end is not in the status yet: it is not given back twice, and nothing begins.
    assert "endedAt" not in json.dumps(job.server.objects[JOB]["status"])
    assert job.server.names("pods").count("sums-runner-2") == 0


async def test_a_program_that_is_gone_while_its_job_backs_off_does_so_too(job: Released):
    fault = job.server.fail("PATCH", f"/{JOB_PLURAL}/sums/status", LATER)
    job.begin_job()
    await becomes(lambda: fault.met, 1)
    del job.server.objects[RUNNER]
    job.jobs.runners.forget("default", "runner-1")
    await becomes(job.workers, [])


async def test_the_end_of_another_pod_of_the_job_ends_no_back_off(job: Released):
    fault = job.server.fail("PATCH", f"/{JOB_PLURAL}/sums/status", LATER)
    job.begin_job()
    await becomes(lambda: fault.met, 1)
    other = job.server.objects[RUNNER] | {"status": {"phase": "Succeeded"}}
    other["metadata"] = other["metadata"] | {"name": "sums-runner-0", "uid": "runner-0"}
    job.jobs.runners.upsert("default", other)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            await becomes(lambda: fault.met, lambda found: found > 1)
    assert fault.met == 1


async def test_a_program_that_ended_while_nobody_led_waits_for_no_first_pass_of_others(job: Released):
    job.context.first_pass_limiter = FairRateLimiter(0.001)
    job.context.first_pass_limiter.reserve("default", asyncio.get_running_loop().time())
    job.put_runner({"terminated": {"exitCode": 0, "reason": "Completed"}}, "Succeeded")
    job.begin_job()
    await becomes(job.workers, [])


async def test_one_that_runs_has_its_turn(job: Released):
    loop = asyncio.get_running_loop()
    job.context.first_pass_limiter = FairRateLimiter(4.0)
    for _ in range(8):
        job.context.first_pass_limiter.reserve("default", loop.time())
    began = loop.time()
    job.begin_job()
    await becomes(lambda: "observedGeneration" in job.server.objects[JOB]["status"], bool)
    assert loop.time() - began >= 1.5


async def test_an_operator_that_knows_no_cluster_yet_gives_back_what_an_ended_program_held(job: Released):
    job.registry.cluster_deleted(job.server.objects[CLUSTER]["metadata"])
    job.put_runner({"terminated": {"exitCode": 0, "reason": "Completed"}}, "Succeeded")
    job.begin_job()
    await becomes(job.workers, [])
    assert CLUSTER not in job.server.objects


async def test_a_cluster_that_comes_to_be_known_while_its_end_fails_is_on_hold(job: Released):
    body = job.server.objects[CLUSTER]
    job.registry.cluster_deleted(body["metadata"])
    await becomes(lambda: job.registry.find("default", "sums"), None)
    fault = job.server.fail("DELETE", "/gpudaskclusters/", BROKEN)
    with pytest.raises(ApiError):
        await job.do(DeleteCluster(own(job)))
    job.registry.cluster_changed(body)
    for _ in range(3):
        await job.is_passed()
    assert job.workers() == []
    job.server.mend(fault)
    job.registry.end_hold("default", "cluster-1")
    await becomes(job.workers, [f"{WORKER}0"])


async def test_a_job_that_is_deleted_while_it_runs_gives_its_gpus_back_at_once(job: Released):
    """Kubernetes' garbage collection comes later, and its workers would end slowly."""
    job.begin_job()
    await becomes(lambda: job.jobs.find("default/sums"), bool)
    job.delete_job()
    await becomes(job.workers, [])
    await becomes(lambda: job.server.names("gpudaskclusters"), [])


async def test_workers_of_a_deleted_job_end_at_once_though_its_cluster_went_first(job: Released):
    """As where the garbage collector is quicker, or `--cascade=foreground` deletes the job last."""
    job.begin_job()
    await becomes(job.is_observed, bool)
    del job.server.objects[CLUSTER]
    job.registry.cluster_deleted({"namespace": "default", "name": "sums", "uid": "cluster-1"})
    job.delete_job()
    await becomes(job.workers, [])


async def test_workers_of_a_deleted_job_that_could_not_be_ended_are_tried_again_without_their_cluster(job: Released):
    job.begin_job()
    await becomes(job.is_observed, bool)
    job.server.fail("DELETE", "/pods/", BROKEN, name=WORKER, times=6)
    job.delete_job()
    await becomes(job.workers, [])


async def test_a_deleted_job_that_has_no_cluster_any_more_asks_for_none(job: Released):
    body = job.server.objects[JOB]
    ended = {"attempts": 1, "phase": "Complete", "reason": "Completed", "conditions": [COMPLETE]}
    job.server.put(JOB, body | {"status": ended | {"completionTime": "2026-01-01T00:00:00Z"}})
    del job.server.objects[CLUSTER]
    job.registry.cluster_deleted({"namespace": "default", "name": "sums", "uid": "cluster-1"})
    job.begin_job()
    await becomes(job.is_observed, bool)
    asked = len(job.server.log)
    job.delete_job()
    await becomes(job.is_given_back, bool)
    assert [said for said in job.server.log[asked:] if "gpudaskclusters" in said] == []


async def test_a_cluster_that_a_job_leaves_behind_goes_on(job: Released):
    """As `kubectl delete --cascade=orphan` wants it; no event has told yet."""
    job.begin_job()
    job.leave_cluster_behind()
    looks = len(job.server.log)
    job.delete_job()
    await becomes(lambda: "GET gpudaskclusters sums" in job.server.log[looks:], bool)
    await job.is_passed()
    assert job.workers() == [f"{WORKER}0"]


@pytest.mark.parametrize("is_told", [True, False])
async def test_it_goes_on_also_where_it_was_to_be_deleted_before(job: Released, is_told: bool):
    """An event tells of it while there is the job, or none does."""
    await job.suspend_in_vain()
    left = job.leave_cluster_behind()
    if is_told:
        job.registry.cluster_changed(left)
        job.edit_job(retries=1)
    else:
        job.delete_job()
    await becomes(job.workers, [f"{WORKER}0"])


async def test_another_job_of_its_name_lets_its_cluster_make_no_workers(job: Released):
    await job.suspend_in_vain()
    body = job.server.objects[JOB]
    job.delete_job()
    await becomes(lambda: job.jobs._running, {})
    job.server.put(JOB, body | {"metadata": body["metadata"] | {"uid": "uid-2"}})
    said = len(job.server.log)
    job.begin_job()
    await becomes(job.is_observed, bool)
    await job.has_no_workers()
    assert f"POST pods {WORKER}0" not in job.server.log[said:]


async def test_a_deleted_jobs_cluster_that_cannot_be_had_is_tried_again(job: Released):
    job.begin_job()
    job.server.fail("GET", "/gpudaskclusters/sums", BROKEN, times=2)
    job.delete_job()
    await becomes(job.workers, [])


async def test_a_cluster_that_was_deleted_is_gone_without_an_event_and_a_late_one_makes_no_workers(job: Released):
    body = job.server.objects[CLUSTER]
    job.server.on_request = lambda said: (
        job.server.objects.pop(CLUSTER) if said.startswith("DELETE gpudaskcl") else None
    )
    job.server.fail("DELETE", "/gpudaskclusters/", Answer(200, {"kind": "Status", "status": "Success"}))
    await job.do(DeleteCluster(own(job)))
    assert job.registry.find("default", "sums") is None
    job.registry.cluster_changed(body)
    await becomes(lambda: job.registry.find("default", "sums"), None)
    assert job.workers() == []


async def test_a_cluster_that_is_gone_is_found_out_while_it_is_held(job: Released, monkeypatch: pytest.MonkeyPatch):
    """Its deletion failed, and no event tells that somebody else has deleted it: a job would wait for it."""
    monkeypatch.setattr(loop, "LOOK_SECONDS", 0.05)
    job.registry.hold("default", "cluster-1", 400.0)
    del job.server.objects[CLUSTER]
    await becomes(lambda: job.registry.find("default", "sums"), None)
