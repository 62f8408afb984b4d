"""What a scheduler tells of its tasks is hostile: within bounds or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api.record import MAX_ERRORS, MAX_PREFIXES, MAX_TRACEBACK, PrefixTasks
from gpudask.api.status import iso
from gpudask.history.tasks import added, parse
from gpudask.scaling.demand import UnknownProtocolError
from tests.planning.builders import NOW


def answer(**fields: Any) -> dict[str, Any]:
    return {"protocol": 1, "scheduler_id": "S-1", "tasks": [], "errors": []} | fields


def test_an_honest_answer_is_taken_as_it_is():
    found = parse(
        answer(
            tasks=[{"prefix": "inc", "tasks": 3, "erred": 1, "seconds": 1.25}],
            errors=[{"age_seconds": 10, "key": "inc-1", "exception": "E('x')", "traceback": "a\n  b", "worker": "w"}],
        ),
        NOW,
    )
    assert found.scheduler_id == "S-1"
    assert found.tasks == (PrefixTasks(prefix="inc", tasks=3, erred=1, seconds=1.25),)
    (error,) = found.errors
    assert (error.at, error.key, error.exception) == (iso(NOW - 10, to="seconds"), "inc-1", "E('x')")
    assert (error.traceback, error.worker) == ("a\n  b", "w")


@pytest.mark.parametrize("given_", [None, [], "x", {}, {"protocol": 2}])
def test_another_protocol_is_an_error(given_: Any):
    with pytest.raises(UnknownProtocolError):
        parse(given_, NOW)


def test_a_row_that_is_none_is_left_out_alone():
    rows = [None, 3, {"prefix": ""}, {"prefix": 7}, {"prefix": "a", "tasks": -5, "seconds": float("nan"), "erred": "x"}]
    assert parse(answer(tasks=rows, errors="x"), NOW).tasks == (PrefixTasks(prefix="a"),)


def test_many_and_long_are_cut():
    found = parse(
        answer(
            tasks=[{"prefix": f"p{n}"} for n in range(10_000)],
            errors=[{"traceback": "x\n" * 100_000, "age_seconds": 1e300} for _ in range(1000)],
        ),
        NOW,
    )
    assert (len(found.tasks), len(found.errors)) == (MAX_PREFIXES, MAX_ERRORS)
    assert all(len(error.traceback) <= MAX_TRACEBACK for error in found.errors)


def test_terminal_sequences_are_taken_out_and_lines_stay():
    (error,) = parse(answer(errors=[{"traceback": "one\x1b[31m red\n\ttwo\x07", "key": "a\nb"}]), NOW).errors
    assert error.traceback == "one red\n    two\ufffd"
    assert error.key == "a b"


_VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)
_ROWS = st.lists(
    st.dictionaries(st.sampled_from(["prefix", "tasks", "erred", "seconds", "key", "age_seconds", "traceback"]), _VALUE)
    | _VALUE,
    max_size=5,
)


@given(_ROWS | _VALUE, _ROWS | _VALUE)
def test_whatever_a_scheduler_says_it_is_read(tasks: Any, errors: Any):
    found = parse(answer(tasks=tasks, errors=errors, scheduler_id=tasks), NOW)
    assert len(found.errors) <= MAX_ERRORS


def test_the_prefixes_with_the_most_seconds_are_kept():
    many = [PrefixTasks(prefix=f"p{n}", seconds=float(n)) for n in range(MAX_PREFIXES + 5)]
    kept = added(many, [PrefixTasks(prefix="p0", seconds=1000.0)])
    assert len(kept) == MAX_PREFIXES
    assert kept[0] == PrefixTasks(prefix="p0", seconds=1000.0)
