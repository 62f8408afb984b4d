"""docs/worked-example.md: its figures are what the operator says and does at those moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudask.api.status import Status
from gpudask.planning.observed.observation import Observation, PoolMemory
from gpudask.planning.plan import plan
from gpudask.planning.status import report
from gpudask.scaling.demand import Requirement
from tests.planning.builders import NOW, busy, cluster, demand, pod, scheduler_pod, seen, tasks

PAGE = (Path(__file__).parents[2] / "docs" / "worked-example.md").read_text()
BLOCKS = [yaml.safe_load(text.partition("```")[0]) for text in PAGE.split("```yaml\n")[1:]]
OF = cluster(*BLOCKS[0]["pools"])
FIRST = pod(OF, "gpu", 0, created=NOW - 100, placed=NOW - 40)
SECOND = pod(OF, "gpu", 1, created=NOW - 5, running=False, unschedulable="0/3 nodes have nvidia.com/gpu")
LATER = [pod(OF, "gpu", n, created=NOW - 60, running=False, unschedulable="the same") for n in (2, 3, 4)]
ALSO = pod(OF, "gpu", 1, created=NOW - 95, placed=NOW - 33)
SINCE = {FIRST.dask_name: NOW - 10, ALSO.dask_name: NOW - 5}
JOINED = {"joined": SINCE, "first_joined": SINCE, "scheduler_since": NOW - 999}


def moment(*pods: Any, says: Requirement, **fields: Any) -> Observation:
    workers = tuple(busy(one) for one in pods if one.running)
    return seen(OF, scheduler_pod(OF), pod(OF, "cpu"), *pods, says=demand(says, workers=workers), **JOINED | fields)


MOMENTS = [
    moment(says=tasks(40, GPU=1)),
    moment(FIRST, says=tasks(running=40, GPU=1)),
    moment(FIRST, SECOND, says=tasks(running=39, seconds=234.0, GPU=1)),
    moment(FIRST, ALSO, *LATER, says=tasks(running=6, seconds=36.0, GPU=1), memory={"gpu": PoolMemory(size=5)}),
]


@pytest.mark.parametrize(("told", "observation"), list(zip(BLOCKS[1:], MOMENTS, strict=True)))
def test_a_moment(told: dict[str, Any], observation: Observation):
    found = report(observation, plan(observation), Status())
    row = next(pool for pool in found.pools if pool.name == "gpu").model_dump(mode="json", by_alias=True)
    row["demand"] = {key: value for key, value in row["demand"].items() if value is not None}
    assert {key: row[key] for key in told} == told


@pytest.mark.parametrize(("seconds", "pods"), [(80.0, 1), (300.0, 0)])
def test_ahead(seconds: float, pods: int):
    assert f"nextSeconds: {seconds}" in PAGE
    says = Requirement((("GPU", 1.0),), waiting=3, next_seconds=seconds)
    found = plan(moment(says=says, memory={"gpu": PoolMemory(start_seconds=90.0)}))
    assert found.pools["gpu"].size.pods == pods
