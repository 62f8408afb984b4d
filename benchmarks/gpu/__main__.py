"""The command: which measurements, on which image, and what is kept of them."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu import measurements, report
from benchmarks.gpu.manifests import NAMESPACE
from benchmarks.gpu.runner import BenchmarkError, Json, Kubectl, Runner
from local.layout import REPOSITORY

# `local.images.offline_worker.WORKER_IMAGE`, whose module needs packages that a measuring machine may lack.
LOCAL_IMAGE = "localhost/gpudask/dask-host:dev"
_JSON = Path("out/gpu.json")
_STAND_IN = "stand-in | "
MEASUREMENTS: dict[str, Callable[[Runner], Json]] = {
    "classic": measurements.classic,
    "scaling": measurements.scaling,
    "overhead": measurements.overhead,
    "first": measurements.first,
    "first_result": measurements.first_result,
    "pipeline": measurements.pipeline,
    "uneven": measurements.uneven,
    "retirement": measurements.retirement,
    "transfer": measurements.transfer,
}


def main() -> None:
    """Measure, keep, print. The exit status is 1 where something could not be measured."""
    arguments = _arguments()
    if arguments.stand_in:
        sys.exit(_dry_run(arguments))
    failed = [] if arguments.report_only else _measure(arguments)
    records = report.read(arguments.json)
    text = report.summary(records)
    if arguments.summary:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(text)
    if arguments.plot:
        _draw(records, arguments.plot)
    print(text, end="")
    sys.exit(1 if failed else 0)


def _dry_run(arguments: argparse.Namespace) -> int:
    """Go through all of it with small amounts of work and no GPU; what comes out is shown, and kept nowhere."""
    with tempfile.TemporaryDirectory() as directory:
        arguments.json = Path(directory) / "stand-in.json"
        failed = _measure(arguments)
        records = report.read(arguments.json)
        _draw(records, arguments.json.with_suffix(".png"))
    print(textwrap.indent(report.summary(records), _STAND_IN, lambda _: True))
    ran = [record["measurement"] for record in records]
    print(f"{_STAND_IN}no GPU took part and nothing was measured. To its end: {', '.join(ran) or 'none'}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--only", help=f"some of them, with commas: {','.join(MEASUREMENTS)}")
    parser.add_argument("--repeats", type=int, default=3, help="how often each is done; the pipeline once a call")
    parser.add_argument("--gpus", type=int, help="by default all that Kubernetes offers")
    parser.add_argument("--image", default=LOCAL_IMAGE, help="of all pods; default %(default)s")
    parser.add_argument(
        "--stand-in",
        action="store_true",
        help="a dry run on pretended GPUs, with NumPy as CuPy and a thousandth of the work; no figure is kept",
    )
    parser.add_argument("--python", help="the image's interpreter; by default its entrypoint is `python -m`")
    parser.add_argument("--kernels", default="", help="a directory of the nodes that keeps kernels, for first_result")
    parser.add_argument("--template", type=Path, help="JSON; by default what `python -m local template` says")
    parser.add_argument("--json", type=Path, help=f"measurements are added to it; default {_JSON}")
    parser.add_argument("--summary", type=Path, help="write tables and last line of all that --json has to this file")
    parser.add_argument("--plot", type=Path, help="draw all that --json has")
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    if arguments.stand_in and (arguments.json or arguments.summary or arguments.plot or arguments.report_only):
        parser.error("--stand-in measures nothing: leave --json, --summary, --plot and --report-only out")
    arguments.json = arguments.json or _JSON
    arguments.only = arguments.only.split(",") if arguments.only else list(MEASUREMENTS)
    unknown = [name for name in arguments.only if name not in MEASUREMENTS]
    if unknown:
        parser.error(f"--only {','.join(unknown)}: there are {', '.join(MEASUREMENTS)}")
    return arguments


def _measure(arguments: argparse.Namespace) -> list[str]:
    """Each in its turn; one that fails does not hold back the others. Gives the names of those that did."""
    try:
        runner = _runner(arguments)
    except BenchmarkError as error:
        sys.exit(f"Error: {error}")
    failed = []
    for name in arguments.only:
        began = time.monotonic()
        print(f"… {name}", file=sys.stderr, flush=True)
        try:
            runner.prepare()
            report.add(arguments.json, name, MEASUREMENTS[name](runner), gpus=runner.gpus)
        except BenchmarkError as error:
            failed.append(name)
            print(f"✗ {name}: {error}", file=sys.stderr, flush=True)
        except Exception:  # noqa: BLE001 - a fault of the benchmark costs its measurement, not an hour on GPUs
            failed.append(name)
            print(f"✗ {name}: {traceback.format_exc()}", file=sys.stderr, flush=True)
        else:
            print(f"✓ {name} {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return failed


def _runner(arguments: argparse.Namespace) -> Runner:
    kubectl = Kubectl.find(NAMESPACE)
    nodes = kubectl.json("get", "nodes")["items"]
    offered = sum(int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) for node in nodes)
    gpus = arguments.gpus or offered
    if not 0 < gpus <= offered:
        raise BenchmarkError(f"{gpus} GPUs are asked for, and the nodes offer {offered}: is the device plugin running?")
    template = _template(arguments)
    return Runner(
        kubectl,
        arguments.image,
        template,
        arguments.python,
        gpus,
        arguments.repeats,
        arguments.stand_in,
        arguments.kernels,
    )


def _template(arguments: argparse.Namespace) -> Json:
    if arguments.template:
        return dict(json.loads(arguments.template.read_text()))
    if arguments.image != LOCAL_IMAGE:
        return {}
    command = [sys.executable, "-m", "local", "template"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"python -m local template: {done.stderr.strip()}")
    return dict(json.loads(done.stdout))


def _draw(records: list[Json], path: Path) -> None:
    try:
        report.draw(records, path)
    except ImportError as error:
        print(f"no plot: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
