"""What of a scheduler's words needs a look at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudask.scaling.demand import Demand, Listener, Requirement, Worker, is_urgent

GPU = (("GPU", 1.0),)
WORKER = Worker("w-0", address="tcp://a:1")
BEFORE = Demand("s/1", "s", requirements=(Requirement(GPU, unrunnable=20, processing=5),), workers=(WORKER,))


def requirement(**fields: int) -> Demand:
    return replace(BEFORE, requirements=(replace(BEFORE.requirements[0], **fields),))


def worker(**fields: object) -> Demand:
    return replace(BEFORE, workers=(replace(WORKER, **fields),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "urgent"),
    [
        (BEFORE, False),
        (requirement(processing=30), False),
        (requirement(processing=31), True),
        (requirement(unrunnable=22), False),
        (requirement(unrunnable=23), True),
        (requirement(unrunnable=0), False),
        (replace(BEFORE, requirements=()), True),
        (replace(BEFORE, requirements=(*BEFORE.requirements, Requirement((), waiting=3))), False),
        (replace(BEFORE, requirements=(*BEFORE.requirements, Requirement((), processing=3))), True),
        (replace(BEFORE, tasks=3), True),
        (replace(BEFORE, requirements=(*BEFORE.requirements, Requirement((), unrunnable=1))), True),
        (worker(processing=3, own=3, idle_seconds=0.0, held_bytes=9, tasks_done=7, blockers=("running",)), False),
        (worker(status="paused"), True),
        (worker(retiring="drained"), True),
        (worker(sick="3 tasks in a row failed"), True),
        (worker(address="tcp://b:1"), True),
        (replace(BEFORE, workers=()), True),
        (replace(BEFORE, scheduler_id="t"), True),
        (replace(BEFORE, features={"retire": "off"}), True),
        (replace(BEFORE, listeners={"ucxx": Listener(8788)}), True),
    ],
)
def test_is_urgent(now: Demand, urgent: bool):
    assert is_urgent(BEFORE, now) is urgent
