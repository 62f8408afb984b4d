"""The command: many jobs beside faults of every kind of write. The last line is

`jobs: done=1000 stuck=0 twice=0 left=0 gpu_release_p99=1.9s released_after_leader_p99=0.9s`; before it stands the
reason of each finding, and before these the slowest releases with their course. The second figure leaves out the time
in which no operator led: each kill costs what the next one takes to start.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.chaos_jobs.run import Settings, run


def main() -> int:
    """Run what the arguments say; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos_jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of their order and the faults (%(default)s)")
    parser.add_argument("--at-once", type=int, default=40, help="jobs that have not ended (%(default)s)")
    parser.add_argument("--share", type=float, default=0.05, help="of writes with a fault (%(default)s)")
    parser.add_argument("--kills", type=int, default=60, help="of the operator, at most (%(default)s)")
    parser.add_argument("--scratch", type=Path, help="keep the operator's log in this directory")
    arguments = parser.parse_args()
    scratch = arguments.scratch or Path(tempfile.mkdtemp(prefix="chaos-jobs-"))
    scratch.mkdir(parents=True, exist_ok=True)
    print(f"the operator's log: {scratch / 'operator.log'}", flush=True)
    settings = Settings(arguments.jobs, arguments.seed, arguments.at_once, arguments.share, arguments.kills)
    result = asyncio.run(run(settings, scratch, lambda text: print(text, flush=True)))
    for finding in result.findings:
        print(f"FOUND {finding}")
    print(result)
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
