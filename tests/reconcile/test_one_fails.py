"""One kind of object fails, hangs or is refused: it is retried and reported, and nothing else is slower for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpudask.api.reasons import Reason
from gpudask.clients.errors import ApiError
from gpudask.planning.actions import MarkProtected
from gpudask.reconcile.retries import Kind, Retries
from gpudask.reconcile.supervisor import Supervisor
from tests.builders import a_pool
from tests.clients.fake_api_server import Fault, refusal
from tests.reconcile.in_memory import Operated, becomes, operated
from tests.virtual_time import VirtualPolicy

DEAD = refusal(500, 'failed calling webhook "w.example": connection refused', "InternalError")
DENIED = refusal(400, 'admission webhook "w.example" denied the request: no', "BadRequest")
POLICY = refusal(422, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "Invalid")
TYPO = refusal(400, 'strict decoding error: unknown field "spec.x"', "BadRequest")

POOLS = a_pool("cpu", replicas=2), a_pool("gpu", gpu={}, replicas=1), a_pool("idle", replicas=0)
GPU_POD = "demo-gpu-worker-0"

# of all requests of a method: the end of the path, and the name of the object
OTHERS = {
    "Services": ("PATCH", "/services/", ""),
    "the NetworkPolicy": ("PATCH", "/networkpolicies/", ""),
    "the budget": ("PATCH", "/poddisruptionbudgets/", ""),
    "the status": ("PATCH", "/status", ""),
    "pods of another pool": ("POST", "/pods", "cpu"),
    "dry runs of another pool": ("POST", "/pods", "idle"),
    "events": ("POST", "/events", ""),
}


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Back-offs of minutes pass at once."""
    return VirtualPolicy()


def fail(on: Operated, what: str, answer: Any = None, **rest: Any) -> Fault:
    method, path, name = OTHERS[what]
    return on.server.fail(method, path, answer, name=name, **rest)


def has_gpu_pod(pods: list[str]) -> bool:
    return GPU_POD in pods


@pytest.mark.parametrize("answer", [DEAD, DENIED], ids=["dead", "denied"])
@pytest.mark.parametrize("what", OTHERS)
async def test_what_fails_does_not_slow_a_gpu_pod(what: str, answer: Any):
    async with operated(random=lambda: 0.5) as on:
        fault = fail(on, what, answer)
        on.apply(*POOLS)
        await becomes(on.pods, has_gpu_pod)
        once = what == "events" or (what.startswith("dry runs") and answer is DENIED)  # no reason to try it again
        await becomes(lambda: fault.met, lambda met: met >= (1 if once else 3))
        on.lose(GPU_POD)
        assert await becomes(on.pods, has_gpu_pod) < 0.5


@pytest.mark.parametrize("what", OTHERS)
async def test_what_hangs_does_not_slow_a_gpu_pod(what: str):
    async with operated() as on:
        never = asyncio.Event()
        fault = fail(on, what, until=never)
        on.apply(*POOLS)
        await becomes(lambda: fault.met, lambda met: met >= 1)
        await becomes(on.pods, has_gpu_pod, seconds=2)
        on.lose(GPU_POD)
        assert await becomes(on.pods, has_gpu_pod) < 0.5
        never.set()


async def test_workers_wait_with_a_scheduler_that_has_no_configmap_to_mount():
    async with operated(random=lambda: 0.5) as on:
        fault = on.server.fail("POST", "/configmaps", DENIED)
        on.apply(*POOLS)
        await becomes(lambda: fault.met, lambda met: met >= 3)
        assert on.pods() == [], "they would hold GPUs for nobody"
        on.server.mend()
        await becomes(on.pods, has_gpu_pod)
        posts = [said for said in on.server.log if said.startswith("POST pods ") and "demo-idle" not in said]
        assert posts[0].startswith("POST pods demo-scheduler-"), "it is made first; a dry run is no pod"


async def test_who_stops_waits_until_nothing_is_under_way_that_could_still_write():
    ended = asyncio.Event()

    async def piece() -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)  # as a connection that is closed
            ended.set()
        return False

    retries = Retries("a/b", lambda: 0.0, lambda: None, lambda: 0.5, Supervisor(), deadline_seconds=0.01)
    await retries.run(Kind.OBJECTS, {"a Service": piece})
    assert retries.is_running(Kind.OBJECTS)
    await retries.stop()
    assert ended.is_set()


