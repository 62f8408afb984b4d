"""P2P shuffles: who must stay for one, and what becomes of one whose barrier a worker gives back.

A shuffle has transfers, whose results lie with its participants under no key, then one barrier, then its outputs. When
the barrier is released, distributed ends the shuffle, and with it what was transferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

if TYPE_CHECKING:
    from collections.abc import Collection

    from distributed.scheduler import Scheduler, TaskState, WorkerState

BARRIER = "shuffle-barrier-"  # and the shuffle's id: the key of its barrier (distributed/shuffle/_core.py)


def in_shuffle(scheduler: Scheduler, among: Collection[WorkerState] | None = None) -> set[WorkerState]:
    """Return the workers, of all or `among` these, that a plugin says must stay, and those that have a barrier to run.

    The P2P shuffle's plugin does: it restarts when a participant leaves.
    """
    everyone: list[WorkerState] = []
    staying: set[WorkerState] = set()
    for plugin in list(scheduler.plugins.values()):
        asked = getattr(type(plugin), "valid_workers_downscaling", None)
        if asked is None or asked is SchedulerPlugin.valid_workers_downscaling:
            continue
        everyone = everyone or list(scheduler.workers.values() if among is None else among)
        staying |= set(everyone) - set(plugin.valid_workers_downscaling(scheduler, everyone))
    barriers = (scheduler.tasks.get(f"{BARRIER}{shuffle}") for shuffle in _active(scheduler))
    return staying | {ts.processing_on for ts in barriers if ts is not None and ts.processing_on is not None}


def is_barrier(ts: TaskState) -> bool:
    """Return whether a task is the barrier of a shuffle."""
    return isinstance(ts.key, str) and ts.key.startswith(BARRIER)


def reschedule(scheduler: Scheduler, ts: TaskState, stimulus_id: str) -> None:
    """Place a task anew that its worker gave back. A barrier takes its shuffle along, which begins anew.

    So does distributed when a participant is lost. Otherwise its transfers would count as done, and the barrier would
    find no shuffle.
    """
    ws = ts.processing_on
    shuffle = str(ts.key).removeprefix(BARRIER)
    restart = getattr(scheduler.plugins.get("shuffle"), "_restart_shuffle", None)
    if restart is not None and is_barrier(ts) and shuffle in _active(scheduler):
        restart(shuffle, scheduler, stimulus_id=stimulus_id)
    if ts.processing_on is ws:
        scheduler._reschedule(ts.key, stimulus_id=stimulus_id)  # noqa: SLF001


def _active(scheduler: Scheduler) -> Collection[Any]:
    """Return the ids of the shuffles that run."""
    return getattr(scheduler.plugins.get("shuffle"), "active_shuffles", None) or ()
