"""Many histories, one after another. `python -m tests.takeovers --seed 0 --histories 2000`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "operator"))

from tests.takeovers.history import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.takeovers", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first history's seed; the others follow")
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument(
        "--show", type=int, metavar="SEED", help="print the course of this one, and where its error jumps"
    )
    parser.add_argument(
        "--outages", action="store_true", help="where the API server hangs it works for nobody, and no pod changes"
    )
    parser.add_argument("--clock-is-set", action="store_true", help="somebody sets the API server's clock")
    args = parser.parse_args()
    options = {"outages": args.outages, "clock_is_set": args.clock_is_set}
    if args.show is not None:
        return _show(args.show, **options)
    wrong, gap = 0, 0.0
    for seed in range(args.seed, args.seed + args.histories):
        outcome = play(seed, **options)
        gap += outcome.gap
        if outcome.wrong:
            wrong += 1
            print(f"WRONG seed {seed}: {outcome.wrong}", flush=True)
    mean = 100 * gap / args.histories if args.histories else 0.0
    print(f"takeovers: histories={args.histories} wrong={wrong} gap={mean:.2f}%")
    return 1 if wrong else 0


def _show(seed: int, **options: bool) -> int:
    outcome = play(seed, **options)
    for text in outcome.told():
        print(text)
    print(f"{'WRONG' if outcome.wrong else 'right'} seed {seed}: {outcome.wrong or f'gap {100 * outcome.gap:.2f}%'}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