async def test_each_failure_of_a_piece_counts_by_its_reason():
    told: list[Reason] = []

    async def denied() -> bool:
        raise ApiError(403, "Forbidden", "no", "PATCH x")

    async def broken() -> bool:
        raise RuntimeError("a defect")

    retries = Retries("a/b", lambda: 0.0, lambda: None, lambda: 0.5, Supervisor(), on_failure=told.append)
    await retries.run(Kind.OBJECTS, {"one": denied, "another": broken})
    assert sorted(told) == [Reason.FORBIDDEN, Reason.OPERATOR_FAILED]


async def test_a_condition_names_what_fails_and_since_when_until_it_is_mended():
    async with operated() as on:
        fail(on, "Services", DENIED)
        on.apply(*POOLS)
        await becomes(lambda: on.condition("Degraded"), lambda said: said.startswith("True Forbidden"))
        said = on.condition("Degraded")
        assert "Service demo-scheduler: PATCH" in said
        assert "denied the request: no; since 20" in said
        assert ", next try at 20" in said
        on.server.mend()
        await becomes(lambda: on.condition("Degraded"), "False Healthy: ")
        assert "demo-scheduler" in on.server.names("services")


async def test_what_merely_fails_is_told_when_it_lasts():
    now = [1_800_000_000.0]
    async with operated(clock=lambda: now[0]) as on:
        fail(on, "Services", DEAD)
        on.apply(*POOLS)
        await becomes(lambda: on.condition("Degraded"), "False Healthy: ")
        now[0] += 6.0
        on.lose(GPU_POD)  # an event
        await becomes(lambda: on.condition("Degraded"), lambda said: said.startswith("True ApiServerFailed"))


@pytest.mark.parametrize("answer", [DENIED, POLICY, TYPO], ids=["webhook", "policy", "template"])
async def test_a_denial_of_pods_that_is_mended_needs_no_edit(answer: Any):
    async with operated(random=lambda: 0.0) as on:
        fault = on.server.fail("POST", "/pods", answer, name="gpu")
        on.apply(*POOLS)
        kind = "Accepted" if answer is TYPO else "Degraded"
        await becomes(lambda: on.condition(kind), lambda said: answer.body["message"] in said)
        await becomes(lambda: fault.met, lambda met: met >= 2)
        on.server.mend()
        await becomes(on.pods, has_gpu_pod)
        await becomes(lambda: on.condition(kind), "True Valid: " if answer is TYPO else "False Healthy: ")


async def test_a_template_that_is_refused_in_a_dry_run_is_tried_again():
    async with operated(random=lambda: 0.0) as on:
        fault = on.server.fail("POST", "/pods", TYPO, name="idle")
        on.apply(*POOLS)
        await becomes(lambda: on.condition("Accepted"), lambda said: "pool idle: " in said)
        await becomes(lambda: fault.met, lambda met: met >= 2)
        on.server.mend()
        await becomes(lambda: on.condition("Accepted"), "True Valid: ")


async def test_an_annotation_that_a_webhook_denies_makes_no_hot_loop():
    async with operated() as on:
        on.apply(a_pool("cpu", replicas=1))
        await becomes(on.pods, lambda pods: "demo-cpu-worker-0" in pods)
        fault = on.server.fail("PATCH", "/pods/", refusal(422, "admission webhook denied the request", "Invalid"))
        loop = on.loop()
        cluster = loop._copy.cluster()
        (pod,) = [pod for pod in on.seen() if pod.pool]
        for _ in range(20):
            work = loop._reconciler._executor.work(cluster, (MarkProtected(pod, {"a": "b"}),))
            await loop._reconciler._retries.run(Kind.DELETION, work)
        assert fault.met == 1


async def test_the_server_says_when_to_come_again():
    now = [1_800_000_000.0]
    async with operated(clock=lambda: now[0]) as on:
        fault = fail(on, "Services", refusal(429, "too many requests", "TooManyRequests", **{"Retry-After": "30"}))
        on.apply(*POOLS)
        await becomes(on.pods, has_gpu_pod)
        services = fault.met
        for _ in range(29):
            now[0] += 1.0
            on.loop().wake()
            await asyncio.sleep(0.01)
        assert fault.met == services
        now[0] += 10.0
        on.loop().wake()
        await becomes(lambda: fault.met, lambda met: met > services)


async def test_a_quiet_cluster_makes_no_requests_and_no_passes():
    async with operated() as on:
        on.apply(*POOLS)
        await becomes(lambda: on.condition("SchedulerReady"), lambda said: "starting" in said)
        await asyncio.sleep(1.5)
        asked = len(on.server.log)
        await asyncio.sleep(1.0)
        assert len(on.server.log) == asked
