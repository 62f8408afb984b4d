"""The preload's tests under the oldest and the newest release of distributed that an image may have.

Scheduler, workers and client all have it. The tests beside this file run on the images' release.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.releases.environment import NEWEST, OLDEST, PRELOAD, RAN_ELSEWHERE, Environment

HERE = Path(__file__)
RELEASES = (OLDEST, NEWEST)


@pytest.fixture(scope="module")
def runs():
    """Begin all at once: each waits most of the time, and they would take twice as long one after the other."""
    with ThreadPoolExecutor(len(RELEASES)) as pool:
        yield {release: pool.submit(run_tests, release) for release in RELEASES}


@pytest.mark.timeout(1600)  # 781 s were measured beside other tests
@pytest.mark.parametrize("release", RELEASES)
def test_the_preload_passes_its_tests_under_another_release(runs: dict[str, Future[str]], release, record_property):
    said = runs[release].result()

    assert f"\ndistributed {release}\n" in said, said
    record_property(RAN_ELSEWHERE, summary(said))


def run_tests(release: str) -> str:
    # What the tests' other folders share needs packages that no image has.
    return Environment.ensure(release, PRELOAD).test(
        str(HERE.parent), f"--confcutdir={HERE.parent}", f"--ignore={HERE}"
    )


def summary(said: str) -> str:
    """Return how many tests passed, and which were skipped and why."""
    *lines, last = said.splitlines()
    return "; ".join([last.strip("= "), *(line for line in lines if line.startswith("SKIPPED"))])
