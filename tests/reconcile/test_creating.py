"""Pods are created in growing batches, some hundreds a pass, and every cluster's first pods come first."""

from __future__ import annotations

from gpudask.api import Json


import pytest

from gpudask.planning.actions import CreateWorker, PoolPlan
from gpudask.planning.plan import CREATIONS_AT_MOST, limit_creations
from gpudask.scaling.sizing import Size
from tests.builders import a_pool
from tests.clients.fake_api_server import refusal
from tests.reconcile.in_memory import becomes, operated
from tests.virtual_time import VirtualPolicy

QUOTA = refusal(403, "exceeded quota: few, requested: pods=1", "Forbidden")


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Back-offs of minutes pass at once."""
    return VirtualPolicy()


def plans(**pods: int) -> dict[str, PoolPlan]:
    return {
        name: PoolPlan(Size(count, "", "replicas"), tuple(CreateWorker(name, n) for n in range(count)), missing=count)
        for name, count in pods.items()
    }


@pytest.mark.parametrize(
    ("wanted", "at_most", "expected"),
    [
        ({"cpu": 5, "gpu": 1}, 10, {"cpu": 5, "gpu": 1}),
        ({"cpu": 5000, "gpu": 1}, 10, {"cpu": 9, "gpu": 1}),
        ({"cpu": 5000, "gpu": 5000}, 10, {"cpu": 5, "gpu": 5}),
        ({"cpu": 5000, "himem": 2, "gpu": 5000}, 10, {"cpu": 4, "himem": 2, "gpu": 4}),
        ({"cpu": 3, "gpu": 0}, 2, {"cpu": 2, "gpu": 0}),
    ],
)
def test_a_pass_creates_so_many_and_small_wishes_are_whole(
    wanted: dict[str, int], at_most: int, expected: dict[str, int]
):
    found = limit_creations(plans(**wanted), at_most)
    assert {name: len(pool.actions) for name, pool in found.items()} == expected
    assert [pool.actions for pool in found.values()] == [
        tuple(CreateWorker(name, n) for n in range(count)) for name, count in expected.items()
    ], "the lowest numbers first"
    assert {name: pool.missing for name, pool in found.items()} == wanted, "the status counts all"


async def test_what_one_pass_does_not_create_the_next_does_at_once():
    async with operated() as on:
        on.apply(a_pool("cpu", replicas=2 * CREATIONS_AT_MOST + 7))
        await becomes(lambda: len(on.pods()), 2 * CREATIONS_AT_MOST + 7 + 1)


@pytest.mark.parametrize(("refused", "asked"), [(0, 1), (1, 3), (2, 3), (3, 7), (20, 31)])
async def test_a_batch_starts_slowly_and_stops_where_one_is_refused(refused: int, asked: int):
    async with operated() as on:
        fault = on.server.fail("POST", "/pods", QUOTA, name=f"demo-cpu-worker-{refused}")
        on.apply(a_pool("cpu", replicas=100))
        await becomes(lambda: on.condition("Degraded"), lambda said: "QuotaExceeded" in said)
        created = [said for said in on.server.log if said.startswith("POST pods demo-cpu")]
        assert len(created) == asked
        assert fault.met >= 1


async def test_batches_double_while_they_succeed():
    under_way = [0]
    async with operated(deadline_seconds=5.0) as on:
        on.server.seconds = 0.01
        create = on.server.create

        async def counted(body: Json, **rest: bool) -> Json:
            if "worker" not in body["metadata"]["name"]:
                return await create(body, **rest)
            under_way.append(under_way[-1] + 1)
            try:
                return await create(body, **rest)
            finally:
                under_way.append(under_way[-1] - 1)

        on.server.create = counted  # type: ignore[method-assign]
        on.apply(a_pool("cpu", replicas=15))
        await becomes(lambda: len(on.pods()), 16)
    peaks = [b for a, b, c in zip(under_way, under_way[1:], under_way[2:], strict=False) if a < b > c]
    assert peaks == [1, 2, 4, 8]


async def test_a_cluster_that_wants_5000_pods_does_not_hold_back_anothers_first():
    async with operated() as on:
        on.server.seconds = 0.002
        on.apply(a_pool("cpu", replicas=5000), name="a")
        await becomes(lambda: len(on.pods()), lambda count: count > 50)
        before = len(on.server.log)
        on.apply(a_pool("gpu", gpu={}, replicas=1), name="b")
        await becomes(on.pods, lambda pods: "b-gpu-worker-0" in pods)
        mine = [place for place, said in enumerate(on.server.log[before:]) if said.split()[2].startswith("b-gpu")]
        theirs = [said for said in on.server.log[before : before + mine[0]] if said.startswith("POST pods a-")]
        assert len(theirs) <= 100, "some for each of B's own requests before it: its Services, Secret and scheduler"
        assert len(on.pods()) < 5000
