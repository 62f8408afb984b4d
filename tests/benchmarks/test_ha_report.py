"""The table and the last line of `make bench-ha`."""

from __future__ import annotations

import json
import re

from benchmarks.ha import __main__ as command
from benchmarks.ha.replica import Memory
from benchmarks.ha.__main__ import Results
from benchmarks.ha.takeover import KILLED, NEITHER, STOPPED, Rest, Takeover

RESULTS = Results(
    takeovers=tuple(
        Takeover(how, held=at, acts=at + 0.25, gap=at + 0.5, standby=Memory(100.0 + at, 80.0))
        for how, times in ((KILLED, (9.0, 10.0, 14.0)), (STOPPED, (0.1, 0.2, 0.3)), (NEITHER, (0.0, 0.0, 0.0)))
        for at in times
    ),
    rest=Rest(60.0, {"patch gpudaskclusters/status": 6}, {}, 120, 200),
    lease_seconds=15,
)


def test_the_last_line_has_medians():
    assert command.last_line(RESULTS) == (
        "ha: takeover_killed=10.25s takeover_stopped=0.45s scale_gap=10.50s standby_memory=100MB"
    )


def test_the_table_has_how_often_and_how_far_apart():
    rows = {row.split("|")[1].strip(): row for row in command.table(RESULTS).splitlines()}
    assert "| 3 | 9.25 s | 10.25 s | 14.25 s | <= 10 s | NO |" in rows["killed: until the other acts"]
    assert "| 3 | 0.35 s | 0.45 s | 0.55 s | <= 1 s | yes |" in rows["stopped: until the other acts"]
    assert "| 9 | 100 MB | 100 MB | 114 MB | < 130 MB | yes |" in rows["the standby's resident memory"]
    assert {len(re.findall(r"\|", row)) for row in rows.values()} == {8}


def test_the_notes_name_what_was_asked_for_at_rest_and_the_lease():
    notes = command.notes(RESULTS)
    assert "the leader 0.10 a second {'patch gpudaskclusters/status': 6}, the standby 0.00 a second;" in notes
    assert "for the Lease 2.0 a second of both; 200 long polls" in notes
    assert "holds for 15 s" in notes


def test_all_figures_can_be_kept():
    assert json.loads(json.dumps(command.kept(RESULTS)))["takeovers"][0]["standby"]["resident"] == 109.0
