"""The loop of the cluster in a simulated operator: it takes the place of `gpudask.reconcile.loop.ClusterLoop`.

Its passes count and write as those of production do, by the same parts, and do nothing else: they plan nothing and make
no pods. It is made by the real registry, which hands it what is known of the status and of pods that have gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from gpudask.api import Json
from gpudask.clients.errors import ApiError
from gpudask.planning.ledger.causes import holders_unplanned
from gpudask.planning.ledger.counting import Ledger, Seen, count
from gpudask.planning.ledger.takeover import Arrival, inherit
from gpudask.planning.observed.clocks import Clocks
from gpudask.planning.observed.pods import Pod
from gpudask.reconcile.context import Context
from gpudask.reconcile.loop_memory import OwnCount, PodEnds
from gpudask.reconcile.resource_copy import ResourceCopy
from gpudask.reconcile.status import StatusWriter
from tests.takeovers.api_server import POOL
from tests.takeovers.timeline import EPOCH, Timeline

_RESYNC_SECONDS = 15.0
_FIRST_PASS_SECONDS = (0.1, 2.0)  # a new leader asks the scheduler first
_WOKEN_SECONDS = 0.2
_RETRY_SECONDS = (0.3, 3.0)
_AGAIN_SECONDS = 0.1  # after a conflict
_LEAST_SECONDS = 0.05

T = TypeVar("T")


@dataclass(frozen=True)
class Surroundings:
    """Where a loop runs. `name`: the operator's. `pods`: its cache, by uid, and `pods_known_at`: up to when it has all.

    `unanswered_at`: as `Clock`'s. `begun`: called with each loop.
    """

    name: str
    timeline: Timeline
    pods: Mapping[str, Pod]
    pods_known_at: Callable[[], float]
    unanswered_at: Callable[[], float]
    begun: Callable[[ClusterLoop], None]


class ClusterLoop:
    """The passes over the cluster, as `reconcile.reconciler` makes them where there is no plan."""

    def __init__(self, context: Context, body: Json, _definitions: object = None) -> None:
        self._context = context
        self._at = cast("Any", context).surroundings
        self._timeline: Timeline = self._at.timeline
        self._copy = ResourceCopy(context, body)
        self._writer = StatusWriter(context, self._copy)
        self._ends = PodEnds(context.clock)
        self.record = _Record()
        self._next_pass = self._soon(_FIRST_PASS_SECONDS)
        self._begins_at = self._next_pass
        self._at.begun(self)

    # What the registry calls.

    def inherit(self, came: Arrival | None, own: OwnCount | None, gone: Iterable[tuple[Pod, float]]) -> None:
        """As the real loop's."""
        self._writer.inherit(came, own)
        known = list(gone)
        for pod, at in known:
            self._ends.note(pod, at)
        seen = "was there before" if came is None else f"came at {self._told(came.at)}, after {self._told(came.after)}"
        is_own = ", and is its own" if self._writer.ledger is not None else ""
        self._note(f"begins: the status {seen}{is_own}; gone: {[(pod.uid, self._told(at)) for pod, at in known]}")

    came_late = False

    def doubt_copy(self, *, ended: bool) -> None:
        """As the real loop's, which has nothing to doubt: the cluster is there all the time."""
        assert not ended, "nobody saw it end"

    @property
    def last_count(self) -> OwnCount | None:
        """As the real loop's."""
        return self._writer.last_count

    def pod_gone(self, pod: Pod) -> None:
        """As the real loop's."""
        self._ends.note(pod, self._context.clock())
        self.wake()

    def resource_changed(self, body: Json) -> None:
        """As the real loop's; our own writes come back here, too."""
        self._copy.update(body)

    def wake(self) -> None:
        """Make a pass soon."""
        self._next_pass = min(self._next_pass, self._soon((0.0, _WOKEN_SECONDS)))

    async def run(self) -> None:
        """Passes are made by `step`, in virtual time."""

    # What the operator calls.

    def step(self) -> None:
        """Make a pass, where it is time."""
        if self._timeline.now < max(self._next_pass, self._begins_at):
            return
        self._next_pass = self._timeline.now + _RESYNC_SECONDS
        soon = self._pass()
        if soon is not None:
            self._next_pass = min(self._next_pass, self._timeline.now + soon)

    def _pass(self) -> float | None:
        """Count, and write what is due; in how many seconds to look again at the latest, None: that says nothing."""
        pods = tuple(self._at.pods.values())
        if self._copy.status_is_newer:
            self._adopt()
        now = self._context.clock()
        joined = [pod.dask_name for pod in pods]
        gone = self._ends.take(pods, self._at.pods.keys())
        seen = Seen(holders_unplanned(pods, joined, {}), now, gone=gone, pools=(POOL,), clocks=self._context.clocks())
        unanswered_at, known_at = self._context.unanswered_at(), self._at.pods_known_at()
        counted = self._count(replace(seen, unanswered_at=unanswered_at, known_at=known_at))
        try:
            soon = finished(self._writer.write_counters(self._copy.cluster(), counted))
        except ApiError as error:
            if error.conflict and self._refreshed():
                return _AGAIN_SECONDS
            return self._timeline.chance.uniform(*_RETRY_SECONDS)
        return None if soon is None else max(_LEAST_SECONDS, soon)

    def _count(self, seen: Seen) -> Ledger:
        writer = self._writer
        if writer.ledger is not None:
            return count(seen, writer.ledger)
        ledger = inherit(seen, writer.status, writer.came)
        self._note(
            f"goes on from {writer.status.counted_at or 'nothing'}: {sum(ledger.of(POOL).seconds.values()):.1f} "
            f"GPU-seconds, surplus {ledger.of(POOL).surplus:.1f}, unseen {ledger.unseen} GPUs; "
            f"hold: {[holder.uid for holder in seen.holders]}; "
            f"gone: {[(each.uid, self._told(each.at), each.is_stamped) for each in seen.gone]}"
        )
        return ledger

    def _refreshed(self) -> bool:
        """Whether the resource could be read anew, after a conflict."""
        try:
            self.resource_changed(finished(self._copy.refresh()))
        except ApiError:
            return False
        self._adopt()
        return True

    def _adopt(self) -> None:
        if self._writer.adopt():
            self._ends.take_back()

    def _soon(self, seconds: tuple[float, float]) -> float:
        return self._timeline.now + self._timeline.chance.uniform(*seconds)

    def _note(self, text: str) -> None:
        self._timeline.note(f"  {self._at.name} {text}")

    def _told(self, at: float) -> float:
        """A time by the operator's clock as the course has it."""
        return round(at - EPOCH, 1)


