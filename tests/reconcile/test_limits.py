"""What the administrators do not allow is refused in `Accepted`, and what runs is left as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudask.api.limits import Limits
from tests.builders import a_pool
from tests.reconcile.stage import Stage, operating

pytestmark = pytest.mark.api

NODE_PORT = {"service": {"type": "NodePort"}}


async def test_a_cluster_beyond_the_limits_is_not_made_until_it_is_within(stage: Stage) -> None:
    async with operating(replace(stage.settings, limits=Limits(service_types=("ClusterIP",)))):
        await stage.apply(a_pool(replicas=1), scheduler=NODE_PORT)
        said = "False LimitExceeded: spec.scheduler.service.type: NodePort is not allowed here: write ClusterIP"
        await stage.shows("Accepted", said)
        await stage.shows("Ready", "False LimitExceeded")
        assert await stage.list("services") == []
        assert await stage.names() == []
        await stage.apply(a_pool(replicas=1), scheduler={"service": {"type": "ClusterIP"}})
        await stage.shows("Accepted", "True Valid")
        await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0"])


async def test_what_runs_when_a_limit_comes_stays_as_it_is(stage: Stage) -> None:
    async with operating(stage.settings):
        await stage.apply(a_pool(replicas=2))
        await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0", "demo-cpu-worker-1"])
    async with operating(replace(stage.settings, limits=Limits(pods_per_cluster=1))):
        await stage.shows("Accepted", "False LimitExceeded: spec.pools: they may grow to 2 pods together")
        assert await stage.names(pool="cpu") == ["demo-cpu-worker-0", "demo-cpu-worker-1"]
