"""Faults as they are inflicted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from tests.chaos import run
from tests.chaos.plan import plan
from tests.chaos.run import Faults
from tests.chaos.target import Target


def test_no_fault_begins_while_a_program_has_its_quiet(monkeypatch: pytest.MonkeyPatch):
    begun = threading.Event()

    @contextmanager
    def fault(_target: Target, _pick: float) -> Iterator[str]:
        begun.set()
        yield "somebody"

    one = plan(1, 60.0)[:1]
    monkeypatch.setattr(run, "FAULTS", {one[0].kind.name: fault})
    target = Target(platform=cast("Any", None), namespace="", proxy=cast("Any", None))
    faults = Faults(target, lambda _: None)
    began = time.monotonic() - one[0].at  # it is due
    inflicting = threading.Thread(target=faults.inflict, args=(one, began, one[0].at), daemon=True)

    with target.calm():
        inflicting.start()
        assert not begun.wait(1.5)

    assert begun.wait(120)
    target.ending.set()
    inflicting.join(120)
    assert faults.join(120) == []
    assert faults.done.total() == 1
