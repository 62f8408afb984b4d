"""The command: a run of so many minutes by a seed. `python -m tests.chaos --minutes 5 --seed 1`.

The last line is `chaos: minutes=… faults=… programs=… wrong=0 lost=0 stuck=0 leaked_pods=0 ledger_gap=0.00%`; what
`audit` found stands before it. The schedule of faults is the seed's; what they hit is what is there then. It takes the
local cluster for itself: nothing else should use it meanwhile.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
import warnings
from collections.abc import Callable
from types import FrameType

from tests.chaos.plan import KINDS, plan
from tests.chaos.run import Settings, run


def main() -> int:
    """Run what the arguments say; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of faults (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the schedule and the programs (%(default)s)")
    parser.add_argument("--lanes", type=int, default=2, help="clusters at a time (%(default)s)")
    parser.add_argument("--only", default="", help="faults of these kinds alone, by commas")
    parser.add_argument("--log", help="write all that the operators log to this file")
    parser.add_argument("--list", action="store_true", help="print the kinds of faults")
    parser.add_argument("--plan", action="store_true", help="print the schedule")
    arguments = parser.parse_args()
    only = frozenset(filter(None, arguments.only.split(",")))
    if unknown := only - {kind.name for kind in KINDS}:
        parser.error(f"no kind of fault is called {', '.join(unknown)}: --list has them all")
    settings = Settings(arguments.minutes, arguments.seed, arguments.lanes, only)
    if arguments.list:
        print("\n".join(f"{kind.group}: {kind.name}" for kind in KINDS))
        return 0
    if arguments.plan:
        print("\n".join(map(str, plan(settings.seed, 60 * settings.minutes, only=only))))
        return 0
    logging.disable(logging.ERROR)  # distributed tells at length of what is broken on purpose
    warnings.filterwarnings("ignore", module="distributed")
    signal.signal(signal.SIGTERM, _interrupt)
    outcome = run(settings, _teller(time.monotonic()))
    if arguments.log:
        with open(arguments.log, "w", encoding="utf-8") as file:  # noqa: PTH123 - a name as given
            file.writelines(f"{line}\n" for line in outcome.log)
    print("\n".join(outcome.told))
    print(
        f"again: python -m tests.chaos --minutes {settings.minutes:g} --seed {settings.seed} --lanes {settings.lanes}"
    )
    print(outcome.line)
    return 0 if outcome.is_clean else 1


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _teller(began: float) -> Callable[[str], None]:
    return lambda words: print(f"{time.monotonic() - began:7.1f} s {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
