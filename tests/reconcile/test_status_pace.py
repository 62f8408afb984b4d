"""When a status is written: conditions at once, how far pods are after a second, live figures after five."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.api.status import Condition, PoolStatus, Status
from gpudask.reconcile.status import StatusWriter
from gpudask.reconcile.served_schema import ServedSchema
from gpudask.clients.flow_control import FairRateLimiter, RateLimiter
from tests.planning.builders import NOW, cluster, seen
from tests.builders import a_pool

C = cluster(a_pool(replicas=4))


def status(*, ready: int = 0, busy: int = 0, conclusion: str = "False") -> Status:
    row = PoolStatus(name="cpu", desired=4, pods=4, ready=ready, gpus_busy=busy)
    what = Condition(
        type="Ready",
        status=conclusion,
        reason="AllReady",
        observed_generation=1,
        last_transition_time="2026-01-01T00:00:00Z",
    )
    return Status(pools=[row], conditions=[what])


class Written:
    """A reporter that has just written `status()`, and what it writes after that."""

    def __init__(self) -> None:
        self.statuses: list[dict[str, Any]] = []
        self.limiter = FairRateLimiter(0.5)
        context: Any = SimpleNamespace(api=self, events=self, live_status_limiter=self.limiter, schema=ServedSchema())
        body = {"metadata": {}, "status": status().model_dump(mode="json", by_alias=True, exclude_none=True)}
        copy: Any = SimpleNamespace(body=body, version="1", status_written=lambda _: None)
        self.reporter = StatusWriter(context, copy)
        self.reporter._written_at = NOW

    async def write_status(self, *_: Any, status: dict[str, Any], **__: Any) -> None:
        self.statuses.append(status)

    async def record(self, *_: Any, **__: Any) -> None:
        """Events are another test's."""

    async def after(self, seconds: float, new: Status) -> tuple[float | None, int]:
        """In how long to come back, and how many writes there were, `seconds` after the last write."""
        wait = await self.reporter.write(C, seen(C, now=NOW + seconds), new)
        return (None if wait is None else round(wait, 3)), len(self.statuses)


@pytest.mark.parametrize(
    ("new", "seconds", "expected"),
    [
        (status(), 9.0, (None, 0)),
        (status(conclusion="True"), 0.1, (None, 1)),
        (status(ready=1), 0.1, (0.9, 0)),
        (status(ready=1), 1.0, (None, 1)),
        (status(ready=1, busy=1), 1.0, (None, 1)),
        (status(busy=1), 1.0, (4.0, 0)),
        (status(busy=1), 5.0, (None, 1)),
    ],
)
async def test_what_is_new_decides_when_it_is_written(new: Status, seconds: float, expected: tuple[float | None, int]):
    assert await Written().after(seconds, new) == expected


async def test_live_figures_of_many_clusters_take_turns_and_what_presses_does_not():
    ours = Written()
    for _ in range(2):
        ours.limiter.reserve("default", NOW + 5)  # other clusters', each for two seconds

    assert await ours.after(5, status(busy=1)) == (4.0, 0)
    assert await ours.after(6, status(busy=2)) == (3.0, 0), "the turn that it has is kept"
    assert await ours.after(6.5, status(ready=1, busy=2)) == (None, 1)
    assert await ours.after(9, status(ready=1, busy=3)) == (2.5, 1), "five seconds after the last write"
    assert await ours.after(11.5, status(ready=1, busy=3)) == (None, 2), "nobody else's turn"


def test_turns_are_evenly_spread_and_none_is_saved_up():
    limiter = RateLimiter(4.0)
    assert [limiter.reserve(10.0) for _ in range(3)] == [10.0, 10.25, 10.5]
    assert limiter.reserve(10.6) == 10.75
    assert [limiter.reserve(20.0), limiter.reserve(20.0)] == [20.0, 20.25]
