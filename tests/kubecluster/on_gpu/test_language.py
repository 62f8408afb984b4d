"""Cells and scripts run as the program's own Python: nothing of how the runner is written changes what they mean."""

from __future__ import annotations

from typing import Any

from gpudask.kubecluster.on_gpu import cells, remote

ANNOTATED = "def f(x: int): pass\nassert f.__annotations__ == {'x': int}, f.__annotations__\n"


def test_a_script_has_its_own_annotations():
    assert remote.run_script(ANNOTATED, "train.py", []) == 0


def test_a_cell_has_its_own_annotations():
    names: dict[str, Any] = {"__name__": "__main__"}
    assert cells.execute(ANNOTATED, "<cell>", names) == {}
    assert cells.execute("(lambda x: x)(names := f)", "<cell>", names)["shown"]["text/plain"].startswith("<function f")
