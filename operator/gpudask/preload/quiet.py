"""Since when the scheduler has had nothing to do. What that means for the cluster is the operator's to decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler


class Quiet:
    """Counts the seconds without a task that is not done, and without any transition of a task.

    It looks when it is asked: what began and ended in between has moved the counter of transitions, and is taken to
    have ended now. So the time may be too short, never too long.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._transitions = -1
        self._since = 0.0

    def seconds(self, now: float, *, works: bool) -> float | None:
        """Return for how many seconds nothing was to be done; None where this distributed counts no transitions.

        `works`: whether there is a task that is not done.
        """
        transitions = getattr(self._scheduler, "transition_counter", None)
        if transitions is None:
            return None
        takes_in = getattr(self._scheduler, "_active_graph_updates", 0) > 0  # a graph that has no tasks yet
        if works or takes_in or transitions != self._transitions:
            self._transitions, self._since = transitions, now
        return now - self._since
