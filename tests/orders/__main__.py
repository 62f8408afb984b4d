"""Many histories, one after another. `python -m tests.orders --seed 1 --histories 100`."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from pathlib import Path

if os.environ.get("PYTHONHASHSEED") != "0":  # sets of texts have the same order in each run
    command = [sys.executable, "-m", "tests.orders", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
sys.path.insert(0, str(Path(__file__).parents[2] / "operator"))

from tests.orders.history import MOVES, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.orders", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first history's seed; the others follow")
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--moves", type=int, default=MOVES, help="of people, in each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none after so many real seconds")
    parser.add_argument("--course", action="store_true", help="print the course of events of all")
    parser.add_argument("--log", action="store_true", help="show the operator's log")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO if args.log else logging.CRITICAL)
    gc.collect()
    gc.freeze()  # what was imported stays: it need not be walked through again and again
    began, failed, played, changes = time.monotonic(), 0, 0, 0
    for seed in range(args.seed, args.seed + args.histories):
        if time.monotonic() - began > args.seconds:
            break
        outcome = play(seed, args.moves)
        played, changes = played + 1, changes + outcome.changes
        if outcome.problems:
            failed += 1
            again = f"--seed {seed} --histories 1" + (f" --moves {args.moves}" if args.moves != MOVES else "")
            print(f"FAILED {outcome.told()}\n  again: make orders ARGS='{again}'", flush=True)
        elif args.course:
            print(outcome.told(), flush=True)
    print(f"orders: histories={played} changes={changes} failed={failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
