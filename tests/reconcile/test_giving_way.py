"""A cluster that makes many pods gives way to the others between each two of them."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
from types import SimpleNamespace
from typing import Any

from gpudask.api.limits import Limits
from gpudask.planning.actions import CreateWorker
from gpudask.reconcile import executor as under_test
from gpudask.reconcile.executor import Executor
from gpudask.reconcile.loop_memory import Memory
from gpudask.reconcile.namespace_limits import NamespaceLimits
from tests.builders import a_cluster, a_pool

COUNT = 40


class Api:
    """Takes whatever is created, at once."""

    async def create(self, body: Json, **_: Any) -> Json:
        return body


async def test_others_get_a_turn_between_two_pods(monkeypatch: Any):
    turn, turns = 0, []
    original = under_test.worker_pod

    def rendering(*arguments: Any) -> Json:
        turns.append(turn)
        return original(*arguments)

    async def another_cluster() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(under_test, "worker_pod", rendering)
    context: Any = SimpleNamespace(
        api=Api(), clock=lambda: 0.0, nonce=lambda: "abcde", pods=SimpleNamespace(upsert=lambda *_: True)
    )
    context.namespace_limits = NamespaceLimits(Limits(), context.pods)
    other = asyncio.create_task(another_cluster())
    try:
        executor = Executor(context, Memory())
        actions = tuple(CreateWorker("cpu", number) for number in range(COUNT))
        (work,) = executor.work(a_cluster(a_pool()), actions).values()
        await work()
    finally:
        other.cancel()
    assert len(turns) == COUNT
    assert len(set(turns)) == COUNT, "no two pods in one turn"
