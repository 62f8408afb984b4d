"""When pods are guarded against eviction, and how seldom that is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.desired.disruption import DO_NOT_DISRUPT, EVICTION_ANNOTATIONS, SAFE_TO_EVICT
from gpudask.planning.eviction import REST_SECONDS, at_work
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod, Retirement
from gpudask.planning.plan import plan
from gpudask.scaling.demand import Worker
from tests.builders import a_pool
from tests.planning.builders import NOW, busy, cluster, demand, gpu_pool, pod, scheduler_pod, seen, tasks, worker

C = cluster(a_pool(replicas=1), gpu_pool())
GUARDED, FREE = ("true", "false"), ("false", "true")
RESTS = NOW - 1000


def cpu(eviction_annotations: tuple[str, ...] = GUARDED, **fields: Any) -> Pod:
    return pod(C, "cpu", eviction_annotations=eviction_annotations, **fields)


def rests(of: Pod, seconds: float, **fields: Any) -> Worker:
    return worker(of, idle_seconds=seconds, **fields)


def observed(says: Worker | None, of: Pod, *, busy_at: dict[str, float] | None = None, **fields: Any) -> Observation:
    scheduler = scheduler_pod(C, eviction_annotations=FREE)
    said = demand(workers=(says,) if says else ())
    return seen(C, scheduler, of, says=said, busy_at=busy_at or {}, scheduler_since=RESTS, **fields)


def marked(observation: Observation) -> dict[str, dict[str, str]]:
    return {action.pod.pool: action.annotations for action in plan(observation).protections}


def words(marks: tuple[str, str]) -> dict[str, str]:
    return dict(zip(EVICTION_ANNOTATIONS, marks, strict=True))


@pytest.mark.parametrize(
    ("of", "says", "wanted"),
    [
        pytest.param(cpu(FREE), busy(cpu()), GUARDED, id="at work, it is guarded at once"),
        pytest.param(cpu(GUARDED), busy(cpu()), None, id="once is enough"),
        pytest.param(cpu(GUARDED), rests(cpu(), 29), None, id="it has just ended: perhaps more comes"),
        pytest.param(cpu(GUARDED), rests(cpu(), 31), FREE, id="it rests: it may go"),
        pytest.param(cpu(FREE), rests(cpu(), 31), None, id="it said so before"),
        pytest.param(cpu(("", "")), rests(cpu(), 31), FREE, id="made by an operator that did not mark"),
        pytest.param(cpu(FREE), rests(cpu(), 99, blockers=("actor",)), GUARDED, id="an actor would be lost"),
        pytest.param(cpu(FREE), rests(cpu(), 99, blockers=("data",)), GUARDED, id="data with no place would be lost"),
        pytest.param(cpu(FREE), rests(cpu(), 99, held_keys=9), None, id="data that can move is no reason"),
        pytest.param(cpu(FREE), rests(cpu(), 99, blockers=("running",)), None, id="work of another pool is no reason"),
        pytest.param(cpu(GUARDED), None, None, id="it starts: as it was made"),
        pytest.param(cpu(FREE, delete_by=NOW + 9), busy(cpu()), None, id="it ends anyway"),
        pytest.param(cpu(GUARDED, retirement=Retirement("idle")), rests(cpu(), 99), None, id="it leaves anyway"),
    ],
)
def test_a_worker_pod(of: Pod, says: Worker | None, wanted: tuple[str, str] | None):
    assert marked(observed(says, of)).get("cpu") == (words(wanted) if wanted else None)


def test_nothing_is_marked_while_nobody_knows_what_runs():
    assert marked(seen(C, scheduler_pod(C, eviction_annotations=("", "")), cpu(("", "")))) == {}
    deaf = demand(tasks(1), workers=(busy(cpu()),), features={"demand": "a hook is missing"})
    assert marked(seen(C, scheduler_pod(C, eviction_annotations=("", "")), cpu(("", "")), says=deaf)) == {}


@pytest.mark.parametrize(
    ("idle_seconds", "wanted"),
    [
        pytest.param((99, 99, 99, 9), None, id="the last has just ended"),
        pytest.param((9, 99, 99, 99), None, id="the first has just ended"),
        pytest.param((99, 99, 99, 31), FREE, id="all of them rest"),
    ],
)
def test_a_pod_of_four_gpus_rests_when_all_of_them_do(idle_seconds: tuple[float, ...], wanted: tuple[str, str] | None):
    of = cluster(a_pool(replicas=1), gpu_pool(count=4))
    four = pod(of, "gpu", eviction_annotations=GUARDED)
    says = demand(workers=tuple(worker(four, index, idle_seconds=idle) for index, idle in enumerate(idle_seconds)))
    made = plan(seen(of, scheduler_pod(of, eviction_annotations=FREE), four, says=says, scheduler_since=RESTS))
    assert [action.annotations for action in made.protections] == ([words(wanted)] if wanted else [])


@pytest.mark.parametrize(
    ("known", "since", "eviction_annotations", "wanted", "guarded"),
    [
        pytest.param(1, 0.0, FREE, GUARDED, True, id="it knows a task"),
        pytest.param(1, 0.0, GUARDED, None, True, id="it still does"),
        pytest.param(0, NOW - 5, GUARDED, None, None, id="a moment ago it did"),
        pytest.param(0, NOW - 31, GUARDED, FREE, False, id="nothing for a while"),
        pytest.param(0, None, GUARDED, FREE, False, id="nothing since it is known"),
    ],
)
def test_the_scheduler(
    known: int,
    since: float | None,
    eviction_annotations: tuple[str, ...],
    wanted: tuple[str, str] | None,
    guarded: bool | None,
):
    of = scheduler_pod(C, eviction_annotations=eviction_annotations)
    at = {of.uid: since} if since is not None else {}
    made = plan(seen(C, of, says=demand(tasks=known), busy_at=at, scheduler_since=RESTS))
    assert [action.annotations for action in made.protections] == ([words(wanted)] if wanted else [])
    assert made.protects_scheduler is guarded


def test_a_scheduler_that_has_just_started_is_not_called_idle():
    made = plan(seen(C, scheduler_pod(C, eviction_annotations=GUARDED), says=demand(), scheduler_since=NOW - 5))
    assert (made.protects_scheduler, made.protections) == (None, ())


def test_a_pod_that_came_to_rest_is_looked_at_again_when_it_has_rested_enough():
    made = plan(observed(rests(cpu(), 10), cpu()))
    assert made.requeue_after == pytest.approx(REST_SECONDS - 10)


def test_what_a_template_marks_is_left_to_it():
    of = cluster(a_pool(replicas=1, template={"metadata": {"annotations": {DO_NOT_DISRUPT: "true"}}}))
    rested = pod(of, "cpu", eviction_annotations=GUARDED)
    says = demand(workers=(rests(rested, 99),))
    head = scheduler_pod(of, eviction_annotations=FREE)
    (action,) = plan(seen(of, head, rested, says=says, scheduler_since=RESTS)).protections
    assert action.annotations == {SAFE_TO_EVICT: "true"}
    after = replace(rested, eviction_annotations=("true", "true"))
    assert plan(seen(of, head, after, says=says, scheduler_since=RESTS)).protections == ()


def test_a_stream_of_short_tasks_writes_nothing_whenever_one_looks():
    """Between two tasks the worker is idle for a moment; a value scattered to it comes and goes."""
    of = cpu(GUARDED)
    at: dict[str, float] = {}
    for step in range(200):
        now = NOW + step / 5
        says = busy(of) if step % 2 else rests(of, 0.1 if step % 4 else 99, blockers=() if step % 4 else ("data",))
        observation = observed(says, of, busy_at=at, now=now)
        assert marked(observation) == {}, step
        at |= dict.fromkeys(at_work(observation), now)
