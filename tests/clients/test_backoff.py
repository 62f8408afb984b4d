"""Delays double, have jitter, and are as long as the server's Retry-After at least."""

from __future__ import annotations

import random

import pytest

from gpudask.clients.flow_control import Backoff


def test_each_failure_waits_twice_as_long_up_to_the_last():
    backoff = Backoff(1.0, 60.0, random=lambda: 0.5)
    assert [backoff.delay(failures) for failures in (1, 2, 3, 6, 7, 5000)] == [1, 2, 4, 32, 60, 60]


def test_what_failed_together_is_not_tried_again_together():
    backoff = Backoff(1.0, 60.0, random=random.Random(1).random)  # noqa: S311
    delays = [backoff.delay(3) for _ in range(1000)]
    assert 3.0 <= min(delays) < 3.1
    assert 4.9 < max(delays) <= 5.0


@pytest.mark.parametrize(("failures", "asked", "expected"), [(1, 30.0, 30.0), (6, 2.0, 32.0 * 0.75), (1, None, 0.75)])
def test_nothing_is_tried_before_the_server_said(failures: int, asked: float | None, expected: float):
    assert Backoff(1.0, 60.0, random=lambda: 0.0).delay(failures, asked) == expected
