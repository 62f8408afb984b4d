"""When a pod is started for tasks that still wait for their inputs, and how long it is kept for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.scaling.assignment import UNKNOWN_START_SECONDS
from gpudask.scaling.sizing import is_soon


@pytest.mark.parametrize(
    ("next_seconds", "start_seconds", "pods", "soon"),
    [
        (None, 100.0, 0, False),  # nobody knows
        (0.0, 100.0, 0, True),
        (105.0, 100.0, 0, True),  # a little before it is needed
        (106.0, 100.0, 0, False),
        (65.0, None, 0, True),  # no start was seen: a minute
        (66.0, None, 0, False),
        (215.0, 100.0, 1, True),  # a pod that was ordered stays
        (216.0, 100.0, 1, False),
        (75.0, 3.0, 1, True),  # though its start turned out to be short
    ],
)
def test_soon(next_seconds: float | None, start_seconds: float | None, pods: int, soon: bool):
    assert is_soon(next_seconds, start_seconds, pods=pods) is soon


starts = st.none() | st.floats(0, 600)


@given(st.floats(0, 2000), starts, st.floats(0.75, 1.25))
def test_what_was_ordered_on_an_estimate_a_quarter_too_low_stays_on_one_a_quarter_too_high(
    next_seconds: float, start_seconds: float | None, error: float
):
    if is_soon(0.75 * next_seconds, start_seconds, pods=0):
        assert is_soon(error * next_seconds, start_seconds, pods=1)


@given(st.floats(0, 2000), st.none() | st.floats(0, UNKNOWN_START_SECONDS), st.floats(0, 600))
def test_it_stays_when_its_own_start_was_shorter_or_longer_than_was_thought(
    next_seconds: float, thought: float | None, learned: float
):
    """Thought of a pool's first pod: nothing, or what one like it took elsewhere, which counts up to a minute."""
    if is_soon(next_seconds, thought, pods=0):
        assert is_soon(next_seconds, learned, pods=1)
