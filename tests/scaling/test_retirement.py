"""Who leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpudask.scaling.retirement import Candidate, idle, in_turn, pending, releases, surplus

candidates = st.lists(
    st.builds(
        Candidate,
        pod=st.uuids().map(str),
        number=st.integers(0, 20),
        pending=st.booleans(),
        idle_seconds=st.floats(0, 1000),
        busy=st.booleans(),
        held_bytes=st.integers(0, 100),
        blockers=st.lists(st.sampled_from(["running", "actor", "shuffle", "data"]), unique=True).map(tuple),
    ),
    max_size=8,
)


def names(found: list[Candidate]) -> list[str]:
    return [candidate.pod for candidate in found]


def test_pending_pods_go_first_then_who_was_idle_longest_then_least_data_then_the_highest_number():
    pods = [
        Candidate("busy", 9, busy=True),
        Candidate("full", 3, idle_seconds=50, held_bytes=10),
        Candidate("low", 1, idle_seconds=50),
        Candidate("high", 2, idle_seconds=50),
        Candidate("long", 0, idle_seconds=60),
        Candidate("pending", 0, pending=True, busy=True),
    ]
    assert names(surplus(pods, 9)) == ["pending", "long", "high", "low", "full", "busy"]
    assert names(surplus(pods, 2)) == ["pending", "long"]
    assert surplus(pods, -1) == []


def test_of_pods_idle_equally_long_those_go_whose_node_is_emptied_soonest():
    pods = [
        Candidate("a0", 0, idle_seconds=61, node="a", neighbours=3),
        Candidate("b1", 1, idle_seconds=62, node="b", neighbours=2),
        Candidate("c2", 2, idle_seconds=63, node="c", neighbours=2),
        Candidate("b3", 3, idle_seconds=64, node="b", neighbours=2),
        Candidate("d4", 4, idle_seconds=60, node="d", neighbours=1, held_bytes=1),
        Candidate("long", 5, idle_seconds=90, node="a", neighbours=9),
    ]
    assert names(surplus(pods, 9)) == ["long", "b3", "b1", "c2", "a0", "d4"]


def test_idle_pods_leave_after_the_timeout_and_pending_ones_are_another_policy():
    pods = [
        Candidate("short", 0, idle_seconds=29),
        Candidate("long", 1, idle_seconds=30),
        Candidate("pending", 2, pending=True, busy=True),
    ]
    assert names(idle(pods, 9, timeout_seconds=30, release_after_seconds=None)) == ["long"]
    assert names(pending(pods, 9)) == ["pending"]
    assert pending(pods, 0) == []


def test_the_last_with_data_waits_for_the_others_to_hand_it_theirs():
    much, some = Candidate("much", 0, held_bytes=9), Candidate("some", 1, held_bytes=1)
    assert names(in_turn([much, some], of=2, others_leave=False)) == ["some"]
    assert names(in_turn([much], of=1, others_leave=True)) == []
    assert names(in_turn([much], of=1, others_leave=False)) == ["much"]
    assert names(in_turn([much, some], of=3, others_leave=False)) == ["much", "some"], "a third one stays to take it"
    empty = [Candidate("a", 0), Candidate("b", 1)]
    assert in_turn(empty, of=2, others_leave=False) == empty
    assert in_turn([Candidate("a", 0)], of=1, others_leave=True) == [], "what the others hold may be on its way to it"
    assert in_turn([], of=0, others_leave=True) == []


def test_held_data_is_let_go_in_time_and_nothing_else_is():
    data = Candidate("data", 0, idle_seconds=90, blockers=("data",))
    actor = Candidate("both", 1, idle_seconds=90, blockers=("actor", "data"))
    assert not releases(data, None)
    assert not releases(data, 91)
    assert releases(data, 90)
    assert names(idle([data, actor], 9, timeout_seconds=30, release_after_seconds=90)) == ["data"]


@given(candidates, st.integers(0, 8), st.floats(0, 500))
def test_an_idle_retirement_takes_no_busy_pod_and_none_that_something_holds(
    pods: list[Candidate], count: int, timeout: float
):
    chosen = idle(pods, count, timeout_seconds=timeout, release_after_seconds=None)
    assert len(chosen) <= count
    assert all(not c.pending and not c.busy and not c.blockers and c.idle_seconds >= timeout for c in chosen)
