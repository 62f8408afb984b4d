"""All tasks that the operator runs beside its passes are started by the supervisor."""

from __future__ import annotations

import re
from pathlib import Path

import gpudask.reconcile

PACKAGE = Path(gpudask.reconcile.__file__).parent.parent
_BEGINS = re.compile(r"create_task|ensure_future|TaskGroup|run_in_executor|\.Thread\(")


def test_only_the_supervisor_begins_tasks():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for room in ("reconcile", "mirror", "handlers", "clients")
        for path in (PACKAGE / room).rglob("*.py")
        if _BEGINS.search(path.read_text())
    }
    # The election's own tasks catch whatever happens, and end with it: it is supervised as a whole.
    # So does what serves stock objects: a group of tasks that ends as a whole.
    # And a takeover awaits its question to an old scheduler, failures included: it only does not wait for it too long.
    assert found == {
        "reconcile/supervisor.py",
        "reconcile/election.py",
        "mirror/serving.py",
        "mirror/takeover.py",
    }
