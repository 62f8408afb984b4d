"""A cluster that nobody uses, or is connected to, is deleted where its spec asks for it, with an event."""

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


async def reasons(stage: Stage) -> set[str]:
    return {item["reason"] for item in await stage.list("events", "events.k8s.io/v1")}


def later(operator: Operator, seconds: float) -> None:
    """Let the operator's clock run ahead."""
    assert operator._context is not None
    clock = operator._context.clock
    operator._context.clock = lambda: clock() + seconds


async def leased(stage: Stage) -> str:
    conditions = (await stage.cluster())["status"]["conditions"]
    return next((f"{each['reason']}: {each['message']}" for each in conditions if each["type"] == "Leased"), "")


async def test_it_is_deleted_once_nothing_was_to_do_for_long_enough(stage: Stage, operator: Operator):
    await stage.apply(a_pool(), idle={"deleteAfter": "10s"})
    scheduler = await stage.scheduler()
    await scheduler.want(1)
    scheduler.unused_seconds = 11.0
    await stays(lambda: gone(stage), wanted=False, seconds=1.0)

    await scheduler.want(0)
    await stage.becomes(lambda: gone(stage), wanted=True, what="the cluster is deleted")

    await eventually(lambda: reasons(stage), lambda found: "IdleTooLong" in found, "an event says why")


async def test_what_came_and_went_at_the_last_moment_keeps_it(stage: Stage, operator: Operator):
    await stage.apply(a_pool(), idle={"deleteAfter": "10s"})
    scheduler = await stage.scheduler()
    scheduler.unused_seconds = 9.5
    await scheduler.say()
    await scheduler.is_heard()
    polls, scheduler.unused_seconds = scheduler.polls, 0.0  # no news, but the answer when it asks before it deletes

    async def asked() -> bool:
        return scheduler.polls > polls

    await stage.becomes(asked, wanted=True, what="the operator asks")
    await stays(lambda: gone(stage), wanted=False, seconds=1.0)


async def test_it_is_told_and_then_deleted_once_no_client_was_seen_for_as_long_as_the_operator_looked(
    stage: Stage, operator: Operator
):
    await stage.apply(a_pool(), idle={"shutdownAfterDisconnect": "2h"})  # of which this test takes little
    scheduler = await stage.scheduler()
    await scheduler.want(0, running=1)  # it computes for nobody
    await eventually(lambda: leased(stage), lambda found: found == "ClientsConnected: clients: 1", "it is kept")

    scheduler.clients = {"connected": 0, "absent_seconds": 36000.0, "ever": True}
    await scheduler.say()
    await stays(lambda: gone(stage), wanted=False, seconds=1.0)  # it was heard for a short while only

    later(operator, 105.0)
    await scheduler.say()
    await eventually(lambda: leased(stage), lambda found: "no client has been connected since" in found, "it is told")
    await eventually(lambda: reasons(stage), lambda found: "NoClient" in found, "before it goes an event says so")

    later(operator, 7200.0)
    await scheduler.say()
    await stage.becomes(lambda: gone(stage), wanted=True, what="the cluster is deleted")
    await eventually(lambda: reasons(stage), lambda found: "DisconnectedTooLong" in found, "an event says why")


async def test_a_client_that_came_at_the_last_moment_keeps_it(stage: Stage, operator: Operator):
    await stage.apply(a_pool(), idle={"shutdownAfterDisconnect": "2m"})
    scheduler = await stage.scheduler()
    scheduler.clients = {"connected": 0, "absent_seconds": 10.0, "ever": True}
    await scheduler.say()
    await scheduler.is_heard()

    scheduler.clients = {"connected": 2, "absent_seconds": 0.0, "ever": True}  # no news, but the answer when it asks
    later(operator, 130.0)
    (pod, *_) = await stage.list("pods")
    await stage.patch("pods", pod["metadata"]["name"], {"metadata": {"labels": {"look": "again"}}})
    await eventually(lambda: leased(stage), lambda found: found == "ClientsConnected: clients: 2", "it has asked")
