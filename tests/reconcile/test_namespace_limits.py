"""The clusters of a namespace share its limits: of pods that are there, and of pods created a second."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gpudask.api.limits import Limits
from tests.builders import a_pool
from tests.reconcile.in_memory import Operated, becomes, operated
from tests.reconcile.stage import Stage, operating
from tests.virtual_time import VirtualPolicy


@pytest.fixture
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Back-offs of minutes pass at once; not on a real API server."""
    return asyncio.DefaultEventLoopPolicy() if request.node.get_closest_marker("api") else VirtualPolicy()


async def test_clusters_get_the_pods_of_their_namespaces_limit_and_say_what_refuses_the_others():
    async with operated(limits=Limits(pods_per_namespace=8)) as on:
        on.apply(a_pool("cpu", replicas=4), name="a")
        await becomes(lambda: len(on.pods()), 5)
        on.apply(a_pool("cpu", replicas=10), name="b")
        await becomes(lambda: on.condition("Degraded", "b"), lambda said: "limits.podsPerNamespace" in said)
        assert "QuotaExceeded" in on.condition("Degraded", "b")
        assert "namespace default may have 8 pods together" in on.condition("Degraded", "b")
        assert len(on.pods()) == 8
        assert "limits.podsPerNamespace" not in on.condition("Degraded", "a")


async def test_room_that_comes_is_taken():
    async with operated(limits=Limits(pods_per_namespace=3)) as on:
        on.apply(a_pool("cpu", replicas=5), name="a")
        await becomes(lambda: on.condition("Degraded", "a"), lambda said: "limits.podsPerNamespace" in said)
        on.context.namespace_limits = type(on.context.namespace_limits)(Limits(pods_per_namespace=6), on.context.pods)
        await becomes(lambda: len(on.pods()), 6)
        await becomes(lambda: on.condition("Degraded", "a"), lambda said: "limits.podsPerNamespace" not in said)


async def test_creations_under_way_take_their_room():
    async with operated(limits=Limits(pods_per_namespace=10)) as on:
        on.server.seconds = 0.05
        for name in ("a", "b", "c", "d"):
            on.apply(a_pool("cpu", replicas=10), name=name)
        for name in ("a", "b", "c", "d"):
            await becomes(lambda name=name: on.condition("Degraded", name), lambda said: "podsPerNamespace" in said)
        assert len(on.pods()) == 10


async def test_pods_of_a_namespace_are_created_at_its_rate_and_no_faster():
    async with operated(limits=Limits(creations_per_second=2.0)) as on:
        loop = asyncio.get_running_loop()
        began = loop.time()
        on.apply(a_pool("cpu", replicas=11), name="a")
        on.apply(a_pool("cpu", replicas=11), name="b")
        await becomes(lambda: len(on.pods()), 24)
        assert 11.0 <= loop.time() - began <= 30.0, "2 at once, and 22 by two a second; passes come at their own pace"
        assert "limits" not in on.condition("Degraded", "a")


@pytest.mark.parametrize(("asked", "admitted"), [(1, 1), (3, 3), (7, 3)])
def test_a_batch_is_admitted_as_far_as_the_rate_goes(asked: int, admitted: int):
    limits = Operated(limits=Limits(creations_per_second=3.0)).context.namespace_limits
    with limits.admit("default", asked, 100.0) as admission:
        assert (admission.pods, admission.refusal) == (admitted, None)
        assert admission.not_before == (pytest.approx(100.0 + 1 / 3) if asked > admitted else 0.0)
    with limits.admit("another", asked, 100.0) as admission:
        assert admission.pods == admitted, "each namespace has a rate of its own"


@pytest.mark.api
async def test_a_namespaces_limit_holds_on_an_api_server(stage: Stage) -> None:
    async with operating(replace(stage.settings, limits=Limits(pods_per_namespace=3, creations_per_second=50.0))):
        await stage.apply(a_pool(replicas=5))
        await stage.shows("Degraded", "True QuotaExceeded")
        await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0", "demo-cpu-worker-1"])
