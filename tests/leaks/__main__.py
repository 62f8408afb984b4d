"""The command: programs that are ended in every way, on the local cluster. `python -m tests.leaks --programs 16`.

The last line is `leaks: programs=… left=0`. The exit status is 1 if something is left, or if a program ended before its
way could be tried. It takes some 20 minutes; other programs may use the local cluster meanwhile, but make it slow.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from tests.leaks.run import Settings, run
from tests.leaks.ways import WAYS, schedule


def main() -> int:
    """Run what the arguments say; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.leaks", description=__doc__)
    parser.add_argument("--programs", type=int, default=100, help="in all (%(default)s)")
    parser.add_argument("--lanes", type=int, default=4, help="programs at a time (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of their order (%(default)s)")
    parser.add_argument("--wait", type=float, default=10.0, help="minutes for what is left to go (%(default)s)")
    parser.add_argument("--only", default="", help="these ways alone, by semicolons")
    parser.add_argument("--list", action="store_true", help="print the ways")
    parser.add_argument("--plan", action="store_true", help="print the schedule")
    arguments = parser.parse_args()
    only = frozenset(filter(None, map(str.strip, arguments.only.split(";"))))
    if unknown := only - {way.name for way in WAYS}:
        parser.error(f"no way is called {'; '.join(sorted(unknown))}: --list has them all")
    if arguments.programs < 1 or arguments.lanes < 1:
        parser.error("--programs and --lanes are at least 1")
    if arguments.list:
        print("\n".join(way.name for way in WAYS))
        return 0
    if arguments.plan:
        print("\n".join(map(str, schedule(arguments.seed, arguments.programs, only=only))))
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    settings = Settings(arguments.programs, arguments.lanes, arguments.seed, only, 60 * arguments.wait)
    result = asyncio.run(run(settings, _teller(time.monotonic())))
    print("\n".join(result.table))
    for text in result.not_tried:
        print(f"NOT TRIED {text}")
    for text in result.left:
        print(f"LEFT {text}")
    print(result.line)
    return 0 if result.is_clean else 1


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _teller(began: float) -> Callable[[str], None]:
    return lambda text: print(f"{time.monotonic() - began:7.1f} s {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
