"""The soak: history after history, until the time is over. `python -m tests.histories --seconds 60 --seed 1`.

Each failure is told once, with the shortest history that was found for it. `--replay` plays the one history of a seed,
`--stock` leaves the preload out: what fails then is distributed's own.
"""

# ruff: noqa: E402 (the clocks are replaced between the imports)

from __future__ import annotations

import argparse
import importlib
import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # sets of texts have the same order in each run
    command = [sys.executable, "-m", "tests.histories", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
importlib.import_module("tests.histories.loop")  # before distributed: it replaces the clocks

import gc
from collections import Counter

from . import cluster
from .history import Outcome, run, shorten
from .loop import REAL_TIME
from .oracle import KINDS, Failure

TOLD = ("lost", "hung", "repeated", "miscounts", "leaks")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="real seconds to run")
    parser.add_argument("--seed", type=int, default=1, help="the first history's seed; the others follow")
    parser.add_argument("--histories", type=int, default=0, help="stop after so many")
    parser.add_argument("--replay", action="store_true", help="play the seed's history alone, and print it")
    parser.add_argument("--stock", action="store_true", help="leave the preload out")
    parser.add_argument("--only-kind", choices=KINDS, help="look at failures of one kind alone")
    parser.add_argument("--digests", action="store_true", help="print a line for each history")
    parser.add_argument("--no-shorten", action="store_true", help="print failing histories as they are")
    args = parser.parse_args()
    cluster.calm()
    gc.collect()
    gc.freeze()
    if args.replay:
        args.histories = 1
    return soak(args)


def soak(args: argparse.Namespace) -> int:
    started = REAL_TIME()
    kinds: Counter[str] = Counter()
    signs: Counter[str] = Counter()
    histories = events = 0
    seed = args.seed
    while REAL_TIME() - started < args.seconds and not (args.histories and histories >= args.histories):
        outcome = run(seed, stock=args.stock)
        histories += 1
        events += outcome.events
        failures = [f for f in outcome.failures if args.only_kind in (None, f.kind)]
        kinds.update({failure.kind for failure in failures})
        for failure in failures:
            signs[failure.sign] += 1
            if signs[failure.sign] == 1:
                tell(outcome, failure, args, started)
        if args.replay and not failures:
            print_moves(outcome)
        if args.replay or args.digests:
            print(f"seed {seed}: {outcome.events} messages, digest {outcome.digest & 0xFFFFFFFF:08x}")
        seed += 1
    for sign, n in signs.most_common():
        print(f"{n:6d} x {sign}")
    told = " ".join(f"{kind}={kinds[kind]}" for kind in KINDS if kind in TOLD)
    more = " ".join(f"{kind}={kinds[kind]}" for kind in KINDS if kind not in TOLD)
    print(f"soak: histories={histories} events={events} {told} {more}")
    sys.stdout.flush()
    return 1 if kinds else 0


def tell(outcome: Outcome, failure: Failure, args: argparse.Namespace, started: float) -> None:
    """Print a failure, its seed and its shortest history."""
    stock = " --stock" if args.stock else ""
    print(f"\nFAILED {failure.kind}: {failure.words}")
    print(f"  again: python -m tests.histories --seed {outcome.seed} --replay{stock}")
    if not args.no_shorten:
        until = min(REAL_TIME() + 15, started + args.seconds)
        outcome = shorten(outcome, failure.sign, stock=args.stock, until=lambda: REAL_TIME() > until)
    print_moves(outcome)
    sys.stdout.flush()


def print_moves(outcome: Outcome) -> None:
    for number, move in enumerate(outcome.moves, 1):
        print(f"  {number:3d} {move}")


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # without waiting for the threads of dead processes
