"""What counts as news in a status: forms of it without what moves all the time, by which two are compared."""

from __future__ import annotations

from gpudask.api.status import Status, Summary

# What moves while a cluster works: written at most every few seconds, and never alone a reason to hurry.
_LIVE = {"demand", "start_seconds", "held_seconds", "gpus_busy", "reason", "held", "leaving", "workers"}
# How pods come and go: many of them in a moment are one write.
_PROGRESS = {"pods", "ready", "pending", "retiring", "gpus_held"}
_COUNTERS = {"gpu_seconds_held", "gpu_seconds_used"}


def pressing(status: Status) -> Status:
    """`significant` without how many pods are how far: when this changed, it is written at once."""
    status = significant(status)
    pools = [pool.model_copy(update=dict.fromkeys(_PROGRESS)) for pool in status.pools]
    return status.model_copy(update={"pools": pools, "summary": Summary()})


def significant(status: Status) -> Status:
    """`status` without what is live or grows by itself: when this changed, it is written almost at once."""
    pools = [pool.model_copy(update=dict.fromkeys(_LIVE | _COUNTERS)) for pool in status.pools]
    # A condition's message may count tasks; its status and reason are what changes.
    conditions = [condition.model_copy(update={"message": ""}) for condition in status.conditions]
    scheduler = status.scheduler.model_copy(update={"tasks": 0, "idle_since": ""})
    live = {"pools": pools, "conditions": conditions, "scheduler": scheduler, "counted_at": "", "reason": ""}
    return status.model_copy(update=live)


def lively(status: Status) -> Status:
    """`status` without what grows by itself: when this changed, it is written soon."""
    pools = [pool.model_copy(update=dict.fromkeys(_COUNTERS)) for pool in status.pools]
    return status.model_copy(update={"pools": pools, "counted_at": ""})
