"""As many random histories as a minute has room for, and that a seed tells the same one each time."""

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
