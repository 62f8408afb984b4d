"""Drains that take long: told after a while, and forced where the pool says after how long."""

from __future__ import annotations

from gpudask.api.reasons import Reason
from gpudask.api.status import Status
from gpudask.planning.actions import DeletePod, MarkRetiring
from gpudask.planning.events import events
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Retirement
from gpudask.planning.observed.parser import parse_pod
from gpudask.planning.plan import plan
from gpudask.planning.status import report
from tests.builders import a_pool
from tests.planning.builders import NOW, busy, cluster, demand, pod, scheduler_pod, seen
from tests.planning.sequence import Sequence, edits, restarts, submits, tell

SLOW = {"drainTimeout": "100s"}


def leaving(began: float, *, now: float = NOW, timeout: bool = True) -> Observation:
    """Pod 0 drains since `began`, on a task that does not end; pod 1 stays."""
    of = cluster(a_pool("gpu", gpu={}, replicas=1, **(SLOW if timeout else {})))
    leaves = pod(of, "gpu", 0, retirement=Retirement("set by alice", at=began))
    stays = pod(of, "gpu", 1)
    rows = (busy(leaves, 0, retiring="draining", detail="task train-1"), busy(stays, 0))
    return seen(of, scheduler_pod(of), leaves, stays, says=demand(workers=rows), now=now)


def test_a_drain_is_waited_for_until_its_timeout_and_then_forced() -> None:
    for began, actions in ((NOW - 99, 0), (NOW - 100, 1)):
        assert len(plan(leaving(began)).actions) == actions, began
    (action,) = plan(leaving(NOW - 100)).actions
    assert isinstance(action, DeletePod)
    assert (action.pod.name, action.forced) == ("demo-gpu-worker-0", True)
    assert action.why == "drainTimeout is over: task train-1"


def test_without_a_timeout_it_is_waited_for_for_ever() -> None:
    assert plan(leaving(NOW - 1e6, timeout=False)).actions == ()


def test_the_pass_comes_back_for_it() -> None:
    wake = plan(leaving(NOW - 60)).pools["gpu"].requeue_after
    assert wake == 40
    assert plan(leaving(NOW - 60, timeout=False)).pools["gpu"].requeue_after == 540


def test_one_of_which_nobody_noted_when_it_began_is_timed_from_now_on() -> None:
    (action,) = plan(leaving(0.0)).actions
    assert isinstance(action, MarkRetiring)
    assert action.retirement == Retirement("set by alice")
    assert action.retirement is not None
    assert action.retirement.at == NOW


def test_the_time_travels_in_the_annotation() -> None:
    noted = Retirement("idle", if_idle=True, final=True, at=NOW)
    body = {
        "metadata": {
            "uid": "u",
            "name": "p",
            "namespace": "n",
            "resourceVersion": "1",
            "annotations": {"gpudask.dev/retire": noted.dump()},
        }
    }
    found = parse_pod(body).retirement
    assert found == noted
    assert found is not None
    assert found.at == NOW
    body["metadata"]["annotations"] = {"gpudask.dev/retire": '{"why": "idle", "ifIdle": true, "release": false}'}  # type: ignore[index]
    assert parse_pod(body).retirement == Retirement("idle", if_idle=True), "as an older operator wrote it"


def test_the_status_tells_who_leaves_and_what_it_waits_for_and_a_hung_drain_is_trouble() -> None:
    observation = leaving(NOW - 500, timeout=False)
    status = report(observation, plan(observation), Status())
    words = "demo-gpu-worker-0 since 2027-01-15T07:51:40.000Z (set by alice): task train-1"
    assert status.pools[0].leaving == words
    assert next(c.status for c in status.conditions if c.type == "Degraded") == "False"
    observation = leaving(NOW - 500, now=NOW + 100, timeout=False)
    status = report(observation, plan(observation), status)
    degraded = next(c for c in status.conditions if c.type == "Degraded")
    assert (degraded.reason, degraded.message) == (Reason.DRAIN_HANGS, f"pool gpu: {words}")


def test_a_forced_end_is_announced_once() -> None:
    observation = leaving(NOW - 100)
    before = report(leaving(NOW - 99), plan(leaving(NOW - 99)), Status())
    after = report(observation, plan(observation), before)
    said = [a for a in events(before, after) if a.reason == Reason.DRAIN_FORCED]
    assert [a.message for a in said] == [
        "pool gpu: deleted though not drained: demo-gpu-worker-0-abcde: drainTimeout is over: task train-1"
    ]
    assert events(after, report(observation, plan(observation), after)) == []


def test_a_task_that_never_ends_is_cut_after_the_timeout_and_not_before_also_across_a_restart() -> None:
    two, one = a_pool("gpu", gpu={}, replicas=2, **SLOW), a_pool("gpu", gpu={}, replicas=1, **SLOW)
    world = tell(
        Sequence(
            [a_pool(replicas=1), two],
            [
                (submits(2, 1e6, GPU=1), 5, {"gpu": "0W 1W"}),
                (edits(a_pool(replicas=1), one), 50, {"gpu": "0W 1D"}),
                (restarts, 49, {"gpu": "0W 1D"}),
                (None, 1, {"gpu": "0W 1D"}),
                (None, 1, {"gpu": "0W"}),
            ],
        )
    )
    assert len(world.cut) == 1
