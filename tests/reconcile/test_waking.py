"""A loop looks at once at what is urgent, and a moment later at counts that moved."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.reconcile import loop as under_test
from gpudask.reconcile.loop import ClusterLoop
from tests.builders import a_manifest, a_pool
from tests.planning.builders import stored


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> ClusterLoop:
    monkeypatch.setattr(under_test, "_COUNTS_SECONDS", 0.05)
    context: Any = SimpleNamespace(clock=lambda: 1000.0)
    return ClusterLoop(context, stored(a_manifest(a_pool())))


async def test_counts_wait_a_moment_and_many_of_them_wake_once(loop: ClusterLoop):
    for _ in range(5):
        loop._heard(urgent=False)
    assert not loop._wake.is_set()
    await asyncio.wait_for(loop._wake.wait(), 5)
    assert loop._soon is None, "a second timer waits"


async def test_what_is_urgent_wakes_at_once_and_takes_the_counts_along(loop: ClusterLoop):
    loop._heard(urgent=False)
    loop._heard(urgent=True)
    assert loop._wake.is_set()
    assert loop._soon is None