class _Record:
    """The record of a cluster, which has nothing to do: no cluster ends here."""

    is_closed = False

    def inherit(self, *_of: object) -> None:
        """As the real one's."""

    def pod_gone(self, *_of: object) -> None:
        """As the real one's."""

    async def stop(self) -> None:
        """As the real one's."""

    async def close(self) -> None:
        """As the real one's."""


def a_context(
    surroundings: Surroundings,
    api: object,
    supervisor: object,
    clock: Callable[[], float],
    clocks: Callable[[], Clocks],
) -> Context:
    """What loops and the registry need of a context: the clocks, and the parts that are simulated.

    `clocks`: the others beside `clock`.
    """

    async def record(*_of: object, **_options: object) -> None:
        """No event is recorded."""

    nobody: Collection[Pod] = ()
    found = SimpleNamespace(
        surroundings=surroundings,
        api=api,
        supervisor=supervisor,
        clock=clock,
        clocks=clocks,
        server_ahead=lambda: clocks().server_ahead,
        unanswered_at=surroundings.unanswered_at,
        knows=lambda _namespace: True,
        pods=SimpleNamespace(owned=lambda _key: nobody),
        schema=SimpleNamespace(fit=lambda body: body),
        live_status_limiter=SimpleNamespace(reserve=lambda _namespace, now: now),
        events=SimpleNamespace(record=record),
        recheck_seconds=1.0,
    )
    return cast("Context", found)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that waits for nothing: all that it asks for is there at once."""
    try:
        work.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    raise AssertionError("it waits: nothing here takes time but what the history has wait")
