"""A process is gone when the kernel no longer lists it: the dead stay listed until their parent collects them."""

from __future__ import annotations

import subprocess
import sys

from local.host.process_identity import identify, wait_unlisted
from tests.eventually import eventually

_PARENT = """
import subprocess
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.stdin.close()  # it ends, and is not collected
input()
child.wait()
input()
"""


def test_a_dead_process_is_listed_until_its_parent_collects_it():
    command = [sys.executable, "-c", _PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as parent:
        assert parent.stdin
        assert parent.stdout
        (child,) = identify([int(parent.stdout.readline())])
        parent.stdin.write("end\n")
        eventually(lambda: not child.running, "it ends")
        assert wait_unlisted([child], patience_seconds=0.1) == [child]
        parent.stdin.write("collect\n")
        assert wait_unlisted([child], patience_seconds=60) == []
        parent.stdin.write("end\n")


def test_waiting_ends_as_soon_as_all_are_gone():
    with subprocess.Popen(["sleep", "600"]) as process:
        (sleeper,) = identify([process.pid])
        process.kill()
        assert wait_unlisted([sleeper], patience_seconds=3600) == []  # who waits for all of that hangs
