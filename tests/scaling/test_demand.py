"""The scheduler's answer as values; what is not understood is not acted on."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.scaling.demand import UnknownProtocolError, parse

ANSWER: dict[str, Any] = {
    "protocol": 1,
    "version": "S-1/17",
    "scheduler_id": "S-1",
    "desired_version": "5f2c",
    "features": {"demand": "", "fence": ""},
    "tasks": 21,
    "demand": [
        {
            "resources": {"MEMORY": 5, "GPU": 1.0},
            "waiting": 1,
            "unrunnable": 3,
            "processing": 2,
            "seconds": 5.2,
            "unknown": 1,
            "since_seconds": 0.8,
        }
    ],
    "workers": [
        {
            "name": "demo-gpu-worker-0-1f3a9-0",
            "address": "tcp://x",
            "pool": "gpu",
            "status": "running",
            "nthreads": 1,
            "resources": {"GPU": 1.0},
            "processing": 1,
            "own": 1,
            "idle_seconds": 0.0,
            "blockers": ["running"],
            "held_keys": 3,
            "held_bytes": 8,
            "retiring": "",
            "detail": "",
        }
    ],
}


def test_the_documented_answer_is_read():
    demand = parse(ANSWER)
    assert demand.requirements[0].resources == (("GPU", 1.0), ("MEMORY", 5.0))
    assert demand.requirements[0].active == 5
    assert [worker.name for worker in demand.workers_of("demo-gpu-worker-0-1f3a9")] == ["demo-gpu-worker-0-1f3a9-0"]


def test_fields_that_a_newer_preload_adds_are_ignored():
    assert parse(ANSWER | {"more": 1}).tasks == 21


@pytest.mark.parametrize("protocol", [0, 2, "1", None])
def test_another_protocol_is_refused_with_what_to_do(protocol: object):
    with pytest.raises(UnknownProtocolError, match="restart the scheduler pod"):
        parse(ANSWER | {"protocol": protocol})


@pytest.mark.parametrize(
    "field", ["version", "scheduler_id", "desired_version", "tasks", "demand", "workers", "features"]
)
def test_a_missing_field_is_refused(field: str):
    with pytest.raises(UnknownProtocolError, match=field):
        parse({key: value for key, value in ANSWER.items() if key != field})
