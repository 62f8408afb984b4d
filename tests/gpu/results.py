"""The summary of a run: the machine, the versions, and each test's outcome. Written anew after each test."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.testbed.report import checkout
from tests.gpu.device_files import devices
from tests.kubectl import Kubectl

_PACKAGES = (
    "dask",
    "distributed",
    "dask-cuda",
    "numpy",
    "pandas",
    "numba",
    "numba-cuda",
    "rmm-cu13",
    "distributed-ucxx-cu13",
)
_WHY_LETTERS = 400
_FAMILIES = ("cupy", "cudf", "dask-cudf", "xgboost")  # their names end in CUDA's version


@dataclass
class Outcome:
    """One test's: passed, failed, error, skipped or, in a run that was cut, did not end; seconds in all, and why."""

    outcome: str = "did not end"
    seconds: float = 0.0
    why: str = ""


@dataclass
class Results:
    """A directory with summary.txt, results.json and, of each failed test, what was seen."""

    directory: Path
    machine: str = ""
    began: float = field(default_factory=time.monotonic)
    tests: dict[str, Outcome] = field(default_factory=dict)

    def describe(self, kubectl: Kubectl) -> None:
        """Ask the machine what it is; it stands at the top of the summary."""
        runtime = "{.items[0].status.nodeInfo.containerRuntimeVersion}"
        nodes = kubectl("get", "nodes", "-o", f"jsonpath={{.items[0].status.nodeInfo.kubeletVersion}} {runtime}").stdout
        tree = checkout()
        self.machine = "\n".join(
            [
                f"date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
                f"commit: {tree['checkout'] or 'not known'}{' (edited)' if tree['checkout-edited'] else ''}",
                devices(),
                f"kernel: {platform.release()}, Kubernetes and runtime: {nodes}",
                f"python: {platform.python_version()}, {', '.join(_versions())}",
                "how: real pods under the real Kubernetes, from a bundle",
            ]
        )
        print(f"\n{self.machine}", flush=True)

    def add(self, report: pytest.TestReport) -> None:
        """Take in one phase of one test."""
        test = self.tests.setdefault(report.nodeid, Outcome())
        test.seconds += report.duration
        if report.skipped:
            # What pytest keeps of a skip: file, line, "Skipped: why".
            said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            test.outcome, test.why = "skipped", said.removeprefix("Skipped: ")
        elif report.passed and report.when == "call":
            test.outcome = "passed"
        if report.failed and test.outcome != "failed":
            test.outcome = "failed" if report.when == "call" else "error"
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message if crash is not None else report.longreprtext
            test.why = " ".join(said.split())[:_WHY_LETTERS]
            print(report.longreprtext, flush=True)  # now: who hangs later takes pytest's own report with it
        if report.when == "teardown":
            print(f"  {test.outcome} in {test.seconds:.1f} s, {time.monotonic() - self.began:.0f} s in all", flush=True)
        self._write()

    def note(self, test: str, seen: str) -> None:
        """Keep what was seen when a test failed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        name = "".join(letter if letter.isalnum() else "-" for letter in test)
        (self.directory / f"failed-{name}.txt").write_text(seen)
        print(seen, flush=True)

    def text(self) -> str:
        """The summary, for people."""
        rows = [
            f"{test.outcome:11} {test.seconds:6.1f} s  {name.partition('::')[2]}{f': {test.why}' if test.why else ''}"
            for name, test in self.tests.items()
        ]
        counts = [f"{len(names)} {outcome}" for outcome, names in self._by_outcome().items()]
        last = f"gpu tests: {', '.join(counts)}, {time.monotonic() - self.began:.0f} s"
        return "\n".join([self.machine, "", *rows, "", last, ""])

    def _by_outcome(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, test in self.tests.items():
            found.setdefault(test.outcome, []).append(name)
        return found

    def _write(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "summary.txt").write_text(self.text())
        body = {"machine": self.machine, "tests": {name: vars(test) for name, test in self.tests.items()}}
        (self.directory / "results.json").write_text(json.dumps(body, indent=1))


def _versions() -> Iterator[str]:
    """Name and version of each package that these tests use and that this Python has, which is the pods' too."""
    for package in sorted({*_PACKAGES, *_named_after_cuda()}):
        try:
            yield f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue


def _named_after_cuda() -> set[str]:
    names = {found.metadata["Name"] or "" for found in importlib.metadata.distributions()}
    return {name for name in names if name.startswith(_FAMILIES)}
