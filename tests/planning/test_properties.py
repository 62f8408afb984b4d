"""What holds in every sequence, not only in those that somebody thought of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudask.planning.actions import CreateScheduler, CreateWorker, DeletePod, MarkRetiring
from gpudask.planning.plan import plan
from tests.planning.builders import cluster, scaled
from tests.planning.world import World

pytestmark = pytest.mark.simulation

NAMES = ("cpu", "gpu")


def pools(cpu: tuple[int, int], gpu: tuple[int, int], version: int) -> list[dict[str, Any]]:
    env = [{"name": "V", "value": str(version)}]
    return [
        scaled("cpu", least=cpu[0], most=sum(cpu) or 1, idle="5s", env=env),
        scaled("gpu", least=gpu[0], most=sum(gpu) or 1, idle="5s", gpu={}, env=env),
    ]


limits = st.tuples(st.integers(0, 2), st.integers(0, 3))
happenings = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 6), st.sampled_from([0, 1]), st.floats(1, 20), st.booleans()),
    st.tuples(st.just("run"), st.integers(1, 12)),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("edit"), limits, limits, st.integers(0, 1), st.booleans()),
    st.tuples(st.just("override"), st.sampled_from(NAMES), st.integers(0, 4)),
    st.tuples(st.just("nodes"), st.integers(0, 3)),
    st.tuples(st.just("silent"), st.booleans()),
    st.tuples(st.just("hold"), st.sampled_from(["", "data", "actor"])),
    st.tuples(st.just("vanish")),
    st.tuples(st.just("fail")),
)
several = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
a_few = settings(several, max_examples=12)


def workers_of(world: World) -> list[str]:
    return sorted(pod.name for pod in world.pods.values() if pod.pool and pod.live)


def happen(world: World, event: tuple[Any, ...]) -> None:  # noqa: C901, PLR0912 - one case a happening
    match event:
        case ("submit", count, gpu, seconds, known):
            world.submit(count, seconds, known=known, **({"GPU": 1} if gpu else {}))
        case ("cancel",):
            world.cancel()
        case ("edit", cpu, gpu, version, suspend):
            world.apply(*pools(cpu, gpu, version), suspend=suspend)
        case ("override", name, replicas):
            spec = world.cluster.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
            spec["overrides"] = [{"pool": name, "replicas": replicas}]
            world.apply(*spec.pop("pools"), **spec)
        case ("nodes", count):
            world.nodes = {"gpu": count}
        case ("silent", silent):
            world.silent = silent
        case ("hold", blocker):
            for name in workers_of(world)[:1]:
                world.held[name] = (blocker,) if blocker else ()
        case ("vanish",):
            for name in workers_of(world)[:1]:
                lost = world.pods.pop(name)
                for task in world.tasks:
                    if task.worker.startswith(lost.dask_name):
                        task.worker = ""
        case ("fail",):
            for name in workers_of(world)[-1:]:
                world.pods[name] = replace(world.pods[name], phase="Failed", started=0.0)
                for task in world.tasks:
                    if task.worker.startswith(world.pods[name].dask_name):
                        task.worker = ""


def check(world: World) -> None:
    """What every plan must keep to, whatever is there."""
    seen = world.observe()
    made = plan(seen)
    spec = seen.cluster.spec
    assert plan(seen) == made, "the same observation gives the same plan"

    names = {pod.name for pod in seen.pods}
    created = [
        action.name if isinstance(action, CreateScheduler) else f"demo-{action.pool}-worker-{action.number}"
        for action in made.actions
        if isinstance(action, CreateScheduler | CreateWorker)
    ]
    assert not names & set(created), "no name that exists is created"
    assert len(set(created)) == len(created), "no name is created twice"

    touched = [action.pod.uid for action in made.actions if isinstance(action, DeletePod | MarkRetiring)]
    assert len(set(touched)) == len(touched), "one word a pass for a pod"

    for action in made.actions:
        if isinstance(action, MarkRetiring) and action.retirement and action.retirement.if_idle:
            own = [worker.own for worker in seen.registered(action.pod)]
            assert own, f"{action.pod.name} is not registered, so nobody knows that it is idle"
            assert not any(own), f"{action.pod.name} is busy"
        if isinstance(action, DeletePod) and action.pod.pool and action.pod.running and not action.pod.finished:
            assert action.pod.retirement is not None, f"{action.pod.name} runs and was never drained"

    for pool in spec.pools:
        planned = made.pools[pool.name]
        if planned.size.set_by != "autoscale":
            continue
        assert pool.autoscale is not None
        assert planned.size.pods >= pool.autoscale.min, "never below the minimum"
        creates = sum(1 for action in planned.actions if isinstance(action, CreateWorker))
        back = sum(1 for action in planned.actions if isinstance(action, MarkRetiring) and action.retirement is None)
        gone = {action.pod.name for action in planned.actions if isinstance(action, DeletePod)}
        staying = sum(
            1 for pod in seen.workers(pool.name) if pod.live and pod.retirement is None and pod.name not in gone
        )
        rolls = len({pod.spec_hash for pod in seen.workers(pool.name) if pod.live} | {world._hash(pool.name)}) > 1
        surge = max(1, planned.size.pods // 4) if rolls else 0
        if creates:
            assert staying + back + creates <= pool.autoscale.max + surge, "never made above the maximum"


@several
@given(limits, limits, st.lists(happenings, max_size=12))
def test_every_plan_keeps_the_rules(cpu: tuple[int, int], gpu: tuple[int, int], events: list[tuple[Any, ...]]):
    world = World(cluster(*pools(cpu, gpu, 0)))
    world.run(4)
    for event in events:
        happen(world, event)
        for _ in range(event[1] if event[0] == "run" else 1):
            check(world)
            world.step()
    check(world)
    assert not world.cut, "no task is cut"


@a_few
@given(limits, limits, st.lists(happenings, max_size=8))
def test_whatever_happened_an_idle_cluster_comes_back_to_its_minimum(
    cpu: tuple[int, int], gpu: tuple[int, int], events: list[tuple[Any, ...]]
):
    world = World(cluster(*pools(cpu, gpu, 0)))
    for event in events:
        happen(world, event)
        world.run(event[1] if event[0] == "run" else 1)
    world.cancel()
    world.held.clear()
    world.silent, world.nodes = False, {}
    world.apply(*pools(cpu, gpu, 1))
    world.run(700)  # the longest back-off after failures included
    assert world.scheduler == "R"
    for name, (least, _) in (("cpu", cpu), ("gpu", gpu)):
        states = [world.letter(pod) for pod in world.pods.values() if pod.pool == name]
        assert states == ["I"] * least, f"{name}: {world.show(name)}"


@several
@given(st.lists(happenings, max_size=10))
def test_a_second_pass_on_the_same_pods_asks_for_nothing_else(events: list[tuple[Any, ...]]):
    world = World(cluster(*pools((1, 2), (0, 3), 0)))
    world.run(4)
    for event in events:
        happen(world, event)
        world.run(event[1] if event[0] == "run" else 1)
        first = plan(world.observe())
        for name, planned in first.pools.items():
            world.memory.record_size(name, planned.size.pods)
        assert plan(world.observe()).actions == first.actions


@several
@given(st.lists(happenings, max_size=8), st.integers(0, 3))
def test_pools_are_independent(events: list[tuple[Any, ...]], nodes: int):
    """What befalls the GPU pool's pods changes nothing of what is done for the CPU pool."""
    world = World(cluster(*pools((1, 2), (0, 3), 0)), nodes={"gpu": nodes})
    world.run(4)
    for event in events:
        happen(world, event)
        world.run(1)
        seen = world.observe()
        without = replace(seen, pods=tuple(pod for pod in seen.pods if pod.pool != "gpu"))
        assert plan(seen).pools["cpu"] == plan(without).pools["cpu"]
