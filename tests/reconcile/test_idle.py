"""A cluster that nobody uses is deleted, where its spec asks for it, with an event; one that is used stays."""

from __future__ import annotations

import pytest

from gpudask.clients.errors import ApiError
from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.reconcile.stage import Stage, eventually, stays

pytestmark = pytest.mark.api


async def gone(stage: Stage) -> bool:
    try:
        await stage.cluster()
    except ApiError as error:
        if error.not_found:
            return True
        raise
    return False


async def test_it_is_deleted_once_nothing_was_to_do_for_long_enough(stage: Stage, operator: Operator):
    await stage.apply(a_pool(), idle={"deleteAfter": "10s"})
    scheduler = await stage.scheduler()
    await scheduler.want(1)
    scheduler.unused_seconds = 11.0
    await stays(lambda: gone(stage), wanted=False, seconds=1.0)

    await scheduler.want(0)
    await stage.becomes(lambda: gone(stage), wanted=True, what="the cluster is deleted")

    async def reasons() -> set[str]:
        return {item["reason"] for item in await stage.list("events", "events.k8s.io/v1")}

    await eventually(reasons, lambda found: "IdleTooLong" in found, "an event says why")


async def test_what_came_and_went_at_the_last_moment_keeps_it(stage: Stage, operator: Operator):
    await stage.apply(a_pool(), idle={"deleteAfter": "10s"})
    scheduler = await stage.scheduler()
    polls, scheduler.unused_seconds = scheduler.polls, 9.5
    await scheduler.say()

    async def polled() -> bool:
        return scheduler.polls > polls

    await stage.becomes(polled, wanted=True, what="the operator heard it, and listens again")
    scheduler.unused_seconds = 0.0  # no news, but the answer when it asks before it deletes
    await stays(lambda: gone(stage), wanted=False, seconds=2.0)
