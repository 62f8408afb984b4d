"""A new leader creates what is missing first: what an earlier leader applied is applied again one after another."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gpudask.api.resource import parse
from gpudask.reconcile.reconciler import Reconciler
from gpudask.reconcile.loop import Registry
from gpudask.reconcile.drift_repair import DriftRepair
from tests.builders import a_pool
from tests.reconcile.in_memory import Operated, becomes, operated
from tests.virtual_time import VirtualPolicy

CLUSTERS = [f"c{number:02}" for number in range(20)]
POOL = a_pool("cpu", replicas=1)
OBJECTS = "services", "configmaps", "networkpolicies", "poddisruptionbudgets"


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    return VirtualPolicy()


async def lead(on: Operated) -> None:
    """A leader makes all that the clusters need, and ends."""
    for name in CLUSTERS:
        on.apply(POOL, name=name)
    await becomes(lambda: len(on.pods()), 2 * len(CLUSTERS))
    await asyncio.sleep(5)
    await on.stop()
    on.server.log.clear()


def asked(on: Operated, *plurals: str) -> list[str]:
    return [said for said in on.server.log if said.split()[1] in plurals]


def service(on: Operated, name: str) -> tuple[str, dict[str, Any]]:
    return next(
        (path, body) for path, body in on.server.objects.items() if path.endswith(f"/services/{name}-scheduler")
    )


async def test_a_missing_pod_waits_for_nothing_that_is_there():
    async with operated() as before:
        await lead(before)
        await lose_all_workers(before)
        async with operated(before.server) as on:
            on.take_over()
            await becomes(lambda: len(on.pods()), 2 * len(CLUSTERS), seconds=1.0)
            touched = {said.split()[2] for said in asked(on, "services")}
            assert len(touched) < len(CLUSTERS) / 2, "the others were applied by the leader before"


async def lose_all_workers(on: Operated) -> None:
    for path in [path for path in on.server.objects if "/pods/" in path and "-worker-" in path]:
        del on.server.objects[path]


async def test_each_object_is_looked_at_again_in_its_clusters_turn_and_once():
    async with operated() as before:
        await lead(before)
        async with operated(before.server) as on:
            on.take_over()
            await asyncio.sleep(60)
            for plural in OBJECTS:
                assert len(asked(on, plural)) == len(set(asked(on, plural))) >= len(CLUSTERS), plural


async def test_what_somebody_edited_while_nobody_led_is_repaired():
    async with operated() as before:
        await lead(before)
        path, body = service(before, "c19")
        wanted = body["spec"]
        before.server.put(path, body | {"spec": wanted | {"ports": []}})
        async with operated(before.server) as on:
            on.take_over()
            await becomes(lambda: service(on, "c19")[1]["spec"], wanted)


async def test_what_is_edited_before_its_turn_is_repaired_at_once():
    async with operated() as before:
        await lead(before)
        async with operated(before.server) as on:
            on.take_over()
            await asyncio.sleep(0.1)
            path, body = service(on, "c19")
            wanted = body["spec"]
            edited = on.server.put(path, body | {"spec": wanted | {"ports": []}})
            on.context.dependents["Service"].upsert("default", edited)
            await becomes(lambda: service(on, "c19")[1]["spec"], wanted, seconds=1.0)


async def test_a_scheduler_that_has_to_be_made_finds_all_that_it_mounts():
    async with operated() as before:
        await lead(before)
        for path in [p for p in before.server.objects if "/pods/c19-scheduler" in p or "/gpudask-preload-" in p]:
            del before.server.objects[path]
        async with operated(before.server) as on:
            on.take_over()
            await becomes(lambda: [said for said in on.server.log if "POST pods c19-scheduler" in said], bool)
            until = next(n for n, said in enumerate(on.server.log) if "POST pods c19-scheduler" in said)
            first = json.dumps(on.server.log[:until])
            assert "configmaps c19-gpudask-token" in first
            assert "configmaps gpudask-preload-" in first


async def test_a_budget_that_lets_the_scheduler_go_does_so_until_more_is_known():
    async with operated() as before:
        await lead(before)
        cluster = parse(next(body for path, body in before.server.objects.items() if path.endswith("/c00")))
        leader = DriftRepair(before.context)
        await asyncio.gather(*(do() for do in leader.work(cluster, "", protected=False).values()))
        assert not DriftRepair(before.context).work(cluster, "", protected=None)
        assert list(DriftRepair(before.context).work(cluster, "", protected=True)) == [
            "PodDisruptionBudget c00-scheduler"
        ]


async def test_who_lacks_pods_is_looked_at_first_and_the_others_in_turn(monkeypatch: pytest.MonkeyPatch):
    began: list[tuple[str, float]] = []
    make = Reconciler.reconcile

    async def noted(passes: Reconciler) -> float:
        began.append((passes._copy.key, asyncio.get_running_loop().time()))
        return await make(passes)

    async with operated() as before:
        await lead(before)
        for path in [path for path in before.server.objects if "/pods/c19-cpu-worker" in path]:
            del before.server.objects[path]
        async with operated(before.server) as on:
            on.fill_caches()
            registry = Registry()
            for body in on.clusters():
                registry.cluster_changed(body)
            monkeypatch.setattr(Reconciler, "reconcile", noted)
            registry.lead(on.context)
            await becomes(lambda: len({key for key, _ in began}), len(CLUSTERS))
            await registry.stand_by()
    first = dict(reversed(began))
    assert began[0][0] == "default/c19"
    assert max(first.values()) - min(first.values()) > 0.05, "not all at once: what is asked for is answered in between"
