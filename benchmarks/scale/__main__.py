"""The command: what is measured, and what is printed and kept."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from benchmarks.scale import machine, report, suite


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--json", type=Path, help="keep all figures, versions and the machine in this file")
    parser.add_argument("--small", action="store_true", help="a quick check that everything works; no figures to quote")
    parser.add_argument("--only", default=",".join(suite.PARTS), help="what is measured, by commas: %(default)s")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if not set(arguments.only) <= set(suite.PARTS):
        parser.error(f"--only is some of {','.join(suite.PARTS)}")
    return arguments


def main() -> None:
    """Measure, print the table, and end with the line for machines."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends with it
    about = machine.describe()
    results = suite.measure(
        suite.SMALL if arguments.small else suite.FULL, arguments.only, lambda words: print(words, flush=True)
    )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(about | report.kept(results), indent=1) + "\n")
    print(f"\n{report.table(results)}\n\n{report.last_line(results)}")


if __name__ == "__main__":
    main()
