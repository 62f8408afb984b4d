"""`python -m tests.gpu.rapids --scheduler ADDRESS`: the programs of RAPIDS users, one after the other, on one cluster.

Each file in `programs/{frames,arrays,mixed}` has `program()`, as such users write it, and `expected()`, the same by
pandas or NumPy. This process is the program's: for frames of cuDF it needs a GPU, the scheduler none.

One that gives no result in time counts as failed: what its threads and the workers are at is printed, and the cluster
restarted for the next.

With `--stand-in` pandas and NumPy take the places of cuDF and CuPy (`stand_in/`), on a cluster in this process.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import inspect
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
ROOMS = ("frames", "arrays", "mixed")
STAND_IN = HERE / "stand_in"
_MODULES = ("cudf", "dask_cudf", "cupy", "numba", "xgboost")
_TOLERANCE = 1e-9
_SECONDS = 60.0  # the slowest takes a few, with what it compiles


@dataclass(frozen=True)
class Outcome:
    """One program's: right, wrong (or failed), or not run; seconds from its first line to its result, and why.

    `is_late`: it gave no result in time, and its tasks may still run.
    """

    name: str
    state: str
    seconds: float = 0.0
    why: str = ""
    is_late: bool = False

    def __str__(self) -> str:
        return f"{self.state:8} {self.seconds:6.1f} s  {self.name}{f': {self.why}' if self.why else ''}"


def programs() -> list[Path]:
    """The files, in a fixed order."""
    return [path for room in ROOMS for path in sorted((HERE / "programs" / room).glob("*.py"))]


def run_program(path: Path, folder: str | None = None, seconds: float = _SECONDS) -> Outcome:
    """Run one program with the default client, and compare. Never raises: an error is the outcome.

    Args:
        path: its file.
        folder: a directory that this process and all workers write to, for programs that write files.
        seconds: after which it has failed. Where nothing of Python runs any more, this process ends after twice that.
    """
    name = f"{path.parent.name}/{path.stem}"
    text = path.read_text()
    if missing := [module for module in _MODULES if _imports(text, module) and not importlib.util.find_spec(module)]:
        return Outcome(name, "not run", why=f"{', '.join(missing)} cannot be imported here")
    began = time.monotonic()
    try:
        # As a script: its functions then travel by value, as those of a user's script or notebook do.
        program: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
        exec(compile(text, str(path), "exec"), program)  # noqa: S102 - our own file
        takes_folder = bool(inspect.signature(program["program"]).parameters)
        arguments = (_folder(folder, path.stem),) if takes_folder else ()
        with _limit(seconds):
            result = program["program"](*arguments)
        took = time.monotonic() - began
        difference = unlike(result, program["expected"](pd))
    except Exception as error:  # noqa: BLE001 - the next program shall run
        traceback.print_exc()
        why, is_late = " ".join(f"{error!r}".split())[:300], isinstance(error, TimeoutError)
        return Outcome(name, "failed", time.monotonic() - began, why, is_late)
    return Outcome(name, "wrong" if difference else "right", took, difference)


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread after so long, with what everything was at printed before.

    A call that never comes back to Python cannot be interrupted: then the process ends, with its threads' stacks.
    """

    def late(*_: Any) -> None:
        faulthandler.dump_traceback(sys.__stderr__)
        raise TimeoutError(f"no result after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(2 * seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, left)  # of who runs this, such as a test's
        signal.signal(signal.SIGALRM, before)


def unlike(result: Any, expected: Any) -> str:
    """How a result differs from what was expected; empty where it does not, but for types and the last digits."""
    try:
        if isinstance(expected, pd.DataFrame | pd.Series):
            pd.testing.assert_frame_equal(_plain(result), _plain(expected), check_dtype=False)
        else:
            np.testing.assert_allclose(result, expected, rtol=_TOLERANCE, atol=_TOLERANCE)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return ""


def _plain(table: Any) -> Any:
    """Rows with their index as columns: pandas has several kinds of integers, and the libraries choose differently."""
    return table.reset_index().convert_dtypes()


def closing_line(outcomes: Sequence[Outcome]) -> str:
    """What counts, on one line. What was not run counts as not right."""
    right = sum(outcome.state == "right" for outcome in outcomes)
    return f"rapids: programs={right}/{len(outcomes)}"


def _folder(parent: str | None, name: str) -> str:
    """A directory of the program's own that the workers' user may write to as well."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    folder.chmod(0o777)
    return str(folder)


def _imports(text: str, module: str) -> bool:
    return any(line.split()[:2] in (["import", module], ["from", module]) for line in text.splitlines())


def _start_anew(client: Any) -> None:
    """Print what the workers are at, and take it from them."""
    print("processing:", client.processing(), "stacks:", client.call_stack(), sep="\n", file=sys.stderr, flush=True)
    client.restart(timeout=_SECONDS)


@contextmanager
def _cluster(arguments: argparse.Namespace) -> Iterator[Any]:
    from distributed import Client  # noqa: PLC0415 - the stand-ins have to be on the path before

    client: Any = Client
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with client(**options) if arguments.stand_in else client(arguments.scheduler, timeout=120) as connected:
        yield connected


def main() -> int:
    """Returns 0 where all programs were right."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.rapids", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--scheduler", help="its address")
    where.add_argument("--stand-in", action="store_true", help="no GPU: pandas and NumPy, in this process")
    parser.add_argument("--only", default="", help="names of programs, with commas between; default: all")
    parser.add_argument("--folder", help="a directory that this process and all workers have")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="for each program (%(default)s)")
    arguments = parser.parse_args()
    wanted = set(filter(None, arguments.only.split(",")))
    chosen = [path for path in programs() if not wanted or path.stem in wanted]
    if arguments.stand_in:
        sys.path.insert(0, str(STAND_IN))
    outcomes = []
    with _cluster(arguments) as client:
        for path in chosen:
            outcomes.append(run_program(path, arguments.folder, arguments.seconds))
            print(outcomes[-1], flush=True)
            if outcomes[-1].is_late:
                _start_anew(client)
    prefix = "stand-in " if arguments.stand_in else ""
    print(prefix + closing_line(outcomes), flush=True)
    return 0 if all(outcome.state == "right" for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
