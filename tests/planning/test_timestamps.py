"""A stamp of another machine's clock is compared once; from then on its age is our own clock's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.planning.ledger.causes import Gone
from gpudask.planning.observed.pods import Ended, Pod, Retirement
from gpudask.planning.observed.pods import on_operator_clock

T = 1_800_000_000.0


def stamped(**fields: Any) -> Pod:
    return Pod("uid", "demo-cpu-worker-0", "default", "owner", "1", **{"created": T} | fields)


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_at_the_start_an_age_is_by_the_api_servers_time(ahead: float):
    pod = on_operator_clock(stamped(created=T - 90 + ahead, placed=T - 80 + ahead), None, now=T, server_ahead=ahead)
    assert (T - pod.created, T - pod.placed) == (90, 79.5)


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
def test_what_is_news_happened_since_the_last_news(off: float):
    pod = on_operator_clock(stamped(created=T + off), None, now=T, since=T - 2)
    assert T - 2 <= pod.created <= T


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
def test_a_node_whose_clock_is_off_starts_its_containers_now(off: float):
    pending = on_operator_clock(stamped(), None, now=T, since=T - 1)
    running = on_operator_clock(stamped(started=T + 20 + off), pending, now=T + 20, since=T + 19)
    assert T + 19 <= running.started <= T + 20
    ended = Ended("Error", 1, "", at=T + 30 + off)
    assert on_operator_clock(stamped(started=0.0, ended=ended), running, now=T + 30, since=T + 29).ended == replace(
        ended, at=T + (29 if off < 0 else 30)
    )


def test_a_container_starts_after_its_pod_was_made():
    pod = on_operator_clock(stamped(created=T - 60, started=T - 3600), None, now=T)
    assert pod.started == T - 60


def test_a_server_whose_clock_is_set_later_ages_nothing():
    before = on_operator_clock(stamped(placed=T, retirement=Retirement("idle", at=T)), None, now=T)
    later = on_operator_clock(
        stamped(placed=T, retirement=Retirement("idle", at=T)), before, now=T + 5, server_ahead=3600.0
    )
    assert (later.created, later.placed) == (T, T)
    assert later.retirement is not None
    assert later.retirement.at == T


@pytest.mark.parametrize("off", [-3600.0, 0.0, 3600.0])
def test_a_deleted_pod_has_its_grace_from_when_that_was_first_seen(off: float):
    deleted = stamped(delete_by=T + 30 + off, grace_seconds=30.0)
    first = on_operator_clock(deleted, on_operator_clock(stamped(), None, now=T), now=T)
    assert first.delete_by == T + 30
    assert on_operator_clock(deleted, first, now=T + 20).delete_by == T + 30
    shorter = on_operator_clock(replace(deleted, grace_seconds=1.0), first, now=T + 5)
    assert shorter.delete_by == T + 1
    assert on_operator_clock(deleted, None, now=T + 500).delete_by == T + 530  # nobody knows how long it has had


def removed(**of: Any) -> Pod:
    return stamped(**{"placed": T, "delete_by": T + 10, "grace_seconds": 0.0} | of)


def test_a_pod_that_is_deleted_without_any_grace_was_removed_then_however_late_that_is_told():
    there = on_operator_clock(stamped(placed=T), None, now=T)
    assert there.removed_at == 0.0
    assert on_operator_clock(removed(), there, now=T + 10.4, since=T + 9).removed_at == T + 10.4
    late = on_operator_clock(removed(), there, now=T + 60, since=T + 1)
    assert late.removed_at == T + 10.5
    assert on_operator_clock(removed(), late, now=T + 61, since=T + 60, server_ahead=3600.0).removed_at == T + 10.5
    assert on_operator_clock(removed(delete_by=T - 3600), there, now=T + 60, since=T + 30).removed_at >= T - 0.5


@pytest.mark.parametrize("of", [{"grace_seconds": 30.0}, {"finalizers": ("example.com/keep",)}])
def test_a_pod_that_has_grace_left_or_that_somebody_keeps_is_not_removed(of: dict[str, Any]):
    there = on_operator_clock(stamped(placed=T), None, now=T)
    assert on_operator_clock(removed(**of), there, now=T + 60).removed_at == 0.0


def test_a_pod_holds_its_gpus_until_it_was_removed_where_no_kubelet_has_said_that_it_ended():
    gone = Gone.of(stamped(placed=T, removed_at=T + 10.5), T + 60)
    assert (gone.at, gone.is_stamped) == (T + 10.5, True)
    assert Gone.of(stamped(placed=T, removed_at=T + 10.5, finished_at=T + 8.5), T + 60).at == T + 8.5


def test_what_is_not_there_stays_away():
    pod = on_operator_clock(stamped(), None, now=T, server_ahead=3600.0, since=T - 1)
    assert (pod.placed, pod.started, pod.delete_by, pod.ended, pod.retirement) == (0.0, 0.0, 0.0, None, None)


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_a_pod_that_ended_while_no_operator_ran_did_so_when_its_kubelet_says(ahead: float):
    ended = stamped(phase="Failed", created=T - 900 + ahead, placed=T - 800 + ahead, finished_at=T - 600 + ahead)
    assert on_operator_clock(ended, None, now=T, server_ahead=ahead).finished_at == T - 599.5


@pytest.mark.parametrize(("stamp", "believed"), [(T + 3600, T), (T - 3600, T - 79.5), (0.0, T)])
def test_a_pod_ended_after_it_got_its_node_and_not_in_the_future(stamp: float, believed: float):
    ended = stamped(phase="Succeeded", created=T - 90, placed=T - 80, finished_at=stamp)
    assert on_operator_clock(ended, None, now=T).finished_at == believed


@pytest.mark.parametrize(("stamp", "believed"), [(T + 3600, T + 30), (T + 29, T + 30), (T - 3600, T + 29)])
def test_a_pod_that_ends_beside_an_operator_did_so_since_its_last_news(stamp: float, believed: float):
    before = on_operator_clock(stamped(placed=T, phase="Running"), None, now=T)
    ended = stamped(placed=T, phase="Failed", finished_at=stamp)
    seen = on_operator_clock(ended, before, now=T + 30, since=T + 29)
    assert seen.finished_at == believed
    assert on_operator_clock(ended, seen, now=T + 90, since=T + 89).finished_at == believed


def test_a_pod_that_did_not_end_has_no_end():
    assert on_operator_clock(stamped(phase="Running", finished_at=T), None, now=T).finished_at == 0.0


@pytest.mark.parametrize(
    ("now", "since", "believed"),
    [
        (T + 0.7, T - 5, T + 0.7),  # told within the second of its stamp: just now
        (T + 4, T - 5, T + 0.5),  # told late
        (T + 4, T + 0.8, T + 0.8),
        (T + 4, T + 3.9, T + 0.5),  # as was all that was told before: the watch is behind
        (T + 4, 0.0, T + 0.5),  # nothing was told before
        (T + 0.2, 0.0, T + 0.2),
        (T + 60, T + 59, T + 59),  # no watch is so far behind: a clock is wrong
    ],
)
def test_a_stamp_of_whole_seconds_tells_when_a_pod_began_and_ceased_to_hold_its_gpus(
    now: float, since: float, believed: float
):
    """A second of each pod is little of its life, and much of a ledger in which pods come and go."""
    placed = stamped(created=T - 9, placed=T)
    assert on_operator_clock(placed, None, now=now, since=since).placed == believed
    before = on_operator_clock(stamped(created=T - 9, placed=T - 8), None, now=T - 8, since=T - 8)
    ended = stamped(created=T - 9, placed=T - 8, phase="Failed", finished_at=T)
    if since:
        assert on_operator_clock(ended, before, now=now, since=since).finished_at == believed
