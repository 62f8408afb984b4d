"""What came of the tests of dask-kubernetes, beside what is expected of them: values only."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

EXPECTED = Path(__file__).with_name("expected.toml")
_PODS = "waits for Deployments; schedulers and workers are Pods. With these shown in their place the rest of it passes"
_STALE = "passes: remove its line from expected.toml"
_ENDED = (0, 1)  # pytest's exit status where all tests ran
_TEXT_LENGTH = 160
_NAME_LENGTH = 60


class Outcome(StrEnum):
    """Of a test."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Ran:
    """What pytest says of one test.

    Attributes:
        test: its name, with parameters.
        function: the same without.
        outcome: pytest's word: passed, failed or skipped.
        seconds: how long it took.
        text: the error, or why it was skipped.
        pods_shown: it asked kubectl for Deployments, and was shown Pods.
    """

    test: str
    function: str
    outcome: str
    seconds: float
    text: str
    pods_shown: bool


@dataclass(frozen=True)
class Row:
    """A line of the table. `expected`: it changes nothing about the exit status."""

    test: str
    outcome: Outcome
    seconds: float
    reason: str
    expected: bool = True

    def __str__(self) -> str:
        name = self.test if len(self.test) <= _NAME_LENGTH else f"{self.test[: _NAME_LENGTH - 3]}..."
        outcome = self.outcome if self.expected else f"{self.outcome.upper()}!"
        return f"{outcome:<14}  {self.seconds:6.1f} s  {name:<{_NAME_LENGTH}}  {self.reason}".rstrip()


@dataclass(frozen=True)
class Report:
    """Of all tests. `unknown`: names in `expected.toml` that no test has. `status`: pytest's exit status."""

    rows: tuple[Row, ...]
    unknown: tuple[str, ...]
    status: int

    @property
    def is_as_expected(self) -> bool:
        """Whether pytest came to its end, and no test failed that has to pass."""
        return self.status in _ENDED and bool(self.rows) and all(row.expected for row in self.rows)

    def __str__(self) -> str:
        lines = [str(row) for row in self.rows]
        if self.status not in _ENDED:
            lines.append(f"pytest ended with status {self.status} before all of them ran")
        lines += [f"{name}: no test is called so: remove its line from expected.toml" for name in self.unknown]
        return "\n".join([*lines, self.line])

    @property
    def line(self) -> str:
        """The last line."""
        count = {outcome: sum(row.outcome is outcome for row in self.rows) for outcome in Outcome}
        passed, failed, other = count.values()
        return f"stock: passed={passed} failed={failed} not_applicable={other}"


def read(results: str) -> list[Ran]:
    """The tests that the plugin recorded, a line of JSON each; of one that failed twice, the first failure."""
    found: dict[str, Ran] = {}
    for line in results.splitlines():
        ran = Ran(**json.loads(line))
        if ran.test not in found or found[ran.test].outcome == "passed":
            found[ran.test] = ran
    return list(found.values())


def expectations(text: str) -> dict[str, dict[str, str]]:
    """The sections of `expected.toml`: by a test's function, why it does not pass."""
    return {section: dict(entries) for section, entries in tomllib.loads(text).items()}


def judge(
    tests: Iterable[Ran], expected: Mapping[str, Mapping[str, str]], *, status: int = 0, whole: bool = True
) -> Report:
    """The report.

    Args:
        tests: those that ran.
        expected: the sections of `expected.toml`.
        status: pytest's exit status.
        whole: all tests ran, not a part, so a name that none has is told.
    """
    ran = list(tests)
    known = {test.function for test in ran}
    listed = [name for section in expected.values() for name in section]
    unknown = [name for name in listed if name not in known] if whole else []
    return Report(tuple(_row(test, expected["failed"].get(test.function)) for test in ran), tuple(unknown), status)


def _row(ran: Ran, expected: str | None) -> Row:
    text = " ".join(ran.text.split())[:_TEXT_LENGTH]
    if ran.outcome == "skipped":
        return Row(ran.test, Outcome.NOT_APPLICABLE, ran.seconds, text)
    if ran.outcome == "failed":
        return Row(ran.test, Outcome.FAILED, ran.seconds, expected or text, expected=expected is not None)
    if ran.pods_shown:
        return Row(ran.test, Outcome.FAILED, ran.seconds, _PODS)
    return Row(ran.test, Outcome.PASSED, ran.seconds, _STALE if expected else "")
