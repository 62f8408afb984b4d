"""Fallback, told as sequences: what is seen, and whether the tasks fall back then."""

from __future__ import annotations

import pytest

from gpudask.scaling.fallback import falls_back

# (seconds waited, tasks, workers ready) -> falls back; `after` is 60 s
SEQUENCES = {
    "waits, falls back, returns when a worker is ready": [
        ((0, 5, 0), False),
        ((59.9, 5, 0), False),
        ((60, 5, 0), True),
        ((0, 5, 0), True),  # they run elsewhere: none waits, and that is no reason to return
        ((0, 5, 1), False),
        ((10, 5, 1), False),
    ],
    "returns when the tasks are gone, and waits anew": [
        ((60, 1, 0), True),
        ((0, 0, 0), False),
        ((5, 1, 0), False),
        ((60, 1, 0), True),
    ],
    "does not begin beside a worker, however long tasks wait": [((3600, 100, 1), False)],
    "begins again when the last worker is lost": [((0, 5, 1), False), ((30, 5, 0), False), ((61, 5, 0), True)],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(name: str) -> None:
    active = False
    for (waited, tasks, ready), expected in SEQUENCES[name]:
        active = falls_back(active=active, after_seconds=60, waited_seconds=waited, tasks=tasks, ready=ready)
        assert active is expected, (waited, tasks, ready)
