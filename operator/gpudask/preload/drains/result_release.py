"""Release of results together with the worker that holds them: those that Dask can compute again, on demand only.

Dask computes a lost result again as soon as it is lost, while a client holds its future. On a GPU pool that is demand:
the pod that was to leave would be followed by another one at once, which holds the same results. So a released
result becomes an error that says so, and `Client.retry` computes it again.

What has no recipe is never released: data that a client scattered, and what was made of it once that is forgotten.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from distributed.protocol.serialize import Serialized, serialize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distributed.scheduler import Scheduler, TaskState, WorkerState

DEPTH = 10_000  # tasks on the way to one result; beyond them it counts as one without a recipe


class Recipes:
    """Whether results can be computed again. What was walked once is remembered, so it lives for one pass only."""

    def __init__(self) -> None:
        self._good: set[TaskState] = set()

    def has(self, result: TaskState) -> bool:
        """Return whether a result, and all that it needs and that is not in memory, has a recipe.

        What is in memory counts as there: it is moved, or has a recipe itself.
        """
        met = {result}
        stack = [result]
        while stack:
            ts = stack.pop()
            if ts.run_spec is None or ts.has_lost_dependencies or len(met) > DEPTH:
                return False
            gone = [dts for dts in ts.dependencies if not dts.who_has and dts not in met and dts not in self._good]
            met.update(gone)
            stack += gone
        self._good |= met
        return True


class Release:
    """Releases results, and has those computed again that turn out to be needed. One for a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._released: dict[TaskState, None] = {}  # released, and something was computed of them

    def release(self, ws: WorkerState, results: Iterable[TaskState]) -> None:
        """Give up `results`, of which `ws` has the only copies and which have recipes.

        Left to Dask is what it has to compute again at once, because a task waits for it, and what that was computed
        of: that is demand. They go at once, as distributed drops what was on a worker that is removed, which is
        what happens next.
        """
        scheduler = self._scheduler
        stimulus_id = _stimulus()
        error = RuntimeError(
            f"the result was let go with the idle worker {ws.name}, which alone had it: its pool's"
            " heldData.releaseAfter has passed, or the cluster is suspended. Client.retry([future]) computes it again"
        )
        serialized = Serialized(*serialize(error))  # type: ignore[no-untyped-call]
        only = dict.fromkeys(results)
        needed = _needed(only)
        for ts in only:
            if ts in needed:
                continue
            scheduler.transition(ts.key, "released", stimulus_id=stimulus_id)  # it recommends to compute it: not now
            ts.exception_blame = ts
            ts.exception = serialized
            ts.exception_text = str(error)
            scheduler.transitions({ts.key: "erred"}, stimulus_id=stimulus_id)
            if ts.dependents:
                self._released[ts] = None

    def recompute_needed(self) -> None:
        """Compute again what was released and is needed by now: what was computed of it is lost, and somebody wants it.

        distributed computes a lost result again, but not where it takes what that needs for failed.
        """
        if not self._released:
            return
        tasks = self._scheduler.tasks
        self._released = {ts: None for ts in self._released if tasks.get(ts.key) is ts and ts.exception_blame is ts}
        lost = {dts for ts in self._released for dts in ts.dependents if _is_stuck(dts)}
        if not lost:
            return
        stimulus_id = _stimulus()
        roots: dict[Any, Any] = {dts.key: "waiting" for ts in lost for dts in ts.dependencies if dts in self._released}
        for ts in lost:
            if ts.state == "waiting":  # for what has failed: it waits anew, for what is computed
                self._scheduler.transition(ts.key, "released", stimulus_id=stimulus_id)
        self._scheduler.transitions(roots, stimulus_id=stimulus_id)
        again: dict[Any, Any] = {ts.key: "waiting" for ts in lost if ts.state == "released"}
        self._scheduler.transitions(again, stimulus_id=stimulus_id)


def _needed(results: dict[TaskState, None]) -> set[TaskState]:
    """Return those for which a task waits, and all that they have to be computed of again."""
    stack = [ts for ts in results if ts.waiters]
    needed = set(stack)
    while stack:
        for dts in stack.pop().dependencies:
            if dts not in needed and (dts in results or not dts.who_has):
                needed.add(dts)
                stack.append(dts)
    return needed


def _is_stuck(ts: TaskState) -> bool:
    return ts.state in ("released", "waiting") and bool(ts.who_wants or ts.waiters)


def _stimulus() -> str:
    return f"gpudask-release-{time.monotonic()}"
