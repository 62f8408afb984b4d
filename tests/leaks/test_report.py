"""The report: what is left is told by name, and what was not tried is no success."""

from __future__ import annotations

from typing import Any

from tests.leaks.report import Ended, Report, Seen, report
from tests.leaks.ways import WAYS, Planned

_WAY = {way.name: way for way in WAYS}
_NOTHING = Seen({}, {})


def ended(number: int, way: str = "SIGKILL", **fields: Any) -> Ended:
    planned = Planned(number, _WAY[way], has_gpu=False, has_client=True, pauses=(0.0, 0.0))
    return Ended(planned, ended_at=100.0, **fields)


def cells(result: Report, way: str) -> list[str]:
    (row,) = [line for line in result.table if line.startswith(way + "  ")]
    return row.split()[len(way.split()) :]


def test_a_clean_run():
    seen = Seen({"program-000": 250.0, "program-001": 290.4, "program-002": 95.0}, {})
    result = report([ended(0, left_cluster=True), ended(1, left_cluster=True), ended(2, "exception")], seen)
    assert result.is_clean
    assert result.line == "leaks: programs=3 left=0"
    assert cells(result, "SIGKILL") == ["2", "0", "2", "190", "s", "at", "most"]
    assert cells(result, "exception") == ["1", "0", "0", "0", "s", "at", "most"]
    assert cells(result, "all") == ["3", "0", "2", "190", "s", "at", "most"]


def test_what_is_left_is_named_and_counted():
    seen = Seen({"program-000": 250.0}, {"program-001": ("cluster program-001", "pod program-001-scheduler-abcde")})
    result = report([ended(0), ended(1)], seen)
    assert not result.is_clean
    assert result.line == "leaks: programs=2 left=1"
    assert result.left == ("program-001: cluster program-001, pod program-001-scheduler-abcde",)
    assert cells(result, "SIGKILL")[-2:] == ["1", "stay"]


def test_a_pod_without_a_cluster_of_a_program_is_left_too():
    result = report([ended(0)], Seen({}, {"no cluster": ("pod stray",)}))
    assert not result.is_clean
    assert result.line == "leaks: programs=1 left=1"


def test_a_program_that_had_no_cluster_counts_for_nothing():
    result = report([ended(0), ended(1, "SIGTERM", had_cluster=False, trouble="it ended too soon")], _NOTHING)
    assert result.line == "leaks: programs=1 left=0"
    assert not result.is_clean
    assert result.not_tried == ("program-001: SIGTERM (cpu, a client): it ended too soon",)
    assert cells(result, "SIGTERM") == ["0", "0", "0", "not", "tried"]


def test_one_that_was_killed_at_its_deadline_counts_as_its_way():
    result = report([ended(0, "network cut", is_late=True)], _NOTHING)
    assert result.is_clean
    assert cells(result, "network cut")[:2] == ["1", "1"]


def test_no_program_at_all_is_no_success():
    assert not report([], _NOTHING).is_clean


def test_the_ways_stand_in_their_own_order():
    result = report([ended(0, "network cut"), ended(1, "exception")], _NOTHING)
    assert [line.split("  ")[0] for line in result.table] == ["way", "exception", "network cut", "all"]
