"""How many pods a demand asks for."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from gpudask.api.pool import Autoscale
from gpudask.scaling.assignment import Share
from gpudask.scaling.sizing import Pods, wanted, worth_waiting_for

LIMITS = Autoscale(min=0, max=10)  # targetDuration 30 s


@pytest.mark.parametrize(
    ("share", "ready", "pods"),
    [
        (Share(), 0, 0),
        (Share(unrunnable=1, pods=1, pods_unknown=1), 0, 1),
        (Share(unrunnable=100, pods=100, pods_unknown=100), 0, 1),
        (Share(unrunnable=100, pods=100, pods_unknown=100), 1, 2),
        (Share(unrunnable=100, pods=100, pods_unknown=100), 4, 8),
        (Share(unrunnable=100, pods=100, pods_unknown=100), 8, 10),
        (Share(unrunnable=100, pods=100, pod_seconds=90), 0, 3),
        (Share(unrunnable=2, pods=2, pod_seconds=9000), 0, 2),  # two tasks fill two pods, however long
        (Share(unrunnable=1, pods=0.1, pod_seconds=0.001), 0, 1),
        (Share(processing=1, pods=0.1), 5, 1),  # work that runs keeps a pod
        (Share(unrunnable=8, pods=8, pods_unknown=4, pod_seconds=60), 1, 4),  # two for the known, two by doubling
    ],
)
def test_wanted(share: Share, ready: int, pods: int):
    assert wanted(LIMITS, share, Pods(ready, ready, ready))[0] == pods


@pytest.mark.parametrize(
    ("ready", "tried", "pods"), [(0, 0, 1), (1, 0, 1), (1, 1, 2), (2, 1, 3), (2, 2, 4), (4, 0, 4), (4, 4, 8)]
)
def test_unknown_durations_double_the_pods_that_had_time_to_tell(ready: int, tried: int, pods: int):
    assert wanted(LIMITS, Share(100, 0, 100, 100), Pods(ready, tried, ready))[0] == pods


shares = st.builds(
    Share, st.just(1), st.just(1), pods=st.floats(0, 1e4), pods_unknown=st.floats(0, 1e4), pod_seconds=st.floats(0, 1e6)
)


@given(st.integers(0, 5), st.integers(1, 50), shares, st.integers(0, 100))
def test_the_limits_hold(least: int, more: int, share: Share, ready: int):
    count, reason = wanted(Autoscale(min=least, max=least + more), share, Pods(ready, ready, ready))
    assert least <= count <= least + more
    assert reason


@given(st.floats(0, 100), st.floats(0, 100), st.integers(0, 50))
def test_more_work_never_asks_for_fewer_pods(work: float, more: float, ready: int):
    def pods(amount: float) -> int:
        return wanted(LIMITS, Share(1, 0, amount, amount, 0.0), Pods(ready, ready, ready))[0]

    assert pods(work) <= pods(work + more)


@pytest.mark.parametrize(
    ("seconds", "placed", "start", "pods", "worth"),
    [
        (300, 0, 100, 10, 10),  # nothing is there: all for the target
        (300, 2, 100, 4, 7),  # 200 s are done before the next one has started
        (300, 2, 0, 10, 10),  # nobody knows how long a start takes
        (300, 4, 100, 4, 4),  # nothing is left for more
        (90, 4, 100, 3, 3),  # three would do
        (500, 4, 100, 4, 10),
    ],
)
def test_work_that_is_done_before_a_pod_starts_is_no_reason_to_start_one(
    seconds: float, placed: int, start: float, pods: int, worth: int
):
    share = Share(unrunnable=50, pods=50, pod_seconds=seconds)
    there = Pods(placed, placed, placed, start)
    assert (wanted(LIMITS, share, there)[0], worth_waiting_for(LIMITS, share, there)) == (pods, worth)


@pytest.mark.parametrize(
    ("seconds", "placed", "held", "pods"),
    [
        (360, 0, 20, 12),  # the target is longer than the start
        (360, 0, 90, 4),  # each pod works for as long as it pulls its image
        (360, 4, 90, 4),
        (360, 8, 90, 8),  # those that are there have done so already
        (60, 0, 600, 1),
    ],
)
def test_a_pod_is_started_for_no_less_work_than_its_start_holds_its_gpu(
    seconds: float, placed: int, held: float, pods: int
):
    share = Share(unrunnable=50, pods=50, pod_seconds=seconds)
    limits = Autoscale(min=0, max=20)
    assert wanted(limits, share, Pods(placed, placed, placed, held_seconds=held))[0] == pods


there = st.builds(
    Pods, st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.floats(0, 600), st.floats(0, 600)
)


@given(shares, there)
def test_what_was_just_ordered_is_worth_waiting_for(share: Share, pods: Pods):
    """Else it would be ordered and cancelled by turns."""
    assert worth_waiting_for(LIMITS, share, pods) >= wanted(LIMITS, share, pods)[0]
