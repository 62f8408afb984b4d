"""What is said of the tests of dask-kubernetes."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.stock_suite.__main__ import SUITES, NoSuiteError, suites
from tests.stock_suite.report import EXPECTED, Outcome, Ran, expectations, judge, read

NOTHING: dict[str, dict[str, str]] = {"failed": {}, "not_applicable": {}}
GOOD = Ran("test_good", "test_good", "passed", 1.0, "", pods_shown=False)
BAD = Ran("test_bad[x]", "test_bad", "failed", 2.0, "assert 1 ==\n 2", pods_shown=False)


def test_tests_that_pass_are_as_expected() -> None:
    report = judge([GOOD], NOTHING)
    assert report.is_as_expected
    assert report.line == "stock: passed=1 failed=0 not_applicable=0"


def test_a_failure_that_nobody_expects_is_told_with_its_error() -> None:
    report = judge([GOOD, BAD], NOTHING)
    assert not report.is_as_expected
    assert report.line == "stock: passed=1 failed=1 not_applicable=0"
    assert "FAILED!" in str(report.rows[1])
    assert "assert 1 == 2" in str(report.rows[1])


def test_an_expected_failure_is_counted_and_has_its_reason() -> None:
    report = judge([BAD], {"failed": {"test_bad": "differs"}, "not_applicable": {}})
    assert report.is_as_expected
    assert report.line == "stock: passed=0 failed=1 not_applicable=0"
    assert str(report.rows[0]).startswith("failed ")
    assert report.rows[0].reason == "differs"


def test_what_was_skipped_is_not_applicable_and_says_why() -> None:
    report = judge([replace(BAD, outcome="skipped", text="wants no operator")], NOTHING)
    assert report.is_as_expected
    assert (report.rows[0].outcome, report.rows[0].reason) == (Outcome.NOT_APPLICABLE, "wants no operator")


def test_who_was_shown_pods_for_deployments_did_not_pass_but_nothing_else_failed() -> None:
    report = judge([replace(GOOD, pods_shown=True), replace(BAD, pods_shown=True)], NOTHING)
    assert [row.outcome for row in report.rows] == [Outcome.FAILED, Outcome.FAILED]
    assert [row.expected for row in report.rows] == [True, False]
    assert "Deployments" in report.rows[0].reason


def test_a_line_of_the_file_that_is_no_longer_true_is_told() -> None:
    report = judge([GOOD], {"failed": {"test_good": "differs"}, "not_applicable": {"test_gone": "own process"}})
    assert report.is_as_expected
    assert "passes: remove its line" in report.rows[0].reason
    assert report.unknown == ("test_gone",)
    assert "test_gone: no test is called so" in str(report)


def test_of_a_part_of_the_tests_no_line_is_missed() -> None:
    assert judge([GOOD], {"failed": {"test_other": "differs"}, "not_applicable": {}}, whole=False).unknown == ()


def test_tests_that_did_not_come_to_their_end_are_not_as_expected() -> None:
    assert judge([GOOD], NOTHING, status=1).is_as_expected
    broken = judge([GOOD], NOTHING, status=3)
    assert not broken.is_as_expected
    assert "pytest ended with status 3" in str(broken)


def test_no_test_at_all_is_not_as_expected() -> None:
    assert not judge([], NOTHING).is_as_expected


def test_a_test_whose_end_fails_has_failed() -> None:
    lines = [json.dumps(asdict(each)) for each in (GOOD, replace(GOOD, outcome="failed", text="namespace"), BAD)]
    assert [(ran.test, ran.outcome) for ran in read("\n".join(lines))] == [
        ("test_good", "failed"),
        ("test_bad[x]", "failed"),
    ]


def test_the_file_names_each_test_once_with_a_reason() -> None:
    sections = expectations(EXPECTED.read_text())
    assert set(sections) == {"not_applicable", "failed"}
    assert not set(sections["failed"]) & set(sections["not_applicable"])
    assert all(reason for section in sections.values() for reason in section.values())


@pytest.mark.parametrize("directory", ["", "elsewhere"])
def test_who_gives_no_checkout_is_told_how_to_get_one(directory: str, tmp_path: Path) -> None:
    with pytest.raises(NoSuiteError, match="pip download dask-kubernetes --no-deps"):
        suites(directory and str(tmp_path / directory))


def test_a_checkout_has_both_suites(tmp_path: Path) -> None:
    for suite in SUITES:
        (tmp_path / suite).mkdir(parents=True)
    assert suites(str(tmp_path)) == [tmp_path / suite for suite in SUITES]
