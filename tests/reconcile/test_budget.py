"""The scheduler's PodDisruptionBudget: there from the start, repaired, and in nobody's way at rest."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.reconcile.stage import Stage, eventually

pytestmark = pytest.mark.api


async def _budgets(stage: Stage) -> list[dict[str, Any]]:
    return await stage.list("poddisruptionbudgets", "policy/v1")


async def _least(stage: Stage) -> list[int]:
    return [budget["spec"]["minAvailable"] for budget in await _budgets(stage)]


def later(operator: Operator, seconds: float) -> None:
    assert operator._context is not None
    clock = operator._context.clock
    operator._context.clock = lambda: clock() + seconds


async def test_it_guards_the_scheduler_while_it_knows_tasks_and_lets_it_go_at_rest(
    stage: Stage, operator: Operator
) -> None:
    await stage.apply(a_pool(replicas=1))
    await stage.becomes(lambda: _least(stage), [1], "guarded as long as it starts")
    scheduler = await stage.scheduler()
    await scheduler.want(1)
    await eventually(lambda: _said(stage), lambda n: n == 1, "the operator has heard that one waits")
    later(operator, 60)
    await scheduler.say()
    await stage.shows("Ready", "True AllReady")
    assert await _least(stage) == [1]
    await scheduler.want(0)
    await eventually(lambda: _said(stage), lambda n: n == 0, "the operator has heard that nothing waits")
    later(operator, 60)
    await scheduler.say()
    await stage.becomes(lambda: _least(stage), [0], "at rest it may go")
    await scheduler.want(1)
    await stage.becomes(lambda: _least(stage), [1], "guarded again with the first task")


async def test_edited_or_deleted_by_others_it_is_repaired(stage: Stage, operator: Operator) -> None:
    del operator
    await stage.apply(a_pool(replicas=1))
    await stage.becomes(lambda: _least(stage), [1])
    (made,) = await _budgets(stage)
    path = f"/apis/policy/v1/namespaces/{stage.namespace}/poddisruptionbudgets/{made['metadata']['name']}"
    kind = "application/merge-patch+json"
    await stage.api.request("PATCH", path, body={"spec": {"minAvailable": 0}}, content_type=kind)
    await stage.becomes(lambda: _least(stage), [1], "repaired")
    await stage.api.request("DELETE", path)
    await stage.becomes(lambda: _least(stage), [1], "made anew")
    (other,) = await _budgets(stage)
    assert other["metadata"]["uid"] != made["metadata"]["uid"]


async def _said(stage: Stage) -> int:
    row = (await stage.status()).get("pools", [{}])[0]
    return int(row.get("demand", {}).get("waiting", -1))
