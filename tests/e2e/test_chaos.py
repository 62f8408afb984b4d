"""A short run of chaos. `make chaos` runs it for as long as asked, by any seed."""

from __future__ import annotations

import pytest

from tests.chaos.run import Settings, run
from tests.e2e.platform import Platform

pytestmark = [
    pytest.mark.alone,  # it breaks everything
    pytest.mark.local_cluster("its faults act on the machine's processes and network"),
]

MINUTES = 5.0  # of faults; what comes before and after them takes two or three more
SEED = 1
FAULTS_EACH_MINUTE = 5  # at least: one in twelve seconds


@pytest.mark.timeout(60 * (MINUTES + 9))
def test_nothing_is_wrong_lost_stuck_or_leaked_whatever_breaks(platform: Platform) -> None:
    outcome = run(Settings(MINUTES, SEED), print, platform)
    print("\n".join(outcome.told))
    assert outcome.is_clean, "\n".join([outcome.line, *outcome.findings])
    assert outcome.faults >= FAULTS_EACH_MINUTE * MINUTES, outcome.line
    assert outcome.programs > MINUTES, outcome.line
