"""As many random histories as a minute has room for, and that a seed tells the same one each time.

Sixteen faults were found by reading before there were histories. With the code from before they were mended, histories
found these, each within some thousand seeds:

- an undone drain forgot the questions that were not answered yet
- a task was stolen towards an offer that was taken back meanwhile
- a task pinned to a leaving worker was recalled, and `drained` said over it
- `data: release` lost scattered data
- idle time grew while a graph was taken in
- rebalancing and stealing killed workers with `GPU: 0`
- an annotation that is no number took the demand route down
- a lost answer left an offer lent for ever
- stealing brought loose plain tasks to fenced workers, and loose GPU tasks to workers without
- a loose task never ran on the first worker that joined
- an announced pod stayed closed when its container started anew
- questions kept workers and tasks that were gone

What costs time is found by tests with these names, as is each of the above, in `tests/preload/test_nothing_is_lost.py`:
`a_task_is_asked_for_once_and_few_at_a_time`, `results_that_take_longer_to_pickle...`, `drains_that_are_done...`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 60


def soak(*args):
    """Run histories in a process of their own: they replace the clocks."""
    path = os.pathsep.join([str(ROOT / "operator"), str(ROOT)])
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    command = [sys.executable, "-m", "tests.histories", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)


def test_random_histories_keep_every_promise():
    done = soak("--seconds", SECONDS)
    last = done.stdout.splitlines()[-1] if done.stdout else ""
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    counts = dict(re.findall(r"(\w+)=(\d+)", last))
    assert int(counts.pop("histories")) >= 50, last
    assert int(counts.pop("events")) > 0, last
    assert set(counts.values()) == {"0"}, last


@pytest.mark.parametrize("seed", [4, 40])
def test_a_seed_is_one_history_event_for_event(seed):
    alone = soak("--seed", seed, "--replay", "--no-shorten").stdout
    after_others = soak("--seed", seed - 3, "--histories", 4, "--digests", "--no-shorten").stdout
    digest = re.search(rf"^seed {seed}: .*", alone, re.MULTILINE)
    assert digest is not None, alone
    assert digest.group() in after_others
