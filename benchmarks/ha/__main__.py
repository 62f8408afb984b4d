"""The command: what is measured, and what is printed and kept."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.ha import report, suite
from benchmarks.scale import machine


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ha", description=__doc__)
    parser.add_argument("--json", type=Path, help="keep all figures, versions and the machine in this file")
    parser.add_argument("--small", action="store_true", help="a quick check that everything works; no figures to quote")
    parser.add_argument("--takeovers", type=int, help="how many of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which leaders end: %(default)s")
    return parser.parse_args()


def main() -> None:
    """Measure, print the table, and end with the line for machines."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends with it
    about = machine.describe()
    sizes = suite.SMALL if arguments.small else suite.FULL
    sizes = replace(sizes, takeovers=arguments.takeovers or sizes.takeovers)
    results = asyncio.run(suite.measure(sizes, lambda words: print(words, flush=True), seed=arguments.seed))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(about | report.kept(results), indent=1) + "\n")
    print(f"\n{report.table(results)}\n\n{report.notes(results)}\n\n{report.last_line(results)}")


if __name__ == "__main__":
    main()
