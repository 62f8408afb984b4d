"""What the tests on GPUs keep of a run, also of one that was cut off."""

from pathlib import Path

import pytest

from tests.gpu.results import Results


def report(name: str, when: str, outcome: str = "passed", why: object = None) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=f"file.py::{name}",
        location=("file.py", 1, name),
        keywords={},
        outcome=outcome,
        longrepr=why,
        when=when,
        duration=1.0,
    )


def test_a_test_counts_as_passed_only_once_it_has_run(tmp_path: Path):
    results = Results(tmp_path)
    results.add(report("runs", "setup"))
    results.add(report("runs", "call"))
    results.add(report("runs", "teardown"))
    results.add(report("hangs", "setup"))
    assert "did not end    1.0 s  hangs" in (tmp_path / "summary.txt").read_text()
    assert "gpu tests: 1 passed, 1 did not end" in (tmp_path / "summary.txt").read_text()


def test_what_fails_in_its_set_up_its_run_or_its_tear_down_says_where_and_why(tmp_path: Path):
    results = Results(tmp_path)
    for name, when in [("early", "setup"), ("itself", "call"), ("late", "teardown")]:
        for phase in ["setup", "call", "teardown"]:
            fails = phase == when
            results.add(report(name, phase, "failed" if fails else "passed", "it broke" if fails else None))
            if fails and phase == "setup":
                break
    results.add(report("absent", "setup", "skipped", ("file.py", 1, "Skipped: no GPU")))
    rows = (tmp_path / "summary.txt").read_text().splitlines()
    assert [row.split() for row in rows if ":" in row][:4] == [
        ["error", "1.0", "s", "early:", "it", "broke"],
        ["failed", "3.0", "s", "itself:", "it", "broke"],
        ["error", "3.0", "s", "late:", "it", "broke"],
        ["skipped", "1.0", "s", "absent:", "no", "GPU"],
    ]
