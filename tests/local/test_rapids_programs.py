"""The programs of RAPIDS users, with pandas and NumPy in the places of cuDF and CuPy; and how they are judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from local.layout import REPOSITORY
from tests.gpu.rapids import Outcome, closing_line, programs, run_program, unlike
from tests.gpu.rates import compared

WANTED = 20


@pytest.mark.dask
@pytest.mark.timeout(600)
def test_every_program_is_right_with_stand_ins(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.gpu.rapids", "--stand-in", "--folder", str(tmp_path)]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=570)
    total = len(programs())
    assert total >= WANTED
    assert ran.stdout.splitlines()[-1] == f"stand-in rapids: programs={total}/{total}", ran.stdout + ran.stderr


def test_the_programs_have_no_tricks() -> None:
    """They are as users write them who have never heard of schedulers without a GPU."""
    for path in programs():
        text = path.read_text()
        assert not [word for word in ("meta=", "enforce_metadata", "annotate", "gpudask", "resources") if word in text]


def test_a_program_that_fails_or_errs_or_lacks_a_module_is_told_and_stops_none(tmp_path: Path) -> None:
    outcomes = []
    for name, text in {
        "raises": "def program():\n    return 1 / 0\ndef expected(pandas):\n    return 0\n",
        "errs": "def program():\n    return [1.0]\ndef expected(pandas):\n    return [2.0]\n",
        "right": "def program():\n    return [1.0]\ndef expected(pandas):\n    return [1.0]\n",
        "lacks": "import cudf\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
        outcomes.append(run_program(tmp_path / f"{name}.py"))
    assert [outcome.state for outcome in outcomes] == ["failed", "wrong", "right", "not run"]
    assert "ZeroDivisionError" in outcomes[0].why
    assert outcomes[3].why == "cudf cannot be imported here"
    assert closing_line(outcomes) == "rapids: programs=1/4"


def test_a_program_that_gives_no_result_is_ended_and_the_next_one_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    waits, right = tmp_path / "waits.py", tmp_path / "right.py"
    waits.write_text("import threading\ndef program():\n    threading.Event().wait()\n")
    right.write_text("def program():\n    return [1.0]\ndef expected(pandas):\n    return [1.0]\n")
    late, next_one = (run_program(path, seconds=0.5) for path in (waits, right))
    assert late.state == "failed"
    assert late.is_late
    assert "no result after 0.5 s" in late.why
    assert "waits.py" in capfd.readouterr().err, "where it waited"
    assert next_one.state == "right"


def test_results_are_compared_by_value() -> None:
    rows = pd.Series([1, 2], index=pd.Index([5, 6], name="key"), name="value")
    assert not unlike(rows.astype("Float64"), rows)
    assert unlike(rows + 1, rows)
    assert unlike(rows.iloc[:1], rows)
    assert unlike(rows.set_axis([5, 7]), rows)
    assert not unlike(np.array([1.0]), np.array([1.0 + 1e-12]))
    assert unlike(np.array([1.0]), np.array([1.1]))
    assert str(Outcome("frames/merge", "wrong", 1.25, "why")) == "wrong       1.2 s  frames/merge: why"


def test_the_rates_of_the_closing_line() -> None:
    here, local = {"merge": 57.0, "shuffle": 30.0}, {"merge": 60.0, "shuffle": 30.0}
    assert compared(here, local) == "merge=57.0GB/s merge_vs_localcuda=0.95x shuffle_vs_localcuda=1.00x"
    assert compared(here, {}) == "merge=57.0GB/s merge_vs_localcuda=n/a shuffle_vs_localcuda=n/a"
    assert compared({}, {}) == "merge=n/a merge_vs_localcuda=n/a shuffle_vs_localcuda=n/a"
