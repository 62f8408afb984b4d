"""Fallback, told as sequences: what is seen, and whether the tasks fall back then."""

from __future__ import annotations

import pytest

from gpudask.scaling.assignment import falls_back

# (seconds waited, tasks for which no worker is ready) -> falls back; `after` is 60 s
SEQUENCES = {
    "waits, falls back, returns when a worker is ready": [
        ((0, 5), False),
        ((59.9, 5), False),
        ((60, 5), True),
        ((0, 5), True),  # they run elsewhere: none waits, and that is no reason to return
        ((0, 0), False),
        ((0, 0), False),
    ],
    "returns when the tasks are gone, and waits anew": [
        ((60, 1), True),
        ((0, 0), False),
        ((5, 1), False),
        ((60, 1), True),
    ],
    "does not begin beside a worker": [((3600, 0), False)],
    "begins again when the last worker is lost": [((0, 0), False), ((30, 5), False), ((61, 5), True)],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(name: str) -> None:
    active = False
    for (waited, tasks), expected in SEQUENCES[name]:
        active = falls_back(active=active, after_seconds=60, waited_seconds=waited, tasks=tasks)
        assert active is expected, (waited, tasks)
